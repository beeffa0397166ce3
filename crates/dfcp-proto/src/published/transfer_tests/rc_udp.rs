//! RC-UDP (§IV): block by block, pre-coded, with pauses.

use super::super::config::RcUdpCode;
use super::super::data::Message;
use super::*;
use crate::profile::rc_udp;
use crate::rate::BlockWait;

/// RC-UDP with blocks of `k` symbols of 16 bytes, one a packet.
fn rc_udp(code: RcUdpCode, k: u32, payload: Payload) -> Settled {
    let code = code.code(k, 16);
    let base = settled(rc_udp::WINDOW, Sending::Rateless);
    Settled {
        coder: (payload == Payload::Real).then(|| Coder::new(&code).expect("within limits")),
        code,
        payload,
        at_once: 1,
        redundancy: Redundancy {
            epsilon: rc_udp::EPSILON,
            ..base.redundancy
        },
        symbols_per_packet: 1,
        send_buffer: 1 << 20,
        ..base
    }
}

fn of_length(settled: &Settled, bytes: u64) -> Settled {
    Settled {
        message: Message::new(bytes, &settled.code),
        ..settled.clone()
    }
}

fn waiting() -> Box<dyn RateController> {
    Box::new(BlockWait::new(Box::new(MaxRate), rc_udp::DELTA_T))
}

#[test]
fn messages_arrive_over_lossy_paths_with_both_codes() {
    // The RaptorQ crate checks itself slowly in debug builds: fewer symbols.
    for (code, k) in [(RcUdpCode::RaptorQ, 120), (RcUdpCode::Raptor, 977)] {
        for (bytes, loss) in [(10 * k, 0.1), (16 * k, 0.1), (1, 0.3), (48 * k + 1, 0.0)] {
            for message in [true, false] {
                let stream = rc_udp(code, k as u32, Payload::Real);
                let settled = if message {
                    of_length(&stream, bytes)
                } else {
                    stream
                };
                let mut network = Network::clean(10_000_000, Duration::from_millis(10));
                (network.loss, network.ack_loss, network.chaos) = (loss, loss, 0.01);
                let mut simulation = Simulation::new(&settled, network, waiting(), bytes);
                simulation.to_write = bytes;
                simulation.run(BEGIN + Duration::from_secs(60));
                let what = format!("{code:?}, {bytes} bytes, loss {loss}, message {message}");
                assert_eq!(simulation.read, bytes, "{what}");
                assert!(simulation.sender.all_acked(), "{what}");
                if message {
                    let blocks = bytes.div_ceil(u64::from(settled.block_bytes()));
                    assert_eq!(u64::from(simulation.sender.blocks()), blocks, "{what}");
                }
            }
        }
    }
}

/// Sends two blocks and more over a clean path; gives the packets as they left.
fn departures(rate: Box<dyn RateController>) -> (Simulation, Vec<(Instant, u32)>) {
    let settled = rc_udp(RcUdpCode::RaptorQ, 100, Payload::Real);
    let network = Network::clean(12_000_000, Duration::from_millis(20));
    let mut simulation = Simulation::new(&settled, network, rate, 1);
    simulation.to_write = 5 * u64::from(settled.block_bytes());
    let mut seen = Vec::new();
    let (mut last, mut at) = (0, BEGIN);
    while simulation.read < 5 * 1600 && at < BEGIN + Duration::from_secs(5) {
        at += Duration::from_micros(100);
        simulation.run(at);
        let blocks = simulation.sender.blocks();
        if blocks > last {
            seen.push((at, blocks));
            last = blocks;
        }
    }
    (simulation, seen)
}

#[test]
fn one_block_at_a_time_with_the_next_one_ready_and_a_pause_for_what_was_too_much() {
    let (_, at_once) = departures(Box::new(MaxRate));
    let (simulation, paused) = departures(waiting());
    assert_eq!((simulation.read, at_once.len(), paused.len()), (8000, 5, 5));
    // 1 ms a packet and 20 ms until the ACK: 20 packets too many, which make 6 ms of pause.
    for (first, then) in at_once.windows(2).map(|w| (w[0].0, w[1].0)).skip(1) {
        let time = then.saturating_since(first);
        assert!(time > Duration::from_millis(120), "{time:?}");
        assert!(time < Duration::from_millis(124), "{time:?}");
    }
    for (first, then) in paused.windows(2).map(|w| (w[0].0, w[1].0)).skip(1) {
        let time = then.saturating_since(first);
        assert!(time > Duration::from_millis(126), "{time:?}");
        assert!(time < Duration::from_millis(131), "{time:?}");
    }
}

#[test]
fn a_block_that_waits_is_encoded_before_the_acknowledgement_comes() {
    let settled = rc_udp(RcUdpCode::RaptorQ, 10, Payload::Real);
    let mut sender = Sender::new(BEGIN, &settled, waiting());
    sender.write(&[1; 3 * 160]);
    let mut out = Vec::new();
    for _ in 0..11 {
        assert!(!sender.has_coded_ahead());
        assert_eq!(
            sender.poll_packet(BEGIN, &mut out).map(|p| p.header.block),
            Some(0)
        );
    }
    assert!(sender.has_coded_ahead());
    assert_eq!(
        sender.poll_packet(BEGIN, &mut out).map(|p| p.header.block),
        Some(0)
    );
}

#[test]
fn words_that_name_no_symbol_of_the_block_are_dropped() {
    let settled = rc_udp(RcUdpCode::RaptorQ, 10, Payload::Real);
    let settled = of_length(&settled, 165);
    let mut receiver = Receiver::new(BEGIN, &settled);
    let mut send = |block: u32, [s1, s2, s3]: [u32; 3], bytes: &[u8]| {
        let header = DataHeader {
            block,
            state: State::new(s1, s2, s3).expect("a state"),
            echo: false,
            short: false,
        };
        receiver.on_data(BEGIN, 0, &header, bytes);
        receiver.stats().malformed
    };
    let symbol = [0; 16];
    assert_eq!(send(0, [2, 8, 16 + 160], &symbol), 0);
    assert_eq!(send(1, [2, 9, 16 + 5], &symbol), 0);
    // Another symbol number than 24 bits hold, another block, another length, beyond the message.
    assert_eq!(send(0, [2 + (1 << 24), 8, 16 + 160], &symbol), 1);
    assert_eq!(send(0, [3, 9, 16 + 160], &symbol), 2);
    assert_eq!(send(0, [3, 8, 16 + 159], &symbol), 3);
    assert_eq!(send(1, [3, 9, 16 + 160], &symbol), 4);
    assert_eq!(send(2, [2, 10, 16 + 160], &symbol), 5);
    assert_eq!(send(0, [3, 8, 16], &symbol), 6);
    assert_eq!(send(0, [3, 8, u32::MAX], &symbol), 7);
    assert_eq!(send(0, [3, 8, 16 + 160], &symbol[1..]), 8);
}
