//! The library as its users see it: endpoints, clients at the door, streams, objects.

mod connections;
mod endpoints;
mod objects;
mod observers;
mod published;
mod sockets;
mod streams;

use dfcp::{Connection, Endpoint, EndpointConfig, generate_key};
use std::net::SocketAddr;
use std::time::Duration;

/// Nothing here takes long; a hang is a failure, not a wait.
const PATIENCE: Duration = Duration::from_secs(60);

async fn within<T>(future: impl Future<Output = T>) -> T {
    let future = tokio::time::timeout(PATIENCE, future);
    future.await.expect("must not hang")
}

fn server_at(bind: &str) -> Endpoint {
    let bind: SocketAddr = bind.parse().expect("an address");
    let config = EndpointConfig::server(generate_key().expect("a key"), bind);
    Endpoint::bind(config).expect("binds")
}

fn client() -> Endpoint {
    Endpoint::bind(EndpointConfig::client(generate_key().expect("a key"))).expect("binds")
}

async fn pair_of(client: &Endpoint, server: &Endpoint) -> (Connection, Connection) {
    let port = server.local_addr().port();
    let connect = client.connect(("127.0.0.1", port), server.public_key());
    let (near, far) = tokio::join!(connect, server.accept());
    (near.expect("connects"), far.expect("comes").accept())
}

async fn pair() -> (Endpoint, Connection, Endpoint, Connection) {
    let (client, server) = (client(), server_at("127.0.0.1:0"));
    let (near, far) = pair_of(&client, &server).await;
    (client, near, server, far)
}

fn bytes(n: usize) -> Vec<u8> {
    let byte = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (0..n as u64).map(byte).collect()
}
