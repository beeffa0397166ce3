//! The client: where programs come in.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dfcp::{Connection, Endpoint, PublicKey, RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use crate::dial::{self, Questions};
use crate::door::Door;
use crate::event::{Event, Report};
use crate::known::{FastOpen, Known};
use crate::link::{AWAY_LIMIT, Down, Link, Remote, Resolve};
use crate::local::{self, Lobby};
use crate::relay::{Broken, Carriage, REASON_LIMIT, Toll, download, relay, upload};
use crate::rules::{Network, Rule, Rules};
use crate::status::{Refusal, Status};
use crate::target::Target;
use crate::traffic::Traffic;
use crate::udp::{Association, Routes};
use crate::wire::{ANSWER_LIMIT, MALFORMED, REQUEST_LIMIT, Request, Tunnel};

/// After which a listener that the server refused is asked for again: whoever had the port, such as this
/// client before it was killed, may be gone. Some attempts fit into the silence after which servers give
/// a client up, 60 s by default.
const LISTEN_PAUSE: Duration = Duration::from_secs(5);
/// How long a datagram waits for a server that is not there: one attempt and the pause before it. Later it would
/// be of little use, and those behind it wait.
const DATAGRAM_LIMIT: Duration = Duration::from_secs(2);
/// Rules change seldom: after a refusal by them the pause doubles up to this, within which an operator who
/// changes them may wait.
const LONGEST_LISTEN_PAUSE: Duration = Duration::from_secs(300);

/// After which a listener is asked for again that was refused so, the time before after `last`.
fn listen_pause(last: Duration, status: Status) -> Duration {
    match status {
        Status::Forbidden => (2 * last).min(LONGEST_LISTEN_PAUSE),
        _ => LISTEN_PAUSE,
    }
}

/// Whom a client connects to, and how.
pub struct ClientConfig {
    /// The endpoint that it uses.
    pub endpoint: Endpoint,
    /// Finds the server's addresses.
    pub resolve: Resolve,
    /// The key that the server proves.
    pub server_key: PublicKey,
    /// When programs are told that they are connected.
    pub fast_open: FastOpen,
    /// Hears what happens.
    pub report: Report,
}

