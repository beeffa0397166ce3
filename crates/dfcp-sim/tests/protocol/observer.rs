//! What an observer sees is what happens, and it changes nothing.

use crate::common::*;
use dfcp_proto::observe::{Observation, Observe, PacketInfo};
use dfcp_proto::{ChannelKind, ConnectionStats, Instant, Role, TransportConfig};
use dfcp_sim::{PairConfig, Side};
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
    last: Instant,
}

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
            Observation::Lost { number, size } => {
                assert_eq!(seen.sent.get(&number), Some(&size), "never sent");
                assert_eq!(seen.lost.insert(number, size), None, "lost twice");
            }
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
    let mut pair = transfer(config, ChannelKind::Object, 2_000_000, 60 * SECOND);
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
            // Nothing comes that was not sent, and as it was sent.
            let sent = |number: &u64| other.sent.get(number);
            assert!(seen.received.iter().all(|(n, size)| sent(n) == Some(size)));
        }
    }
}
