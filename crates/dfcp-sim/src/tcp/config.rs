//! The parameters of both ends.

use super::congestion::Congestion;
use super::segment::Kind;
use dfcp_proto::Duration;

/// IP and TCP headers without options, bytes.
const HEADERS: u8 = 40;

/// How large packets are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sizes {
    /// As on the wire: headers of 40 bytes, 12 for timestamps, 4 + 8 for each SACK block.
    #[default]
    Wire,
    /// As ns-2 counts: every data packet adds the same header, every other packet has one size.
    Flat {
        /// Headers of a data packet, bytes.
        data_header: u8,
        /// An acknowledgement, bytes.
        ack: u8,
    },
}

impl Sizes {
    /// Header bytes of a segment.
    #[inline]
    pub(super) fn header(self, kind: Kind, timestamps: bool, blocks: u8) -> u8 {
        match self {
            Self::Flat { data_header, .. } if kind == Kind::Data => data_header,
            Self::Flat { ack, .. } => ack,
            // A SYN carries MSS, window scale, SACK-permitted and timestamps: 20 bytes.
            Self::Wire if matches!(kind, Kind::Syn | Kind::SynAck) => HEADERS + 20,
            Self::Wire => {
                let sack = if blocks == 0 { 0 } else { 4 + 8 * blocks };
                HEADERS + if timestamps { 12 } else { 0 } + sack
            }
        }
    }
}

/// How the window comes down when a loss is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WindowReduction {
    /// At once; then the sender waits for the pipe to drain (RFC 6675, RFC 6582; ns-2).
    #[default]
    AtOnce,
    /// In proportion to what is delivered (RFC 6937; Linux since 3.2, ns-3).
    Proportional,
}

/// The parameters of a [`TcpSender`](super::TcpSender).
#[derive(Clone, Debug, PartialEq)]
pub struct TcpSenderConfig {
    /// Bytes of data in a full segment. 1448 fills 1500 bytes with timestamps, 1460 without.
    pub mss: u32,
    /// Bytes to transfer; `None` goes on for ever.
    pub size: Option<u64>,
    /// Congestion control.
    pub congestion: Congestion,
    /// Segments in the first window: 10 (RFC 6928), 3 (RFC 3390) in the papers.
    pub initial_window: u32,
    /// Slow-start threshold at the start, segments; `None` for no bound.
    pub initial_ssthresh: Option<u32>,
    /// The least retransmission timeout.
    pub rto_min: Duration,
    /// The greatest.
    pub rto_max: Duration,
    /// The timeout before a round-trip time is known.
    pub rto_initial: Duration,
    /// G of RFC 6298: the least that the timeout exceeds the smoothed round-trip time. Linux in
    /// effect uses 200 ms, the default; ns-2 its clock tick.
    pub rto_granularity: Duration,
    /// Whether a SYN comes first.
    pub handshake: bool,
    /// Whether segments carry timestamps (RFC 7323).
    pub timestamps: bool,
    /// Whether the receiver's SACK blocks are used (RFC 6675); else NewReno (RFC 6582).
    pub sack: bool,
    /// Whether data are ECN-capable (RFC 3168).
    pub ecn: bool,
    /// Most bytes in flight, the socket buffer's payload; `None` for no bound.
    pub send_buffer: Option<u64>,
    /// Whether the first two duplicates each send a new segment (RFC 3042).
    pub limited_transmit: bool,
    /// How the window comes down.
    pub reduction: WindowReduction,
    /// Whether lost retransmissions are found by later deliveries, as Linux does, and not only by
    /// the timeout, as RFC 6675 and ns-2 do.
    pub find_lost_retransmissions: bool,
    /// How large packets are.
    pub sizes: Sizes,
}

impl Default for TcpSenderConfig {
    fn default() -> Self {
        Self {
            mss: 1448,
            size: None,
            congestion: Congestion::default(),
            initial_window: 10,
            initial_ssthresh: None,
            rto_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(60),
            rto_initial: Duration::from_secs(1),
            rto_granularity: Duration::from_millis(200),
            handshake: true,
            timestamps: true,
            sack: true,
            ecn: false,
            send_buffer: None,
            limited_transmit: true,
            reduction: WindowReduction::AtOnce,
            find_lost_retransmissions: false,
            sizes: Sizes::Wire,
        }
    }
}

