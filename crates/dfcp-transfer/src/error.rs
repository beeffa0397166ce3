//! What ends a session early, or keeps one from beginning.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::message::Rejection;

/// An error of the whole session. What concerns one file is a [`Problem`](crate::Problem), and the
/// session goes on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or directory of this side cannot be used.
    #[error("{}: {reason}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why, in words.
        reason: String,
    },
    /// What is to be sent has no name, or no name of its own.
    #[error("{0}")]
    Name(String),
    /// The connection, or a stream or object of it.
    #[error(transparent)]
    Transport(dfcp::Error),
    /// Reading or writing, other than by the connection.
    #[error(transparent)]
    Io(io::Error),
    /// The receiver does not want the files; why, in its words.
    #[error("the receiver rejects the files: {0}")]
    Rejected(Rejection),
    /// This side, the receiver, does not want them.
    #[error("{0}")]
    Refused(Rejection),
    /// The other side says what it must not, or this side would have to.
    #[error("{0}")]
    Protocol(String),
    /// Another session of the same sender wants files of this one, which is taken for dead.
    #[error("another transfer with the same key goes on with these files")]
    TakenOver,
    /// The sender brought nothing for long, and somebody else found no place.
    #[error("nothing came for long, and others wait for the place")]
    Silent,
    /// A task of the session was ended before its time.
    #[error("{0}")]
    Task(String),
}

const BAD_NAME: &str =
    ": the file system there cannot hold this name; rename it, or copy to another one";

/// What to do about a file or directory that cannot be used, where that is known.
pub(crate) fn advice(error: &io::Error) -> &'static str {
    // What FAT and its like say to characters that their names cannot have.
    let bad_name = [Errno::ILSEQ, Errno::INVAL].map(|e| Some(e.raw_os_error()));
    match error.kind() {
        _ if bad_name.contains(&error.raw_os_error()) => BAD_NAME,
        io::ErrorKind::InvalidFilename => BAD_NAME,
        // Who lacks permissions is told EACCES, but for what others own in a directory such as /tmp.
        _ if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
            ": this user may not, or nobody: the directory is immutable (lsattr -d), or the file system there cannot \
             hold this name; name another directory"
        }
        io::ErrorKind::FileTooLarge => {
            ": the file system there holds no file as large (FAT: 4 GB), or `ulimit -f` allows none; copy to \
             another one, or raise the limit"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ": make room there and copy again (df -h shows what is free, df -i how many files more)"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            ": nothing can be written there; name another directory"
        }
        io::ErrorKind::PermissionDenied => {
            ": this user may not; name another directory, or have the permissions changed"
        }
        _ => "",
    }
}

impl Error {
    pub(crate) fn file(path: &Path, reason: impl fmt::Display) -> Self {
        Self::File {
            path: path.to_owned(),
            reason: reason.to_string(),
        }
    }

    pub(crate) fn protocol(what: impl Into<String>) -> Self {
        Self::Protocol(what.into())
    }
}

impl From<dfcp::Error> for Error {
    fn from(error: dfcp::Error) -> Self {
        match error {
            dfcp::Error::Io(error) => Self::Io(error),
            error => Self::Transport(error),
        }
    }
}

impl From<Rejection> for Error {
    fn from(rejection: Rejection) -> Self {
        Self::Refused(rejection)
    }
}

impl From<io::Error> for Error {
    /// Streams hide the transport's errors in these.
    fn from(error: io::Error) -> Self {
        dfcp::Error::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_transport_are_found_within_those_of_streams() {
        let hidden = io::Error::from(dfcp::Error::Closed);
        assert!(matches!(
            Error::from(hidden),
            Error::Transport(dfcp::Error::Closed)
        ));
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert!(matches!(
            Error::from(dfcp::Error::Io(full)),
            Error::Io(error) if error.kind() == io::ErrorKind::StorageFull
        ));
    }

    #[test]
    fn what_can_be_done_about_it_is_said() {
        for (kind, word) in [
            (io::ErrorKind::InvalidFilename, "rename"),
            (io::ErrorKind::FileTooLarge, "another one"),
            (io::ErrorKind::StorageFull, "df -i"),
            (io::ErrorKind::QuotaExceeded, "make room"),
            (io::ErrorKind::ReadOnlyFilesystem, "another directory"),
            (io::ErrorKind::PermissionDenied, "permissions"),
        ] {
            let advice = advice(&kind.into());
            assert!(
                advice.starts_with(": ") && advice.contains(word),
                "{advice}"
            );
        }
        for number in [Errno::ILSEQ, Errno::INVAL] {
            assert_eq!(advice(&number.into()), BAD_NAME);
        }
        let [denied, forbidden] = [Errno::ACCESS, Errno::PERM].map(|error| advice(&error.into()));
        assert!(forbidden.contains("lsattr") && !denied.contains("lsattr"));
        assert_eq!(advice(&io::ErrorKind::BrokenPipe.into()), "");
    }
}
