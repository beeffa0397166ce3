//! Packets: numbers, round trips, loss, pacing. Nothing here knows what a packet carries.

mod arrival;
mod loss;
mod mtu;
mod pacer;
mod received;
mod reordering;
mod reverse;
mod rtt;
mod rules;
mod sent;

pub use arrival::ArrivalClock;
pub use loss::{Loss, LossEstimator, LostPacket};
pub use mtu::{BlackHole, MtuSearch};
pub use pacer::{Pacer, Place};
pub use received::{ReceivedPackets, decode_packet_number};
pub use reverse::{ReportIn, ReversePath, longest_report_interval};
pub use rtt::RttEstimator;
pub use rules::{LossEstimate, LossRules, Reordering, Unanswered};
pub use sent::{AckOutcome, NewPacket, SentPacket, SentPackets, SymbolRef};
