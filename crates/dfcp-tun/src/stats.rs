//! What a link has carried, and what it has not.

use std::fmt;

use crate::code::Counts;
use crate::queue::QueueCounts;

/// Counters of one peer's link, over all its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Packets taken from the device for the peer, and their bytes.
    pub packets_out: u64,
    /// See `packets_out`.
    pub bytes_out: u64,
    /// Packets given to the device, and their bytes.
    pub packets_in: u64,
    /// See `packets_in`.
    pub bytes_in: u64,
    /// Repair symbols sent.
    pub repairs: u64,
    /// What came of the peer's datagrams.
    pub code: Counts,
    /// What the queue dropped and marked.
    pub queue: QueueCounts,
    /// Packets of the peer from addresses that are not its own.
    pub forbidden: u64,
    /// Packets of the peer that are none, or that the kernel does not take.
    pub malformed: u64,
    /// Packets for the peer while it was not connected.
    pub unconnected: u64,
    /// Packets too long for two datagrams of the path.
    pub too_long: u64,
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "sent {} packets ({} bytes), {} repair symbols; received {} packets ({} bytes), {} of them \
             recovered, {} lost",
            self.packets_out,
            self.bytes_out,
            self.repairs,
            self.packets_in,
            self.bytes_in,
            self.code.recovered,
            self.code.lost
        )?;
        for (count, what) in [
            (self.queue.dropped, "dropped by the queue"),
            (self.queue.marked, "marked by the queue"),
            (self.forbidden, "from addresses that are not the peer's"),
            (self.malformed + self.code.malformed, "malformed"),
            (self.unconnected, "while there was no connection"),
            (self.too_long, "too long"),
        ] {
            if count > 0 {
                write!(f, "; {count} {what}")?;
            }
        }
        Ok(())
    }
}
