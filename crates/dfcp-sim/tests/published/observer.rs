//! Observers see the published wire as they see the sealed one, and change nothing.

use crate::common::{SECOND, finish, lossy, pair, small};
use dfcp_proto::Instant;
use dfcp_proto::observe::{Ending, Metrics, Observation, Observe, PacketInfo, PacketKind, Role};
use dfcp_proto::published::{Config, Error, State, Stats};
use dfcp_sim::{PublishedTransfer, Side};
use std::sync::{Arc, Mutex};

const SIZE: u64 = 400_000;

/// What was told of one end.
#[derive(Clone, Debug, Default)]
struct Seen {
    sent: Vec<PacketKind>,
    received: Vec<PacketKind>,
    lost: u64,
    metrics: u64,
    block_bytes: u64,
    established: u64,
    closed: Option<Option<Error>>,
    last: Instant,
}

impl Seen {
    fn count(packets: &[PacketKind], kind: PacketKind) -> usize {
        packets.iter().filter(|&&other| other == kind).count()
    }
}

type Ends = Arc<Mutex<[Seen; 2]>>;

#[derive(Debug)]
struct Witness(Role, Ends);

impl Observe for Witness {
    fn observe(&mut self, now: Instant, event: &Observation<'_>) {
        let seen = &mut self.1.lock().expect("no test failed with it")[self.0 as usize];
        assert!(now >= seen.last, "time goes forward");
        // Late segments of the peer are answered.
        let ending = |packet: &PacketInfo| packet.kind == PacketKind::Ending;
        assert!(match event {
            Observation::Sent(packet) | Observation::Received(packet) if ending(packet) => true,
            _ => seen.closed.is_none(),
        });
        seen.last = now;
        match *event {
            Observation::Established { peer } => {
                assert_eq!(peer, None);
                seen.established += 1;
            }
            Observation::Sent(packet) => {
                let numbered = matches!(packet.kind, PacketKind::Data | PacketKind::BlockAck);
                assert_eq!(packet.number.is_some(), numbered, "{packet:?}");
                seen.sent.push(packet.kind);
            }
            Observation::Received(packet) => {
                // Data and answers belong to a connection that is there.
                let early = matches!(packet.kind, PacketKind::Syn | PacketKind::SynAck);
                let opens = packet.kind == PacketKind::HandshakeAck;
                assert!(early || opens || seen.established == 1, "{packet:?}");
                seen.received.push(packet.kind);
            }
            Observation::Lost {
                number, packets, ..
            } => {
                assert_eq!(number, None);
                seen.lost += packets;
                assert!(seen.lost <= seen.sent.len() as u64);
            }
            Observation::Metrics(metrics) => {
                assert!(metrics.min_rtt <= metrics.latest_rtt);
                seen.metrics += 1;
            }
            Observation::Blocks { bytes } => seen.block_bytes += bytes,
            Observation::Closed(Ending::Published(why)) => seen.closed = Some(why.cloned()),
            _ => {}
        }
    }
}

fn run(config: Config, seed: u64) -> (Instant, [Stats; 2]) {
    let mut pair = pair(lossy(20, 0.05), config, seed);
    assert!(pair.establish(20 * SECOND), "seed {seed}");
    let mut transfer = PublishedTransfer::new(Side::Client, SIZE);
    assert!(pair.run_until(30 * SECOND, |pair| transfer.poll(pair)));
    let stats = Side::BOTH.map(|side| pair.connection(side).stats());
    let done = pair.now;
    finish(&mut pair, Side::Server);
    assert!(pair.run_until(60 * SECOND, |pair| pair.states() == [State::Closed; 2]));
    (done, stats)
}

#[test]
fn an_observer_sees_what_happens_and_changes_nothing() {
    for seed in 91..94 {
        let (ends, metrics) = (Ends::default(), Metrics::default());
        let (shared, counting) = (ends.clone(), metrics.clone());
        let watched = small()
            .observer(move |vantage| Some(Box::new(Witness(vantage.role, shared.clone()))))
            .observer(move |_| Some(counting.observer()));
        let (done, stats) = run(watched, seed);
        assert_eq!((done, stats), run(small(), seed), "seed {seed}");
        let ends = ends.lock().expect("no test failed with it");
        for (here, there) in [(0, 1), (1, 0)] {
            let (seen, other) = (&ends[here], &ends[there]);
            assert_eq!(seen.established, 1, "seed {seed}");
            assert_eq!(seen.closed, Some(None), "in order, seed {seed}");
            let data = Seen::count(&seen.sent, PacketKind::Data) as u64;
            assert_eq!(data, stats[here].data_packets, "seed {seed}");
            assert_eq!(seen.block_bytes, [0, SIZE][here], "seed {seed}");
            // Nothing comes that was not sent.
            for kind in [PacketKind::Data, PacketKind::BlockAck, PacketKind::Report] {
                let came = Seen::count(&seen.received, kind);
                assert!(came <= Seen::count(&other.sent, kind), "{kind:?}, {seed}");
            }
        }
        assert!(ends[0].lost > 0 && ends[0].metrics > 0, "seed {seed}");
        let came = Seen::count(&ends[1].received, PacketKind::BlockAck);
        assert_eq!(came, 0, "the client has nothing to acknowledge");

        let counters = metrics.counters();
        let sent = ends.iter().map(|seen| seen.sent.len() as u64).sum::<u64>();
        assert_eq!(
            (counters.packets_sent, counters.packets_lost),
            (sent, ends[0].lost)
        );
        assert_eq!((counters.begun, counters.established), (2, 2));
        assert_eq!((counters.closed, counters.failed), (2, 0));
        assert_eq!(counters.block_bytes, SIZE);
        assert!(counters.coding_overhead() > 0.09, "ε is a tenth");
    }
}
