//! `--profile dfcp`: files over DFCP as published, in clear and without congestion control.
//!
//! - [`options`]: the command line, and the one place where it becomes a `Config`;
//! - [`control`]: how fast it sends; [`orders`]: as a network controller says;
//! - [`guard`]: where this profile may be used;
//! - [`send`], [`recv`]: the commands. What they say to each other is `dfcp_transfer::serial`.

mod control;
mod guard;
pub mod options;
mod orders;
pub mod recv;
pub mod send;
