//! What a link does to packets.

use super::acks::AckThinning;
use super::bucket::{TokenBucket, TokenBucketError};
use super::grants::{Grants, GrantsError};
use super::jitter::{Jitter, JitterError};
use super::loss::{LossModel, LossModelError};
use super::outage::{Outage, OutageError};
use super::trace::RateTrace;
use super::wander::{Wander, WanderError};
use crate::queue::{QueueConfig, QueueConfigError};
use dfcp_proto::{Duration, Rate};
use std::sync::Arc;

/// The parameters of a [`Link`](super::Link). The default has no rate limit, no delay and no
/// impairment.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Serialisation rate.
    pub rate: LinkRate,
    /// When the transmitter may send, if not at any time. Without effect where the rate is a trace.
    pub grants: Option<Grants>,
    /// What the transmitter may send in the long run: what exceeds it waits.
    pub shaper: Option<TokenBucket>,
    /// What enters the link in the long run: what exceeds it is dropped before the queue.
    pub policer: Option<TokenBucket>,
    /// Propagation delay, one way.
    pub delay: Duration,
    /// Whether packets overtake others where a change has made the delay shorter.
    pub delay_order: PacketOrder,
    /// A random walk of the delay, which keeps the order of packets.
    pub wander: Option<Wander>,
    /// The buffer in front of the transmitter.
    pub queue: QueueConfig,
    /// Largest packet, without framing, that the link carries; `None` for no limit.
    pub mtu: Option<u32>,
    /// Bytes added to each packet before the rate counts it. The default 28, an IPv4 and a UDP
    /// header, makes the rate of a link that carries UDP payloads an IP rate.
    pub framing: u32,
    /// Which packets are lost.
    pub loss: LossModel,
    /// Where they are.
    pub loss_at: LossAt,
    /// When it loses, stands still or is slower.
    pub outages: Vec<Outage>,
    /// By how much packets are delayed beside that.
    pub jitter: Jitter,
    /// Whether packets overtake others by that.
    pub jitter_order: PacketOrder,
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
    /// Which acknowledgements of those that wait are passed on.
    pub ack_thinning: AckThinning,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            rate: LinkRate::Unlimited,
            grants: None,
            shaper: None,
            policer: None,
            delay: Duration::ZERO,
            delay_order: PacketOrder::Free,
            wander: None,
            queue: QueueConfig::default(),
            mtu: None,
            framing: 28,
            loss: LossModel::None,
            loss_at: LossAt::Exit,
            outages: Vec::new(),
            jitter: Jitter::default(),
            jitter_order: PacketOrder::Free,
            reorder: 0.0,
            reorder_delay: Duration::ZERO,
            duplicate: 0.0,
            corrupt: 0.0,
            ecn_threshold: None,
            ack_thinning: AckThinning::Off,
        }
    }
}

impl LinkConfig {
    /// Checks that the parameters make sense. A [`Link`](super::Link) takes any: see there.
    ///
    /// # Errors
    /// Names the first parameter that is out of range.
    pub fn validate(&self) -> Result<(), LinkConfigError> {
        if self.rate == LinkRate::Constant(Rate::ZERO) {
            return Err(LinkConfigError::ZeroRate);
        }
        self.loss.validate()?;
        self.queue.validate()?;
        if self.ack_thinning != AckThinning::Off && !self.queue.has_one_line() {
            return Err(LinkConfigError::AckThinning);
        }
        if self.ack_thinning == AckThinning::Every(0) {
            return Err(LinkConfigError::NoAcks);
        }
        self.outages.iter().try_for_each(Outage::validate)?;
        self.jitter.validate()?;
        self.grants.iter().try_for_each(Grants::validate)?;
        self.wander.iter().try_for_each(Wander::validate)?;
        for (name, bucket) in [("shaper", self.shaper), ("policer", self.policer)] {
            if let Some(Err(error)) = bucket.map(|bucket| bucket.validate()) {
                return Err(LinkConfigError::Bucket { name, error });
            }
        }
        let probabilities = [
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

impl LinkConfig {
    /// The part of the packets lost in the long run, of packets at regular times.
    pub fn mean_loss(&self) -> f64 {
        let kept = |outage: &Outage| 1.0 - outage.loss.clamp(0.0, 1.0) * outage.windows.share();
        let outages: f64 = self.outages.iter().map(kept).product();
        1.0 - (1.0 - self.loss.mean_loss()) * outages
    }

    /// Whether packets past the transmitter may be delayed further, doubled or changed.
    pub(super) fn is_impaired(&self) -> bool {
        let drawn = [self.reorder, self.duplicate, self.corrupt];
        let moves = self.wander.is_some() || self.delay_order == PacketOrder::Kept;
        moves || !self.jitter.is_none() || drawn.iter().any(|&p| p > 0.0)
    }
}

/// Where packets are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossAt {
    /// Behind the transmitter: what is lost has had its share of the rate, as on a radio hop.
    #[default]
    Exit,
    /// Before the queue: what is lost takes nothing of the link, as with Dummynet (CTCP §6.1).
    Entry,
}

/// What differing delays do to the order of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacketOrder {
    /// A packet with a shorter one overtakes those with longer ones, as over a network of many ways.
    #[default]
    Free,
    /// None overtakes another, as where a host takes its time: ns-2's `overhead_`, with which
    /// senders do not keep their phase at a full queue.
    Kept,
}

/// How fast a link serialises.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum LinkRate {
    /// At once.
    #[default]
    Unlimited,
    /// At this rate; at zero packets wait until the rate changes.
    Constant(Rate),
    /// As recorded.
    Trace(Arc<RateTrace>),
}

impl LinkRate {
    /// The rate in the long run, where there is one.
    pub fn mean(&self) -> Option<Rate> {
        match self {
            Self::Unlimited => None,
            Self::Constant(rate) => Some(*rate),
            Self::Trace(trace) => Some(trace.mean_rate()),
        }
    }
}

impl From<Rate> for LinkRate {
    fn from(rate: Rate) -> Self {
        Self::Constant(rate)
    }
}

/// Why a [`LinkConfig`] makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkConfigError {
    /// A link at rate zero would hold its packets for ever; a blackout is `loss: 1.0`.
    #[error("the rate is zero")]
    ZeroRate,
    /// Acknowledgements are thinned in disciplines that keep one line.
    #[error("acknowledgements are thinned only in queues of fifo, red, codel, pie and dual-pi2")]
    AckThinning,
    /// One of zero acknowledgements cannot be passed on.
    #[error("one of zero acknowledgements is to be passed on")]
    NoAcks,
    /// A probability is not within 0 to 1.
    #[error("{name} is {value}, not a probability from 0 to 1")]
    Probability {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: f64,
    },
    /// The loss model makes no sense.
    #[error(transparent)]
    Loss(#[from] LossModelError),
    /// The grants make no sense.
    #[error("grants: {0}")]
    Grants(#[from] GrantsError),
    /// A token bucket makes no sense.
    #[error("{name}: {error}")]
    Bucket {
        /// Which.
        name: &'static str,
        /// Why.
        error: TokenBucketError,
    },
    /// The wander of the delay makes no sense.
    #[error("wander: {0}")]
    Wander(#[from] WanderError),
    /// The jitter makes no sense.
    #[error("jitter: {0}")]
    Jitter(#[from] JitterError),
    /// An outage makes no sense.
    #[error("an outage: {0}")]
    Outage(#[from] OutageError),
    /// The queue makes no sense.
    #[error(transparent)]
    Queue(#[from] QueueConfigError),
}
