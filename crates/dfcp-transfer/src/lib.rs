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
//! let sources = Sources::scan(&["data".into(), "photos.tar".into()])?;
//! let progress = dfcp::Progress::default(); // counts the bytes that have arrived
//! let sent = dfcp_transfer::send(&connection, &sources, &progress).await?;
//! for (source, outcome) in sent.outcomes.iter().map(|(i, o)| (&sources.list[*i as usize], o)) {
//!     println!("{}: {outcome:?}", source.path.display());
//! }
//! # Ok(()) }
//! # async fn receiver(connection: dfcp::Connection) -> Result<(), Error> {
//! let store = Arc::new(Store::open(Path::new("incoming"), OnConflict::Error)?);
//! let (meter, _watch) = Meter::start(); // how fast bytes arrive, for whoever wants to know
//! let consent = async |_offered| Ok(()); // to whatever is offered within the store's limits
//! if let Some(received) = dfcp_transfer::receive(&connection, store, &meter, consent).await {
//!     assert!(received.outcomes.values().all(|outcome| *outcome == Outcome::Done));
//! }
//! # Ok(()) }
//! ```
//!
//! - [`message`]: the messages and their framing on the control stream;
//! - [`offer`]: the list of files, and what a receiver accepts;
//! - `source`: the sender's files, [`Sources`]; `store`: the receiver's directory, [`Store`];
//! - `space`: room on its disk; `stale`: partial files that nobody came back for;
//! - `ledger`: the receiver's account of a session, which ends as [`Received`];
//! - `send`, `receive`: the two sides of a session, with an object for each file;
//! - [`serial`]: the two sides over one stream of bytes, for transports without objects;
//! - `meter`: how fast bytes arrive, [`Meter`].

#![forbid(unsafe_code)]

mod error;
mod ledger;
pub mod message;
mod meter;
pub mod offer;
mod receive;
mod send;
pub mod serial;
mod source;
mod space;
mod stale;
mod store;

pub use error::Error;
pub use ledger::Received;
pub use message::{Entry, Outcome, Problem, ProblemKind, Rejection, RejectionKind};
pub use meter::{Meter, Watch};
pub use offer::Limits;
pub use receive::{Offered, receive};
pub use send::{Sent, send};
pub use source::{Source, Sources};
pub use store::{OnConflict, PARTIAL, Store};

use dfcp::CloseCode;

/// Files of a session whose outcome is not known yet; below what receivers let a peer open at a time.
const MAX_PENDING: usize = 128;

/// The code that a connection is closed with when all is done.
pub const DONE: CloseCode = CloseCode::NO_ERROR;
/// The same when the user ended the transfer.
pub const INTERRUPTED: CloseCode = CloseCode::application(0);
/// The same when this side cannot go on.
pub const FAILED: CloseCode = CloseCode::application(1);
