//! The protocol core on simulated paths: what a user would miss if it broke.
//!
//! Every test is a pair of endpoints (or one endpoint and a hand-made peer) in simulated time;
//! nothing depends on the machine's speed. A failing assertion names the seed.

mod admission;
#[path = "../../../../fuzz/src/lib.rs"]
mod bodies;
mod bursts;
mod common;
mod counts;
mod ctcp;
mod datagrams;
mod ending;
mod feedback;
mod first_flight;
mod flood;
mod fuzz_replay;
mod handshake;
mod hostile;
mod idle;
mod migration;
mod mtu;
mod observer;
mod parts;
mod random;
mod rate;
mod relayed;
mod reliability;
mod reports;
mod robustness;
mod streams;
mod tfrc;
mod transfers;
mod unread;
mod virtual_payload;
