//! Keep-alives: who stays, who is given up, and what that costs.

use crate::common::{MS, SECOND, finish, link, lossy, pair, small};
use dfcp_proto::published::{Config, Error, Event, State};
use dfcp_proto::rate::FixedRate;
use dfcp_proto::{Duration, Rate};
use dfcp_sim::{PublishedPair, PublishedPairConfig, PublishedTransfer, Side};

const KEEP: Duration = Duration::from_secs(15);
/// Default idle timeout.
const IDLE: Duration = Duration::from_secs(60);

fn keeping() -> Config {
    Config {
        keep_alive: Some(KEEP),
        ..small()
    }
}

/// Only one side asks.
fn one_asks(side: Side, loss: f64, seed: u64) -> PublishedPair {
    let mut config = PublishedPairConfig::symmetric(lossy(20, loss), small(), seed);
    config.configs[side as usize] = keeping();
    let mut pair = PublishedPair::new(config);
    assert!(pair.establish(70 * SECOND), "seed {seed}");
    pair
}

#[test]
fn ten_idle_minutes_are_survived_whoever_asks() {
    for side in Side::BOTH {
        for seed in 1..=5 {
            let mut pair = one_asks(side, 0.1, seed);
            let before = pair.hosts.iter().map(|h| h.packets).sum::<u64>();
            pair.run_until(10 * IDLE, |_| false);
            assert_eq!(
                pair.states(),
                [State::Established; 2],
                "{side:?}, seed {seed}"
            );
            // One that asks and one that answers, every 15 seconds.
            let spent = pair.hosts.iter().map(|h| h.packets).sum::<u64>() - before;
            assert!(
                (75..=130).contains(&spent),
                "{side:?}, seed {seed}: {spent}"
            );
            let mut up = PublishedTransfer::new(Side::Client, 200_000);
            let arrived = pair.run_until(20 * SECOND, |pair| up.poll(pair));
            assert!(arrived, "{side:?}, seed {seed}");
        }
    }
}

#[test]
fn without_it_an_idle_connection_dies_at_the_idle_timeout() {
    let mut pair = pair(link(20), small(), 1);
    assert!(pair.establish(SECOND));
    let begun = pair.now;
    assert!(pair.run_until(10 * IDLE, |pair| pair.states() == [State::Closed; 2]));
    let lived = pair.now.saturating_since(begun);
    assert!(lived > IDLE - MS(50) && lived <= IDLE, "{lived:?}");
}

#[test]
fn a_dead_peer_is_given_up_although_it_is_asked() {
    for side in Side::BOTH {
        let mut pair = one_asks(side, 0.0, 2);
        pair.run_until(3 * KEEP, |_| false);
        let died = pair.now;
        for link in &mut pair.links {
            link.set_config(died, lossy(20, 1.0));
        }
        let gone = Event::Closed(Some(Error::TimedOut));
        assert!(pair.run_until(2 * IDLE, |pair| pair.saw(side, &gone)));
        let waited = pair.now.saturating_since(died);
        assert!(
            waited > IDLE - KEEP && waited <= IDLE,
            "{side:?}: {waited:?}"
        );
    }
}

/// A direction that is closed does not close the other, however long nothing is said there.
#[test]
fn a_half_closed_connection_lives_on() {
    for seed in 1..=5 {
        let mut pair = pair(lossy(20, 0.1), keeping(), seed);
        assert!(pair.establish(70 * SECOND), "seed {seed}");
        finish(&mut pair, Side::Client);
        pair.run_until(10 * IDLE, |_| false);
        let states = pair.states();
        assert_eq!(states, [State::FinWait2, State::CloseWait], "seed {seed}");
        let mut down = PublishedTransfer::new(Side::Server, 200_000);
        assert!(
            pair.run_until(20 * SECOND, |pair| down.poll(pair)),
            "seed {seed}"
        );
        assert!(pair.run_until(70 * SECOND, |pair| pair.states() == [State::Closed; 2]));
        assert!(pair.saw(Side::Client, &Event::Closed(None)), "seed {seed}");
    }
}

/// The same packets at the same times as without, while data flow.
#[test]
fn nothing_is_sent_for_it_while_data_flow() {
    let run = |keep_alive| {
        let config = Config {
            keep_alive,
            ..small()
        };
        let config = config.with_rate(|| Box::new(FixedRate::new(Rate::from_bps(1_000_000))));
        let mut pair = pair(link(20), config, 3);
        assert!(pair.establish(SECOND));
        let begun = pair.now;
        let mut up = PublishedTransfer::new(Side::Client, 1_000_000);
        assert!(pair.run_until(60 * SECOND, |pair| up.poll(pair)));
        assert!(pair.now.saturating_since(begun) > 5 * SECOND);
        pair.hosts.map(|host| (host.packets, host.digest))
    };
    assert_eq!(run(Some(SECOND)), run(None));
}

#[test]
fn an_interval_of_nothing_is_no_flood() {
    let config = Config {
        keep_alive: Some(Duration::ZERO),
        ..small()
    };
    let mut pair = pair(link(20), config, 4);
    assert!(pair.establish(SECOND));
    let before: u64 = pair.hosts.iter().map(|h| h.packets).sum();
    pair.run_until(10 * SECOND, |_| false);
    let spent = pair.hosts.iter().map(|h| h.packets).sum::<u64>() - before;
    // Both ask at the same time, each 100 ms.
    assert!((100..=400).contains(&spent), "{spent}");
}

#[test]
fn the_same_seed_gives_the_same_packets() {
    let run = |seed| {
        let mut pair = one_asks(Side::Client, 0.2, seed);
        pair.run_until(10 * IDLE, |_| false);
        pair.hosts.map(|host| (host.packets, host.digest))
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}
