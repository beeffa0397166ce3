//! A panic behind the library's back is told to everyone who waits.

use dfcp::{Endpoint, EndpointConfig, generate_key};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// Nothing here takes long; a hang is a failure, not a wait.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_panic_in_the_driver_is_told_to_everyone_who_waits() {
    let bind: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let key = || generate_key().expect("a key");
    let asked = AtomicUsize::new(0);
    // The application's own function runs in the driver's task, and fails with the second client.
    let authorize = move |_: &_| {
        assert_eq!(asked.fetch_add(1, Ordering::Relaxed), 0, "as it should");
        true
    };
    let config = EndpointConfig::server(key(), bind).authorize(authorize);
    let server = Endpoint::bind(config).expect("binds");
    let client = || Endpoint::bind(EndpointConfig::client(key())).expect("binds");
    let (first, second) = (client(), client());
    let connect = first.connect(server.local_addr(), None);
    let (near, far) = tokio::join!(connect, server.accept());
    let (near, far) = (near.expect("connects"), far.expect("accepts").accept());
    let (mut out, _back) = near.open_bi().await.expect("opens");
    tokio::io::AsyncWriteExt::write_all(&mut out, b"!")
        .await
        .expect("fits");
    let (_answer, mut inside) = far.accept_bi().await.expect("comes");
    inside.read_u8().await.expect("arrives");

    let mut next = [0];
    let everyone = async {
        tokio::join!(
            // Nobody serves this one: whether it learns that in time is its own affair.
            async { drop(second.connect(server.local_addr(), None).await) },
            server.accept(),
            server.wait_idle(),
            far.closed(),
            far.accept_bi(),
            inside.read(&mut next),
        )
    };
    let (_, accepted, (), _, stream, read) = tokio::time::timeout(PATIENCE, everyone)
        .await
        .expect("must not hang");
    assert!(accepted.is_none() && stream.is_err() && read.is_err());
}
