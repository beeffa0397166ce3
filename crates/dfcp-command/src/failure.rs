//! What ends a command without success: an exit code for scripts and a sentence for people.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use dfcp::{CloseCode, ConnectionError, Error, published};
use serde::{Deserialize, Serialize};

/// Classes of failure; each is an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Anything that has no class of its own.
    Failure = 1,
    /// The command line is wrong.
    Usage = 2,
    /// Some files arrived and some did not.
    Partial = 3,
    /// A key is unknown, unexpected, refused or not safely kept.
    Authentication = 4,
    /// Nobody answers, or the path went silent.
    Unreachable = 5,
    /// What arrived is not what was sent.
    Integrity = 6,
    /// A local file or directory failed, on either side.
    LocalIo = 7,
    /// It would take away more than whoever asked for it has probably meant.
    WouldRemove = 8,
    /// Its terminal or its session went away (SIGHUP): 128 and the signal, as with shells.
    HungUp = 129,
    /// The user ended it (SIGINT).
    Interrupted = 130,
    /// Somebody, such as a service manager, ended it (SIGTERM).
    Terminated = 143,
}

impl Kind {
    /// Ends by a signal that a program heard.
    pub const INTERRUPTIONS: [Self; 3] = [Self::HungUp, Self::Interrupted, Self::Terminated];

    /// Whether a signal ended it.
    pub fn is_interruption(self) -> bool {
        Self::INTERRUPTIONS.contains(&self)
    }
}

/// What each exit code means, in the words of README.md.
pub const EXIT_CODES: [(&str, &str); 10] = [
    ("0", "everything arrived and was verified"),
    ("1", "failure; also an offer beyond what the receiver takes"),
    ("2", "usage"),
    (
        "3",
        "some of the files failed, or something was left out (left_out in the JSON says what and why)",
    ),
    (
        "4",
        "authentication: unknown, wrong or refused key; a receiver that nobody may send to; a code that \
         is wrong, used or expired",
    ),
    (
        "5",
        "unreachable, UDP blocked, the path went silent, nobody answers to a code (on the local network \
         also one that was used or has expired), or no path between the two sides of a code",
    ),
    ("6", "integrity"),
    (
        "7",
        "local input or output: disk full or too small for the offer, not writable, source changed, \
         standard output not writable (of JSON also: its reader gone)",
    ),
    (
        "8",
        "sync --delete would have removed more than was probably meant, and removed nothing: \
         --allow-empty, --max-delete",
    ),
    (
        "129, 130, 143",
        "ended by a signal: the terminal or session went away (SIGHUP; not under nohup), Ctrl-C (SIGINT), \
         a request to terminate (SIGTERM)",
    ),
];

/// A failure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// Its class.
    pub kind: Kind,
    /// In words.
    pub message: String,
}

impl Failure {
    /// A failure of this class.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// A local file or directory failed.
    pub fn io(path: &Path, error: impl fmt::Display) -> Self {
        Self::new(Kind::LocalIo, format!("{}: {error}", path.display()))
    }

    /// The command line is wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// The user ended it.
    pub fn interrupted() -> Self {
        Self::new(Kind::Interrupted, "interrupted")
    }

    /// The process' exit code.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.kind as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Connection(error) => error.into(),
            Error::Published(error) => error.into(),
            Error::Io(error) => error.into(),
            Error::SourceChanged(_) => Self::new(Kind::LocalIo, error.to_string()),
            _ => Self::new(Kind::Failure, error.to_string()),
        }
    }
}

impl From<ConnectionError> for Failure {
    fn from(error: ConnectionError) -> Self {
        let kind = match &error {
            ConnectionError::Refused
            | ConnectionError::Expired
            | ConnectionError::WrongKey { .. } => Kind::Authentication,
            ConnectionError::Unreachable | ConnectionError::TimedOut => Kind::Unreachable,
            _ => Kind::Failure,
        };
        match error {
            ConnectionError::PeerClosed { reason, .. } if !reason.is_empty() => {
                Self::new(kind, format!("the other side ended the transfer: {reason}"))
            }
            // As a receiver does that has had its one session.
            ConnectionError::PeerClosed {
                code: CloseCode::NO_ERROR,
                ..
            } => Self::new(kind, "the other side is ending, and takes nothing more"),
            error => Self::new(kind, error.to_string()),
        }
    }
}

impl From<published::Error> for Failure {
    fn from(error: published::Error) -> Self {
        let kind = match &error {
            published::Error::Unreachable | published::Error::TimedOut => Kind::Unreachable,
            _ => Kind::Failure,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    /// Streams hide the library's errors in these.
    fn from(error: std::io::Error) -> Self {
        match error.downcast::<Error>() {
            Ok(error) => error.into(),
            Err(error) => Self::new(Kind::LocalIo, error.to_string()),
        }
    }
}
