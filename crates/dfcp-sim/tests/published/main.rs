//! DFCP as published on simulated paths: what a user would miss if it broke.
//!
//! Every test is a pair of endpoints (or one endpoint and a hand-made peer) in simulated time. A
//! failing assertion names the seed.

mod closing;
mod common;
mod handshake;
mod hostile;
mod idle;
mod observer;
mod rc_udp;
mod transfers;
