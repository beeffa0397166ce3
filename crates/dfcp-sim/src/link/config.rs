//! What a link does to packets.

use dfcp_proto::{Duration, Rate};

/// The parameters of a [`Link`](super::Link). The default has no rate limit, no delay and no
/// impairment.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Serialisation rate; `None` for no limit.
    pub rate: Option<Rate>,
    /// Propagation delay, one way.
    pub delay: Duration,
    /// The buffer in front of the transmitter.
    pub queue: Queue,
    /// Bytes added to each packet before the rate counts it. The default 28, an IPv4 and a UDP
    /// header, makes the rate of a link that carries UDP payloads an IP rate.
    pub framing: u32,
    /// Probability that a packet is lost after it was transmitted, each on its own.
    pub loss: f64,
    /// Each packet is delayed by a uniform extra time below this, and may so overtake others.
    pub jitter: Duration,
    /// Probability that a packet is held back by `reorder_delay`.
    pub reorder: f64,
    /// How long a reordered packet is held back.
    pub reorder_delay: Duration,
    /// Probability that a packet is delivered twice.
    pub duplicate: f64,
    /// Probability that one random bit of a packet is flipped.
    pub corrupt: f64,
    /// An ECN-capable packet that waited longer than this is marked CE; `None` never marks.
    pub ecn_threshold: Option<Duration>,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            rate: None,
            delay: Duration::ZERO,
            queue: Queue::default(),
            framing: 28,
            loss: 0.0,
            jitter: Duration::ZERO,
            reorder: 0.0,
            reorder_delay: Duration::ZERO,
            duplicate: 0.0,
            corrupt: 0.0,
            ecn_threshold: None,
        }
    }
}

impl LinkConfig {
    /// Checks that the parameters make sense. A [`Link`](super::Link) takes any: see there.
    ///
    /// # Errors
    /// Names the first parameter that is out of range.
    pub fn validate(&self) -> Result<(), LinkConfigError> {
        if self.rate == Some(Rate::ZERO) {
            return Err(LinkConfigError::ZeroRate);
        }
        let probabilities = [
            ("loss", self.loss),
            ("reorder", self.reorder),
            ("duplicate", self.duplicate),
            ("corrupt", self.corrupt),
        ];
        match probabilities
            .into_iter()
            .find(|(_, p)| !(0.0..=1.0).contains(p))
        {
            Some((name, value)) => Err(LinkConfigError::Probability { name, value }),
            None => Ok(()),
        }
    }
}

/// How much a link buffers beside the packet in its transmitter; what does not fit is dropped on
/// arrival (DropTail).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// At most this many packets.
    Packets(usize),
    /// At most this many bytes, framing included.
    Bytes(usize),
    /// Everything.
    Unlimited,
}

impl Default for Queue {
    /// 1000 packets, Linux's default `txqueuelen`.
    fn default() -> Self {
        Self::Packets(1000)
    }
}

impl Queue {
    /// Whether `size` more bytes fit on top of `packets` packets of `bytes` bytes.
    pub(super) fn has_room(self, packets: usize, bytes: u64, size: u64) -> bool {
        match self {
            Self::Packets(limit) => packets < limit,
            Self::Bytes(limit) => bytes + size <= limit as u64,
            Self::Unlimited => true,
        }
    }
}

/// Why a [`LinkConfig`] makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkConfigError {
    /// A link at rate zero would hold its packets for ever; a blackout is `loss: 1.0`.
    #[error("the rate is zero")]
    ZeroRate,
    /// A probability is not within 0 to 1.
    #[error("{name} is {value}, not a probability from 0 to 1")]
    Probability {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: f64,
    },
}
