//! A client's connection to its server, made again whenever it is lost.

use std::future::pending;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dfcp::{CloseCode, Connection, ConnectionError, Endpoint, Error, PublicKey};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::event::{Event, Report};

/// Finds the server's addresses, for each attempt anew: names move.
pub type Resolve = Arc<
    dyn Fn() -> Pin<Box<dyn Future<Output = Result<Vec<SocketAddr>, String>> + Send>> + Send + Sync,
>;

/// How long an attempt may take: the handshake's own limit, and a name.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(10);
/// Between attempts at first, and at most; twice as long after each (RFC 8085 §3.1.3 wants back-off).
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long whoever wants a connection waits for it while there is none: for an attempt that fails, a pause, and
/// one more ([`ATTEMPT_LIMIT`] each). So the start of another server is a pause and no failure, and whoever waits
/// for a server that does not come back hears of it before he gives up himself.
pub(crate) const AWAY_LIMIT: Duration = Duration::from_secs(20);
/// How long probes stay unanswered until the server is asked whether it makes another connection: as long as
/// WireGuard waits for an answer (its paper, §6.1: Rekey-Timeout).
const SILENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether a silent connection is heard again, as its probes are apart.
const LOOK: Duration = Duration::from_millis(250);

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Down {
    /// The server's name is not known.
    #[error("{0}")]
    Name(String),
    /// Nobody answers, or not as expected.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// Nothing can be sent from here.
    #[error("{0}")]
    Here(String),
}

impl Down {
    /// Whether another attempt would end the same way: one of the keys is not the right one, the server is
    /// one for something else, or this side ended it.
    pub fn is_final(&self) -> bool {
        let Self::Connection(error) = self else {
            return false;
        };
        matches!(
            error,
            ConnectionError::Refused
                | ConnectionError::Expired
                | ConnectionError::NotOffered { .. }
                | ConnectionError::WrongKey { .. }
                | ConnectionError::LocallyClosed
        )
    }
}

impl From<Error> for Down {
    fn from(error: Error) -> Self {
        match error {
            Error::Connection(error) => Self::Connection(error),
            error => Self::Here(error.to_string()),
        }
    }
}

#[derive(Clone, Debug)]
enum State {
    Connecting,
    Up {
        connection: Connection,
        /// The server has said that it takes this side's key.
        admitted: bool,
    },
    Down(Down),
}

/// See the module's text: a connection that is made again whenever it is lost. Clones share it.
#[derive(Clone)]
pub struct Link {
    state: watch::Receiver<State>,
    wanted: Arc<Notify>,
    /// Why the last attempt failed, also while the next one is made.
    last: Arc<Mutex<Option<Down>>>,
}

/// Whom to connect to.
pub struct Remote {
    /// From where.
    pub endpoint: Endpoint,
    /// Finds the server's addresses.
    pub resolve: Resolve,
    /// The key that the server proves.
    pub key: PublicKey,
}

impl Link {
    /// The link, and the future that keeps it.
    pub fn start(server: Remote, report: Report) -> (Self, impl Future<Output = ()>) {
        let (set, state) = watch::channel(State::Connecting);
        let wanted = Arc::new(Notify::new());
        let last = Arc::default();
        let link = Self {
            state,
            wanted: wanted.clone(),
            last: Arc::clone(&last),
        };
        (link, keep(server, report, (set, last), wanted))
    }

    /// The connection; waits for one until `deadline`, unless there will be none.
    pub async fn connection(&self, deadline: Instant) -> Result<Connection, Down> {
        let mut state = self.state.clone();
        loop {
            match &*state.borrow_and_update() {
                State::Up { connection, .. } => return Ok(connection.clone()),
                State::Connecting => {}
                State::Down(why) if why.is_final() => return Err(why.clone()),
                State::Down(..) => self.want(),
            }
            match timeout_at(deadline, state.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(Down::Connection(ConnectionError::LocallyClosed)),
                Err(_) => return Err(self.why_down()),
            }
        }
    }

    /// Somebody waits for a connection: the pause before the next attempt ends.
    pub fn want(&self) {
        self.wanted.notify_one();
    }

