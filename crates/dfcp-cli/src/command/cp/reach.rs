//! From two sides that know each other's addresses through ssh to one connection over UDP. Both try
//! to reach the other, so that it is enough if one of them can be reached; the side that copies
//! chooses among what came about.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dfcp::{Connection, Endpoint, EndpointConfig, Error, PublicKey, TransportConfig};
use dfcp_command::{Failure, Kind};

use crate::net;

/// How long UDP may take to get through: three repetitions of a lost packet of the handshake.
pub const UDP_LIMIT: Duration = Duration::from_secs(5);
/// Head start of the side that copies: it seldom has an open port itself.
pub const HEAD_START: Duration = Duration::from_millis(300);
/// Addresses that one side names to the other.
const MAX_ADDRESSES: usize = 8;
/// What the name of a connection is exported for.
const LABEL: &[u8] = b"dfcp cp connection";

/// An endpoint of one copy, with a key of its own that nobody knows but through ssh.
#[derive(Clone, Debug)]
pub struct Side {
    /// The endpoint.
    pub endpoint: Endpoint,
    peer: Arc<OnceLock<PublicKey>>,
}

impl Side {
    /// Opens a socket, at one of `ports` if there are any.
    pub fn open(transport: TransportConfig, ports: Option<(u16, u16)>) -> Result<Self, Failure> {
        let key = dfcp::generate_key()?;
        let peer = Arc::new(OnceLock::new());
        let mut last = None;
        let (first, end) = ports.unwrap_or((0, 0));
        for port in first..=end {
            for ip in [
                IpAddr::from(Ipv6Addr::UNSPECIFIED),
                Ipv4Addr::UNSPECIFIED.into(),
            ] {
                let known = peer.clone();
                let config = EndpointConfig::server(key.clone(), (ip, port).into())
                    .transport(transport.clone())
                    .max_connections(MAX_ADDRESSES)
                    .authorize(move |key| known.get() == Some(key));
                match Endpoint::bind(config) {
                    Ok(endpoint) => return Ok(Self { endpoint, peer }),
                    Err(error) => last = Some(error),
                }
                if matches!(&last, Some(Error::Io(error)) if error.kind() == std::io::ErrorKind::AddrInUse)
                {
                    break; // of the other family too
                }
            }
        }
        let reason = last.map_or("no port".to_owned(), |error| error.to_string());
        // What is to be done about it where ports were named.
        let taken = ports.map_or(String::new(), |(first, end)| {
            format!("; of the ports {first} to {end} none can be had: name others (--port-range)")
        });
        Err(Failure::new(
            Kind::LocalIo,
            format!("no UDP socket: {reason}{taken}"),
        ))
    }

    /// From here on the endpoint speaks with the owner of this key alone.
    pub fn expect(&self, peer: PublicKey) {
        let _ = self.peer.set(peer);
    }

    /// The socket's port.
    pub fn port(&self) -> u16 {
        self.endpoint.local_addr().port()
    }

    /// Connects to one of these addresses. Before it is confirmed the other side may know the connection by
    /// another name, where somebody sent the first packet on from elsewhere.
    pub async fn connect(&self, addresses: &[SocketAddr]) -> Option<Connection> {
        let peer = *self.peer.get()?;
        let connection = self.endpoint.connect(addresses, peer).await.ok()?;
        connection.confirmed().await.ok()?;
        Some(connection)
    }

    /// The next connection that the other side made.
    pub async fn accept(&self) -> Option<Connection> {
        Some(self.endpoint.accept().await?.accept())
    }

    /// A connection, whoever made it; `None` if UDP does not get through.
    pub async fn meet(&self, addresses: &[SocketAddr]) -> Option<Connection> {
        let met = async {
            tokio::select! {
                Some(connection) = self.connect(addresses) => Some(connection),
                Some(connection) = self.accept() => Some(connection),
                else => None,
            }
        };
        tokio::time::timeout(UDP_LIMIT, met).await.ok().flatten()
    }
}

