//! The server: connects to where its rules allow, and listens where it may.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use dfcp::{Application, CloseCode, Connection, Endpoint, PublicKey, RecvStream, SendStream};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::account::{Account, Accounts, Limits, Place, Use};
use crate::dial::dial;
use crate::door::Door;
use crate::event::{Event, Recurring, Report};
use crate::relay::{Broken, Carriage, Toll, relay};
use crate::rules::Rules;
use crate::status::{Refusal, Status};
use crate::target::{Host, Target};
use crate::traffic::Traffic;
use crate::udp::{self, Association, Exit, Routes};
use crate::wire::{MALFORMED, REQUEST_LIMIT, Request, Tunnel};

/// What a server does for its clients.
pub struct ServerConfig {
    /// What it lets them do, to begin with.
    pub settings: Settings,
    /// What each key may have; asked whenever one comes, and when the settings change.
    pub limits: LimitsOf,
    /// Hears what happens.
    pub report: Report,
}

/// What a server lets its clients do; may be changed while it serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Where it connects to.
    pub rules: Rules,
    /// Where clients may have it listen; nowhere without.
    pub listen: Option<Rules>,
}

/// What a key may have.
pub type LimitsOf = Arc<dyn Fn(&PublicKey) -> Limits + Send + Sync>;

/// A server; clones share it.
#[derive(Clone)]
pub struct Server(Arc<Inner>);

pub(crate) struct Inner {
    settings: RwLock<Arc<Settings>>,
    limits: LimitsOf,
    report: Report,
    accounts: Accounts,
    traffic: Traffic,
    /// The system lacks something that clients want, such as open files.
    lacking: Mutex<Recurring>,
    /// Nobody new is served any more.
    ending: watch::Sender<bool>,
}

impl Server {
    /// A server without clients.
    pub fn new(config: ServerConfig) -> Self {
        Self(Arc::new(Inner {
            settings: RwLock::new(Arc::new(config.settings)),
            limits: config.limits,
            accounts: Accounts::new(config.report.clone()),
            report: config.report,
            traffic: Traffic::default(),
            lacking: Mutex::default(),
            ending: watch::Sender::new(false),
        }))
    }

    /// Serves the clients that `endpoint` accepts, until it is closed. Which keys those may be is the
    /// endpoint's to know.
    pub async fn serve(&self, endpoint: Endpoint) {
        while let Some(incoming) = endpoint.accept().await {
            match incoming.application() {
                None | Some(Application::PROXY) => self.take(incoming.accept()),
                Some(_) => incoming.not_offered("it is a proxy (`dfcp proxy serve`)"),
            }
        }
    }

    /// Serves a client that has proved its key, until it leaves; call within a tokio runtime. For who
    /// accepts clients of other servers, too.
    pub fn take(&self, connection: Connection) {
        match *self.0.ending.borrow() {
            // Not refused, which would mean the key: it may come again when there is another server.
            true => connection.close(CloseCode::NO_ERROR, "the server ends"),
            false => drop(tokio::spawn(attend(self.0.clone(), connection))),
        }
    }

    #[cfg(test)]
    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.0
    }

    /// What it carries.
    pub fn traffic(&self) -> &Traffic {
        &self.0.traffic
    }

    /// What each key that came has carried since the server began: bytes sent to its clients, and received
    /// from them.
    pub fn carried(&self) -> Vec<(PublicKey, [u64; 2])> {
        self.0.accounts.carried()
    }

    /// Serves by `settings` from now on, and asks anew what the keys that came may have. What is open
    /// goes on; of associations, what is sent from now on counts.
    pub fn apply(&self, settings: Settings) {
        let current = self.0.settings.write();
        *current.unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
        self.0.accounts.ask_anew(&self.0.limits);
    }

    /// Takes no new connections, of clients or for them, and waits until those of TCP that are open have
    /// ended, `limit` at most. Whether all have.
    pub async fn drain(&self, limit: Duration) -> bool {
        self.0.ending.send_replace(true);
        timeout(limit, self.0.traffic.idle()).await.is_ok()
    }

    /// Whether it is [draining](Self::drain).
    pub fn is_ending(&self) -> bool {
        *self.0.ending.borrow()
    }
}

