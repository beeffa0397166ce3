//! What a run measured, as plain data: one value for each flow and link, one for the run, and the
//! time series that were asked for.
//!
//! Units stand in the names (`_s` seconds, `_bps` bits per second) because these figures leave the
//! program as columns of tables under the same names. Flows and links keep the scenario's order.
//! A figure that has no value, such as the mean round-trip time of a flow without acknowledged
//! packets, is `None`.

pub use crate::packet::Drops;

/// Everything that a run measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunReport {
    /// One entry for each flow.
    pub flows: Vec<FlowReport>,
    /// One entry for each one-way link.
    pub links: Vec<LinkReport>,
    /// Figures of the run as a whole.
    pub summary: RunSummary,
    /// Time series, one for each flow or link and quantity.
    pub series: Vec<Series>,
}

/// What a flow achieved, after the warm-up unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowReport {
    /// Its name in the scenario.
    pub name: String,
    /// Its traffic class, as queue disciplines with weights see it.
    pub class: String,
    /// Its protocol, as the scenario names it.
    pub protocol: String,
    /// When it started.
    pub start_s: f64,
    /// Useful bits received per second: no headers, no repair symbols, nothing twice.
    pub goodput_bps: f64,
    /// What a perfect sender alone on its route would have had instead ([`crate::limit`]).
    pub limit_bps: Option<f64>,
    /// Bits of its packets received per second, headers included.
    pub throughput_bps: f64,
    /// From the first packet sent to the last useful byte received, for a flow of finite size that
    /// finished; where bytes are missing, until the receiver knew of them all.
    pub fct_s: Option<f64>,
    /// Useful bytes received since the start of the run.
    pub bytes: u64,
    /// Bytes that the sender gave up and the receiver knows to be missing: none if it is reliable.
    pub bytes_missing: u64,
    /// Bytes of its packets sent since the start of the run.
    pub bytes_sent: u64,
    /// Packets sent since the start of the run.
    pub packets_sent: u64,
    /// Of those, packets that carried data sent before.
    pub packets_retransmitted: u64,
    /// Packets taken for lost that arrived after all, of protocols that count them.
    pub spurious_losses: Option<u64>,
    /// Packets that found the receive window full; of protocols that have one in packets.
    pub receiver_drops: u64,
    /// Share of the packets sent that did not arrive.
    pub loss: f64,
    /// Bytes sent for each useful byte received, less one.
    pub overhead: Option<f64>,
    /// Of a published protocol: data packets sent for each that would have been enough, less one
    /// (RC-UDP §V-A, "additional data sent" beyond (1 + ε) K symbols a block).
    pub excess: Option<f64>,
    /// Of a published protocol that finished: mean time from the first packet of a block sent until
    /// (1 + ε) K of its symbols have arrived (RC-UDP §V-A, "average block transfer time").
    pub block_time_s: Option<f64>,
    /// Its packets that ended on the way, by cause.
    pub drops: Drops,
    /// Mean round-trip time.
    pub rtt_mean_s: Option<f64>,
    /// From its start until its goodput has come to stay within a tenth of its fair share, where
    /// time series were sampled and it does: an equal part of what all flows together had in the
    /// last quarter of the run, as a moving average over ten samples.
    pub convergence_s: Option<f64>,
    /// Whether all of its bytes arrived, but for the missing ones; false for a flow without end.
    pub finished: bool,
}

impl FlowReport {
    /// Its goodput as a share of the limit of its route.
    pub fn share(&self) -> Option<f64> {
        let limit = self.limit_bps.filter(|limit| *limit > 0.0)?;
        Some(self.goodput_bps / limit)
    }
}

/// What a one-way link carried, after the warm-up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkReport {
    /// Its name in the scenario.
    pub name: String,
    /// Share of the time that it transmitted.
    pub utilisation: f64,
    /// Packets offered to it.
    pub packets: u64,
    /// Packets that it did not deliver, by cause.
    pub drops: Drops,
    /// Share of the packets offered that it did not deliver.
    pub drop_rate: f64,
    /// Packets marked "congestion experienced".
    pub marked: u64,
    /// Distribution of its queue over time.
    pub queue: QueueReport,
}

/// A queue over time (lengths) and over packets (sojourn times).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueReport {
    /// Mean length in packets.
    pub mean_packets: f64,
    /// Mean length in bytes.
    pub mean_bytes: f64,
    /// Median length in packets.
    pub p50_packets: f64,
    /// 95th percentile of the length in packets.
    pub p95_packets: f64,
    /// 99th percentile of the length in packets.
    pub p99_packets: f64,
    /// Greatest length in packets.
    pub max_packets: u64,
    /// Mean time in the queue.
    pub sojourn_mean_s: Option<f64>,
    /// 95th percentile of the time in the queue.
    pub sojourn_p95_s: Option<f64>,
    /// Longest time in the queue.
    pub sojourn_max_s: Option<f64>,
}

/// Figures of a run as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunSummary {
    /// Jain's fairness index of the flows' goodputs.
    pub jain: Option<f64>,
    /// Utilisation of the busiest link.
    pub utilisation: f64,
    /// Events processed.
    pub events: u64,
    /// Packets sent by all flows.
    pub packets: u64,
    /// Simulated time.
    pub simulated_s: f64,
    /// Stability of the flows' throughput, bytes as they arrive, over time: mean coefficient of
    /// variation.
    pub stability: Option<f64>,
    /// Friendliness to TCP, where the scenario has flows to compare.
    pub friendliness: Option<f64>,
}

/// A quantity of a flow or link, sampled at equal intervals from the start of the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Name of the flow or link.
    pub name: String,
    /// What is sampled, with its unit: `goodput_bps`, `queue_packets`, ….
    pub quantity: String,
    /// Time between samples; the first sample covers the first interval.
    pub interval_s: f64,
    /// The samples.
    pub values: Vec<f64>,
}
