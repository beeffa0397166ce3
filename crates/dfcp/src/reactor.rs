//! Registers descriptors with the runtime's reactor, each only while its events are wanted.

use std::io;
use std::os::fd::AsRawFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers `source`, until what this returns is dropped; call within a tokio runtime. A descriptor
/// may be registered once at a time.
#[expect(
    deprecated,
    reason = "its successor is unsafe, lest the descriptor be closed meanwhile: ours own theirs"
)]
pub(crate) fn register<T: AsRawFd>(source: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(source, interest)
}
