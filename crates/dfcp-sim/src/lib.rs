//! Deterministic links for `dfcp`: the same link runs in simulated time (tests, scenarios) and on
//! the real clock (the demo's relay), because it never reads a clock and never asks the operating
//! system for randomness.
//!
//! - [`engine`]: the simulated network: routes, hosts, virtual time;
//! - [`link`]: a one-way link with a queue, a rate, a propagation delay and impairments;
//! - [`loss`]: which packets it loses; [`trace`]: rates as recorded;
//! - [`queue`]: queue disciplines, from DropTail to FQ-CoDel;
//! - [`pair`]: two endpoints of the protocol core joined by two links;
//! - [`run`]: runs a scenario and reports;
//! - [`tcp`]: TCP senders and receivers;
//! - [`random`]: seeded random streams, one for each component;
//! - [`scenario`]: scenario files;
//! - [`topology`]: ready-made graphs.

#![forbid(unsafe_code)]

pub mod engine;
pub mod link;
pub mod metrics;
pub mod packet;
pub mod pair;
pub mod queue;
pub mod random;
pub mod report;
pub mod run;
pub mod scenario;
pub mod tcp;
pub mod topology;

pub use link::{Datagram, Link, LinkConfig, LinkConfigError, LinkRate, LinkStats, LossModel};
pub use packet::{DropCause, Ecn, FlowId, Queued};
pub use pair::{ObjectTransfer, Pair, PairConfig, Side};
pub use queue::{Limit, QueueConfig};
pub use random::{Random, Seed};
pub use run::{build, run, run_observed};
