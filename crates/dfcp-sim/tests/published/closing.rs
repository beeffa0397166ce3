//! Closing: in order, at once, half, by force, by silence.

use crate::common::{MS, SECOND, finish, link, lossy, pair, small};
use dfcp_proto::published::{Error, Event, Read, State};
use dfcp_sim::{PublishedPair, PublishedTransfer, Side};

fn established(seed: u64) -> PublishedPair {
    let mut pair = pair(link(20), small(), seed);
    assert!(pair.establish(SECOND));
    pair
}

#[test]
fn one_side_after_the_other() {
    let mut pair = established(1);
    finish(&mut pair, Side::Client);
    assert!(pair.run_until(SECOND, |pair| {
        pair.states() == [State::FinWait2, State::CloseWait]
    }));
    finish(&mut pair, Side::Server);
    assert!(pair.run_until(SECOND, |pair| {
        pair.states() == [State::TimeWait, State::Closed]
    }));
    let begun = pair.now;
    assert!(pair.run_until(5 * SECOND, |pair| pair.states()[0] == State::Closed));
    let waited = pair.now.saturating_since(begun);
    assert!(
        waited > 2 * SECOND - MS(30) && waited <= 2 * SECOND,
        "{waited:?}"
    );
}

#[test]
fn both_at_once() {
    let mut pair = established(1);
    finish(&mut pair, Side::Client);
    finish(&mut pair, Side::Server);
    assert!(pair.run_until(SECOND, |pair| pair.states() == [State::TimeWait; 2]));
    for side in Side::BOTH {
        assert!(pair.saw(side, &Event::Closed(None)));
    }
}

#[test]
fn one_direction_goes_on_after_the_other_is_closed() {
    let mut pair = established(1);
    finish(&mut pair, Side::Client);
    assert!(pair.run_until(SECOND, |pair| pair.states()[1] == State::CloseWait));
    pair.run_until(30 * SECOND, |_| false);
    let mut down = PublishedTransfer::new(Side::Server, 300_000);
    assert!(pair.run_until(5 * SECOND, |pair| down.poll(pair)));
    assert!(pair.run_until(5 * SECOND, |pair| pair.states() == [State::Closed; 2]));
    assert!(pair.saw(Side::Client, &Event::Closed(None)));
}

#[test]
fn a_fin_without_answer_is_given_up_after_five_retries() {
    let mut pair = established(1);
    let now = pair.now;
    pair.links[1].set_config(now, lossy(20, 1.0));
    let before = pair.hosts[0].packets;
    finish(&mut pair, Side::Client);
    pair.run_until(100 * SECOND, |pair| pair.states()[0] == State::Closed);
    assert_eq!(pair.now.saturating_since(now), 63 * SECOND);
    assert_eq!(pair.hosts[0].packets - before, 6);
    assert!(pair.saw(Side::Client, &Event::Closed(Some(Error::Unreachable))));
}

#[test]
fn closing_ends_under_loss_duplication_and_reordering() {
    for seed in 1..=30 {
        let mut pair = established(seed);
        let now = pair.now;
        let path = dfcp_sim::LinkConfig {
            duplicate: 0.3,
            jitter: MS(50).into(),
            ..lossy(20, 0.4)
        };
        for link in &mut pair.links {
            link.set_config(now, path.clone());
        }
        finish(&mut pair, Side::Client);
        if seed % 2 == 0 {
            finish(&mut pair, Side::Server);
        }
        let mut asked = false;
        let ended = pair.run_until(400 * SECOND, |pair| {
            if !asked && pair.states()[1] == State::CloseWait {
                asked = true;
                finish(pair, Side::Server);
            }
            pair.states() == [State::Closed; 2]
        });
        assert!(ended, "seed {seed}: {:?}", pair.states());
    }
}

#[test]
fn a_reset_ends_the_peer_at_once() {
    let mut pair = established(1);
    let now = pair.now;
    pair.connection(Side::Client).abort(now);
    pair.flush();
    assert!(pair.run_until(SECOND, |pair| pair.states() == [State::Closed; 2]));
    assert!(pair.saw(Side::Server, &Event::Closed(Some(Error::Reset))));
    let write = pair.connection(Side::Server).write(now, &[1]);
    assert_eq!(write, Err(Error::Reset));
}

#[test]
fn silence_ends_a_connection_and_what_came_stays_readable() {
    let mut pair = established(1);
    let now = pair.now;
    let client = pair.connection(Side::Client);
    assert_eq!(client.write(now, &[9; 16_000]), Ok(16_000));
    pair.flush();
    pair.run_until(SECOND, |_| false);
    let now = pair.now;
    for link in &mut pair.links {
        link.set_config(now, lossy(20, 1.0));
    }
    pair.run_until(100 * SECOND, |pair| pair.states() == [State::Closed; 2]);
    for side in Side::BOTH {
        assert!(
            pair.saw(side, &Event::Closed(Some(Error::TimedOut))),
            "{side:?}"
        );
    }
    let now = pair.now;
    let mut buffer = [0; 20_000];
    let server = pair.connection(Side::Server);
    assert_eq!(server.read(now, &mut buffer), Ok(Read::Data(16_000)));
    assert_eq!(server.read(now, &mut buffer), Err(Error::TimedOut));
}

#[test]
fn a_forgotten_connection_in_time_wait_still_answers() {
    let mut pair = established(1);
    finish(&mut pair, Side::Client);
    assert!(pair.run_until(SECOND, |pair| pair.states()[1] == State::CloseWait));
    pair.run_until(MS(50), |_| false);
    finish(&mut pair, Side::Server);
    // The ACK of FINACK gets lost.
    let now = pair.now;
    pair.links[0].set_config(now, lossy(20, 1.0));
    assert!(pair.run_until(SECOND, |pair| pair.states()[0] == State::TimeWait));
    let handle = pair.hosts[0].connection.expect("connected");
    pair.hosts[0].endpoint.forget(handle);
    assert!(pair.hosts[0].endpoint.connection(handle).is_none());
    let now = pair.now;
    pair.links[0].set_config(now, link(20));
    assert!(pair.run_until(2 * SECOND, |pair| pair.states()[1] == State::Closed));
    assert!(pair.saw(Side::Server, &Event::Closed(None)));
    assert_eq!(pair.hosts[0].endpoint.stats().unknown, 0);
    pair.run_until(10 * SECOND, |_| false);
    assert_eq!(pair.next_event(), None, "nothing is left of it");
}

#[test]
fn a_peer_that_lost_its_memory_ends_the_connection() {
    let mut pair = established(1);
    let mut up = PublishedTransfer::new(Side::Client, 10_000_000);
    pair.run_until(MS(200), |pair| up.poll(pair));
    let listen = dfcp_proto::published::Listen {
        port: dfcp_sim::published_pair::PORT,
        config: std::sync::Arc::new(small()),
        max_connections: 4,
        memory: u64::MAX,
    };
    pair.hosts[1].endpoint = dfcp_proto::published::Endpoint::new(Some(listen), 99);
    pair.hosts[1].connection = None;
    assert!(pair.run_until(SECOND, |pair| pair.states()[0] == State::Closed));
    assert!(pair.saw(Side::Client, &Event::Closed(Some(Error::Reset))));
}
