//! Rate orders: what a network controller and the senders of its network say to each other
//! (DFCP-J §3.2, §7.6), specified in `docs/spec/orders.md`. No I/O, no clock.
//!
//! A [`Follower`] is the sender's side: it asks the controller, takes what is authentic and new, and
//! says when nothing was heard for too long. A [`Message`] is one datagram.

mod follower;
mod message;

pub use follower::{Follower, FollowerConfig, FollowerStats, HELLO_EVERY, LEAST_RATE, Standing};
pub use message::{Flow, Kind, MESSAGE_LEN, Message, OrderKey, Refused};