/// The name of a connection, the same on both sides.
pub fn name(connection: &Connection) -> Option<String> {
    let mut name = [0; 16];
    connection
        .export_keying_material(&mut name, LABEL, b"")
        .ok()?;
    Some(name.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Addresses that this machine may be reached at; loopback only where there is nothing else.
pub fn own_addresses() -> Vec<IpAddr> {
    let mut addresses = net::interface_addresses();
    if addresses.is_empty() {
        addresses.push(Ipv4Addr::LOCALHOST.into());
    }
    addresses.truncate(MAX_ADDRESSES);
    addresses
}

/// What ssh says of its connection: the client's address and the server's, as the server sees them.
pub fn of_ssh() -> Option<(IpAddr, IpAddr)> {
    let text = std::env::var("SSH_CONNECTION").ok()?;
    let mut fields = text.split(' ');
    let client = fields.next()?.parse().ok()?;
    let server = fields.nth(1)?.parse().ok()?;
    Some((client, server))
}

/// Addresses with a port, each once, the first ones first.
pub fn with_port(addresses: impl IntoIterator<Item = IpAddr>, port: u16) -> Vec<SocketAddr> {
    let mut list = Vec::new();
    for address in addresses {
        let address = SocketAddr::new(address.to_canonical(), port);
        if !list.contains(&address) {
            list.push(address);
        }
    }
    list.truncate(MAX_ADDRESSES);
    list
}

#[cfg(test)]
mod tests {
    use tokio::net::UdpSocket;

    use super::*;

    /// Somebody on the way sends a client's first packet to the server from a socket of his own as well, hands the
    /// client the answer to that, and is in no hurry with all the rest.
    async fn relay(server: SocketAddr) -> SocketAddr {
        let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
        let [front, back, own] = [bind().await, bind().await, bind().await].map(Result::unwrap);
        back.connect(server).await.unwrap();
        own.connect(server).await.unwrap();
        let address = front.local_addr().unwrap();
        let back = Arc::new(back);
        tokio::spawn(async move {
            let [mut buffer, mut answer] = [vec![0; 65536], vec![0; 65536]];
            let (len, client) = front.recv_from(&mut buffer).await.unwrap();
            own.send(&buffer[..len]).await.unwrap();
            let len = own.recv(&mut answer).await.unwrap();
            front.send_to(&answer[..len], client).await.unwrap();
            loop {
                tokio::select! {
                    Ok((len, _)) = front.recv_from(&mut buffer) => {
                        let (back, datagram) = (back.clone(), buffer[..len].to_vec());
                        tokio::spawn(async move {
                            tokio::time::sleep(Duration::from_millis(200)).await;
                            let _ = back.send(&datagram).await;
                        });
                    }
                    Ok(len) = back.recv(&mut answer) => {
                        front.send_to(&answer[..len], client).await.unwrap();
                    }
                }
            }
        });
        address
    }

    #[tokio::test]
    async fn both_sides_name_a_connection_alike_whoever_sends_its_first_packet_on() {
        let open = || Side::open(TransportConfig::default(), None).unwrap();
        let (near, far) = (open(), open());
        near.expect(far.endpoint.public_key());
        far.expect(near.endpoint.public_key());
        let relayed = relay((Ipv4Addr::LOCALHOST, far.port()).into()).await;
        let met = async {
            // As in `cp`: the name is told as soon as there is a connection.
            let connected = async {
                let connection = near.connect(&[relayed]).await.unwrap();
                (name(&connection), connection)
            };
            tokio::join!(connected, far.accept())
        };
        let met = tokio::time::timeout(Duration::from_secs(60), met).await;
        let ((told, _near), accepted) = met.unwrap();
        assert!(told.is_some());
        assert_eq!(told, name(&accepted.unwrap()));
    }
}
