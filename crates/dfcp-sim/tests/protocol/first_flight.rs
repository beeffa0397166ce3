//! What leaves before anything is known of the path but how far it drew two packets apart.

use crate::common::*;
use dfcp_proto::{ChannelKind, Duration, Instant, Rate};
use dfcp_sim::{Limit, LinkConfig, LossModel, Pair, PairConfig, Side};

const OBJECT: u64 = 150_000;

/// From when both sides have shaken hands until the object was complete there, in round trips.
fn object(config: PairConfig, round_trip: Duration) -> f64 {
    let mut pair = Pair::new(config);
    assert!(pair.establish(20 * SECOND));
    let start: Instant = pair.now;
    let mut object = Flow::open(&mut pair, Side::Client, ChannelKind::Object, OBJECT);
    pair.run_until(60 * SECOND, |pair| {
        object.poll(pair);
        object.received == OBJECT
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

#[test]
fn a_lost_twin_of_the_first_packet_costs_a_round_trip_at_most() {
    for lost in [0, 1] {
        let mut config = PairConfig::symmetric(link(100, 50), 3);
        config.forward.loss = LossModel::Mask((0..2).map(|n| n == lost).collect());
        let took = object(config, MS(50));
        assert!(took < 2.1, "without SYN {lost}: {took:.2} round trips");
    }
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
