//! Every mode moves the bytes, whatever the network does.

use super::*;
use crate::rate::FixedRate;

fn chaotic(seed: u64) -> Network {
    let mut random = Random(seed);
    let mut upto = |most: f64| (random.next() >> 11) as f64 / (1u64 << 53) as f64 * most;
    Network {
        loss: upto(0.5),
        ack_loss: upto(0.5),
        chaos: upto(0.3),
        ..Network::clean(20_000_000, Duration::from_millis(5))
    }
}

/// Runs until everything is acknowledged; it must not take for ever.
fn complete(settled: &Settled, network: Network, bytes: u64, seed: u64) -> Simulation {
    let rate = Box::new(FixedRate::new(Rate::from_bps(30_000_000)));
    let mut simulation = Simulation::new(settled, network, rate, seed);
    simulation.to_write = bytes;
    simulation.run(BEGIN + Duration::from_secs(600));
    let told = format!(
        "seed {seed}: {:?} {:?} {:?} window {}",
        settled.redundancy, settled.acknowledge, settled.moment, settled.window
    );
    assert!(simulation.sender.all_acked(), "not acknowledged: {told}");
    assert_eq!(simulation.read, bytes, "{told}");
    simulation
}

#[test]
fn nothing_stalls_for_ever_under_loss_duplication_and_reordering() {
    for seed in 0..60 {
        let mut random = Random(seed ^ 0xabcd);
        let window = 1 + (random.next() % 12) as u32;
        let sending = match random.next() % 3 {
            0 => Sending::Rateless,
            1 => Sending::Expected,
            _ => Sending::Adaptive,
        };
        let acknowledge = match random.next() % 2 {
            0 => Acknowledge::EachBlock,
            _ => Acknowledge::EachWindow,
        };
        let moment = match random.next() % 2 {
            0 => Moment::Received,
            _ => Moment::Decoded,
        };
        let bytes = random.next() % 600_000;
        let settled = Settled {
            acknowledge,
            moment,
            ..if seed % 4 == 0 {
                real(window, sending)
            } else {
                settled(window, sending)
            }
        };
        complete(&settled, chaotic(seed), bytes, seed);
    }
}

#[test]
fn blocks_that_do_not_decode_are_reopened_until_they_do() {
    for moment in [Moment::Received, Moment::Decoded] {
        let mut settled = Settled {
            moment,
            ..real(8, Sending::Rateless)
        };
        // k symbols are not enough for this code.
        settled.redundancy.epsilon = 0.0;
        let mut reopened = 0;
        for seed in 0..5 {
            let simulation = complete(&settled, chaotic(seed), 300_000, seed);
            assert!(
                simulation.receiver.stats().decode_failures > 0,
                "seed {seed}"
            );
            reopened += simulation.sender.stats().reopened;
        }
        // An ACK that leaves before the block is decoded is a promise that may be broken.
        assert_eq!(reopened > 0, moment == Moment::Received);
    }
}

#[test]
fn decodability_is_followed_without_bytes() {
    let mut settled = real(8, Sending::Rateless);
    settled.payload = Payload::Virtual;
    settled.completion = Completion::Structure;
    settled.redundancy.epsilon = 0.0;
    let network = Network::clean(20_000_000, Duration::from_millis(5));
    let simulation = complete(&settled, network, 1_000_000, 1);
    assert!(simulation.receiver.stats().decode_failures > 0);
}

#[test]
fn a_block_is_acknowledged_on_the_packet_that_makes_it_complete() {
    let settled = settled(4, Sending::Rateless);
    let network = Network::clean(20_000_000, Duration::from_millis(100));
    let mut simulation = Simulation::new(&settled, network, Box::new(MaxRate), 1);
    simulation.to_write = 63_536;
    // 49 packets at 0.6 ms, then half a round trip: the ACK has left, but is not there.
    let complete = BEGIN + network.access.time_for(49 * PACKET) + network.rtt / 2;
    simulation.run(complete + Duration::from_micros(1));
    assert_eq!(simulation.read, 63_536);
    assert!(!simulation.sender.all_acked());
    simulation.run(complete + network.rtt / 2 + Duration::from_micros(1));
    assert!(simulation.sender.all_acked());
}

