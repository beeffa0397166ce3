//! What an observer sees is what happens, and it changes nothing.

use crate::common::*;
use dfcp_proto::observe::{Metrics, Observation, Observe, PacketInfo};
use dfcp_proto::{
    ChannelKind, ConnectionStats, Instant, Role, SecretRng, StaticKey, TransportConfig,
};
use dfcp_sim::{Pair, PairConfig, Side};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// What was told of one end.
#[derive(Debug, Default)]
struct Seen {
    /// Sealed packets by number: their size.
    sent: BTreeMap<u64, u64>,
    received: BTreeMap<u64, u64>,
    lost: BTreeMap<u64, u64>,
    established: usize,
    metrics: usize,
    symbols: usize,
    redundant: usize,
    block_bytes: u64,
    last: Instant,
}

const SIZE: u64 = 2_000_000;

type Ends = Arc<Mutex<[Seen; 2]>>;

#[derive(Debug)]
struct Witness(Role, Ends);

impl Observe for Witness {
    fn observe(&mut self, now: Instant, event: &Observation<'_>) {
        let seen = &mut self.1.lock().expect("no test failed with it")[self.0 as usize];
        assert!(now >= seen.last, "time goes forward");
        seen.last = now;
        let sealed = |packet: &PacketInfo| packet.number.map(|number| (number, packet.size));
        match *event {
            Observation::Established { .. } => seen.established += 1,
            Observation::Sent(packet) => {
                let Some((number, size)) = sealed(&packet) else {
                    return;
                };
                let newest = seen.sent.last_key_value().map(|(&number, _)| number);
                assert!(newest.is_none_or(|newest| newest < number), "used twice");
                seen.sent.insert(number, size);
            }
            Observation::Received(packet) => {
                let (number, size) = sealed(&packet).expect("sealed packets only");
                let before = seen.received.insert(number, size);
                assert_eq!(before, None, "taken twice");
            }
            Observation::Lost {
                number,
                packets,
                bytes,
            } => {
                let number = number.expect("sealed packets have numbers");
                assert_eq!((packets, seen.sent.get(&number)), (1, Some(&bytes)));
                assert_eq!(seen.lost.insert(number, bytes), None, "lost twice");
            }
            Observation::Symbols { redundant, .. } => {
                seen.symbols += 1;
                seen.redundant += usize::from(redundant);
            }
            Observation::Blocks { bytes } => seen.block_bytes += bytes,
            Observation::Metrics(metrics) => {
                let sent: u64 = seen.sent.values().sum();
                assert!(metrics.bytes_in_flight <= sent);
                assert!(metrics.min_rtt <= metrics.latest_rtt);
                seen.metrics += 1;
            }
            _ => {}
        }
    }
}

fn run(transport: TransportConfig, seed: u64) -> (Instant, [ConnectionStats; 2]) {
    let mut config = PairConfig::symmetric(lossy(0.05), seed);
    (config.client, config.server) = (transport.clone(), transport);
    let mut pair = transfer(config, ChannelKind::Object, SIZE, 60 * SECOND);
    let stats = Side::BOTH.map(|side| pair.connection(side).stats());
    (pair.now, stats)
}

#[test]
fn an_observer_sees_what_happens_and_changes_nothing() {
    for seed in 81..84 {
        let ends = Ends::default();
        let shared = ends.clone();
        let watched = TransportConfig::default()
            .observer(move |vantage| Some(Box::new(Witness(vantage.role, shared.clone()))));
        let (done, stats) = run(watched, seed);
        let (alone, plain) = run(TransportConfig::default(), seed);
        assert_eq!(done, alone, "seed {seed}");
        assert_eq!(format!("{stats:?}"), format!("{plain:?}"), "seed {seed}");
        let ends = ends.lock().expect("no test failed with it");
        for (here, there) in [(0, 1), (1, 0)] {
            let (seen, other) = (&ends[here], &ends[there]);
            assert_eq!(seen.established, 1, "seed {seed}");
            assert!(seen.metrics > 0, "seed {seed}");
            assert_eq!(
                seen.lost.len() as u64,
                stats[here].packets_lost,
                "seed {seed}"
            );
            assert_eq!(seen.received.len() as u64, stats[here].packets_received);
            assert_eq!(seen.symbols as u64, stats[here].symbols_received);
            assert_eq!(seen.redundant as u64, stats[here].redundant_symbols);
            // Each byte becomes whole once, and only where it is sent to.
            assert_eq!(seen.block_bytes, [0, SIZE][here], "seed {seed}");
            // Nothing comes that was not sent, and as it was sent.
            let sent = |number: &u64| other.sent.get(number);
            assert!(seen.received.iter().all(|(n, size)| sent(n) == Some(size)));
        }
    }
}

#[test]
fn counters_say_what_a_transfer_took() {
    let (sender, receiver) = (Metrics::default(), Metrics::default());
    let ends = [sender.clone(), receiver.clone()];
    // Beside another observer: neither takes the other's place.
    let seen = Ends::default();
    let shared = seen.clone();
    let watched = TransportConfig::default()
        .observer(move |vantage| Some(ends[vantage.role as usize].observer()))
        .observer(move |vantage| Some(Box::new(Witness(vantage.role, shared.clone()))));
    let (done, stats) = run(watched, 81);
    let (sender, receiver) = (sender.counters(), receiver.counters());
    for (counters, stats) in [(sender, &stats[0]), (receiver, &stats[1])] {
        assert_eq!((counters.begun, counters.established), (1, 1));
        assert_eq!((counters.refused, counters.failed), (0, 0));
        assert_eq!(counters.packets_sent, stats.packets_sent);
        assert_eq!(counters.bytes_sent, stats.bytes_sent);
        assert_eq!(counters.packets_lost, stats.packets_lost);
    }
    let seen = seen.lock().expect("no test failed with it");
    assert_eq!(seen[1].received.len() as u64, receiver.packets_received);
    // 5 % of the packets are lost, and what arrives beyond need is little.
    assert!((0.03..0.08).contains(&sender.loss()), "{sender:?}");
    assert_eq!(receiver.block_bytes, SIZE);
    let overhead = receiver.coding_overhead();
    assert!((0.0..0.05).contains(&overhead), "{overhead}");
    assert!(receiver.symbol_bytes - receiver.redundant_bytes <= SIZE + SIZE / 50);
    // The bottleneck's queue, some, but not more than all there is of it.
    let queueing = sender.mean_queueing();
    assert!(
        sender.queueing_samples > 10 && queueing > 50 * MS(1) / 1000,
        "{queueing:?}"
    );
    assert!(queueing < done.saturating_since(Instant::ZERO));
}

#[test]
fn counters_tell_who_was_refused_from_who_failed() {
    let metrics = Metrics::default();
    let watched = |metrics: &Metrics| {
        let metrics = metrics.clone();
        TransportConfig::default().observer(move |_| Some(metrics.observer()))
    };
    // A server with another key than expected; then one that does not answer.
    let other = StaticKey::generate(&mut SecretRng::new(&[7; 32], "other")).public();
    for (peer, loss) in [(Some(other), 0.0), (None, 1.0)] {
        let mut config = PairConfig::symmetric(lossy(loss), 85);
        config.client = watched(&metrics);
        let mut pair = Pair::new(config);
        pair.connect_to(peer);
        pair.run_until(60 * SECOND, |_| false);
    }
    let counters = metrics.counters();
    assert_eq!((counters.begun, counters.closed), (2, 0), "{counters:?}");
    assert_eq!((counters.refused, counters.failed), (1, 1), "{counters:?}");
}
