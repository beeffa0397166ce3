//! What leaves before anything is known of the path but how far it drew two packets apart.

use crate::common::*;
use dfcp_proto::{ChannelKind, Duration, Instant, Rate};
use dfcp_sim::link::PacketOrder;
use dfcp_sim::{Limit, LinkConfig, LossModel, Pair, PairConfig, Side};

const OBJECT: u64 = 150_000;

/// From when the client has its keys until the object was complete there, in round trips.
fn object(config: PairConfig, round_trip: Duration) -> f64 {
    let mut pair = Pair::new(config);
    pair.connect();
    let up = pair.run_until(20 * SECOND, |p| p.connection(Side::Client).is_established());
    assert!(up);
    let start: Instant = pair.now;
    let mut object = Flow::open(&mut pair, Side::Client, ChannelKind::Object, OBJECT);
    object.write(&mut pair);
    pair.run_until(60 * SECOND, |pair| {
        let there = pair.hosts[1].connection.is_some();
        there && {
            object.poll(pair);
            object.received == OBJECT
        }
    });
    assert_eq!(object.received, OBJECT);
    let took = pair.now.saturating_since(start).as_secs_f64();
    took / round_trip.as_secs_f64()
}

#[test]
fn a_fast_path_gets_a_small_object_in_one_flight() {
    // Half a round trip, and 12 ms for the bytes.
    let config = PairConfig::symmetric(link(100, 50), 3);
    let took = object(config, MS(50));
    assert!(took < 0.8, "{took:.2} round trips");
}

/// Loses the packets with these numbers.
fn losing(numbers: &[usize], of: usize) -> LossModel {
    LossModel::Mask((0..of).map(|n| numbers.contains(&n)).collect())
}

#[test]
fn a_lost_one_of_the_first_packets_costs_nothing_and_two_a_round_trip_at_most() {
    for (lost, most) in [
        (&[0][..], 0.8),
        (&[1], 0.8),
        (&[2], 0.8),
        (&[0, 1], 2.1),
        (&[1, 2], 2.1),
    ] {
        let mut config = PairConfig::symmetric(link(100, 50), 3);
        config.forward.loss = losing(lost, 3);
        let took = object(config, MS(50));
        assert!(took < most, "without SYN {lost:?}: {took:.2} round trips");
    }
}

#[test]
fn two_lost_acks_of_the_handshake_cost_nothing() {
    // Three SYNs leave at first and one after 40 ms, then the ACKs.
    for lost in [[4, 5], [4, 6], [5, 6]] {
        let mut config = PairConfig::symmetric(link(100, 50), 3);
        config.forward.loss = losing(&lost, 7);
        let took = object(config, MS(50));
        assert!(took < 0.8, "without {lost:?}: {took:.2} round trips");
    }
}

#[test]
fn a_first_flight_makes_up_for_a_tenth_before_anything_is_known_of_the_loss() {
    // SYNs and ACKs arrive; of the data every tenth packet is lost.
    let mut config = PairConfig::symmetric(link(100, 50), 3);
    let lost: Vec<usize> = (16..200).step_by(10).collect();
    config.forward.loss = losing(&lost, 200);
    let took = object(config, MS(50));
    assert!(took < 0.85, "{took:.2} round trips");
}

#[test]
fn three_packets_show_a_fast_path_whose_delay_varies() {
    // The path takes 118 µs for a packet; two of them may arrive four times as far apart, or together.
    let took: Vec<f64> = (0..20)
        .map(|seed| {
            let varying = LinkConfig {
                jitter: Duration::from_micros(450).into(),
                jitter_order: PacketOrder::Kept,
                ..link(100, 50)
            };
            object(PairConfig::symmetric(varying, seed), MS(50))
        })
        .collect();
    let at_once = took.iter().filter(|&&took| took < 0.85).count();
    println!("{at_once} of 20 in one flight: {took:.2?}");
    assert!(at_once >= 19);
}

#[test]
fn the_first_flight_does_not_flood_a_slow_path() {
    let slow = LinkConfig {
        rate: Rate::from_bps(256_000).into(),
        queue: Limit::Packets(20).into(),
        ..link(1, 600)
    };
    let mut pair = Pair::new(PairConfig::symmetric(slow, 4));
    assert!(pair.establish(20 * SECOND));
    let mut object = Flow::open(&mut pair, Side::Client, ChannelKind::Object, OBJECT);
    // Until the first word of it comes back.
    pair.run_until(MS(700), |pair| {
        object.poll(pair);
        false
    });
    // Of 32 packets; SYNs that were repeated meanwhile take half of the queue.
    let drops = pair.links[0].stats().drops.full;
    assert!(drops <= 10, "{drops} dropped");
}
