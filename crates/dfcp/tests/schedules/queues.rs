//! Timers and the solver's turns, by themselves.

use crate::in_many_orders;
use crate::solver::Turns;
use crate::timers::Timers;
use dfcp_proto::{ConnectionHandle, Duration, Instant};
use shuttle::thread;
use std::sync::Arc;

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

fn alone(test: fn()) {
    shuttle::check_random_with_seed(test, 1, 1);
}

#[test]
fn each_is_woken_once_at_its_last_time() {
    alone(|| {
        let timers = Timers::default();
        let [one, two, three] = [1, 2, 3].map(ConnectionHandle);
        assert!(!timers.set(one, Some(at(10)), &"one"));
        assert!(!timers.set(two, Some(at(5)), &"two"));
        assert!(!timers.set(three, Some(at(7)), &"three"));
        assert!(!timers.set(two, Some(at(20)), &"two"));
        assert!(!timers.set(three, None, &"three"));
        assert!(timers.take_due(at(4)).is_empty());
        assert_eq!(timers.take_due(at(15)), ["one"]);
        assert!(!timers.set(one, Some(at(10)), &"one"));
        assert_eq!(timers.take_due(at(20)), ["one", "two"]);
    });
}

#[test]
fn a_driver_that_sleeps_for_longer_is_to_be_woken() {
    alone(|| {
        let timers = Timers::default();
        let [one, two] = [1, 2].map(ConnectionHandle);
        assert_eq!(timers.await_next(), None);
        assert!(timers.set(one, Some(at(10)), &"one"), "sleeps for ever");
        assert_eq!(timers.await_next(), Some(at(10)));
        assert!(!timers.set(two, Some(at(11)), &"two"));
        assert!(timers.set(two, Some(at(9)), &"two"));
        assert!(timers.take_due(at(8)).is_empty(), "it is awake");
        assert!(!timers.set(two, Some(at(9)), &"two"));
    });
}

#[test]
fn connections_take_turns_and_their_blocks_keep_their_order() {
    alone(|| {
        let mut turns = Turns::default();
        let [greedy, modest] = [1, 2].map(ConnectionHandle);
        (0..100).for_each(|job| turns.push(greedy, job));
        assert_eq!(turns.pop(), Some(0));
        turns.push(modest, 100);
        assert_eq!(turns.pop(), Some(100));
        assert_eq!(turns.pop(), Some(1));
        turns.forget(greedy);
        assert_eq!(turns.pop(), None);
    });
}

/// The driver either sees a time before it sleeps, or is told.
#[test]
fn no_time_is_slept_through() {
    in_many_orders(|| {
        let timers = Arc::new(Timers::default());
        let setters = [1, 2].map(|id| {
            let timers = timers.clone();
            thread::spawn(move || {
                let handle = ConnectionHandle(id);
                let first = timers.set(handle, Some(at(20 - id)), &id);
                timers.set(handle, Some(at(10 - id)), &id) || first
            })
        });
        let _due = timers.take_due(at(1));
        let until = timers.await_next();
        let is_told = setters.map(|s| s.join().expect("no panic")).contains(&true);
        assert!(is_told || until == Some(at(8)), "sleeps until {until:?}");
    });
}
