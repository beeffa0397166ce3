//! What a queue is asked to be: its discipline, its parameters, its limit.

use dfcp_proto::Duration;

/// A buffer in front of a transmitter. The default is DropTail with room for 1000 packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueueConfig {
    /// Which packet goes next, and which one gives way.
    pub discipline: Discipline,
    /// How much is buffered beside the packet in the transmitter.
    pub limit: Limit,
    /// Whether signalling overtakes data.
    pub priority: PriorityMode,
}

/// Whether packets of [`Priority::Control`](crate::packet::Priority::Control) overtake data: "the
/// network should give priority to signalling" (DFCP-J §4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PriorityMode {
    /// They wait with the rest.
    #[default]
    None,
    /// They have a line of their own before the discipline, with strict priority. Its limit is
    /// that of the queue once more: data that fill the buffer leave it untouched.
    ControlFirst,
}

impl From<Limit> for QueueConfig {
    /// DropTail with this limit.
    fn from(limit: Limit) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }
}

/// How much a queue holds beside the packet in the transmitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// At most this many packets.
    Packets(usize),
    /// At most this many bytes, framing included.
    Bytes(u64),
    /// Everything.
    Unlimited,
}

impl Default for Limit {
    /// 1000 packets, Linux's default `txqueuelen`.
    fn default() -> Self {
        Self::Packets(1000)
    }
}

impl Limit {
    /// At most so many packets, or as many as can be counted.
    pub fn packets(packets: u64) -> Self {
        Self::Packets(usize::try_from(packets).unwrap_or(usize::MAX))
    }

    /// Whether `packets` packets of `bytes` bytes together are within the limit.
    pub fn holds(self, packets: usize, bytes: u64) -> bool {
        match self {
            Self::Packets(limit) => packets <= limit,
            Self::Bytes(limit) => bytes <= limit,
            Self::Unlimited => true,
        }
    }

    /// Whether one more packet of `size` bytes fits on top of `packets` packets of `bytes` bytes.
    pub fn has_room(self, packets: usize, bytes: u64, size: u32) -> bool {
        self.holds(packets + 1, bytes + u64::from(size))
    }
}

impl QueueConfig {
    /// Whether packets of a kind wait in one line, in which one can take another's place.
    pub(crate) fn has_one_line(&self) -> bool {
        use Discipline::{CoDel, DualPi2, Fifo, Pie, Red};
        matches!(
            self.discipline,
            Fifo | Red(_) | CoDel(_) | Pie(_) | DualPi2(_)
        )
    }
}

/// A queue discipline. [`QueueConfig::validate`] says whether its parameters make sense.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Discipline {
    /// First in, first out; what does not fit is dropped on arrival (DropTail).
    #[default]
    Fifo,
    /// Deficit round robin.
    Drr(DrrConfig),
    /// Weighted fair queueing.
    Wfq(WfqConfig),
    /// Stochastic fairness queueing.
    Sfq(SfqConfig),
    /// Random early detection.
    Red(RedConfig),
    /// Controlled delay.
    CoDel(CoDelConfig),
    /// Flow queue CoDel.
    FqCoDel(FqCoDelConfig),
    /// Proportional integral controller enhanced.
    Pie(PieConfig),
    /// Dual queue coupled AQM.
    DualPi2(DualPi2Config),
}

/// Which packet of the longest queue gives way when a shared buffer is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DropFrom {
    /// The oldest, as in ns-2 and RFC 8290: the sender hears of it soonest.
    #[default]
    Head,
    /// The newest.
    Tail,
}

/// Parameters of deficit round robin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrrConfig {
    /// Bytes a class of weight one may send in a round. Below the largest packet, a packet can
    /// need several rounds, and the work is no longer O(1).
    pub quantum: u32,
    /// What a full buffer drops.
    pub drop_from: DropFrom,
}

impl Default for DrrConfig {
    /// One MTU of Ethernet a round.
    fn default() -> Self {
        Self {
            quantum: 1500,
            drop_from: DropFrom::default(),
        }
    }
}

/// Parameters of weighted fair queueing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WfqConfig {
    /// What a full buffer drops.
    pub drop_from: DropFrom,
}

/// Parameters of stochastic fairness queueing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SfqConfig {
    /// Queues that flows are hashed into.
    pub buckets: u32,
    /// Bytes a bucket may send in a round.
    pub quantum: u32,
    /// How often the hash changes; packets of a flow can overtake each other when it does.
    /// `None` keeps the first one.
    pub perturb: Option<Duration>,
    /// What a full buffer drops.
    pub drop_from: DropFrom,
}