#[test]
fn a_window_is_acknowledged_as_a_whole() {
    let settled = Settled {
        acknowledge: Acknowledge::EachWindow,
        ..settled(10, Sending::Expected)
    };
    let network = Network::clean(1_000_000_000, Duration::from_millis(10));
    let mut simulation = Simulation::new(&settled, network, Box::new(MaxRate), 1);
    simulation.to_write = 1 << 40;
    let mut seen = std::collections::BTreeSet::new();
    for ms in 1..200 {
        simulation.run(BEGIN + Duration::from_millis(ms));
        seen.insert(simulation.sender.stats().blocks_acked);
    }
    assert!(
        seen.len() > 5 && seen.iter().all(|n| n % 10 == 0),
        "{seen:?}"
    );
}

#[test]
fn fixed_redundancy_without_acks_loses_the_blocks_that_it_does_not_cover() {
    let run = |loss: f64| {
        let settled = Settled {
            acknowledge: Acknowledge::Off,
            ..settled(100, Sending::Fixed { extra: 0.15 })
        };
        let mut network = Network::clean(100_000_000, Duration::from_millis(10));
        network.loss = loss;
        let mut simulation = Simulation::new(&settled, network, Box::new(MaxRate), 1);
        simulation.to_write = 200 * 63_536;
        simulation.run(BEGIN + Duration::from_secs(3));
        assert!(simulation.sender.all_acked());
        assert_eq!(simulation.sender.blocks(), 200);
        simulation.receiver.finish_at(200);
        simulation.run(BEGIN + Duration::from_secs(4));
        let timeout = simulation.receiver.poll_timeout();
        if let Some(timeout) = timeout {
            simulation.now = timeout;
            simulation.deliver();
        }
        simulation.read();
        assert!(
            simulation.receiver.is_finished(),
            "{loss}: {:?} {:?}",
            simulation.receiver.stats(),
            timeout
        );
        let stats = simulation.receiver.stats();
        assert_eq!(stats.blocks + stats.skipped, 200);
        assert_eq!(simulation.read, stats.blocks * 63_536);
        stats.blocks
    };
    // 51 packets are sent, 49 needed.
    assert_eq!(run(0.0), 200);
    assert!((150..200).contains(&run(0.02)));
    assert!(run(0.15) < 10);
}

/// A host may take longer for a block than the network for sixteen.
#[test]
fn without_acks_a_block_that_is_being_decoded_is_not_given_up() {
    let settled = Settled {
        acknowledge: Acknowledge::Off,
        ..real(100, Sending::Fixed { extra: 0.15 })
    };
    let mut receiver = Receiver::new(BEGIN, &settled);
    for (block, packet) in (0..40).flat_map(|block| (0..25).map(move |packet| (block, packet))) {
        let header = DataHeader {
            block,
            state: settled.initial.of_packet(block, packet),
            echo: false,
            short: false,
        };
        // All zeros are a block like any other; 2200 symbols of 16 bytes are enough.
        receiver.on_data(BEGIN, 0, &header, &[0; 90 * 16]);
    }
    receiver.finish_at(40);
    while let Some(mut job) = receiver.take_solve_job() {
        job.run();
        receiver.finish_solve(BEGIN, job);
    }
    let stats = receiver.stats();
    assert_eq!((stats.blocks, stats.skipped), (40, 0));
    assert!(receiver.is_complete());
}

