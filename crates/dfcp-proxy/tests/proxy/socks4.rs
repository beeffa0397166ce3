//! Programs that speak SOCKS 4 and 4A.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::{World, echo, nobody, within};

/// A request to `command` at a port of an address, with a user, and what follows that.
fn request(command: u8, port: u16, ip: [u8; 4], rest: &[u8]) -> Vec<u8> {
    let port = port.to_be_bytes();
    [&[4, command][..], &port, &ip, b"anna\0", rest].concat()
}

#[tokio::test]
async fn they_reach_addresses_and_names_and_what_follows_the_request_is_carried() {
    let (world, host) = (World::new().await, echo().await);
    for (ip, name) in [
        ([127, 0, 0, 1], &b""[..]),
        ([0, 0, 0, 1], b"127.0.0.1\0"),
        ([0, 0, 0, 255], b"localhost\0"),
    ] {
        let said = request(1, host.port(), ip, name);
        // In two pieces, wherever it is cut.
        for cut in [1, 8, said.len() - 1] {
            let mut tcp = TcpStream::connect(world.local).await.unwrap();
            tcp.write_all(&said[..cut]).await.unwrap();
            tokio::task::yield_now().await;
            let rest = [&said[cut..], b"early"].concat();
            tcp.write_all(&rest).await.unwrap();
            let mut heard = [0; 13];
            within(tcp.read_exact(&mut heard)).await.unwrap();
            assert_eq!(&heard, b"\0\x5a\0\0\0\0\0\0early");
        }
    }
}

#[tokio::test]
async fn what_they_do_not_get_is_rejected() {
    let (world, host, gone) = (World::new().await, echo().await, nobody().await);
    let here = [127, 0, 0, 1];
    let long_user = [&[4, 1, 0, 80, 127, 0, 0, 1][..], &[b'a'; 256]].concat();
    let long_name = [&[b'a'; 256][..], b"\0"].concat();
    for said in [
        request(2, host.port(), here, b""), // BIND
        request(9, host.port(), here, b""),
        request(1, gone.port(), here, b""),
        request(1, host.port(), [0, 0, 0, 1], b"name.invalid\0"),
        request(1, host.port(), [0, 0, 0, 1], b"\0"),
        request(1, host.port(), [0, 0, 0, 1], b"a b\0"),
        request(1, host.port(), [0, 0, 0, 1], b"\xff\0"),
        request(1, host.port(), [0, 0, 0, 1], &long_name),
        // 0.0.0.0 is no host.
        request(1, host.port(), [0, 0, 0, 0], b""),
        long_user,
    ] {
        let answer = world.answer_to(&said).await;
        assert_eq!(answer, [0, 91, 0, 0, 0, 0, 0, 0], "{said:?}");
    }
}
