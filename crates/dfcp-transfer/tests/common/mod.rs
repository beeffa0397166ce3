//! What several test binaries use.

use dfcp::{Connection, Endpoint, EndpointConfig};

/// Two endpoints and the connection between them, seen from both ends.
pub async fn connected() -> ([Endpoint; 2], Connection, Connection) {
    let key = || dfcp::generate_key().unwrap();
    let address = "127.0.0.1:0".parse().unwrap();
    let server = Endpoint::bind(EndpointConfig::server(key(), address)).unwrap();
    let client = Endpoint::bind(EndpointConfig::client(key())).unwrap();
    let connect = client.connect(server.local_addr(), Some(server.public_key()));
    let (near, far) = tokio::join!(connect, server.accept());
    ([client, server], near.unwrap(), far.unwrap().accept())
}
