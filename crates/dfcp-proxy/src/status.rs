//! How an attempt to connect ended, in the numbers of the streams, of SOCKS5 and of HTTP.

use std::fmt;
use std::io;

/// How an attempt to connect ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// There is a connection.
    Connected,
    /// It failed for a reason that has no number here.
    Failed,
    /// The server's rules forbid it.
    Forbidden,
    /// The server has no route to the network.
    NetworkUnreachable,
    /// The host does not answer, or its name is not known.
    HostUnreachable,
    /// The host refused it.
    Refused,
    /// Nobody answered in time.
    TimedOut,
    /// The other side does not know what was asked for.
    Unsupported,
    /// This key has as much as it may have, or the machine has no open file left.
    Limit,
}

impl Status {
    pub(crate) const ALL: [Self; 9] = [
        Self::Connected,
        Self::Failed,
        Self::Forbidden,
        Self::NetworkUnreachable,
        Self::HostUnreachable,
        Self::Refused,
        Self::TimedOut,
        Self::Unsupported,
        Self::Limit,
    ];

    /// A word for it, such as counters have.
    pub fn word(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Failed => "failed",
            Self::Forbidden => "forbidden",
            Self::NetworkUnreachable => "network_unreachable",
            Self::HostUnreachable => "host_unreachable",
            Self::Refused => "refused",
            Self::TimedOut => "timed_out",
            Self::Unsupported => "unsupported",
            Self::Limit => "limit",
        }
    }

    /// Its byte on a stream: that of SOCKS5 (RFC 1928 §6), and 8 for a limit.
    pub(crate) fn byte(self) -> u8 {
        self as u8
    }

    /// What a byte means; those of later versions are failures.
    pub(crate) fn from_byte(byte: u8) -> Self {
        let known = Self::ALL.get(usize::from(byte));
        known.copied().unwrap_or(Self::Failed)
    }

    /// The REP of SOCKS5 (RFC 1928 §6). It has none for time and limits.
    pub(crate) fn socks(self) -> u8 {
        match self {
            Self::TimedOut => Self::HostUnreachable.byte(),
            Self::Limit => Self::Failed.byte(),
            other => other.byte(),
        }
    }

    /// The status line of HTTP (RFC 9110 §15), and the error of Proxy-Status (RFC 9209 §2.3).
    pub(crate) fn http(self) -> (&'static str, &'static str) {
        match self {
            Self::Connected => ("200 Connection established", ""),
            Self::Failed => ("502 Bad Gateway", "proxy_internal_error"),
            Self::Forbidden => ("403 Forbidden", "destination_ip_prohibited"),
            Self::NetworkUnreachable => ("502 Bad Gateway", "destination_ip_unroutable"),
            Self::HostUnreachable => ("502 Bad Gateway", "destination_unavailable"),
            Self::Refused => ("502 Bad Gateway", "connection_refused"),
            Self::TimedOut => ("504 Gateway Timeout", "connection_timeout"),
            Self::Unsupported => ("501 Not Implemented", "http_request_error"),
            Self::Limit => ("503 Service Unavailable", "connection_limit_reached"),
        }
    }

    /// What an attempt of the system ended with.
    pub(crate) fn of(error: &io::Error) -> Self {
        if let Some(ENFILE | EMFILE) = error.raw_os_error() {
            return Self::Limit;
        }
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::NetworkUnreachable => Self::NetworkUnreachable,
            io::ErrorKind::HostUnreachable => Self::HostUnreachable,
            io::ErrorKind::TimedOut => Self::TimedOut,
            _ => Self::Failed,
        }
    }
}

/// Too many open files, of the machine and of the process: the same numbers on all systems that this runs
/// on, and none of the standard library's kinds.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// An attempt that failed, and why in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The reason in a number; never [`Status::Connected`].
    pub status: Status,
    /// The reason in words.
    pub message: String,
}

impl Refusal {
    pub(crate) fn new(status: Status, message: impl fmt::Display) -> Self {
        let message = message.to_string();
        Self { status, message }
    }

    pub(crate) fn of(error: &io::Error, what: impl fmt::Display) -> Self {
        Self::new(Status::of(error), format_args!("{what}: {error}"))
    }
}