/// Serves a client until it leaves.
async fn attend(server: Arc<Inner>, connection: Connection) {
    let peer = connection.peer();
    if let Some(from) = connection.remote_address() {
        server.report(Event::Came { peer, from });
    }
    let _connected = server.traffic.connected(&connection);
    let client = Arc::new(Visitor {
        account: server.accounts.of(peer, (server.limits)(&peer)),
        connection,
        routes: Arc::new(Routes::new(server.traffic.clone())),
    });
    let streams = async {
        while let Ok((send, recv)) = client.connection.accept_bi().await {
            let (server, client) = (server.clone(), client.clone());
            tokio::spawn(async move { server.answer(&client, send, recv).await });
        }
    };
    tokio::join!(streams, client.routes.follow(&client.connection));
    server.report(Event::Left(peer));
}

/// A connection of a client.
struct Visitor {
    connection: Connection,
    account: Arc<Account>,
    routes: Arc<Routes>,
}

impl Inner {
    /// Tells of something, which counts if it is how an attempt ended.
    fn report(&self, event: Event) {
        if let Some(status) = event.outcome() {
            self.traffic.attempt(status);
        }
        self.tell(event);
    }

    /// Tells of something.
    pub fn tell(&self, event: Event) {
        (self.report)(event);
    }

    /// The same of what was for the client with this key.
    fn report_of(&self, peer: PublicKey, event: Event) {
        self.report(Event::Of(peer, Box::new(event)));
    }

    /// Tells once of what the system lacked, if that is why a client was refused something which its key may
    /// have.
    fn check_lack<T>(&self, given: Result<T, Refusal>) -> Result<T, Refusal> {
        if let Err(refusal) = &given
            && refusal.status == Status::Limit
        {
            let mut lacking = self.lacking.lock().unwrap_or_else(PoisonError::into_inner);
            if lacking.is_news(Instant::now()) {
                self.tell(Event::Lacking(refusal.message.clone()));
            }
        }
        given
    }

