//! Dual queue coupled AQM: RFC 9332 with the algorithms of its Appendix A (DualPI2). Packets that
//! carry ECT(1) or CE wait in a low-latency queue, which marks them early and often; all others in a
//! classic one, from which a proportional integral controller drops, or marks ECT(0). What scalable
//! senders are marked with is coupled to it, so that flows of both kinds come to equal rates.
//!
//! With p' the controller's output and k the coupling factor, classic packets are dropped or marked
//! with probability p'² and low-latency ones marked with k p' or by their own queue's ramp,
//! whichever is more (§2.4). When k p' reaches one, packets of both queues are dropped with p'²,
//! whatever they carry (§2.5.1.1 and §4.2: overload).
//!
//! Marks are spread evenly instead of drawn (`recur` of Appendix A.1), so nothing here is random.
//! The scheduler is weighted round robin by bytes: the low-latency queue goes first as long as the
//! classic one has had its share (§2.5.1.1 lets it be chosen).

use dfcp_proto::Instant;

use super::config::{DualPi2Config, Limit};
use super::fifo::Fifo;
use crate::packet::{DropCause, Ecn, Packet, Queued};

/// The largest round trip that the controller is to be stable for, seconds (RFC 9332 Figure 2).
const LARGEST_RTT: f64 = 0.1;
#[derive(Clone, Debug)]
pub(super) struct DualPi2<P> {
    config: DualPi2Config,
    low_latency: Fifo<P>,
    classic: Fifo<P>,
    /// p'.
    base: f64,
    /// The longer queueing delay of both at the last update, seconds.
    delay: f64,
    next_update: Instant,
    /// Above zero it is the low-latency queue's turn; bytes times the share of the other queue.
    credit: f64,
    marks: Recurrence,
    low_latency_drops: Recurrence,
    classic_signals: Recurrence,
}

/// Says yes as often as a likelihood asks for, evenly spread.
#[derive(Clone, Copy, Debug, Default)]
struct Recurrence(f64);

impl Recurrence {
    fn hits(&mut self, likelihood: f64) -> bool {
        self.0 += likelihood;
        let hit = self.0 > 1.0;
        if hit {
            self.0 -= 1.0;
        }
        hit
    }
}

impl<P: Packet> DualPi2<P> {
    pub(super) fn new(config: DualPi2Config) -> Self {
        Self {
            config,
            low_latency: Fifo::new(),
            classic: Fifo::new(),
            base: 0.0,
            delay: 0.0,
            next_update: Instant::ZERO + config.interval(),
            credit: config.head_start(),
            marks: Recurrence::default(),
            low_latency_drops: Recurrence::default(),
            classic_signals: Recurrence::default(),
        }
    }

    pub(super) fn enqueue(
        &mut self,
        now: Instant,
        item: Queued<P>,
        limit: Limit,
        dropped: &mut impl FnMut(P, DropCause),
    ) {
        self.update_until(now);
        if !limit.has_room(self.packets(), self.bytes(), item.size) {
            return dropped(item.packet, DropCause::Full);
        }
        self.line_for(&item)
            .enqueue(Limit::Unlimited, item, dropped);
    }

    /// As [`Fifo::replace_newest`], in the queue of the packet's kind.
    pub(super) fn replace_newest(&mut self, item: Queued<P>, largest: u32) -> Result<P, Queued<P>> {
        self.line_for(&item).replace_newest(item, largest)
    }

    fn line_for(&mut self, item: &Queued<P>) -> &mut Fifo<P> {
        match item.packet.ecn() {
            Ecn::Ect1 | Ecn::Ce => &mut self.low_latency,
            Ecn::NotEct | Ecn::Ect0 => &mut self.classic,
        }
    }

