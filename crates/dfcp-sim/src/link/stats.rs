//! What a link counted.

use dfcp_proto::Duration;

/// Counters of a [`Link`](super::Link) since it was made. Bytes include framing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkStats {
    /// Packets handed to the link.
    pub packets_in: u64,
    /// Bytes handed to the link.
    pub bytes_in: u64,
    /// Packets dropped because the queue was full.
    pub dropped_queue: u64,
    /// Packets that reached the transmitter.
    pub transmitted: u64,
    /// Packets lost after they were transmitted.
    pub lost: u64,
    /// Packets delivered twice.
    pub duplicated: u64,
    /// Packets with a bit flipped.
    pub corrupted: u64,
    /// Packets held back to be reordered.
    pub held_back: u64,
    /// Packets marked CE.
    pub marked: u64,
    /// Packets delivered, duplicates included.
    pub delivered: u64,
    /// Bytes delivered, duplicates included.
    pub delivered_bytes: u64,
    /// Most bytes that waited at once.
    pub queue_peak_bytes: u64,
    /// Most packets that waited at once.
    pub queue_peak_packets: u64,
    /// Sum over `transmitted` of the time from arrival to the transmitter.
    pub sojourn_total: Duration,
    /// Longest time from arrival to the transmitter.
    pub sojourn_max: Duration,
}

impl LinkStats {
    /// Mean time that packets waited for the transmitter.
    pub fn sojourn_mean(&self) -> Duration {
        let total = u64::try_from(self.sojourn_total.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(total.checked_div(self.transmitted).unwrap_or(0))
    }
}
