//! Data: intact under loss, duplication and reordering; the same for the same seed.

use crate::common::{MS, SECOND, link, lossy, pair, small};
use dfcp_proto::published::{
    Acknowledge, Code, Config, Event, LdpcDegrees, Moment, Redundancy, Sending, State,
};
use dfcp_proto::rate::FixedRate;
use dfcp_proto::{Duration, Rate};
use dfcp_sim::{LinkConfig, PublishedPair, PublishedTransfer, Side};
use std::sync::Arc;

fn rough(loss: f64) -> LinkConfig {
    LinkConfig {
        duplicate: 0.05,
        reorder: 0.1,
        reorder_delay: MS(7),
        jitter: MS(3).into(),
        ..lossy(20, loss)
    }
}

/// Data both ways at once, then both sides closed.
fn exchange(pair: &mut PublishedPair, [up, down]: [u64; 2], limit: Duration) -> bool {
    let mut up = PublishedTransfer::new(Side::Client, up);
    let mut down = PublishedTransfer::new(Side::Server, down);
    pair.run_until(limit, |pair| {
        let (up, down) = (up.poll(pair), down.poll(pair));
        up && down
    })
}

#[test]
fn data_arrive_and_both_sides_close_in_order() {
    let mut pair = pair(link(20), small(), 1);
    assert!(pair.establish(SECOND));
    assert!(exchange(&mut pair, [500_000, 300_000], 5 * SECOND));
    assert!(pair.run_until(20 * SECOND, |pair| pair.states() == [State::Closed; 2]));
    for side in Side::BOTH {
        assert!(pair.saw(side, &Event::Closed(None)), "{side:?}");
        assert!(pair.saw(side, &Event::PeerFinished), "{side:?}");
    }
}

#[test]
fn data_are_intact_under_loss_duplication_and_reordering() {
    for (loss, seeds, size) in [(0.05, 1..=6, 600_000), (0.5, 1..=6, 200_000)] {
        for seed in seeds {
            for acknowledge in [Acknowledge::EachBlock, Acknowledge::EachWindow] {
                let config = Config {
                    acknowledge,
                    window: 8,
                    ..small()
                };
                let mut pair = pair(rough(loss), config, seed);
                assert!(pair.establish(70 * SECOND), "seed {seed}: handshake");
                let done = exchange(&mut pair, [size, size / 2], 60 * SECOND);
                // Five retries of a close all fail now and then if half of all packets are lost.
                let arrived = |side| pair.connection(side).stats().bytes_received;
                let arrived = || [Side::Server, Side::Client].map(arrived) == [size, size / 2];
                assert!(
                    done || loss == 0.5 && arrived(),
                    "seed {seed}, loss {loss}, {acknowledge:?}"
                );
            }
        }
    }
}

/// The graph that the client chose is the one that the server decodes with.
#[test]
fn data_are_intact_with_ldpc_degrees_that_are_drawn() {
    for (seed, degrees) in [
        (1, LdpcDegrees::uniform(3..=5)),
        (2, LdpcDegrees::Weighted(vec![(3, 6), (5, 3), (12, 1)])),
    ] {
        let mut config = small();
        if let Code::Raptor(code) = &mut config.code {
            code.ldpc_degrees = degrees.clone();
        }
        let mut pair = pair(rough(0.05), config, seed);
        assert!(pair.establish(70 * SECOND), "{degrees:?}: handshake");
        let done = exchange(&mut pair, [400_000, 200_000], 60 * SECOND);
        assert!(done, "{degrees:?}");
    }
}

#[test]
fn every_sending_mode_and_moment_moves_data() {
    for sending in [
        Sending::Rateless,
        Sending::Expected,
        Sending::Adaptive,
        Sending::Fixed { extra: 0.3 },
    ] {
        for moment in [Moment::Received, Moment::Decoded] {
            let config = Config {
                moment,
                redundancy: Redundancy {
                    epsilon: 0.1,
                    sending,
                },
                ..small()
            };
            let path = LinkConfig {
                jitter: MS(3).into(),
                ..lossy(20, 0.02)
            };
            let mut pair = pair(path, config, 3);
            assert!(pair.establish(20 * SECOND));
            let done = exchange(&mut pair, [300_000, 100_000], 30 * SECOND);
            assert!(done, "{sending:?}, {moment:?}");
        }
    }
}

#[test]
fn the_published_code_moves_bytes() {
    let config = Config {
        redundancy: Redundancy {
            epsilon: 0.05,
            sending: Sending::Rateless,
        },
        rate: Arc::new(|| Box::new(FixedRate::new(Rate::from_bps(50_000_000)))),
        ..Config::default()
    };
    let mut pair = pair(lossy(20, 0.02), config, 1);
    assert!(pair.establish(5 * SECOND));
    assert!(exchange(&mut pair, [150_000, 0], 5 * SECOND));
    let stats = pair.connection(Side::Server).stats();
    assert_eq!((stats.blocks_received, stats.bytes_received), (3, 150_000));
}

#[test]
fn the_same_seed_sends_the_same_bytes_at_the_same_times() {
    let digest = |seed| {
        let mut pair = pair(rough(0.1), small(), seed);
        assert!(pair.establish(70 * SECOND), "seed {seed}");
        assert!(exchange(&mut pair, [100_000, 50_000], 20 * SECOND));
        [pair.hosts[0].digest, pair.hosts[1].digest]
    };
    assert_eq!(digest(5), digest(5));
    assert_ne!(digest(5), digest(6));
}

#[test]
fn what_leaves_at_one_instant_is_bounded_by_the_rate() {
    let mut pair = pair(link(20), small(), 1);
    assert!(pair.establish(SECOND));
    pair.run_until(MS(100), |_| false);
    let now = pair.now;
    let client = pair.connection(Side::Client);
    assert_eq!(client.write(now, &[7; 1_000_000]), Ok(1_000_000));
    let (mut sent, mut buffer) = (0, Vec::new());
    while let Some(transmit) = pair.hosts[0].endpoint.poll_transmit(now, 16, &mut buffer) {
        sent += transmit.size;
        buffer.clear();
    }
    // 50 Mbit/s: 4 ms to catch up on are 25,000 bytes.
    assert!(sent > 0 && sent <= 26_500, "{sent} bytes at once");
    let next = pair.hosts[0].endpoint.poll_timeout();
    assert!(
        next.is_some_and(|at| at > now && at <= now + MS(5)),
        "{next:?}"
    );
}

#[test]
fn batches_hold_packets_of_one_size_and_their_number_is_kept_to() {
    let mut pair = pair(link(20), small(), 1);
    assert!(pair.establish(SECOND));
    let now = pair.now;
    let client = pair.connection(Side::Client);
    assert_eq!(client.write(now, &[7; 500_000]), Ok(500_000));
    client.finish(now);
    for max in [1, 2, 7] {
        for _ in 0..50 {
            let mut buffer = Vec::new();
            pair.step();
            let now = pair.now;
            let transmit = pair.hosts[0].endpoint.poll_transmit(now, max, &mut buffer);
            let Some(transmit) = transmit else { continue };
            assert_eq!(buffer.len(), transmit.size);
            let packets = transmit
                .size
                .div_ceil(transmit.segment_size.unwrap_or(transmit.size));
            assert!(packets <= max && transmit.segment_size.is_none_or(|_| packets > 1));
        }
    }
}
