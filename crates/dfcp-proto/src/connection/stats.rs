//! Counters that are always on.

use crate::time::{Duration, Rate};

/// What a connection did so far.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ConnectionStats {
    /// Datagrams sent, handshake included.
    pub packets_sent: u64,
    /// UDP payload bytes sent.
    pub bytes_sent: u64,
    /// Datagrams received and authenticated.
    pub packets_received: u64,
    /// UDP payload bytes received and authenticated.
    pub bytes_received: u64,
    /// Packets of which the peer said that they had come; those with nothing but feedback are not told of.
    pub packets_acknowledged: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// Of these, how many arrived after all.
    pub spurious_losses: u64,
    /// Probe timeouts.
    pub probes: u64,
    /// How often the path stopped to carry packets as large as before.
    pub black_holes: u64,
    /// Source symbols sent for the first time.
    pub source_symbols_sent: u64,
    /// Repair symbols sent.
    pub repair_symbols_sent: u64,
    /// Symbols received.
    pub symbols_received: u64,
    /// Symbols received that taught nothing.
    pub redundant_symbols: u64,
    /// Blocks that needed solving.
    pub blocks_solved: u64,
    /// Reports of blocks, ignored, by which the peer has more of a block than was sent.
    pub implausible_reports: u64,
    /// Datagrams of the application sent.
    pub datagrams_sent: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// Datagrams dropped here, before they were sent or after they came: newer ones needed the room, or
    /// the path became too narrow for them.
    pub datagrams_dropped: u64,
    /// Blocks given up before they were known to have arrived.
    pub blocks_abandoned: u64,
    /// Of these, how many were too old before anything of them was sent.
    pub blocks_never_sent: u64,
    /// Bytes of the blocks given up.
    pub bytes_abandoned: u64,
    /// SKIP frames that opened a gap.
    pub skips_received: u64,
    /// SKIP frames about bytes that had arrived, or were known to be missing.
    pub skips_ignored: u64,
    /// Bytes in gaps.
    pub bytes_skipped: u64,
    /// Datagrams that failed authentication.
    pub forged: u64,
    /// Datagrams seen before.
    pub duplicates: u64,
    /// Datagrams that are no packets.
    pub malformed: u64,
    /// Reports of the peer on path or window that were absurd: ignored, or cut to what can be.
    pub refused_reports: u64,
    /// Acknowledgements with an arrival time or a delay that cannot be; times of our own stand in for
    /// them.
    pub absurd_times: u64,
    /// Packets for which the reported receive window had no room; the credit had, so none was dropped.
    pub beyond_window: u64,
    /// Packets received with Congestion Experienced.
    pub ce_received: u64,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Smallest round-trip time.
    pub min_rtt: Duration,
    /// Loss probability, recent.
    pub loss: f64,
    /// Variance of the number of packets lost in a long flight, divided by that of losses which are
    /// independent; at least 1 once a connection is established.
    pub loss_burstiness: f64,
    /// Bandwidth of the path as the rate controller sees it.
    pub bandwidth: Rate,
    /// Rate at which packets leave.
    pub pacing_rate: Rate,
    /// Largest datagram in use, bytes.
    pub datagram_size: usize,
}
