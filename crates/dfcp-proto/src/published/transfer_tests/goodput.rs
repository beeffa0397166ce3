//! What share of what arrives is useful.

use super::*;

/// Useful bytes after `warm_up`, as a fraction of what packets arriving at `arriving` could carry
/// with P packets a block.
fn efficiency(
    settled: &Settled,
    network: Network,
    arriving: Rate,
    (warm_up, measured): (u64, u64),
) -> f64 {
    let mut simulation = Simulation::new(settled, network, Box::new(MaxRate), 1);
    simulation.to_write = 1 << 50;
    simulation.run(BEGIN + Duration::from_millis(warm_up));
    let before = simulation.receiver.stats().bytes;
    simulation.run(BEGIN + Duration::from_millis(warm_up + measured));
    let bytes = (simulation.receiver.stats().bytes - before) as f64;
    let packets = arriving.as_bps() as f64 / 8.0 / PACKET as f64 * measured as f64 / 1000.0;
    let block = settled.block_bytes();
    let ideal = packets / f64::from(settled.packets_needed(block)) * f64::from(block);
    bytes / ideal
}

const GIGABIT: u64 = 1_000_000_000;

#[test]
fn without_loss_a_block_takes_exactly_its_packets() {
    for sending in [
        Sending::Rateless,
        Sending::Expected,
        Sending::Adaptive,
        Sending::Fixed { extra: 0.1 },
    ] {
        let settled = settled(10_000, sending);
        let network = Network::clean(GIGABIT, Duration::from_millis(10));
        let mut simulation = Simulation::new(&settled, network, Box::new(MaxRate), 1);
        simulation.to_write = 1 << 50;
        simulation.run(BEGIN + Duration::from_secs(1));
        let stats = simulation.sender.stats();
        // 83333 packets, 49 a block.
        assert_eq!(stats.packets, 83_334, "{sending:?}");
        assert_eq!(stats.extra_packets, 0, "{sending:?}");
        assert!(stats.blocks_acked >= 83_334 / 49 - 20, "{sending:?}");
    }
}

#[test]
fn random_loss_costs_what_is_lost_and_little_more() {
    for sending in [Sending::Rateless, Sending::Expected] {
        for window in [1000, 10_000] {
            for rtt in [800, 10_000, 100_000] {
                for loss in [0.01, 0.1, 0.5] {
                    let mut network = Network::clean(GIGABIT, Duration::from_micros(rtt));
                    network.loss = loss;
                    let arriving = network.access.mul_f64(1.0 - loss);
                    let settled = settled(window, sending);
                    let share = efficiency(&settled, network, arriving, (700, 1300));
                    assert!(
                        share > 0.97,
                        "{sending:?} {window} {rtt} µs {loss}: {share}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_sender_far_too_fast_for_its_bottleneck_wastes_little_of_it() {
    for sending in [Sending::Rateless, Sending::Expected] {
        for rtt in [10_000, 100_000] {
            // 52 % are dropped, 90 %, then 99 %.
            let shares = [
                (480_000_000, 1000),
                (100_000_000, 4000),
                (10_000_000, 20_000),
            ];
            for (share, measured) in shares {
                let mut network = Network::clean(GIGABIT, Duration::from_micros(rtt));
                network.share = Some((Rate::from_bps(share), 100));
                let settled = settled(10_000, sending);
                let arriving = Rate::from_bps(share);
                let share = efficiency(&settled, network, arriving, (3000, measured));
                assert!(share > 0.99, "{sending:?} {rtt} µs {arriving}: {share}");
            }
        }
    }
}

#[test]
fn loss_that_comes_suddenly_costs_a_few_round_trips() {
    for sending in [Sending::Rateless, Sending::Expected] {
        let rtt = Duration::from_millis(20);
        let mut network = Network::clean(GIGABIT, rtt);
        network.later = Some((Duration::from_millis(500), 0.3));
        let arriving = network.access.mul_f64(0.7);
        // Of the six round trips that follow, blocks in flight take two, and their careful repair
        // some of the others.
        let share = efficiency(&settled(1000, sending), network, arriving, (500, 120));
        assert!(share > 0.5, "first: {share}");
        let share = efficiency(&settled(1000, sending), network, arriving, (620, 500));
        assert!(share > 0.97, "then: {share}");
    }
}

/// Time from the first packet to the last byte read.
fn completion(settled: &Settled, network: Network, bytes: u64, seed: u64) -> Duration {
    let mut simulation = Simulation::new(settled, network, Box::new(MaxRate), seed);
    simulation.to_write = bytes;
    simulation.run(BEGIN + Duration::from_secs(60));
    assert_eq!(simulation.read, bytes, "seed {seed}");
    simulation.last_read.saturating_since(BEGIN)
}

#[test]
fn a_short_object_takes_half_a_round_trip_and_its_transmission() {
    for rtt in [1, 10, 100] {
        let rtt = Duration::from_millis(rtt);
        for (loss, packets) in [(0.0, 147), (0.1, 147 * 13 / 10)] {
            for seed in 0..20 {
                let mut network = Network::clean(GIGABIT, rtt);
                network.loss = loss;
                let time = completion(&settled(10_000, Sending::Rateless), network, 150_000, seed);
                let least = rtt / 2 + network.access.time_for(packets * PACKET);
                assert!(
                    time <= least,
                    "{rtt:?} {loss} seed {seed}: {time:?} > {least:?}"
                );
            }
        }
    }
}

#[test]
fn a_short_object_in_a_block_of_its_own_size_is_faster() {
    let published = settled(10_000, Sending::Rateless);
    let flexible = BlockSize::Flexible { bytes: 150_000 };
    let own = Settled {
        code: Code::Raptor(flexible.apply(&RaptorParameters::published(published.initial))),
        symbols_per_packet: 1456 / 3,
        ..published.clone()
    };
    let network = Network::clean(10_000_000, Duration::from_millis(10));
    let three_blocks = completion(&published, network, 150_000, 1);
    let one_block = completion(&own, network, 150_000, 1);
    assert!(
        one_block * 10 < three_blocks * 8,
        "{one_block:?} {three_blocks:?}"
    );
}
