//! Grants: a transmitter that sends at intervals, and then several packets at once, as an access
//! point sends aggregates, a base station allots slots, or a cable head-end grants bytes.

use dfcp_proto::{Duration, Instant, Rate};

use super::nanos;
use super::outage::Slowdown;
use super::transmitter::WORK_PER_BYTE;

/// When a transmitter may send, and how much.
///
/// At each grant it sends at once what waits, as far as the rate has allowed it since the last
/// one, and no more than the grant allows. What nobody used is gone, but for less than a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grants {
    /// From one grant to the next; the first is at time zero.
    pub every: Duration,
    /// Most packets of a grant; `None` for no limit.
    pub packets: Option<u32>,
    /// Most bytes of a grant, framing included, beside a first packet; `None` for no limit.
    pub bytes: Option<u64>,
}

impl Grants {
    /// The shortest interval, far below a slot of any radio: shorter ones are no grants.
    pub const SHORTEST: Duration = Duration::from_micros(10);

    /// Checks the parameters. A [`Link`](super::Link) takes any: a shorter interval counts as
    /// [`Self::SHORTEST`], and a grant of nothing as one of a packet.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn validate(&self) -> Result<(), GrantsError> {
        if self.every < Self::SHORTEST {
            return Err(GrantsError::Short { every: self.every });
        }
        match (self.packets, self.bytes) {
            (Some(0), _) | (_, Some(0)) => Err(GrantsError::Empty),
            _ => Ok(()),
        }
    }
}

/// Why [`Grants`] make no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrantsError {
    /// They come too often.
    #[error("`every` is {every:?}, below {:?}", Grants::SHORTEST)]
    Short {
        /// The interval.
        every: Duration,
    },
    /// They allow nothing.
    #[error("a grant of nothing: the link would stand still")]
    Empty,
}

/// [`Grants`] at work.
#[derive(Clone, Debug)]
pub(super) struct Granting {
    config: Grants,
    /// The last grant that was used, and what is left of it.
    grant: Option<u64>,
    packets: u32,
    bytes: u64,
    fresh: bool,
    /// What the rate allows still.
    credit: u128,
}

/// What a transmitter of some rate is to send.
pub(super) struct Load<'a> {
    pub size: u32,
    pub from: Instant,
    pub rate: Option<Rate>,
    pub slowdown: Option<&'a Slowdown>,
}

impl Granting {
    pub fn new(config: Grants) -> Self {
        Self {
            config,
            grant: None,
            packets: 0,
            bytes: 0,
            fresh: false,
            credit: 0,
        }
    }

    pub fn config(&self) -> Grants {
        self.config
    }

    /// When a packet is sent that comes first from `load.from` on.
    pub fn send(&mut self, load: &Load<'_>) -> Instant {
        let every = nanos(self.config.every.max(Grants::SHORTEST));
        let work = u128::from(load.size) * u128::from(WORK_PER_BYTE);
        let gains = load
            .rate
            .map(|rate| u128::from(rate.as_bps()) * u128::from(every));
        if gains == Some(0) {
            return Instant::from_nanos(u64::MAX);
        }
        let mut earliest = load.from.as_nanos().div_ceil(every);
        loop {
            if self.grant.is_some_and(|grant| grant >= earliest) && self.fits(load, work) {
                break;
            }
            let next = self
                .grant
                .map_or(earliest, |grant| (grant + 1).max(earliest));
            let at = Instant::from_nanos(next.saturating_mul(every));
            if at == Instant::from_nanos(u64::MAX) {
                return at;
            }
            let factor = match load.slowdown.map(|slowdown| slowdown.factor(at)) {
                Some((0.0, until)) => {
                    earliest = until.as_nanos().div_ceil(every).max(next + 1);
                    continue;
                }
                Some((factor, _)) => factor,
                None => 1.0,
            };
            self.open(next, factor, gains, work);
            if let (Some(gains), None) = (gains, load.slowdown) {
                // Slow links have nothing to send for many grants.
                let missing = work.saturating_sub(self.credit).div_ceil(gains);
                let missing = u64::try_from(missing).unwrap_or(u64::MAX);
                earliest = earliest.max(next.saturating_add(missing));
            }
        }
        self.packets = self.packets.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(u64::from(load.size));
        self.fresh = false;
        if gains.is_some() {
            self.credit = self.credit.saturating_sub(work);
        }
        let at = self.grant.unwrap_or(0).saturating_mul(every);
        Instant::from_nanos(at)
    }

    fn fits(&self, load: &Load<'_>, work: u128) -> bool {
        let room = self.packets > 0 && self.bytes >= u64::from(load.size);
        (room || self.fresh) && (load.rate.is_none() || self.credit >= work)
    }

    /// Begins grant `next` for a packet of so much work; the rate gains so much work in a grant.
    fn open(&mut self, next: u64, factor: f64, gains: Option<u128>, work: u128) {
        if let Some(gains) = gains {
            let passed = self.grant.map_or(1, |grant| next - grant);
            let idle = gains.saturating_mul(u128::from(passed) - 1);
            let carried = self.credit.saturating_add(idle).min(work);
            let gained = match factor {
                1.0 => gains,
                factor => (gains as f64 * factor) as u128,
            };
            self.credit = carried + gained;
        }
        self.grant = Some(next);
        self.packets = self.config.packets.unwrap_or(u32::MAX);
        self.bytes = self.config.bytes.unwrap_or(u64::MAX);
        self.fresh = true;
    }
}
