//! What sender and receiver say to each other: a list of files, then the files, then what became
//! of each. The protocol is specified in `docs/spec/files.md`.
//!
//! - [`message`]: the messages and their framing on the control stream;
//! - [`offer`]: the list of files, and what a receiver accepts;
//! - [`source`]: the sender's files;
//! - [`store`]: the receiver's directory;
//! - [`ledger`]: the receiver's account of a session;
//! - [`send`], [`receive`]: the two sides of a session, with an object for each file;
//! - [`serial`]: the two sides over one stream of bytes.

pub mod ledger;
pub mod message;
pub mod offer;
pub mod receive;
pub mod send;
pub mod serial;
pub mod source;
pub mod store;

use dfcp::CloseCode;

/// All is done.
pub const DONE: CloseCode = CloseCode::NO_ERROR;
/// The user ended the transfer.
pub const INTERRUPTED: CloseCode = CloseCode(CloseCode::APPLICATION.0);
/// This side cannot go on.
pub const FAILED: CloseCode = CloseCode(CloseCode::APPLICATION.0 + 1);
