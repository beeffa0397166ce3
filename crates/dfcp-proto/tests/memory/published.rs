//! The same of the published wire: what is told of a window in the handshake is never taken back, so all
//! of it counts from then on.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use dfcp_proto::Instant;
use dfcp_proto::published::header::{Header, Kind, PseudoHeader, seal};
use dfcp_proto::published::{
    Code, Config, Endpoint, GeneratorState, Listen, RaptorParameters, Read,
};

use super::{BUDGET, CONNECTIONS, COUNTS, LIVE, MIB};

const PORT: u16 = 7;
const SYMBOL: u16 = 200;
const SYMBOLS: u32 = 300;

fn config() -> Config {
    let code = RaptorParameters {
        k: SYMBOLS,
        n: SYMBOLS + 30,
        symbol_size: SYMBOL,
        ..RaptorParameters::published(GeneratorState::from_seed(1))
    };
    Config {
        code: Code::Raptor(code),
        // A quarter of what all may have, so that few suffice to pass it.
        receive_budget: BUDGET as u64 / 4,
        ..Config::default()
    }
}

fn server() -> Endpoint {
    let listen = Listen {
        port: PORT,
        config: Arc::new(config()),
        max_connections: CONNECTIONS,
        memory: BUDGET as u64,
    };
    Endpoint::new(Some(listen), 1)
}

fn server_address() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 1))
}

/// States of as many packets as anybody sends here, others for each port.
fn states(port: u16) -> impl Iterator<Item = GeneratorState> {
    (u32::from(port) << 16..).map(GeneratorState::from_seed)
}

/// Somebody who has done what a client does up to the handshake's end, and then sends what he likes.
struct Hostile {
    address: SocketAddr,
    port: u16,
    window: u32,
}

/// Has what one side sends arrive at the other; the last SYNACK among it.
fn pass(
    now: Instant,
    from: &mut Endpoint,
    to: &mut Endpoint,
    source: SocketAddr,
) -> Option<Vec<u8>> {
    let (mut buffer, mut synack) = (Vec::new(), None);
    while from.poll_transmit(now, 1, &mut buffer).is_some() {
        to.handle_packet(now, source, 0, &buffer);
        let header = Header::parse(&buffer, &PseudoHeader::Udp);
        if matches!(
            header,
            Ok((
                Header {
                    kind: Kind::SynAck,
                    ..
                },
                _
            ))
        ) {
            synack = Some(buffer.clone());
        }
        buffer.clear();
    }
    synack
}

impl Hostile {
    fn connect(now: Instant, server: &mut Endpoint, number: usize) -> Self {
        let address = SocketAddr::from(([10, 0, 1, number as u8], 9));
        let mut client = Endpoint::new(None, number as u64);
        // What he says of himself has no bounds.
        let greedy = Config {
            receive_budget: u64::MAX,
            ..config()
        };
        let handle = client.connect(now, server_address(), PORT, Arc::new(greedy));
        let handle = handle.expect("a port");
        pass(now, &mut client, server, address);
        let synack = pass(now, server, &mut client, server_address()).expect("an answer");
        pass(now, &mut client, server, address);
        let connection = client.peek(handle).expect("connected");
        // The window that the SYNACK tells: after four bytes of modes, K and N, the symbol's size, the list's
        // length, c and delta.
        let at = 24 + 4 + 4 + 4 + 2 + 2 + 4 + 4;
        let window = u32::from_be_bytes(synack[at..at + 4].try_into().expect("four bytes"));
        Self {
            address,
            port: connection.ports().0,
            window,
        }
    }

    /// Nearly all of every block of the window.
    fn fill(&self, now: Instant, server: &mut Endpoint) {
        let payload = [7; 7 * SYMBOL as usize];
        let packets = SYMBOLS as usize / 7;
        let mut states = states(self.port);
        for block in 0..self.window {
            for state in states.by_ref().take(packets) {
                let header = Header {
                    source: self.port,
                    destination: PORT,
                    block,
                    state,
                    kind: Kind::Data {
                        echo: false,
                        short: false,
                    },
                    report: None,
                };
                let mut packet = Vec::new();
                header.emit(&mut packet);
                packet.extend_from_slice(&payload);
                seal(&mut packet, &PseudoHeader::Udp);
                server.handle_packet(now, self.address, 0, &packet);
            }
        }
    }
}

#[test]
fn senders_of_the_published_wire_never_pass_the_budget_and_leave_others_their_share() {
    let _alone = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::from_nanos(5);
    let mut server = server();
    let before = LIVE.load(Relaxed);
    let (mut hostile, mut accepted_all) = (Vec::new(), Vec::new());
    for number in 1..CONNECTIONS {
        let one = Hostile::connect(now, &mut server, number);
        one.fill(now, &mut server);
        let accepted = server.accept();
        accepted_all.push(accepted.unwrap_or_else(|| panic!("number {number} is not in")));
        hostile.push(one);
        let held = LIVE.load(Relaxed) - before;
        println!(
            "{number}: {} blocks, {held} bytes",
            hostile[number - 1].window
        );
        assert!(
            held <= BUDGET + BUDGET / 4,
            "{number} senders make it hold {} MiB",
            held / MIB
        );
    }
    let held = LIVE.load(Relaxed) - before;
    assert!(held > BUDGET / 2, "that was no attack: {held}");
    assert_eq!(server.stats().beyond_window, 0);
    let windows: Vec<u32> = hostile.iter().map(|one| one.window).collect();
    assert!(
        windows[0] > windows[3] && windows[CONNECTIONS - 2] > 0,
        "{windows:?}"
    );
    honest_one_gets_through(now, &mut server);
    // Who leaves makes room for the next.
    for accepted in accepted_all {
        server.forget(accepted);
    }
    let next = Hostile::connect(now, &mut server, CONNECTIONS);
    assert!(next.window > windows[1], "{} of {windows:?}", next.window);
}

fn honest_one_gets_through(mut now: Instant, server: &mut Endpoint) {
    let address = SocketAddr::from(([192, 0, 2, 1], 9));
    let mut client = Endpoint::new(None, 99);
    let handle = client.connect(now, server_address(), PORT, Arc::new(config()));
    let handle = handle.expect("a port");
    pass(now, &mut client, server, address);
    pass(now, server, &mut client, server_address());
    pass(now, &mut client, server, address);
    let accepted = server.accept().expect("there is a place for him");
    let (total, mut written, mut read) = (4 * MIB, 0, 0);
    let data: Vec<u8> = (0..total).map(|i| (i % 251) as u8).collect();
    let mut out = vec![0; 64 << 10];
    let mut buffer = Vec::new();
    for _ in 0..100_000 {
        now += dfcp_proto::Duration::from_millis(1);
        let connection = client.connection(handle).expect("connected");
        written += connection.write(now, &data[written..]).expect("taken");
        connection.flush(now);
        client.handle_timeout(now);
        // A few packets at a time: as fast as the host can is a flood.
        for _ in 0..50 {
            if client.poll_transmit(now, 1, &mut buffer).is_none() {
                break;
            }
            server.handle_packet(now, address, 0, &buffer);
            buffer.clear();
        }
        let connection = server.connection(accepted).expect("accepted");
        while let Some(mut job) = connection.take_solve_job() {
            job.run();
            connection.finish_solve(now, job);
        }
        while let Ok(Read::Data(n)) = connection.read(now, &mut out) {
            assert!(out[..n] == data[read..read + n]);
            read += n;
        }
        pass(now, server, &mut client, server_address());
        if read == total {
            return;
        }
    }
    panic!("{read} of {total} bytes arrived");
}
