//! What the tasks of an endpoint share, in orders of its tasks that nobody would meet by chance: the
//! modules of the library themselves, compiled with [shuttle]'s locks, flags and tasks instead of the
//! standard library's and tokio's (`sync`), with a socket and a timer that are not the system's, and a
//! core with connections of nothing but counters (`core`). A task that waits for ever is found as a
//! deadlock, what is left behind as an endpoint that is still held.
//!
//! Every test tries 500 random schedules and 500 with few changes of tasks; `DFCP_SCHEDULES=100000` tries more,
//! `DFCP_SCHEDULES_SEED` others. A schedule that fails is printed; it comes again with the same seed as a
//! rule (tokio's `select!` and hash maps have random orders of their own).
//!
//! [shuttle]: https://docs.rs/shuttle
#![expect(
    dead_code,
    reason = "the modules are those of the library, and do more than is tested here"
)]

mod alarm;
#[path = "../../src/cadence.rs"]
mod cadence;
mod core;
#[path = "../../src/driver.rs"]
mod driver;
#[path = "../../src/error.rs"]
mod error;
#[path = "../../src/inbox.rs"]
mod inbox;
#[path = "../../src/line.rs"]
mod line;
mod queues;
mod races;
#[path = "../../src/shared.rs"]
mod shared;
mod socket;
#[path = "../../src/solver.rs"]
mod solver;
mod sync;
#[path = "../../src/timers.rs"]
mod timers;
#[path = "../../src/wait_list.rs"]
mod wait_list;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};
use std::sync::Arc;

/// What the system's stacks have for a task, and not shuttle's 32 KiB: debug builds use more.
const STACK: usize = 256 << 10;
/// Changes of tasks that a schedule needs to go wrong, at most: three are enough for nearly all known
/// defects of this kind (Burckhardt et al., ASPLOS 2010).
const DEPTH: usize = 3;

fn setting(name: &str, otherwise: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(otherwise, |v| v.parse().expect("a number"))
}

/// Runs `test` in many orders of its tasks.
fn in_many_orders(test: impl Fn() + Send + Sync + 'static) {
    let rounds = setting("DFCP_SCHEDULES", 500) as usize;
    let seed = setting("DFCP_SCHEDULES_SEED", 1);
    println!("seed {seed}, twice {rounds} schedules");
    let mut config = Config::new();
    config.stack_size = STACK;
    let test = Arc::new(test);
    let again = test.clone();
    let scheduler = RandomScheduler::new_from_seed(seed, rounds);
    Runner::new(scheduler, config.clone()).run(move || test());
    let scheduler = PctScheduler::new_from_seed(seed, DEPTH, rounds);
    Runner::new(scheduler, config).run(move || again());
}