    /// What counts now.
    pub fn settings(&self) -> Arc<Settings> {
        let settings = self.settings.read();
        settings.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A stream of a client.
    ///
    /// # Errors
    /// That there is none now.
    fn place(&self, account: &Arc<Account>, what: Use) -> Result<Place, Refusal> {
        self.check_open()?;
        account.place(what)
    }

    fn check_open(&self) -> Result<(), Refusal> {
        match *self.ending.borrow() {
            true => Err(Refusal::new(Status::Failed, "the server ends")),
            false => Ok(()),
        }
    }

    fn toll<'a>(&'a self, place: &'a Place) -> Toll<'a> {
        Toll {
            traffic: &self.traffic,
            account: Some(place.account()),
        }
    }

    async fn answer(
        self: Arc<Self>,
        client: &Arc<Visitor>,
        send: SendStream,
        mut recv: RecvStream,
    ) {
        let request = timeout(REQUEST_LIMIT, Request::read(&mut recv)).await;
        let mut tunnel = Tunnel::accepted(send, recv);
        let Ok(Ok(request)) = request else {
            return tunnel.reset(MALFORMED);
        };
        let target = match &request {
            Request::Connect(target) => target.clone(),
            Request::Listen { bind, .. } => bind.clone(),
            Request::Associate { id } => {
                return self.associate(client, *id, tunnel).await;
            }
            Request::Accepted { .. } => return tunnel.reset(MALFORMED),
        };
        let done = match self.place(&client.account, Use::Own) {
            Ok(place) => match request {
                Request::Listen { id, bind } => {
                    self.check_lack(self.listen(client, &mut tunnel, id, &bind).await)
                }
                _ => {
                    let settings = self.settings();
                    let dialed = dial(&target, &settings.rules, &client.account.questions).await;
                    match self.check_lack(dialed) {
                        Ok(tcp) => return self.carry(tcp, tunnel, target, place).await,
                        Err(refusal) => Err(refusal),
                    }
                }
            },
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = done {
            // Whoever does not hear it has left.
            let _ = tunnel.refuse(&refusal).await;
            let peer = client.connection.peer();
            self.report_of(peer, Event::Failed { target, refusal });
        }
    }

    /// Carries datagrams until the client ends the stream, or sends none for long.
    async fn associate(self: &Arc<Self>, client: &Visitor, id: u32, mut tunnel: Tunnel) {
        if client.routes.has(id) {
            return tunnel.reset(MALFORMED);
        }
        let opened = self.place(&client.account, Use::Association);
        let opened = opened.and_then(|place| {
            let questions = client.account.questions.clone();
            let exit = Exit::open(self, client.connection.peer(), questions);
            Ok((place, self.check_lack(exit)?))
        });
        let (place, exit) = match opened {
            Ok(opened) => opened,
            Err(refusal) => {
                let _ = tunnel.refuse(&refusal).await;
                return self.report_of(client.connection.peer(), Event::Unassociated(refusal));
            }
        };
        if tunnel.confirm().await.is_err() {
            return;
        }
        let connection = client.connection.clone();
        if let Some(association) = Association::new(connection, &client.routes, id, tunnel) {
            self.traffic.attempt(Status::Connected);
            udp::serve(association, exit, place.account()).await;
        }
    }

    async fn carry(&self, tcp: TcpStream, mut tunnel: Tunnel, target: Target, place: Place) {
        if tunnel.confirm().await.is_ok() {
            let carriage = Carriage {
                first: Vec::new(),
                toll: self.toll(&place),
            };
            // Connections end as the programs at both ends like; of one that its account ends, that says so.
            let _ = relay(tcp, tunnel, carriage, || {
                self.report_of(place.account().key(), Event::Opened(target));
            })
            .await;
        }
    }

    /// Listens for a client until it ends the stream, or its connection ends.
    async fn listen(
        self: &Arc<Self>,
        client: &Arc<Visitor>,
        tunnel: &mut Tunnel,
        id: u32,
        bind: &Target,
    ) -> Result<(), Refusal> {
        let listener = self.bind(bind).await?;
        let failed = |error| Refusal::of(&error, bind);
        let port = listener.local_addr().map_err(failed)?.port();
        let confirmed = async {
            tunnel.confirm().await?;
            tunnel.send.write_all(&port.to_be_bytes()).await
        };
        if confirmed.await.is_err() {
            return Ok(());
        }
        let mut door = Door::new(listener, self.report.clone());
        let accept = async {
            loop {
                let (tcp, from) = door.next().await;
                // Whoever comes now is not served; the listener ends with the client's stream.
                if *self.ending.borrow() {
                    let _ = tcp.set_zero_linger();
                    continue;
                }
                let (server, client) = (self.clone(), client.clone());
                tokio::spawn(async move { server.hand_over(&client, tcp, id, from).await });
            }
        };
        let mut end = [0];
        tokio::select! {
            () = accept => {}
            _ = tunnel.recv.read(&mut end) => {}
        }
        Ok(())
    }

    async fn bind(&self, bind: &Target) -> Result<TcpListener, Refusal> {
        let Host::Ip(ip) = bind.host else {
            let why = "the address to listen at must be one, not a name";
            return Err(Refusal::new(Status::HostUnreachable, why));
        };
        let address = SocketAddr::new(ip, bind.port);
        let settings = self.settings();
        let rules = settings.listen.as_ref();
        if !rules.is_some_and(|rules| rules.allow_listen(address)) {
            let why = format!("the server's rules do not allow to listen at {bind}");
            return Err(Refusal::new(Status::Forbidden, why));
        }
        let bound = TcpListener::bind(address).await;
        bound.map_err(|error| Refusal::of(&error, bind))
    }

    /// Hands what came to a listener over to the client.
    async fn hand_over(
        self: Arc<Self>,
        client: &Visitor,
        tcp: TcpStream,
        id: u32,
        from: SocketAddr,
    ) {
        let from = Target::from(from);
        let refused = |refusal: Refusal| {
            let target = from.clone();
            self.report_of(client.connection.peer(), Event::Failed { target, refusal });
        };
        let place = match self.place(&client.account, Use::Came) {
            Ok(place) => place,
            Err(refusal) => {
                let _ = tcp.set_zero_linger();
                return refused(refusal);
            }
        };
        let request = Request::Accepted {
            id,
            from: from.clone(),
        };
        let carriage = Carriage {
            first: Vec::new(),
            toll: self.toll(&place),
        };
        let opened = timeout(REQUEST_LIMIT, Tunnel::open(&client.connection, &request));
        let ended = match opened.await {
            Ok(Ok(tunnel)) => {
                relay(tcp, tunnel, carriage, || {
                    self.traffic.attempt(Status::Connected)
                })
                .await
            }
            Ok(Err(error)) => return refused(Refusal::new(Status::Failed, error)),
            Err(_) => {
                let why = "the client takes no further stream now";
                return refused(Refusal::new(Status::TimedOut, why));
            }
        };
        if let Err(Broken::Refused(refusal)) = ended {
            refused(refusal);
        }
    }
}
