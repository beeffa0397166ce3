//! A server, a client and programs on loopback, with real sockets.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dfcp::{CloseCode, Connection, Endpoint, EndpointConfig, StaticKey, TransportConfig};
use dfcp_proxy::{
    Client, ClientConfig, Down, Event, FastOpen, Limits, Rules, Server, ServerConfig, Settings,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// Longer than anything here takes on a machine that is alive, however busy: what hangs is found all the same.
const PATIENCE: Duration = Duration::from_secs(600);

/// Waits, but not for ever.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(PATIENCE, future).await;
    ended.expect("must not hang")
}

/// What happened, in words.
#[derive(Clone, Default)]
pub struct Events(Arc<Mutex<Vec<String>>>);

impl Events {
    pub fn report(&self) -> dfcp_proxy::Report {
        let events = self.0.clone();
        Arc::new(move |event: Event| events.lock().unwrap().push(event.to_string()))
    }

    /// Whether one is `text`.
    pub fn has(&self, text: &str) -> bool {
        self.0.lock().unwrap().iter().any(|event| event == text)
    }

    /// How many contain `text`.
    pub fn count(&self, text: &str) -> usize {
        let events = self.0.lock().unwrap();
        events.iter().filter(|event| event.contains(text)).count()
    }

    /// Waits for one that contains `text`.
    pub async fn find(&self, text: &str) -> String {
        let found = async {
            loop {
                let events = self.0.lock().unwrap().clone();
                if let Some(event) = events.into_iter().find(|event| event.contains(text)) {
                    return event;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let found = tokio::time::timeout(PATIENCE, found).await;
        found.unwrap_or_else(|_| panic!("no {text:?} in {:?}", self.0.lock().unwrap()))
    }
}

pub fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

pub fn rules(permitted: &[&str]) -> Rules {
    let permitted = permitted.iter().map(|rule| rule.parse().unwrap());
    Rules::new(permitted.collect(), Vec::new())
}

/// How a world is to be.
pub struct Plan {
    pub rules: Rules,
    pub listen: Option<Rules>,
    pub limits: Limits,
    pub fast_open: FastOpen,
    pub stranger: bool,
    /// How long packets take each way between client and server.
    pub delay: Duration,
    /// How long silence may last, at both sides.
    pub timeout: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            rules: rules(&["127.0.0.0/8"]),
            listen: None,
            limits: Limits::default(),
            fast_open: FastOpen::Never,
            stranger: false,
            delay: Duration::ZERO,
            timeout: Duration::from_secs(60),
        }
    }
}

pub struct World {
    server_key: StaticKey,
    client_key: StaticKey,
    pub server: Endpoint,
    pub handle: Server,
    pub client: Client,
    pub client_endpoint: Endpoint,
    /// Where packets of the client go, if they take a while.
    path: Arc<Mutex<SocketAddr>>,
    /// The port that speaks SOCKS5 and HTTP.
    pub local: SocketAddr,
    pub events: Events,
    pub there: Events,
}

fn transport(plan: &Plan) -> TransportConfig {
    dfcp_proxy::transport(TransportConfig::default().idle_timeout(plan.timeout))
}

fn serve(
    at: SocketAddr,
    key: StaticKey,
    friend: &StaticKey,
    plan: &Plan,
    there: &Events,
) -> (Endpoint, Server) {
    let friend = friend.public();
    let config = EndpointConfig::server(key, at)
        .transport(transport(plan))
        .authorize(move |key| *key == friend);
    let endpoint = Endpoint::bind(config).unwrap();
    let config = ServerConfig {
        settings: Settings {
            rules: plan.rules.clone(),
            listen: plan.listen.clone(),
        },
        limits: {
            let limits = plan.limits;
            Arc::new(move |_| limits)
        },
        report: there.report(),
    };
    let (server, serving) = (Server::new(config), endpoint.clone());
    let handle = server.clone();
    tokio::spawn(async move { server.serve(serving).await });
    (endpoint, handle)
}

impl World {
    /// What the server says that happened for the client.
    pub fn of_client(&self, what: &str) -> String {
        format!("{}: {what}", self.client_key.public())
    }

    pub async fn new() -> Self {
        Self::with(Plan::default()).await
    }

    pub async fn with(plan: Plan) -> Self {
        let key = || dfcp::generate_key().unwrap();
        let (server_key, client_key, other) = (key(), key(), key());
        let (events, there) = (Events::default(), Events::default());
        let friend = if plan.stranger { &other } else { &client_key };
        let (server, handle) = serve(loopback(), server_key.clone(), friend, &plan, &there);
        let endpoint = EndpointConfig::client(client_key.clone()).transport(transport(&plan));
        let path = Arc::new(Mutex::new(server.local_addr()));
        let at = match plan.delay {
            Duration::ZERO => server.local_addr(),
            delay => long_path(path.clone(), delay).await,
        };
        let client_endpoint = Endpoint::bind(endpoint).unwrap();
        let client = Client::start(ClientConfig {
            endpoint: client_endpoint.clone(),
            resolve: Arc::new(move || Box::pin(async move { Ok(vec![at]) })),
            server_key: server_key.public(),
            fast_open: plan.fast_open,
            report: events.report(),
        });
        let listener = TcpListener::bind(loopback()).await.unwrap();
        let local = listener.local_addr().unwrap();
        let serving = client.clone();
        tokio::spawn(async move { serving.serve_local(listener).await });
        Self {
            server_key,
            client_key,
            server,
            handle,
            client,
            client_endpoint,
            path,
            local,
            events,
            there,
        }
    }

