//! The protocol core on simulated paths: what a user would miss if it broke.
//!
//! Every test is a pair of endpoints (or one endpoint and a hand-made peer) in simulated time;
//! nothing depends on the machine's speed. A failing assertion names the seed.

mod common;
mod handshake;
mod hostile;
mod robustness;
mod streams;
mod transfers;