#[test]
fn adaptive_redundancy_covers_a_loss_that_nobody_told_it() {
    let settled = Settled {
        acknowledge: Acknowledge::Off,
        ..settled(100, Sending::Adaptive)
    };
    let mut network = Network::clean(100_000_000, Duration::from_millis(10));
    network.loss = 0.2;
    let mut simulation = Simulation::new(&settled, network, Box::new(MaxRate), 1);
    simulation.to_write = 1000 * 63_536;
    simulation.run(BEGIN + Duration::from_secs(20));
    // The first round trip teaches it; then a block in hundreds falls short.
    let blocks = simulation.receiver.stats().blocks;
    assert!(blocks > 960, "{blocks}");
    let packets = simulation.sender.stats().packets;
    assert!(packets < 1000 * 49 * 10 / 8 * 120 / 100, "{packets}");
}

#[test]
fn encoding_off_sends_the_first_block_in_place_of_all() {
    let settled = Settled {
        encoding: Codec::Off,
        ..real(8, Sending::Rateless)
    };
    let network = Network::clean(20_000_000, Duration::from_millis(5));
    let mut simulation = Simulation::new(&settled, network, Box::new(MaxRate), 1);
    simulation.check = false;
    simulation.to_write = 3 * 32_000;
    simulation.reader_sleeps = true;
    simulation.run(BEGIN + Duration::from_secs(10));
    let mut out = vec![0; 96_000];
    assert_eq!(simulation.receiver.read(simulation.now, &mut out), 96_000);
    let first: Vec<u8> = (0..32_000).map(byte).collect();
    for block in out.chunks(32_000) {
        assert!(block == first);
    }
}

#[test]
fn decoding_off_counts_blocks_and_reads_zeros() {
    let settled = Settled {
        decoding: Codec::Off,
        ..real(8, Sending::Rateless)
    };
    let network = Network::clean(20_000_000, Duration::from_millis(5));
    let mut simulation = Simulation::new(&settled, network, Box::new(MaxRate), 1);
    simulation.check = false;
    simulation.to_write = 3 * 32_000;
    simulation.run(BEGIN + Duration::from_secs(10));
    assert_eq!(simulation.receiver.stats().bytes, 96_000);
    assert_eq!(simulation.read, 96_000);
}

#[test]
fn a_reader_that_sleeps_stops_the_sender_and_wakes_it_again() {
    for seed in 0..10 {
        let settled = settled(5, Sending::Expected);
        let rate = Box::new(FixedRate::new(Rate::from_bps(30_000_000)));
        let mut simulation = Simulation::new(&settled, chaotic(seed), rate, seed);
        simulation.to_write = 20 * 63_536;
        simulation.reader_sleeps = true;
        simulation.run(BEGIN + Duration::from_secs(30));
        assert_eq!(simulation.receiver.stats().blocks, 5, "seed {seed}");
        assert_eq!(simulation.receiver.stats().beyond_window, 0, "seed {seed}");
        // It asks for news now and then.
        let idle = simulation.sender.stats().packets;
        simulation.run(BEGIN + Duration::from_secs(40));
        assert!(simulation.sender.stats().packets - idle < 30, "seed {seed}");
        simulation.reader_sleeps = false;
        simulation.read();
        simulation.run(BEGIN + Duration::from_secs(80));
        assert_eq!(simulation.read, 20 * 63_536, "seed {seed}");
    }
}

#[test]
fn flushed_pieces_arrive_as_written() {
    let settled = real(8, Sending::Rateless);
    let network = Network::clean(20_000_000, Duration::from_millis(5));
    let mut simulation = Simulation::new(&settled, network, Box::new(MaxRate), 1);
    let mut end = BEGIN;
    // Around what fits beside the length of a padded block.
    for bytes in [1, 31_995, 31_996, 31_997, 32_000, 32_001, 70_000] {
        simulation.to_write = bytes;
        end += Duration::from_secs(2);
        simulation.run(end);
        assert!(simulation.sender.all_acked(), "{bytes}");
        assert_eq!(simulation.read, simulation.written, "{bytes}");
    }
}
