//! A deterministic network simulator for `dfcp`, and the links it is made of: the same link runs
//! in simulated time (tests, scenarios) and on the real clock (the demo's relay), because it never
//! reads a clock and never asks the operating system for randomness.
//!
//! From a scenario to its figures:
//! - [`scenario`]: scenario files; [`topology`]: ready-made graphs;
//! - [`mod@run`]: builds a scenario's network, runs it, fills its [`report`]; [`metrics`]: the figures
//!   of merit of the papers; [`limit`]: what a perfect sender could get.
//!
//! The network:
//! - [`engine`]: routes, hosts, virtual time;
//! - [`link`]: a one-way link with a queue, a rate, a propagation delay and impairments;
//! - [`queue`]: queue disciplines, from DropTail to FQ-CoDel; [`packet`]: what they carry;
//! - [`tcp`]: TCP senders and receivers; [`coded`]: network coding over relays and several paths;
//! - [`random`]: seeded random streams, one for each component.
//!
//! And [`joined`]: two endpoints of the protocol core joined by two links, for tests of the core; of the
//! sealed wire in [`pair`], of the published one in [`published_pair`].

#![forbid(unsafe_code)]

pub mod coded;
pub mod engine;
pub mod joined;
pub mod limit;
pub mod link;
pub mod metrics;
pub mod packet;
pub mod pair;
pub mod published_pair;
pub mod queue;
pub mod random;
pub mod report;
pub mod run;
pub mod scenario;
pub mod tcp;
pub mod topology;

pub use link::{
    Datagram, Link, LinkConfig, LinkConfigError, LinkRate, LinkStats, LossAt, LossModel,
};
pub use packet::{DropCause, Ecn, FlowId, Queued};
pub use pair::{ObjectTransfer, Pair, PairConfig, Side};
pub use published_pair::{PublishedPair, PublishedPairConfig, PublishedTransfer};
pub use queue::{Limit, QueueConfig};
pub use random::{Random, Seed};
pub use run::{Watch, Watcher, build, build_external, measure, run, run_watched, traffic};
