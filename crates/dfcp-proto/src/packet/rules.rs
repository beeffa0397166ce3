//! When a packet counts as lost, and what its loss is worth: numbers that differ between papers.

/// Rules of loss detection. The default is that of RFC 9002 with a reordering window that adapts
/// (RFC 8985 §6.2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossRules {
    /// A packet is lost once one sent this many later is acknowledged (kPacketThreshold, RFC 9002
    /// §6.1.1); at least one.
    pub packet_threshold: u64,
    /// A packet is lost once it is this old and a later one is acknowledged: eighths of a round trip
    /// (kTimeThreshold, RFC 9002 §6.1.2).
    pub time_threshold_eighths: u32,
    /// Whether the path's reordering is learnt.
    pub reordering: Reordering,
    /// What packets are that no acknowledgement has overtaken.
    pub unanswered: Unanswered,
    /// How the loss probability is estimated.
    pub estimate: LossEstimate,
}

impl Default for LossRules {
    fn default() -> Self {
        Self {
            packet_threshold: 3,
            time_threshold_eighths: 9,
            reordering: Reordering::Adaptive,
            unanswered: Unanswered::Awaited,
            estimate: LossEstimate::Counted,
        }
    }
}

/// What a late arrival changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reordering {
    /// The path's reordering is learnt, and then waited for instead of counting packets.
    #[default]
    Adaptive,
    /// Nothing: the thresholds stay.
    Ignored,
}

/// What a packet is that is older than the time threshold while no later one is acknowledged either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unanswered {
    /// Likely to arrive: a probe asks.
    #[default]
    Awaited,
    /// In flight, but its block counts on it no more (CTCP, Algorithm 3).
    WrittenOff,
}

/// Estimates of the loss probability.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum LossEstimate {
    /// Counts of the last thousand packets, and a cautious value while little was seen.
    #[default]
    Counted,
    /// Exponential smoothing packet by packet with this weight µ of the newest (CTCP, Algorithm 1).
    Smoothed(f64),
}