    /// The connection, however long it takes; `None` once there will be no more.
    pub async fn established(&self) -> Option<Connection> {
        let mut state = self.state.clone();
        let up = |state: &State| matches!(state, State::Up { .. });
        match &*state.wait_for(up).await.ok()? {
            State::Up { connection, .. } => Some(connection.clone()),
            _ => None,
        }
    }

    /// Waits until the server has let this side in, however long it takes; false once it never will.
    pub async fn admitted(&self) -> bool {
        let mut state = self.state.clone();
        let admitted = |state: &State| matches!(state, State::Up { admitted: true, .. });
        state.wait_for(admitted).await.is_ok()
    }

    /// Whether there is a connection to a server that has let this side in.
    pub fn is_up(&self) -> bool {
        matches!(&*self.state.borrow(), State::Up { admitted: true, .. })
    }

    /// Why there is no connection just now; nobody has answered yet if nothing else is known.
    pub fn why_down(&self) -> Down {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.clone()
            .unwrap_or(Down::Connection(ConnectionError::Unreachable))
    }

    /// Waits until `seen` is no more the connection.
    pub async fn replaced(&self, seen: &Connection) {
        seen.closed().await;
        let mut state = self.state.clone();
        let over = |state: &State| match state {
            State::Up { connection, .. } => connection.remote_address().is_some(),
            _ => true,
        };
        let _ = timeout(FIRST_PAUSE, state.wait_for(over)).await;
    }

    /// Waits until one of the keys turns out to be wrong.
    pub async fn turned_away(&self) -> Down {
        let mut state = self.state.clone();
        let turned = |state: &State| matches!(state, State::Down(why) if why.is_final());
        match state.wait_for(turned).await.as_deref() {
            Ok(State::Down(why)) => why.clone(),
            _ => Down::Connection(ConnectionError::LocallyClosed),
        }
    }
}

