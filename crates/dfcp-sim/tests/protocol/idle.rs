//! Nothing to say: who stays, who is given up, and what that costs.

use crate::common::*;
use dfcp_proto::{ChannelKind, ConnectionError, Duration, Event, TransportConfig};
use dfcp_sim::{Pair, PairConfig, Side};

const KEEP: Duration = Duration::from_secs(15);
/// Default idle timeout.
const IDLE: Duration = Duration::from_secs(60);

fn pinging(loss: f64, seed: u64) -> PairConfig {
    PairConfig {
        client: TransportConfig::default().keep_alive(Some(KEEP)),
        ..PairConfig::symmetric(lossy(loss), seed)
    }
}

fn timed_out(pair: &Pair, side: Side) -> bool {
    has_event(pair, side, &Event::Closed(ConnectionError::TimedOut))
}

#[test]
fn ten_idle_minutes_are_survived_with_keep_alive_only() {
    for seed in 1..=5 {
        let mut pair = established(pinging(0.1, seed));
        pair.run_until(10 * IDLE, |_| false);
        assert!(!timed_out(&pair, Side::Client), "seed {seed}");
        let spent: u64 = pair.hosts.iter().map(|h| h.ip_bytes).sum();
        assert!(spent < 30_000, "seed {seed}: {spent} bytes");
        let mut flow = Flow::open(&mut pair, Side::Client, ChannelKind::Object, 1_000_000);
        let flows = std::slice::from_mut(&mut flow);
        assert!(run_flows(&mut pair, flows, 10 * SECOND), "seed {seed}");

        let mut pair = established(PairConfig::symmetric(lossy(0.1), seed));
        let begun = pair.now;
        assert!(pair.run_until(10 * IDLE, |pair| timed_out(pair, Side::Client)));
        let lived = pair.now.saturating_since(begun);
        assert!(
            lived >= IDLE && lived < IDLE + SECOND,
            "seed {seed}: {lived:?}"
        );
    }
}

/// Some pings must fit into the peer's idle timeout, which may be shorter than this side knows.
#[test]
fn pings_come_in_time_for_the_shorter_idle_timeout() {
    let mut config = pinging(0.0, 1);
    config.server = TransportConfig::default().idle_timeout(5 * SECOND);
    let mut pair = established(config);
    pair.run_until(10 * IDLE, |_| false);
    assert!(!Side::BOTH.iter().any(|&side| timed_out(&pair, side)));
}

#[test]
fn a_dead_peer_is_given_up_although_it_is_pinged() {
    let mut pair = established(pinging(0.0, 2));
    pair.run_until(3 * KEEP, |_| false);
    let died = pair.now;
    for link in &mut pair.links {
        link.set_config(died, lossy(1.0));
    }
    assert!(pair.run_until(2 * IDLE, |pair| timed_out(pair, Side::Client)));
    let waited = pair.now.saturating_since(died);
    assert!(waited > IDLE - KEEP && waited <= IDLE, "{waited:?}");
}

/// A server pings for a stream on which somebody may wait, not for a client that has none.
#[test]
fn a_server_keeps_connections_with_an_open_channel() {
    for (kind, alive) in [(ChannelKind::Stream, true), (ChannelKind::Object, false)] {
        let config = PairConfig {
            server: TransportConfig::default().keep_alive(Some(KEEP)),
            ..PairConfig::symmetric(lossy(0.0), 3)
        };
        let mut pair = established(config);
        // An object's channel is over with it; a stream's other direction is not.
        let mut flow = Flow::open(&mut pair, Side::Client, kind, 10_000);
        let flows = std::slice::from_mut(&mut flow);
        assert!(run_flows(&mut pair, flows, 10 * SECOND));
        pair.run_until(10 * IDLE, |_| false);
        assert_eq!(!timed_out(&pair, Side::Server), alive, "{kind:?}");
    }
}

/// The same packets at the same times as without, while data flow.
#[test]
fn nothing_is_sent_for_it_while_data_flow() {
    let run = |keep: Option<Duration>| {
        let transport = TransportConfig::default().keep_alive(keep);
        let config = PairConfig {
            client: transport.clone(),
            server: transport,
            ..PairConfig::symmetric(link(1, 20), 4)
        };
        // 40 seconds of 1 Mbit/s.
        let pair = transfer(config, ChannelKind::Object, 5_000_000, 80 * SECOND);
        pair.hosts.map(|host| (host.ip_bytes, host.digest))
    };
    assert_eq!(run(Some(SECOND)), run(None));
}

#[test]
fn the_same_seed_gives_the_same_pings() {
    let run = |seed| {
        let mut pair = established(pinging(0.2, seed));
        pair.run_until(10 * IDLE, |_| false);
        pair.hosts.map(|host| (host.ip_bytes, host.digest))
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}