impl TcpSenderConfig {
    /// Checks that the parameters make sense. A sender takes any, and raises zeros to one.
    ///
    /// # Errors
    /// Names the first parameter that is out of range.
    pub fn validate(&self) -> Result<(), TcpConfigError> {
        positive("mss", self.mss.into())?;
        positive("initial_window", self.initial_window.into())?;
        positive("size", self.size.unwrap_or(1))?;
        positive(
            "initial_ssthresh",
            self.initial_ssthresh.unwrap_or(1).into(),
        )?;
        if let Some(size) = self.size
            && size.div_ceil(u64::from(self.mss)) >= u64::from(u32::MAX)
        {
            return Err(TcpConfigError::Size(size));
        }
        buffer("send_buffer", self.send_buffer, self.mss)?;
        if self.rto_min > self.rto_max || self.rto_min.is_zero() {
            return Err(TcpConfigError::Rto);
        }
        self.congestion.validate()
    }

    /// Segments in the transfer, and the bytes in the last.
    pub(super) fn segments(&self) -> (u32, u32) {
        let mss = u64::from(self.mss.max(1));
        let Some(size) = self.size else {
            return (u32::MAX, self.mss.max(1));
        };
        let size = size.max(1);
        let count = u32::try_from(size.div_ceil(mss)).unwrap_or(u32::MAX);
        // At most one MSS.
        (count, (size - (size - 1) / mss * mss) as u32)
    }
}

/// When an ACK may wait (RFC 5681 §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayedAck {
    /// One acknowledgement for so many segments in order.
    pub segments: u32,
    /// How long one may wait.
    pub timeout: Duration,
    /// How many at the start, and after a segment out of order, do not wait: 16 in Linux
    /// (`TCP_MAX_QUICKACKS`; in 2.6 after any such segment, `tcp_data_queue`).
    pub quick: u32,
}

impl Default for DelayedAck {
    fn default() -> Self {
        Self {
            segments: 2,
            timeout: Duration::from_millis(40),
            quick: 0,
        }
    }
}

/// The parameters of a [`TcpReceiver`](super::TcpReceiver).
#[derive(Clone, Debug, PartialEq)]
pub struct TcpReceiverConfig {
    /// As the sender's.
    pub mss: u32,
    /// `None` acknowledges every segment.
    pub delayed_ack: Option<DelayedAck>,
    /// As the sender's.
    pub timestamps: bool,
    /// As the sender's.
    pub sack: bool,
    /// As the sender's.
    pub ecn: bool,
    /// Most bytes beyond the data in order; `None` for no bound.
    pub receive_buffer: Option<u64>,
    /// As the sender's.
    pub sizes: Sizes,
}

impl Default for TcpReceiverConfig {
    fn default() -> Self {
        Self {
            mss: 1448,
            delayed_ack: Some(DelayedAck::default()),
            timestamps: true,
            sack: true,
            ecn: false,
            receive_buffer: None,
            sizes: Sizes::Wire,
        }
    }
}

impl TcpReceiverConfig {
    /// Checks that the parameters make sense.
    ///
    /// # Errors
    /// Names the first parameter that is out of range.
    pub fn validate(&self) -> Result<(), TcpConfigError> {
        positive("mss", self.mss.into())?;
        buffer("receive_buffer", self.receive_buffer, self.mss)?;
        match self.delayed_ack {
            Some(delayed) => positive("delayed_ack.segments", delayed.segments.into()),
            None => Ok(()),
        }
    }
}

/// A buffer in whole segments, at least one.
pub(super) fn buffer_segments(bytes: Option<u64>, mss: u32) -> u32 {
    bytes.map_or(u32::MAX, |bytes| {
        u32::try_from(bytes / u64::from(mss.max(1)))
            .unwrap_or(u32::MAX)
            .max(1)
    })
}

fn positive(name: &'static str, value: u64) -> Result<(), TcpConfigError> {
    if value == 0 {
        return Err(TcpConfigError::Zero(name));
    }
    Ok(())
}

fn buffer(name: &'static str, bytes: Option<u64>, mss: u32) -> Result<(), TcpConfigError> {
    match bytes {
        Some(bytes) if bytes < u64::from(mss) => Err(TcpConfigError::Buffer { name, bytes, mss }),
        _ => Ok(()),
    }
}

/// Why TCP parameters make no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TcpConfigError {
    /// A parameter is zero.
    #[error("{0} is zero")]
    Zero(&'static str),
    /// A transfer has more segments than can be numbered.
    #[error("a transfer of {0} bytes has more than 2^32 segments of this MSS")]
    Size(u64),
    /// A buffer holds no segment.
    #[error("{name} of {bytes} bytes holds no segment of {mss} bytes")]
    Buffer {
        /// The parameter.
        name: &'static str,
        /// Its value.
        bytes: u64,
        /// The segment size.
        mss: u32,
    },
    /// The least timeout is zero or above the greatest.
    #[error("rto_min is zero or above rto_max")]
    Rto,
    /// A factor of the congestion control is out of range.
    #[error("{name} is {value}, not within {low} to {high}")]
    Factor {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: f64,
        /// The least value.
        low: f64,
        /// The greatest.
        high: f64,
    },
}
