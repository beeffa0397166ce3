//! The server: one device, and a link to each client.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use dfcp::{Application, Connection, Endpoint, PublicKey};

use crate::device::Device;
use crate::event::{Event, Report};
use crate::nets::{Net, Table};
use crate::session;
use crate::site::{Mtu, Peer, Site};
use crate::stats::Stats;

/// Which addresses are behind which key: packets from others are dropped, packets to them go there.
#[derive(Clone, Debug)]
pub struct Clients {
    keys: Vec<PublicKey>,
    table: Table<usize>,
}

impl Clients {
    /// The clients and their networks.
    ///
    /// # Errors
    /// A network that two of them have.
    pub fn new(clients: &[(PublicKey, Vec<Net>)]) -> Result<Self, Net> {
        let mut keys: Vec<PublicKey> = clients.iter().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys.dedup();
        let nets = clients.iter().flat_map(|(key, nets)| {
            let number = keys.binary_search(key).unwrap_or_default();
            nets.iter().map(move |&net| (net, number))
        });
        let table = Table::new(nets)?;
        Ok(Self { keys, table })
    }

    /// Whether `key` is a client's.
    pub fn contains(&self, key: &PublicKey) -> bool {
        self.keys.binary_search(key).is_ok()
    }
}

/// What a server is made of.
pub struct ServerConfig {
    /// Where packets come out and in.
    pub device: Device,
    /// Longest packets, and how long they may be at first.
    pub mtu: (Mtu, usize),
    /// Who may use it.
    pub clients: Clients,
    /// How long a repair is of use; about a round trip unless set.
    pub delay: Option<Duration>,
    /// How often it is told what connections carry; not at all unless set.
    pub tell: Option<Duration>,
    /// Hears what happens.
    pub report: Report,
}

/// A server of links; clones share it.
#[derive(Clone)]
pub struct Server {
    site: Arc<Site>,
    tell: Option<Duration>,
}

impl Server {
    /// A server without clients.
    pub fn new(config: ServerConfig) -> Self {
        let keys = config.clients.keys.iter();
        let peers = keys.map(|&key| Peer::new(key)).collect();
        let table = config.clients.table;
        let mut site = Site::new(config.device, peers, table, config.mtu, config.report);
        site.delay = config.delay;
        Self {
            site: Arc::new(site),
            tell: config.tell,
        }
    }

    /// Carries the packets of a client that has proved its key, until its connection ends; call within a
    /// tokio runtime. For who accepts clients of other servers, too.
    pub fn take(&self, connection: Connection) {
        tokio::spawn(attend(self.site.clone(), connection));
    }

    /// Parts with the clients whose keys are not `allowed` any more. Who accepts clients is to let none of
    /// them in again.
    pub fn keep(&self, allowed: impl Fn(&PublicKey) -> bool) {
        let peers = self.site.peers.iter();
        peers
            .filter(|peer| !allowed(&peer.key))
            .for_each(|peer| peer.part("the key is not allowed any more"));
    }

    /// Gives what the kernel sends to those that it is for. Ends with the device, and says what became of
    /// it.
    pub async fn run(&self) -> io::Error {
        tokio::select! {
            error = self.site.forward() => error,
            () = self.site.tell(self.tell) => io::Error::other("nothing is told any more"),
        }
    }

    /// Its clients: whether each is connected, and what its connections have carried.
    pub fn clients(&self) -> Vec<(PublicKey, bool, Stats)> {
        let peers = self.site.peers.iter();
        peers
            .map(|peer| (peer.key, peer.is_connected(), peer.stats()))
            .collect()
    }
}

/// Serves the clients that `endpoint` accepts, until it is closed or the device is gone. The endpoint is
/// to accept the clients' keys alone.
///
/// # Errors
/// What became of the device.
pub async fn serve(endpoint: Endpoint, config: ServerConfig) -> io::Result<()> {
    let server = Server::new(config);
    let accept = async {
        while let Some(incoming) = endpoint.accept().await {
            match incoming.application() {
                None | Some(Application::LINK) => server.take(incoming.accept()),
                Some(_) => incoming.not_offered("it has IP links (`dfcp tun serve`)"),
            }
        }
    };
    tokio::select! {
        () = accept => Ok(()),
        error = server.run() => Err(error),
    }
}

async fn attend(site: Arc<Site>, connection: Connection) {
    let peer = connection.peer();
    let Some(number) = site.peers.iter().position(|known| known.key == peer) else {
        return;
    };
    let tell = |event| (site.report)(Event::Connection(event));
    if let Some(from) = connection.remote_address() {
        tell(dfcp_proxy::Event::Came { peer, from });
    }
    session::carry(&site, number, &connection).await;
    (site.report)(Event::Carried(peer, site.peers[number].stats()));
    tell(dfcp_proxy::Event::Left(peer));
}
