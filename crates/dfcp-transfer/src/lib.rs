//! Files and directories over a connection of [`dfcp`]: what sender and receiver say to each other,
//! and what they do with their disks. A list of files goes first, then the files, then what became
//! of each. The protocol is specified in `docs/spec/files.md`.
//!
//! A sender lists what it sends as [`Sources`] and calls [`send()`]; a receiver opens a directory as
//! a [`Store`] and calls [`receive()`]. Both end with an [`Outcome`] for each file. What belongs to
//! a program is not here: keys, names of hosts, exit codes, what is shown to people.
//!
//! ```no_run
//! # use std::{path::Path, sync::Arc};
//! # use dfcp_transfer::{Error, Meter, OnConflict, Outcome, Sources, Store};
//! # async fn sender(connection: dfcp::Connection) -> Result<(), Error> {
//! let sources = Arc::new(Sources::scan(&["data".into(), "photos.tar".into()])?);
//! let meter = Meter::start(); // counts the bytes that have arrived
//! let sent = dfcp_transfer::send(&connection, &sources, &meter).await?;
//! for (source, outcome) in sent.outcomes.iter().map(|(i, o)| (&sources.list[*i as usize], o)) {
//!     println!("{}: {outcome:?}", source.path.display());
//! }
//! # Ok(()) }
//! # async fn receiver(connection: dfcp::Connection) -> Result<(), Error> {
//! let store = Arc::new(Store::open(Path::new("incoming"), OnConflict::Error)?);
//! let meter = Meter::start(); // how fast bytes arrive, for whoever wants to know
//! let consent = async |_offered| Ok(()); // to whatever is offered within the store's limits
//! if let Some(received) = dfcp_transfer::receive(&connection, store, &meter, consent).await {
//!     assert!(received.outcomes.values().all(|outcome| *outcome == Outcome::Done));
//! }
//! # Ok(()) }
//! ```
//!
//! - [`message`]: the messages and their framing on the control stream;
//! - [`offer`]: the list of files, and what a receiver accepts;
//! - [`name`]: names of any bytes as text; `meta`: owners, attributes, access control lists;
//!   `sparse`: holes of files;
//! - `source`: the sender's files, [`Sources`]; `store`: the receiver's directory, [`Store`];
//! - `tree`: groups of a file in its hash tree; `partial`: files that are not whole, and what is noted
//!   of them; `tenants`: who writes them;
//! - `turns`: whose files are compared when; `space`: room on its disk; `stale`: partial files that nobody came back for;
//! - `ledger`: the receiver's account of a session, which ends as [`Received`];
//! - `send`, `receive`: the two sides of a session; `read`: how a sender reads its files;
//! - [`serial`]: the two sides over one stream of bytes, for transports without objects;
//! - `meter`: how fast bytes arrive, [`Meter`]; `diary`: what happens to files meanwhile, [`Diary`].

#![forbid(unsafe_code)]

mod diary;
mod error;
mod ledger;
pub mod memory;
pub mod message;
mod meta;
mod meter;
pub mod name;
pub mod offer;
mod partial;
mod read;
mod receive;
mod send;
pub mod serial;
mod source;
mod space;
mod sparse;
mod stale;
mod store;
mod tenants;
mod tree;
mod turns;
mod writers;

pub use diary::{Diary, Settled, Unstable};
pub use error::Error;
pub use ledger::Received;
pub use message::{
    Change, Entry, Exact, Link, Meta, OnConflict, Outcome, People, Problem, ProblemKind, Rejection,
    RejectionKind, Wishes,
};
pub use meta::{Keep, Owners};
pub use meter::Meter;
pub use offer::Limits;
pub use partial::JOURNAL;
pub use receive::{Offered, receive, receive_into};
pub use send::{Sent, send};
pub use source::{Expected, Filter, LeftOut, Links, Privileges, Scan, Source, Sources};
pub use store::{BUSY, PARTIAL, Senders, Store};

use dfcp::CloseCode;

/// Objects that a sender has on their way at a time; below what receivers let a peer open. Files that
/// a receiver is told of in parts, or keeps open because it has parts, are no more either.
const MAX_PENDING: usize = 128;
/// Bytes that all sessions of a receiver may take for values of groups of files that are there in another
/// version, the sender's and its own: half of them is what the files of one session take that are held at a
/// time ([`MAX_PENDING`] of 256 KiB), and the more sessions there are the less each has.
const VALUES_MEMORY: u64 = 64 << 20;
/// Files up to this size go in packs, larger ones as parts of their own: a quarter of a pack, so that packs
/// are nearly full. One that a kill interrupts begins anew.
const MAX_SMALL: u64 = MAX_PACK / 4;
/// Bytes and files of a pack. A pack is held in memory and is lost whole if its session dies: a few
/// blocks of the transport (183,040 bytes) make what an object costs little, more would not be less.
const MAX_PACK: u64 = 1 << 20;
/// See there.
const MAX_PACK_FILES: usize = 256;

/// The code that a connection is closed with when all is done.
pub const DONE: CloseCode = CloseCode::NO_ERROR;
/// The same when the user ended the transfer.
pub const INTERRUPTED: CloseCode = CloseCode::application(0);
/// The same when another session of the same sender has taken over.
pub const TAKEN_OVER: CloseCode = CloseCode::application(2);
/// The same when this side cannot go on.
pub const FAILED: CloseCode = CloseCode::application(1);