/// A client; clones share it. When the last one is dropped, what was accepted still goes on.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    link: Link,
    fast_open: FastOpen,
    known: Known,
    report: Report,
    /// Where connections go that come to listeners at the server.
    reverse: Mutex<BTreeMap<u32, Target>>,
    /// The names of these: whoever reaches such a listener has them asked for.
    questions: Questions,
    next_listener: AtomicU32,
    next_association: AtomicU32,
    routes: Arc<Routes>,
    traffic: Traffic,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let tasks = self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner);
        tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Client {
    /// Connects, and keeps connected; call within a tokio runtime.
    pub fn start(config: ClientConfig) -> Self {
        let server = Remote {
            endpoint: config.endpoint,
            resolve: config.resolve,
            key: config.server_key,
        };
        let (link, keep) = Link::start(server, config.report.clone());
        let traffic = Traffic::default();
        let inner = Arc::new(Inner {
            link: link.clone(),
            fast_open: config.fast_open,
            known: Known::default(),
            report: config.report,
            reverse: Mutex::default(),
            questions: Questions::default(),
            next_listener: AtomicU32::new(0),
            next_association: AtomicU32::new(0),
            routes: Arc::new(Routes::new(traffic.clone())),
            traffic: traffic.clone(),
            tasks: Mutex::default(),
        });
        let (weak, routes) = (Arc::downgrade(&inner), inner.routes.clone());
        let accept = async move {
            while let Some(connection) = link.established().await {
                let _connected = traffic.connected(&connection);
                let streams = async {
                    while let Ok((send, recv)) = connection.accept_bi().await {
                        let Some(inner) = weak.upgrade() else { return };
                        tokio::spawn(Self(inner).take_reverse(send, recv));
                    }
                };
                tokio::join!(streams, routes.follow(&connection));
                link.replaced(&connection).await;
            }
        };
        let tasks = vec![
            tokio::spawn(keep).abort_handle(),
            tokio::spawn(accept).abort_handle(),
        ];
        *inner.tasks.lock().unwrap_or_else(PoisonError::into_inner) = tasks;
        Self(inner)
    }

    /// Waits until there is a connection and the server has let this client in, `limit` at most.
    ///
    /// # Errors
    /// Why the last attempt failed; more are made all the same.
    pub async fn ready(&self, limit: Duration) -> Result<(), Down> {
        match timeout(limit, self.0.link.admitted()).await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(self.0.link.why_down()),
        }
    }

    /// Waits until a key turns out to be wrong, this side's or the server's: then no attempt can succeed.
    pub async fn turned_away(&self) -> Down {
        self.0.link.turned_away().await
    }

    /// Why there is no connection to the server just now, if there is none.
    pub fn why_down(&self) -> Option<Down> {
        (!self.0.link.is_up()).then(|| self.0.link.why_down())
    }

    /// What it carries.
    pub fn traffic(&self) -> &Traffic {
        &self.0.traffic
    }

    pub(crate) fn report(&self, event: Event) {
        if let Some(status) = event.outcome() {
            self.0.traffic.attempt(status);
        }
        (self.0.report)(event);
    }

    /// Whom events are told.
    #[cfg(target_os = "linux")]
    pub(crate) fn reporter(&self) -> Report {
        self.0.report.clone()
    }

    /// Serves programs that speak SOCKS5 or HTTP to `listener`. Does not end.
    pub async fn serve_local(&self, listener: TcpListener) {
        let mut door = Door::new(listener, self.0.report.clone());
        let mut lobby = Lobby::default();
        loop {
            let (tcp, _) = door.next().await;
            lobby.admit(|unheard| {
                tokio::spawn(local::serve(self.clone(), tcp, unheard)).abort_handle()
            });
        }
    }

    /// Carries what comes to `listener` to `target`, which the server connects to. Does not end.
    pub async fn forward(&self, listener: TcpListener, target: Target) {
        let mut door = Door::new(listener, self.0.report.clone());
        loop {
            let (tcp, _) = door.next().await;
            tokio::spawn(self.clone().forward_one(tcp, target.clone()));
        }
    }

    /// Carries a connection to `target`.
    pub(crate) async fn forward_one(self, tcp: TcpStream, target: Target) {
        match self.open(&target).await {
            // The program waits for no answer: its first bytes need not either.
            Ok(tunnel) => self.carry_tcp(tcp, tunnel, Vec::new(), target).await,
            Err(refusal) => self.give_up(tcp, target, refusal),
        }
    }

    /// Has the server listen at `bind`, and carries what comes there to `target`, which is connected to
    /// from here. Does not end.
    pub async fn reverse(&self, bind: Target, target: Target) {
        let id = self.add_reverse(target.clone());
        let (mut told, mut pause) = (None, LISTEN_PAUSE);
        while let Some(connection) = self.0.link.established().await {
            let request = Request::Listen {
                id,
                bind: bind.clone(),
            };
            match self.listen(&connection, &request).await {
                Ok((at, mut tunnel)) => {
                    (told, pause) = (None, LISTEN_PAUSE);
                    let to = target.clone();
                    self.report(Event::Listening { at, to });
                    // It lasts as long as the stream.
                    let _ = tunnel.recv.read(&mut [0]).await;
                }
                Err(refusal) => {
                    let (at, why) = (bind.clone(), refusal.message);
                    pause = listen_pause(pause, refusal.status);
                    if told.as_ref() != Some(&why) {
                        told = Some(why.clone());
                        self.report(Event::NotListening { at, why });
                    }
                }
            }
            let _ = timeout(pause, self.0.link.replaced(&connection)).await;
        }
    }

    fn add_reverse(&self, target: Target) -> u32 {
        let id = self.0.next_listener.fetch_add(1, Ordering::Relaxed);
        let known = self.0.reverse.lock();
        known
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id, target);
        id
    }

    fn reverse_target(&self, id: u32) -> Option<Target> {
        let known = self.0.reverse.lock();
        known
            .unwrap_or_else(PoisonError::into_inner)
            .get(&id)
            .cloned()
    }

    async fn listen(
        &self,
        connection: &Connection,
        request: &Request,
    ) -> Result<(String, Tunnel), Refusal> {
        let lost = |error: dfcp::Error| Refusal::new(Status::Failed, error);
        let mut tunnel = Tunnel::open(connection, request).await.map_err(lost)?;
        tunnel.answer().await?;
        let mut port = [0; 2];
        let bound = tunnel.recv.read_exact(&mut port).await;
        bound.map_err(|error| Refusal::new(Status::Failed, error))?;
        let Request::Listen { bind, .. } = request else {
            return Err(Refusal::new(Status::Failed, "not a listener"));
        };
        let port = u16::from_be_bytes(port);
        let at = Target {
            port,
            ..bind.clone()
        };
        Ok((at.to_string(), tunnel))
    }

    /// A connection came to a listener at the server.
    async fn take_reverse(self, send: SendStream, mut recv: RecvStream) {
        let request = timeout(REQUEST_LIMIT, Request::read(&mut recv)).await;
        let mut tunnel = Tunnel::accepted(send, recv);
        let Ok(Ok(Request::Accepted { id, .. })) = request else {
            return tunnel.reset(MALFORMED);
        };
        let Some(target) = self.reverse_target(id) else {
            let refusal = Refusal::new(Status::Forbidden, "there is no such listener");
            let _ = tunnel.refuse(&refusal).await;
            return;
        };
        // Whoever runs the client named it.
        let rules = Rules::new(vec![Rule::of(Network::All)], Vec::new());
        match dial::dial(&target, &rules, &self.0.questions).await {
            Ok(tcp) if tunnel.confirm().await.is_ok() => {
                self.carry_tcp(tcp, tunnel, Vec::new(), target).await;
            }
            Ok(_) => {}
            Err(refusal) => {
                let _ = tunnel.refuse(&refusal).await;
                self.report(Event::Failed { target, refusal });
            }
        }
    }

    /// Has the server connect to `target`, for a connection here that is yet to come.
    ///
    /// # Errors
    /// Why it did not.
    pub async fn dial(&self, target: Target) -> Result<Dialed, Refusal> {
        match self.connect(&target).await {
            Ok(tunnel) => Ok(Dialed {
                client: self.clone(),
                tunnel,
                target,
            }),
            Err(refusal) => {
                self.failed(target, refusal.clone());
                Err(refusal)
            }
        }
    }

    /// A stream to `target`, once the server has connected there.
    pub(crate) async fn connect(&self, target: &Target) -> Result<Tunnel, Refusal> {
        let deadline = Instant::now() + AWAY_LIMIT;
        loop {
            let request = Request::Connect(target.clone());
            let (connection, mut tunnel) = self.request(request, deadline).await?;
            match tunnel.answer().await {
                Ok(()) => {
                    self.0.known.connected(target);
                    return Ok(tunnel);
                }
                // The server ended before it answered. Nothing of the program's has left yet, so the next one
                // may be asked.
                Err(_) if Instant::now() < deadline && has_ended(&connection).await => {
                    self.0.link.replaced(&connection).await;
                }
                Err(refusal) => return Err(refusal),
            }
        }
    }

    /// A stream to `target`; its answer has not come yet.
    pub(crate) async fn open(&self, target: &Target) -> Result<Tunnel, Refusal> {
        let deadline = Instant::now() + AWAY_LIMIT;
        let opened = self
            .request(Request::Connect(target.clone()), deadline)
            .await;
        opened.map(|(_, tunnel)| tunnel)
    }

    /// An association for datagrams; what is sent need not wait for the server's answer.
    pub(crate) async fn associate(&self) -> Result<Association, Refusal> {
        let (connection, id, tunnel) = self.request_association(DATAGRAM_LIMIT).await?;
        self.association(connection, id, tunnel)
    }

    /// The same once the server has agreed; with fast open nobody waits for that.
    pub(crate) async fn associate_for_program(&self) -> Result<Association, Refusal> {
        let (connection, id, mut tunnel) = self.request_association(AWAY_LIMIT).await?;
        if self.0.fast_open != FastOpen::Always {
            tunnel.answer().await?;
        }
        self.association(connection, id, tunnel)
    }

    async fn request_association(
        &self,
        limit: Duration,
    ) -> Result<(Connection, u32, Tunnel), Refusal> {
        let id = self.0.next_association.fetch_add(1, Ordering::Relaxed);
        let deadline = Instant::now() + limit;
        let (connection, tunnel) = self.request(Request::Associate { id }, deadline).await?;
        Ok((connection, id, tunnel))
    }

    fn association(
        &self,
        connection: Connection,
        id: u32,
        tunnel: Tunnel,
    ) -> Result<Association, Refusal> {
        let association = Association::new(connection, &self.0.routes, id, tunnel);
        self.0.traffic.attempt(Status::Connected);
        association.ok_or_else(|| Refusal::new(Status::Limit, "too many associations"))
    }

    /// A stream that begins with `request`. While there is no server, it is waited for until `deadline`.
    async fn request(
        &self,
        request: Request,
        deadline: Instant,
    ) -> Result<(Connection, Tunnel), Refusal> {
        let down = |why: Down| {
            let message = format!("there is no connection to the server: {why}");
            Refusal::new(Status::TimedOut, message)
        };
        let late = |_| Refusal::new(Status::TimedOut, "the server takes no further stream now");
        loop {
            let connection = self.0.link.connection(deadline).await.map_err(down)?;
            let opened = timeout(ANSWER_LIMIT, Tunnel::open(&connection, &request)).await;
            match opened.map_err(late)? {
                Ok(tunnel) => return Ok((connection, tunnel)),
                // It had ended, and nobody knew it yet.
                Err(_) if Instant::now() < deadline && has_ended(&connection).await => {
                    self.0.link.replaced(&connection).await;
                }
                Err(error) => return Err(Refusal::new(Status::Failed, error)),
            }
        }
    }

    /// Whether a program that wants to get to `target` is told that it is connected before the server is.
    pub(crate) fn opens_fast(&self, target: &Target) -> bool {
        match self.0.fast_open {
            FastOpen::Never => false,
            FastOpen::Known => self.0.known.has(target),
            FastOpen::Always => true,
        }
    }

    /// There was no connection to `target`.
    pub(crate) fn failed(&self, target: Target, refusal: Refusal) {
        self.0.known.failed();
        self.report(Event::Failed { target, refusal });
    }

    /// Carries a connection to its end.
    pub(crate) async fn carry_tcp(
        &self,
        tcp: TcpStream,
        tunnel: Tunnel,
        first: Vec<u8>,
        target: Target,
    ) {
        // One that was answered before is known already, or leads from the server to here.
        let is_new = !tunnel.answered;
        let opened = || {
            if is_new {
                self.0.known.connected(&target);
            }
            self.report(Event::Opened(target.clone()));
        };
        // Programs reset connections as they like; only what the far end could not do is worth a word.
        let toll = self.toll();
        let carriage = Carriage { first, toll };
        if let Err(Broken::Refused(refusal)) = relay(tcp, tunnel, carriage, opened).await {
            self.failed(target, refusal);
        }
    }

    pub(crate) fn toll(&self) -> Toll<'_> {
        let (traffic, account) = (&self.0.traffic, None);
        Toll { traffic, account }
    }

    fn give_up(&self, tcp: TcpStream, target: Target, refusal: Refusal) {
        let _ = tcp.set_zero_linger();
        self.failed(target, refusal);
    }

    /// Carries `input` to `target` and what comes back to `output`, until both ended and the server has
    /// all of the input.
    ///
    /// # Errors
    /// Why there was no connection, or how it broke.
    pub async fn carry(
        &self,
        target: &Target,
        input: impl AsyncRead + Unpin,
        output: impl AsyncWrite + Unpin,
    ) -> Result<(), Broken> {
        let mut tunnel = self.open(target).await?;
        let Tunnel { send, recv, .. } = &mut tunnel;
        let up = async {
            let (first, toll) = (Vec::new(), self.toll());
            upload(input, send, Carriage { first, toll }).await?;
            // Until the server has it.
            match send.stopped().await.map_err(Broken::There)? {
                None => Ok(()),
                Some(code) => Err(Broken::There(dfcp::Error::Reset(code))),
            }
        };
        let down = async {
            crate::wire::read_answer(recv).await?;
            download(recv, output, self.toll()).await
        };
        let (mut up, mut down) = (pin!(up), pin!(down));
        // The end of one direction is not that of the other.
        tokio::select! {
            ended = &mut down => {
                ended?;
                up.await
            }
            ended = &mut up => match ended {
                Ok(()) => down.await,
                // The other direction knows why, if the far end told.
                Err(broken) => match timeout(REASON_LIMIT, &mut down).await {
                    Ok(Err(reason)) => Err(reason),
                    _ => Err(broken),
                },
            },
        }
    }
}

async fn has_ended(connection: &Connection) -> bool {
    timeout(Duration::ZERO, connection.closed()).await.is_ok()
}

/// A connection that the server has made, for one here. Without that it is reset.
pub struct Dialed {
    client: Client,
    tunnel: Tunnel,
    target: Target,
}

impl Dialed {
    /// Carries `tcp` over it, to the end of both.
    pub async fn carry(self, tcp: TcpStream) {
        dial::prepare(&tcp);
        let Self {
            client,
            tunnel,
            target,
        } = self;
        client.carry_tcp(tcp, tunnel, Vec::new(), target).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_asked_ever_more_seldom_and_ports_that_are_taken_are_not() {
        let mut pause = LISTEN_PAUSE;
        let mut asked = 0;
        let mut waited = Duration::ZERO;
        while waited < Duration::from_secs(24 * 3600) {
            pause = listen_pause(pause, Status::Forbidden);
            waited += pause;
            asked += 1;
        }
        assert!(asked < 300, "{asked} times a day");
        assert!(pause <= Duration::from_secs(300));
        assert_eq!(listen_pause(pause, Status::Failed), LISTEN_PAUSE);
    }
}