impl Default for SfqConfig {
    /// As tc-sfq(8) for Ethernet, but that the longest bucket is dropped from at its head.
    fn default() -> Self {
        Self {
            buckets: 1024,
            quantum: 1514,
            perturb: None,
            drop_from: DropFrom::default(),
        }
    }
}

/// Parameters of random early detection, in packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedConfig {
    /// Average queue below which nothing is dropped early.
    pub min_threshold: f64,
    /// Average queue at which the probability reaches `max_probability`.
    pub max_threshold: f64,
    /// The probability at `max_threshold`, before packets since the last drop are counted.
    pub max_probability: f64,
    /// Weight of the newest sample in the average.
    pub weight: f64,
    /// Between `max_threshold` and its double the probability rises to one, instead of jumping.
    pub gentle: bool,
    /// Marks ECN-capable packets instead of dropping them.
    pub ecn: bool,
    /// The typical packet: how fast the average of an idle queue decays.
    pub mean_packet: u32,
}

impl Default for RedConfig {
    /// As ns-2 (`thresh_`, `maxthresh_`, `linterm_`, `q_weight_`, `gentle_`) and Floyd's advice
    /// of 1997; packets of 1000 bytes, as tc-red(8) has it.
    fn default() -> Self {
        Self {
            min_threshold: 5.0,
            max_threshold: 15.0,
            max_probability: 0.1,
            weight: 0.002,
            gentle: true,
            ecn: false,
            mean_packet: 1000,
        }
    }
}

/// Parameters of CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDelConfig {
    /// The sojourn time that a standing queue may have.
    pub target: Duration,
    /// How long the sojourn time may stay above the target: a round trip of the slowest flows.
    pub interval: Duration,
    /// Marks ECN-capable packets instead of dropping them.
    pub ecn: bool,
}

impl Default for CoDelConfig {
    /// RFC 8289 §4.2 and §4.3.
    fn default() -> Self {
        Self {
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            ecn: false,
        }
    }
}

/// Parameters of flow queue CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCoDelConfig {
    /// CoDel of each queue.
    pub codel: CoDelConfig,
    /// Queues that flows are hashed into.
    pub buckets: u32,
    /// Bytes a queue may send before the next one's turn.
    pub quantum: u32,
}

impl Default for FqCoDelConfig {
    /// RFC 8290 §5.2; ECN is on, as in Linux.
    fn default() -> Self {
        Self {
            codel: CoDelConfig {
                ecn: true,
                ..CoDelConfig::default()
            },
            buckets: 1024,
            quantum: 1514,
        }
    }
}

/// Parameters of PIE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieConfig {
    /// The queueing delay that it aims at.
    pub target: Duration,
    /// How often it updates its probability.
    pub update_interval: Duration,
    /// How long a burst that follows calm is let through.
    pub max_burst: Duration,
    /// Marks ECN-capable packets instead of dropping them, below a probability of 0.1.
    pub ecn: bool,
}

impl Default for PieConfig {
    /// RFC 8033 §4.2 and §4.4.
    fn default() -> Self {
        Self {
            target: Duration::from_millis(15),
            update_interval: Duration::from_millis(15),
            max_burst: Duration::from_millis(150),
            ecn: false,
        }
    }
}

impl PieConfig {
    /// The interval in force: never zero.
    pub(super) fn interval(&self) -> Duration {
        self.update_interval.max(SHORTEST_UPDATE)
    }
}

/// Parameters of DualPI2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DualPi2Config {
    /// The delay of the classic queue that it aims at.
    pub target: Duration,
    /// How often it updates its probability.
    pub update_interval: Duration,
    /// k: how much more likely marks are than the square root of the classic drop probability.
    pub coupling: f64,
    /// Delay of the low-latency queue above which it marks.
    pub l4s_threshold: Duration,
    /// Beyond the threshold, the delay over which the likelihood of a mark rises to one; zero for a
    /// step.
    pub l4s_range: Duration,
    /// Share of the rate that the classic queue has for sure, above 0 and at most 1.
    pub classic_share: f64,
}

impl Default for DualPi2Config {
    /// RFC 9332 Figure 2; the interval and the classic queue's share as in Linux, whose `dualpi2`
    /// has the RFC's 15 ms as 16 ms and a tenth.
    fn default() -> Self {
        Self {
            target: Duration::from_millis(15),
            update_interval: Duration::from_millis(16),
            coupling: 2.0,
            l4s_threshold: Duration::from_micros(800),
            l4s_range: Duration::from_micros(400),
            classic_share: 0.1,
        }
    }
}

impl DualPi2Config {
    /// The interval in force: never zero.
    pub(super) fn interval(&self) -> Duration {
        self.update_interval.max(SHORTEST_UPDATE)
    }

    pub(super) fn coupling(&self) -> f64 {
        self.coupling.max(0.0)
    }

