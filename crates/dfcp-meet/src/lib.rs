//! How two people with a spoken code get their programs together: `7-otter-lamp`.
//!
//! The sender makes a code ([`Code`]) and waits ([`Offer`]); the receiver types it ([`Claim`]). They
//! find each other on the local network or through a small server ([`Server`]), prove to each other
//! that both know the words (SPAKE2), which authenticates their dfcp keys, and then look for an
//! address at which they reach each other, through address translators if need be. What comes out is
//! a key and an address: the transfer is the ordinary one between exactly these two keys.
//!
//! Everything here is without I/O, clock and randomness of its own, as the protocol core is: time,
//! datagrams and a seeded generator come in as arguments, so that two machines and a server run in a
//! test under loss, replay and forgery. The messages are specified in `docs/spec/meeting.md`.
//!
//! - [`code`]: the code as people say it; [`wire`]: datagrams;
//! - [`pake`]: from the words to keys, and what is sealed under them;
//! - [`punch`]: probes between two sockets; [`approach`]: probes first, then the server's relay;
//! - [`offer`], [`claim`]: the two sides; `party`: what they have alike; [`link`]: what both have to do with a
//!   server;
//! - [`server`]: the server, its limits and its relay.

#![forbid(unsafe_code)]

pub mod approach;
pub mod claim;
pub mod code;
pub mod link;
pub mod machine;
pub mod offer;
pub mod pake;
mod party;
pub mod punch;
pub mod server;
pub mod wire;

pub use claim::{Claim, ClaimConfig};
pub use code::{Code, CodeError};
pub use machine::{Datagram, Event, Failure, Machine, Path};
pub use offer::{Offer, OfferConfig};
pub use pake::{Candidate, CandidateKind};
pub use server::{Action, Asker, RelayLimits, Server, ServerConfig};
pub use wire::is_meeting;

use dfcp_proto::Duration;

/// How long a code is good for.
pub const LIFETIME: Duration = Duration::from_secs(600);
/// Wrong guesses after which a code is dead. With two words of 256 whoever guesses at random gets
/// in with a probability of 3 in 65,536.
pub const MAX_GUESSES: u8 = 3;
