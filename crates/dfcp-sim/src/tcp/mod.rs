//! TCP senders and receivers for the simulator: the baselines that the papers compare with.
//!
//! One connection carries bulk data one way, from a [`TcpSender`] to a [`TcpReceiver`]. Data are
//! counted in segments, as ns-2 does and Linux does inside; every segment but the last is one MSS.
//! Both ends are sans-IO: after each `on_segment`, `on_timeout` or `start`, call `poll_transmit`
//! until it gives `None`, then ask `poll_timeout`.
//!
//! | part | after |
//! |---|---|
//! | window and recovery ([`TcpSender`]) | RFC 5681, 6582 (NewReno), 6675 (SACK), 3042, 6937, 3168 |
//! | retransmission timeout | RFC 6298 |
//! | receiver ([`TcpReceiver`]) | RFC 5681 §4.2, 2018, 7323 §4.3, 3168 §6.1.3 |
//! | congestion control ([`congestion`]) | Reno, CUBIC, HighSpeed, H-TCP, BBR |
//!
//! Invariants: no state grows beyond the window; a step costs amortised constant time and, once
//! the buffers have grown to the window, no allocation; equal inputs give equal outputs.
//!
//! Left out on purpose: tail loss probes, undo of spurious recoveries (Eifel, F-RTO, D-SACK),
//! window validation after idle, FIN. A bulk transfer over a path that seldom reorders needs none.

mod config;
pub mod congestion;
mod ranges;
mod rate;
mod receiver;
mod ring;
mod rtt;
mod scoreboard;
mod segment;
mod sender;
#[cfg(test)]
mod tests;

pub use config::{
    DelayedAck, Sizes, TcpConfigError, TcpReceiverConfig, TcpSenderConfig, WindowReduction,
};
pub use congestion::{Congestion, CubicConfig, CubicVariant};
pub use receiver::{TcpReceiver, TcpReceiverStats};
pub use segment::{Flags, Kind, SackBlocks, Segment};
pub use sender::{TcpSender, TcpSenderStats};