    pub(super) fn classic_share(&self) -> f64 {
        self.classic_share.clamp(0.0, 1.0)
    }

    /// What the low-latency queue is ahead by when both begin to have packets: one full packet.
    pub(super) fn head_start(&self) -> f64 {
        self.classic_share() * 1500.0
    }
}

/// Controllers that would update more often are as good as continuous.
const SHORTEST_UPDATE: Duration = Duration::from_micros(10);

/// Most buckets a hashed discipline may have: each costs memory, used or not.
const MAX_BUCKETS: u32 = 1 << 20;

impl QueueConfig {
    /// Checks that the parameters make sense. A [`Queue`](super::Queue) takes any: what is out of
    /// range counts as the nearest value in range.
    ///
    /// # Errors
    /// Names the first parameter that is out of range.
    pub fn validate(&self) -> Result<(), QueueConfigError> {
        match &self.discipline {
            Discipline::Fifo | Discipline::Wfq(_) => Ok(()),
            Discipline::Drr(drr) => positive("quantum", drr.quantum),
            Discipline::Sfq(sfq) => {
                positive("quantum", sfq.quantum)?;
                buckets(sfq.buckets)?;
                match sfq.perturb {
                    Some(Duration::ZERO) => Err(QueueConfigError::Zero { name: "perturb" }),
                    _ => Ok(()),
                }
            }
            Discipline::Red(red) => red.validate(),
            Discipline::CoDel(codel) => codel.validate(),
            Discipline::FqCoDel(fq) => {
                positive("quantum", fq.quantum)?;
                buckets(fq.buckets)?;
                fq.codel.validate()
            }
            Discipline::Pie(pie) if pie.update_interval.is_zero() => Err(QueueConfigError::Zero {
                name: "update_interval",
            }),
            Discipline::Pie(_) => Ok(()),
            Discipline::DualPi2(dual) => dual.validate(),
        }
    }
}

impl RedConfig {
    fn validate(&self) -> Result<(), QueueConfigError> {
        let (min, max) = (self.min_threshold, self.max_threshold);
        if !(min >= 0.0 && min < max && max.is_finite()) {
            return Err(QueueConfigError::Thresholds { min, max });
        }
        for (name, value) in [
            ("max_probability", self.max_probability),
            ("weight", self.weight),
        ] {
            if !(value > 0.0 && value <= 1.0) {
                return Err(QueueConfigError::Fraction { name, value });
            }
        }
        positive("mean_packet", self.mean_packet)
    }
}

impl DualPi2Config {
    fn validate(&self) -> Result<(), QueueConfigError> {
        for (name, zero) in [
            ("update_interval", self.update_interval.is_zero()),
            ("coupling", self.coupling.is_nan() || self.coupling <= 0.0),
        ] {
            if zero {
                return Err(QueueConfigError::Zero { name });
            }
        }
        match self.classic_share {
            value if value > 0.0 && value <= 1.0 => Ok(()),
            value => Err(QueueConfigError::Fraction {
                name: "classic_share",
                value,
            }),
        }
    }
}

impl CoDelConfig {
    fn validate(&self) -> Result<(), QueueConfigError> {
        if self.interval.is_zero() {
            return Err(QueueConfigError::Zero { name: "interval" });
        }
        Ok(())
    }
}

fn positive(name: &'static str, value: u32) -> Result<(), QueueConfigError> {
    match value {
        0 => Err(QueueConfigError::Zero { name }),
        _ => Ok(()),
    }
}

fn buckets(value: u32) -> Result<(), QueueConfigError> {
    positive("buckets", value)?;
    if value > MAX_BUCKETS {
        return Err(QueueConfigError::Buckets { value });
    }
    Ok(())
}

/// The number of buckets in force.
pub(super) fn clamp_buckets(value: u32) -> u32 {
    value.clamp(1, MAX_BUCKETS)
}

/// Why a [`QueueConfig`] makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueConfigError {
    /// A parameter must not be zero.
    #[error("{name} is zero")]
    Zero {
        /// The parameter.
        name: &'static str,
    },
    /// Too many buckets.
    #[error("{value} buckets are more than {MAX_BUCKETS}")]
    Buckets {
        /// How many were asked for.
        value: u32,
    },
    /// RED's thresholds are not 0 ≤ minimum < maximum.
    #[error("thresholds {min} and {max} packets are not 0 <= minimum < maximum")]
    Thresholds {
        /// The lower one.
        min: f64,
        /// The upper one.
        max: f64,
    },
    /// A parameter is not above 0 and at most 1.
    #[error("{name} is {value}, not above 0 and at most 1")]
    Fraction {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: f64,
    },
}
