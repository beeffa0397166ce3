//! The server: connects to where its rules allow, and listens where it may.

use std::net::SocketAddr;
use std::sync::Arc;

use dfcp::{Connection, Endpoint, PublicKey, RecvStream, SendStream};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::account::{Account, Accounts, Limits, Place};
use crate::dial::dial;
use crate::door::Door;
use crate::event::{Event, Report};
use crate::relay::{Broken, Carriage, relay};
use crate::rules::Rules;
use crate::status::{Refusal, Status};
use crate::target::{Host, Target};
use crate::udp::{self, Association, Exit, Routes};
use crate::wire::{MALFORMED, REQUEST_LIMIT, Request, Tunnel};

/// What a server does for its clients.
pub struct ServerConfig {
    /// Where it connects to.
    pub rules: Rules,
    /// Where clients may have it listen; nowhere without.
    pub listen: Option<Rules>,
    /// What each key may have; asked whenever one comes.
    pub limits: LimitsOf,
    /// Hears what happens.
    pub report: Report,
}

/// What a key may have.
pub type LimitsOf = Arc<dyn Fn(&PublicKey) -> Limits + Send + Sync>;

struct Server {
    config: ServerConfig,
    accounts: Accounts,
}

/// Serves the clients that `endpoint` accepts, until it is closed. Which keys those may be is the
/// endpoint's to know.
pub async fn serve(endpoint: Endpoint, config: ServerConfig) {
    let accounts = Accounts::new(config.report.clone());
    let server = Arc::new(Server { config, accounts });
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(attend(server.clone(), incoming.accept()));
    }
}

/// Serves a client until it leaves.
async fn attend(server: Arc<Server>, connection: Connection) {
    let peer = connection.peer();
    if let Some(from) = connection.remote_address() {
        server.report(Event::Came { peer, from });
    }
    let client = Arc::new(Visitor {
        account: server.accounts.of(peer, (server.config.limits)(&peer)),
        connection,
        routes: Arc::default(),
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

impl Server {
    fn report(&self, event: Event) {
        (self.config.report)(event);
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
        let done = match client.account.stream() {
            Ok(place) => match request {
                Request::Listen { id, bind } => self.listen(client, &mut tunnel, id, &bind).await,
                _ => match dial(&target, &self.config.rules).await {
                    Ok(tcp) => return self.carry(tcp, tunnel, target, place).await,
                    Err(refusal) => Err(refusal),
                },
            },
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = done {
            let why = refusal.message.clone();
            self.report(Event::Failed { target, why });
            // Whoever does not hear it has left.
            let _ = tunnel.refuse(&refusal).await;
        }
    }

    /// Carries datagrams until the client ends the stream, or sends none for long.
    async fn associate(self: &Arc<Self>, client: &Visitor, id: u32, mut tunnel: Tunnel) {
        let opened = client.account.association();
        let opened = opened.and_then(|place| Ok((place, Exit::open(&self.config)?)));
        let (place, exit) = match opened {
            Ok(opened) => opened,
            Err(refusal) => {
                self.report(Event::Unassociated(refusal.message.clone()));
                let _ = tunnel.refuse(&refusal).await;
                return;
            }
        };
        if tunnel.confirm().await.is_err() {
            return;
        }
        let connection = client.connection.clone();
        if let Some(association) = Association::new(connection, &client.routes, id, tunnel) {
            udp::serve(association, exit, place.account()).await;
        }
    }

    async fn carry(&self, tcp: TcpStream, mut tunnel: Tunnel, target: Target, place: Place) {
        if tunnel.confirm().await.is_ok() {
            let carriage = Carriage {
                first: Vec::new(),
                account: Some(place.account()),
            };
            // Connections end as the programs at both ends like; of one that its account ends, that says so.
            let _ = relay(tcp, tunnel, carriage, || {
                self.report(Event::Opened(target));
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
        let mut door = Door::new(listener, self.config.report.clone());
        let accept = async {
            loop {
                let (tcp, from) = door.next().await;
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
        let rules = self.config.listen.as_ref();
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
        let refused = |why: String| {
            self.report(Event::Failed {
                target: from.clone(),
                why,
            })
        };
        let place = match client.account.stream() {
            Ok(place) => place,
            Err(refusal) => {
                let _ = tcp.set_zero_linger();
                return refused(refusal.message);
            }
        };
        let request = Request::Accepted {
            id,
            from: from.clone(),
        };
        let carriage = Carriage {
            first: Vec::new(),
            account: Some(place.account()),
        };
        let opened = timeout(REQUEST_LIMIT, Tunnel::open(&client.connection, &request));
        let ended = match opened.await {
            Ok(Ok(tunnel)) => relay(tcp, tunnel, carriage, || ()).await,
            Ok(Err(error)) => return refused(error.to_string()),
            Err(_) => return refused("the client takes no further stream now".to_owned()),
        };
        if let Err(Broken::Refused(refusal)) = ended {
            refused(refusal.message);
        }
    }
}
