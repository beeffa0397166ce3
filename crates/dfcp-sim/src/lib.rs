//! Deterministic links for `dfcp`: the same link runs in simulated time (tests, scenarios) and on
//! the real clock (the demo's relay), because it never reads a clock and never asks the operating
//! system for randomness.
//!
//! - [`link`]: a one-way link with a queue, a rate, a propagation delay and impairments;
//! - [`pair`]: two endpoints of the protocol core joined by two links;
//! - [`tcp`]: TCP senders and receivers, the baselines;
//! - [`random`]: seeded random streams, one for each component.

#![forbid(unsafe_code)]

pub mod link;
pub mod packet;
pub mod pair;
pub mod random;
pub mod tcp;

pub use link::{Link, LinkConfig, LinkConfigError, LinkStats, Packet, Queue};
pub use packet::{DropCause, Ecn, FlowId, Queued};
pub use pair::{ObjectTransfer, Pair, PairConfig, Side};
pub use random::{Random, Seed};