async fn keep(
    server: Remote,
    report: Report,
    (state, last): (watch::Sender<State>, Arc<Mutex<Option<Down>>>),
    wanted: Arc<Notify>,
) {
    let (mut pause, mut told) = (FIRST_PAUSE, None);
    loop {
        state.send_replace(State::Connecting);
        let start = Instant::now();
        let why = match attempt(&server).await {
            Ok(connection) => {
                let why = hold(&server, &state, &report, connection).await;
                told = None;
                if !why.is_final() {
                    report(Event::Lost(why.to_string()));
                }
                // One that ended at once counts as an attempt that failed.
                if start.elapsed() > LONGEST_PAUSE {
                    pause = FIRST_PAUSE;
                    continue;
                }
                why
            }
            Err(why) => {
                if told.as_ref() != Some(&why) && !why.is_final() {
                    report(Event::Unreachable(why.to_string()));
                }
                why
            }
        };
        *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.clone());
        state.send_replace(State::Down(why.clone()));
        told = Some(why);
        sleep(FIRST_PAUSE).await;
        tokio::select! {
            () = sleep(pause - FIRST_PAUSE) => {}
            () = wanted.notified() => {}
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Has the connection be the one that is used until it ends, or one after another: the server is asked for
/// another when this one is silent, so that a server which began anew is found before the silence has lasted
/// as long as an outage of the path may. Says why the last one ended.
async fn hold(
    server: &Remote,
    state: &watch::Sender<State>,
    report: &Report,
    mut connection: Connection,
) -> Down {
    loop {
        let up = |admitted| State::Up {
            connection: connection.clone(),
            admitted,
        };
        state.send_replace(up(false));
        let announce = async {
            if is_let_in(&connection).await
                && let Some(remote) = connection.remote_address()
            {
                state.send_replace(up(true));
                report(Event::Connected(remote));
            }
            pending().await
        };
        let next = tokio::select! {
            why = connection.closed() => return Down::Connection(why),
            why = announce => return why,
            next = successor(server, &connection) => next,
        };
        let silent = ConnectionError::TimedOut;
        report(Event::Lost(silent.to_string()));
        let old = std::mem::replace(&mut connection, next);
        old.close(CloseCode::NO_ERROR, "a newer connection has this key");
    }
}

/// Another connection to the server, once that answers an attempt but nothing of `connection`.
async fn successor(server: &Remote, connection: &Connection) -> Connection {
    loop {
        silence(connection).await;
        let heard = connection.stats().packets_received;
        let speaks = async {
            while connection.stats().packets_received == heard {
                sleep(LOOK).await;
            }
        };
        let next = tokio::select! {
            next = attempt(server) => next,
            () = speaks => continue,
        };
        let Ok(next) = next else {
            continue;
        };
        // After an outage of the path both are answered: the probes of the old one are a quarter of a second
        // apart, or a round trip.
        sleep(FIRST_PAUSE + 2 * next.stats().rtt).await;
        if connection.stats().packets_received == heard {
            return next;
        }
        next.close(CloseCode::NO_ERROR, "the earlier connection goes on");
    }
}

/// Waits until probes have stayed unanswered for [`SILENCE`].
async fn silence(connection: &Connection) {
    let mut before = connection.stats();
    loop {
        sleep(SILENCE).await;
        let now = connection.stats();
        if now.packets_received == before.packets_received && now.probes > before.probes {
            return;
        }
        before = now;
    }
}

/// Whether the server takes this side's key, which it says a round trip after the handshake: it resets a
/// stream that asks for nothing, or closes the connection.
async fn is_let_in(connection: &Connection) -> bool {
    let answer = async {
        let (mut send, mut recv) = connection.open_bi().await?;
        send.finish()?;
        recv.read_chunk(1).await
    };
    !matches!(
        answer.await,
        Err(dfcp::Error::Connection(_) | dfcp::Error::EndpointClosed)
    )
}

async fn attempt(server: &Remote) -> Result<Connection, Down> {
    let connect = async {
        let addresses = (server.resolve)().await.map_err(Down::Name)?;
        let connection = server.endpoint.connect(&addresses[..], server.key).await?;
        Ok(connection)
    };
    match timeout(ATTEMPT_LIMIT, connect).await {
        Ok(ended) => ended,
        Err(_) => Err(Down::Connection(ConnectionError::Unreachable)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dfcp::EndpointConfig;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// How many attempts are made in a minute, long after the first one, where `wants` says how often
    /// somebody wants a connection.
    async fn attempts(wants: Option<Duration>) -> usize {
        let key = || dfcp::generate_key().unwrap();
        let made = Arc::new(AtomicUsize::new(0));
        let counted = made.clone();
        let remote = Remote {
            endpoint: Endpoint::bind(EndpointConfig::client(key())).unwrap(),
            resolve: Arc::new(move || {
                counted.fetch_add(1, Ordering::Relaxed);
                Box::pin(async { Err("nobody has this name".to_owned()) })
            }),
            key: key().public(),
        };
        let (link, keep) = Link::start(remote, Arc::new(|_| {}));
        let kept = tokio::spawn(keep);
        let minute = Duration::from_secs(60);
        sleep(5 * minute).await;
        let before = made.load(Ordering::Relaxed);
        let _ = timeout(minute, async {
            let Some(every) = wants else {
                return pending().await;
            };
            loop {
                link.want();
                sleep(every).await;
            }
        })
        .await;
        kept.abort();
        made.load(Ordering::Relaxed) - before
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_server_that_does_not_come_hears_of_it_in_the_end() {
        let key = || dfcp::generate_key().unwrap();
        let remote = Remote {
            endpoint: Endpoint::bind(EndpointConfig::client(key())).unwrap(),
            resolve: Arc::new(|| Box::pin(async { Err("nobody has this name".to_owned()) })),
            key: key().public(),
        };
        let (link, keep) = Link::start(remote, Arc::new(|_| {}));
        let kept = tokio::spawn(keep);
        let start = Instant::now();
        let why = link.connection(start + AWAY_LIMIT).await.unwrap_err();
        assert_eq!(why.to_string(), "nobody has this name");
        assert_eq!(start.elapsed(), AWAY_LIMIT);
        kept.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn who_wants_a_connection_waits_no_longer_than_the_first_pause() {
        let seldom = attempts(None).await;
        assert!((1..=2).contains(&seldom), "{seldom} without anybody");
        let often = attempts(Some(Duration::from_millis(100))).await;
        assert!((55..=61).contains(&often), "{often} in 60 s");
    }
}
