//! A client whose key may come, and that speaks as none of ours does.

use dfcp::{Chunk, Connection, Error, RecvStream, SendStream, VarInt};
use dfcp_proxy::{Limits, Status};

use crate::common::{Plan, World, echo, rules, within};

const MALFORMED: VarInt = VarInt::from_u32(2);
const LISTEN: u8 = 2;
const ACCEPTED: u8 = 3;
const ASSOCIATE: u8 = 4;

/// A stream that begins so.
async fn ask(connection: &Connection, request: &[u8]) -> (SendStream, RecvStream) {
    let (mut send, recv) = within(connection.open_bi()).await.unwrap();
    send.write_chunk(request.to_vec().into()).await.unwrap();
    (send, recv)
}

/// The first byte of the answer; the code of a reset.
async fn answer(recv: &mut RecvStream) -> Result<u8, VarInt> {
    match within(recv.read_chunk(1)).await {
        Ok(Chunk::Data(bytes)) => Ok(bytes[0]),
        Err(Error::Reset(code)) => Err(code),
        other => panic!("{other:?}"),
    }
}

fn connect(host: &[u8], port: u16) -> Vec<u8> {
    [&[1][..], host, &port.to_be_bytes()].concat()
}

#[tokio::test]
async fn requests_that_are_none_end_and_leave_the_streams_of_the_key_alone() {
    const STREAMS: u64 = 4;
    let plan = Plan {
        listen: Some(rules(&["127.0.0.1:0"])),
        limits: Limits {
            streams: STREAMS,
            ..Limits::default()
        },
        ..Plan::default()
    };
    let (world, host) = (World::with(plan).await, echo().await);
    let hostile = world.another_connection().await;
    // Streams that say nothing, or half of what they want, are there all the time.
    let mut silent = Vec::new();
    for number in 0..500 {
        let begun = &connect(b"\x03\xffname", 80)[..number % 8];
        silent.push(ask(&hostile, begun).await);
    }
    let named = |name: &[u8]| [&[3, name.len() as u8][..], name].concat();
    let loopback_v4 = [&[1][..], &[127, 0, 0, 1]].concat();
    for request in [
        vec![0],
        vec![9; 300],
        connect(&[2, 2], 80),
        connect(&named(b""), 80),
        connect(&named(b"\xff\xfe"), 80),
        connect(&named(b"a\0b"), 80),
        connect(&named(b"a/b"), 80),
        connect(&named(b"[::1]"), 80),
        [&[ACCEPTED, 0, 0, 0, 0][..], &loopback_v4, &[0, 80]].concat(),
    ] {
        let (_send, mut recv) = ask(&hostile, &request).await;
        assert_eq!(answer(&mut recv).await, Err(MALFORMED), "{request:?}");
    }
    let forbidden = [
        vec![1, 0, 0, 0, 0],
        [&[4][..], &[0; 16]].concat(),
        [&[4][..], &[0; 10], &[0xff, 0xff, 10, 0, 0, 1]].concat(),
        [&[4, 0, 0x64, 0xff, 0x9b][..], &[0; 8], &[127, 0, 0, 1]].concat(),
    ];
    for host in forbidden {
        let (_send, mut recv) = ask(&hostile, &connect(&host, 80)).await;
        assert_eq!(
            answer(&mut recv).await,
            Ok(Status::Forbidden as u8),
            "{host:?}"
        );
    }
    // A name of 255 bytes is one, and nobody has it.
    let (_send, mut recv) = ask(&hostile, &connect(&named(&[b'a'; 255]), 80)).await;
    assert_eq!(answer(&mut recv).await, Ok(Status::HostUnreachable as u8));
    let listen = |at: &[u8]| [&[LISTEN, 0, 0, 0, 7][..], at].concat();
    let privileged = [&loopback_v4[..], &[0, 80]].concat();
    let everywhere = [1, 0, 0, 0, 0, 0, 0];
    let by_name = [&named(b"localhost")[..], &[0, 0]].concat();
    for (at, status) in [
        (&privileged[..], Status::Forbidden),
        (&everywhere, Status::Forbidden),
        (&by_name, Status::HostUnreachable),
    ] {
        let (_send, mut recv) = ask(&hostile, &listen(at)).await;
        assert_eq!(answer(&mut recv).await, Ok(status as u8), "{at:?}");
    }
    let request = [ASSOCIATE, 0, 0, 0, 7];
    let (_first, mut recv) = ask(&hostile, &request).await;
    assert_eq!(answer(&mut recv).await, Ok(Status::Connected as u8));
    // Another one with the same number is none, and nobody is told that it is there.
    let (_second, mut recv) = ask(&hostile, &request).await;
    assert_eq!(answer(&mut recv).await, Err(MALFORMED));
    // The key has what it may have, but for the first association.
    let mut open = Vec::new();
    for _ in 0..STREAMS - 1 {
        open.push(world.connect(host).await);
    }
    drop(silent);
}
