//! What can go wrong.

use dfcp_proto::{ChannelError, ConnectionError, DatagramError, VarInt, published};
use std::io;
use std::net::IpAddr;

/// An error of the library.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The connection is over.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// A connection of DFCP as published is over, or refused.
    #[error(transparent)]
    Published(#[from] published::Error),
    /// The peer ended the stream or object early.
    #[error("ended early by the peer (code {0})")]
    Reset(VarInt),
    /// The peer gave up so many bytes; what is read next comes after them.
    #[error("the sender gave up {0} bytes here")]
    Gap(u64),
    /// All is over, but so many bytes were given up on the way.
    #[error("{0} bytes were given up on the way")]
    Incomplete(u64),
    /// The peer sent more of an object than the so many bytes that it may have.
    #[error("it is longer than the {0} bytes that it may have")]
    TooLong(u64),
    /// The stream or object is closed here.
    #[error("closed")]
    Closed,
    /// The datagram cannot be sent.
    #[error(transparent)]
    Datagram(#[from] DatagramError),
    /// A local file or socket failed.
    #[error(transparent)]
    Io(io::Error),
    /// The file being sent changed while it was read.
    #[error("the source changed while it was being sent: {0}")]
    SourceChanged(String),
    /// DFCP as published was to leave this machine for a network that nobody said is one's own.
    #[error(
        "{0} is beyond this machine, and DFCP as published is in clear and pushes other traffic aside: \
         it is for networks of one's own only, of which nobody spoke"
    )]
    NotOwnNetwork(IpAddr),
    /// The endpoint was closed.
    #[error("the endpoint is closed")]
    EndpointClosed,
}

impl From<ChannelError> for Error {
    fn from(error: ChannelError) -> Self {
        match error {
            ChannelError::Reset(code) => Self::Reset(code),
            _ => Self::Closed,
        }
    }
}

/// What streams say as `AsyncRead` and `AsyncWrite` becomes the [`Error`] again that it was made of;
/// everything else is [`Error::Io`].
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        error.downcast().unwrap_or_else(Self::Io)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Reset(_) => io::ErrorKind::ConnectionReset,
            Error::Gap(_) | Error::Incomplete(_) | Error::TooLong(_) => io::ErrorKind::InvalidData,
            Error::Connection(ConnectionError::TimedOut | ConnectionError::Unreachable) => {
                io::ErrorKind::TimedOut
            }
            Error::Published(published::Error::TimedOut | published::Error::Unreachable) => {
                io::ErrorKind::TimedOut
            }
            Error::Published(published::Error::Reset) => io::ErrorKind::ConnectionReset,
            Error::Datagram(_) => io::ErrorKind::InvalidInput,
            Error::NotOwnNetwork(_) => io::ErrorKind::PermissionDenied,
            Error::Connection(_) => io::ErrorKind::ConnectionAborted,
            _ => io::ErrorKind::BrokenPipe,
        };
        match error {
            Error::Io(error) => error,
            error => Self::new(kind, error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_the_same_again_after_a_stream_has_told_it() {
        let told = Error::from(io::Error::from(Error::from(ConnectionError::TimedOut)));
        let lost = |error: &Error| matches!(error, Error::Connection(ConnectionError::TimedOut));
        assert!(lost(&told), "{told:?}");
        let full = Error::from(io::Error::from(io::ErrorKind::StorageFull));
        let of_system = |error: &Error| matches!(error, Error::Io(e) if e.get_ref().is_none());
        assert!(of_system(&full), "{full:?}");
        let told = Error::from(io::Error::from(full));
        assert!(of_system(&told), "{told:?}");
    }
}
