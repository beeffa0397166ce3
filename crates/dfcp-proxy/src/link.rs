//! A client's connection to its server, made again whenever it is lost.

use std::future::pending;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dfcp::{Connection, ConnectionError, Endpoint, Error, PublicKey};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

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
    Down(Down, Instant),
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

    /// The connection; waits for an attempt to end, if one is due.
    pub async fn connection(&self) -> Result<Connection, Down> {
        let mut state = self.state.clone();
        let mut waited = false;
        loop {
            match &*state.borrow_and_update() {
                State::Up { connection, .. } => return Ok(connection.clone()),
                State::Connecting => {}
                // One that just failed would fail again.
                State::Down(why, since) if waited || since.elapsed() < FIRST_PAUSE => {
                    return Err(why.clone());
                }
                State::Down(..) => self.wanted.notify_one(),
            }
            waited = true;
            let ended = |_| Down::Connection(ConnectionError::LocallyClosed);
            state.changed().await.map_err(ended)?;
        }
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
        let turned = |state: &State| matches!(state, State::Down(why, _) if why.is_final());
        match state.wait_for(turned).await.as_deref() {
            Ok(State::Down(why, _)) => why.clone(),
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
                let why = tokio::select! {
                    why = connection.closed() => Down::Connection(why),
                    why = announce => why,
                };
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
        state.send_replace(State::Down(why.clone(), Instant::now()));
        told = Some(why);
        sleep(FIRST_PAUSE).await;
        tokio::select! {
            () = sleep(pause - FIRST_PAUSE) => {}
            () = wanted.notified() => {}
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
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