    pub(super) fn dequeue(
        &mut self,
        now: Instant,
        marked: &mut u64,
        dropped: &mut impl FnMut(P, DropCause),
    ) -> Option<Queued<P>> {
        self.update_until(now);
        loop {
            let low_latency = self.is_low_latency_next();
            let (mut item, signal) = if low_latency {
                let item = self.low_latency.pop()?;
                let signal = self.judge_low_latency(now, &item);
                (item, signal)
            } else {
                let item = self.classic.pop()?;
                let signal = self.judge_classic(&item);
                (item, signal)
            };
            let share = self.config.classic_share();
            let taken = if low_latency { -share } else { 1.0 - share };
            match signal {
                Signal::Drop => {
                    dropped(item.packet, DropCause::Early);
                    continue;
                }
                Signal::Mark => {
                    item.packet.mark_ce();
                    *marked += 1;
                }
                Signal::None => {}
            }
            self.charge(taken * f64::from(item.size));
            return Some(item);
        }
    }

    fn is_low_latency_next(&self) -> bool {
        match (self.low_latency.packets(), self.classic.packets()) {
            (0, _) => false,
            (_, 0) => true,
            _ => self.credit > 0.0,
        }
    }

    /// Counts what a packet took of the queues' shares, while both have packets.
    fn charge(&mut self, taken: f64) {
        let both = self.low_latency.packets() > 0 && self.classic.packets() > 0;
        self.credit = match both {
            true => self.credit + taken,
            false => self.config.head_start(),
        };
    }

    fn judge_low_latency(&mut self, now: Instant, item: &Queued<P>) -> Signal {
        let coupled = self.config.coupling() * self.base;
        if coupled >= 1.0 {
            return match self.low_latency_drops.hits(self.base * self.base) {
                true => Signal::Drop,
                false => Signal::Mark,
            };
        }
        // Nothing waits behind it: there is no queue to speak of (§A.1, Th_len).
        let own = match self.low_latency.packets() {
            0 => 0.0,
            _ => self.ramp(item.sojourn(now).as_secs_f64()),
        };
        match self.marks.hits(own.max(coupled)) {
            true => Signal::Mark,
            false => Signal::None,
        }
    }

    /// The likelihood of a mark by the delay of the low-latency queue itself, seconds.
    fn ramp(&self, delay: f64) -> f64 {
        let from = self.config.l4s_threshold.as_secs_f64();
        let range = self.config.l4s_range.as_secs_f64();
        if delay <= from {
            0.0
        } else if delay >= from + range {
            1.0
        } else {
            (delay - from) / range
        }
    }

    fn judge_classic(&mut self, item: &Queued<P>) -> Signal {
        if !self.classic_signals.hits(self.base * self.base) {
            return Signal::None;
        }
        let overload = self.config.coupling() * self.base >= 1.0;
        match item.packet.ecn().is_capable() && !overload {
            true => Signal::Mark,
            false => Signal::Drop,
        }
    }

    /// Makes the updates due until `now`; nothing came or left since the last call.
    fn update_until(&mut self, now: Instant) {
        let heads = [self.low_latency.front(), self.classic.front()];
        let oldest = heads.into_iter().flatten().map(|item| item.arrived).min();
        while self.next_update <= now {
            let at = self.next_update;
            let delay = oldest.map_or(0.0, |head| at.saturating_since(head).as_secs_f64());
            self.update(delay);
            let rested = oldest.is_none() && self.base == 0.0 && self.delay == 0.0;
            self.next_update = if rested { now.max(at) } else { at } + self.config.interval();
        }
    }

    /// The controller (`dualpi2_update`), its gains as Figure 2 derives them.
    fn update(&mut self, delay: f64) {
        let target = self.config.target.as_secs_f64();
        let integral = 0.1 * self.config.interval().as_secs_f64() / (LARGEST_RTT * LARGEST_RTT);
        let proportional = 0.3 / LARGEST_RTT;
        let step = integral * (delay - target) + proportional * (delay - self.delay);
        self.base = (self.base + step).clamp(0.0, 1.0);
        self.delay = delay;
    }

    pub(super) fn packets(&self) -> usize {
        self.low_latency.packets() + self.classic.packets()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.low_latency.bytes() + self.classic.bytes()
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Queued<P>> {
        self.low_latency.iter().chain(self.classic.iter())
    }
}

/// What becomes of a packet that leaves its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    None,
    Mark,
    Drop,
}