    /// A connection to the server with the client's key, for who speaks otherwise than the client.
    pub async fn another_connection(&self) -> Connection {
        let config = EndpointConfig::client(self.client_key.clone());
        let config = config.transport(transport(&Plan::default()));
        let endpoint = Endpoint::bind(config).unwrap();
        let (at, key) = (self.server.local_addr(), self.server_key.public());
        within(endpoint.connect(at, key)).await.unwrap()
    }

    /// The server ends as a process does that is killed, and another one is started in its place.
    pub async fn restart_server(&mut self) {
        let at = self.server.local_addr();
        self.server.close(CloseCode::NO_ERROR, "restarts").await;
        let old = std::mem::replace(
            &mut self.server,
            Endpoint::bind(EndpointConfig::client(dfcp::generate_key().unwrap())).unwrap(),
        );
        drop(old);
        // The old one's socket is closed by its task.
        let again = async {
            loop {
                match std::net::UdpSocket::bind(at) {
                    Ok(socket) => break drop(socket),
                    Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        };
        within(again).await;
        let (key, plan) = (self.server_key.clone(), Plan::default());
        (self.server, self.handle) = serve(at, key, &self.client_key, &plan, &self.there);
    }

    /// Another server takes the server's place, which knows nothing of it, as a machine does that has its
    /// address and key. For worlds with a delay.
    pub fn replace_server(&mut self, plan: &Plan) {
        let (key, friend) = (self.server_key.clone(), &self.client_key);
        (self.server, self.handle) = serve(loopback(), key, friend, plan, &self.there);
        *self.path.lock().unwrap() = self.server.local_addr();
    }

    /// Whether a key was wrong.
    pub async fn turned_away(&self) -> Down {
        within(self.client.turned_away()).await
    }

    /// A program that has said what SOCKS5 begins with.
    pub async fn greeted(&self) -> TcpStream {
        let mut tcp = TcpStream::connect(self.local).await.unwrap();
        tcp.write_all(&[5, 1, 0]).await.unwrap();
        let mut answer = [0; 2];
        within(tcp.read_exact(&mut answer)).await.unwrap();
        assert_eq!(answer, [5, 0]);
        tcp
    }

    /// Sends a request of SOCKS5; the connection and the reply.
    pub async fn socks(&self, request: &[u8]) -> (TcpStream, u8) {
        let mut tcp = self.greeted().await;
        tcp.write_all(request).await.unwrap();
        let mut answer = [0; 10];
        within(tcp.read_exact(&mut answer)).await.unwrap();
        assert_eq!(answer[0], 5);
        (tcp, answer[1])
    }

    /// A connection over SOCKS5.
    pub async fn connect(&self, to: SocketAddr) -> TcpStream {
        let (tcp, reply) = self.socks(&connect_request(to)).await;
        assert_eq!(reply, 0);
        tcp
    }

    /// What the port answers to `request`, to the end.
    pub async fn answer_to(&self, request: &[u8]) -> Vec<u8> {
        let mut tcp = TcpStream::connect(self.local).await.unwrap();
        tcp.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        let _ = within(tcp.read_to_end(&mut answer)).await;
        answer
    }
}

/// A port from which packets take so long to `path`, and back. What comes from elsewhere is dropped.
async fn long_path(path: Arc<Mutex<SocketAddr>>, delay: Duration) -> SocketAddr {
    let bind = || async { Arc::new(UdpSocket::bind(loopback()).await.unwrap()) };
    let (near, far) = (bind().await, bind().await);
    let at = near.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut client, mut there, mut back) = (loopback(), [0; 65_535], [0; 65_535]);
        loop {
            let (socket, to, bytes) = tokio::select! {
                Ok((len, from)) = near.recv_from(&mut there) => {
                    client = from;
                    (far.clone(), *path.lock().unwrap(), there[..len].to_vec())
                }
                Ok((len, from)) = far.recv_from(&mut back) => {
                    if from != *path.lock().unwrap() {
                        continue;
                    }
                    (near.clone(), client, back[..len].to_vec())
                }
            };
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                let _ = socket.send_to(&bytes, to).await;
            });
        }
    });
    at
}

pub fn connect_request(to: SocketAddr) -> Vec<u8> {
    let SocketAddr::V4(to) = to else {
        panic!("IPv4")
    };
    let mut request = vec![5, 1, 0, 1];
    request.extend(to.ip().octets());
    request.extend(to.port().to_be_bytes());
    request
}

pub fn connect_to_name(name: &str, port: u16) -> Vec<u8> {
    let mut request = vec![5, 1, 0, 3, name.len() as u8];
    request.extend(name.as_bytes());
    request.extend(port.to_be_bytes());
    request
}

/// A host that does `serve` with each connection.
pub async fn origin<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tokio::spawn(serve(tcp));
        }
    });
    address
}

/// A host that says back what it hears, to the end of it.
pub async fn echo() -> SocketAddr {
    let serve = |mut tcp: TcpStream| async move {
        let (mut read, mut write) = tcp.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
        let _ = write.shutdown().await;
    };
    origin(serve).await
}

/// A port at which nobody listens.
pub async fn nobody() -> SocketAddr {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    listener.local_addr().unwrap()
}

/// Bytes that depend on `salt`.
pub fn bytes(salt: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&salt.to_be_bytes());
    hasher.finalize_xof().fill(&mut out);
    out
}
