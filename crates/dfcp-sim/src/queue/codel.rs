//! Controlled delay: RFC 8289. The queue drops when every packet of an interval has waited longer
//! than the target, and then ever more often, by the inverse square root of the number of drops.
//!
//! With ECN, a packet is marked and sent where another would have been dropped (RFC 8289 §3 leaves
//! it open; RFC 8290 §4.2 has it so).

use dfcp_proto::{Duration, Instant};

use super::config::CoDelConfig;
use super::fifo::Fifo;
use crate::packet::{DropCause, Packet, Queued};

/// A line of packets as CoDel sees it.
pub(super) trait Line<P> {
    fn pop(&mut self) -> Option<Queued<P>>;
    /// Bytes that wait.
    fn bytes(&self) -> u64;
}

impl<P> Line<P> for Fifo<P> {
    fn pop(&mut self) -> Option<Queued<P>> {
        Fifo::pop(self)
    }

    fn bytes(&self) -> u64 {
        Fifo::bytes(self)
    }
}

/// The variables of RFC 8289 §5.3.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CoDel {
    /// When the sojourn time will have been above the target for an interval.
    first_above: Option<Instant>,
    dropping: bool,
    drop_next: Instant,
    /// Drops in this dropping state, and at the begin of it in the last one.
    count: u32,
    last_count: u32,
    /// The largest packet so far: less than this in the queue is no standing queue.
    max_packet: u32,
}

/// What CoDel needs to know to take a packet.
pub(super) struct Moment<'a> {
    pub(super) config: &'a CoDelConfig,
    pub(super) now: Instant,
    /// Counts the packets marked.
    pub(super) marked: &'a mut u64,
}

impl CoDel {
    /// Takes the next packet, dropping or marking as the control law asks.
    pub(super) fn dequeue<P: Packet>(
        &mut self,
        moment: &mut Moment<'_>,
        line: &mut impl Line<P>,
        dropped: &mut impl FnMut(P, DropCause),
    ) -> Option<Queued<P>> {
        let now = moment.now;
        let (mut item, mut late) = self.take(moment, line)?;
        if self.dropping {
            while late && now >= self.drop_next {
                self.count = self.count.saturating_add(1);
                if moment.mark(&mut item) {
                    self.drop_next = moment.control_law(self.drop_next, self.count);
                    return Some(item);
                }
                dropped(item.packet, DropCause::Early);
                (item, late) = self.take(moment, line)?;
                if late {
                    self.drop_next = moment.control_law(self.drop_next, self.count);
                }
            }
            self.dropping = late;
        } else if late {
            self.enter(moment);
            if !moment.mark(&mut item) {
                dropped(item.packet, DropCause::Early);
                (item, _) = self.take(moment, line)?;
            }
        }
        Some(item)
    }

    /// Enters the dropping state; soon after the last one, about where that one left off.
    fn enter(&mut self, moment: &Moment<'_>) {
        let now = moment.now;
        self.dropping = true;
        let delta = self.count.saturating_sub(self.last_count);
        let since = now.saturating_since(self.drop_next);
        let recently = since < moment.config.interval.saturating_mul(16);
        self.count = if delta > 1 && recently { delta } else { 1 };
        self.drop_next = moment.control_law(now, self.count);
        self.last_count = self.count;
    }

    /// Takes a packet; says whether packets have been late for an interval (`dodequeue`).
    fn take<P>(
        &mut self,
        moment: &Moment<'_>,
        line: &mut impl Line<P>,
    ) -> Option<(Queued<P>, bool)> {
        let Moment { config, now, .. } = *moment;
        let Some(item) = line.pop() else {
            self.first_above = None;
            self.dropping = false;
            return None;
        };
        self.max_packet = self.max_packet.max(item.size);
        let short = line.bytes() <= u64::from(self.max_packet);
        if item.sojourn(now) < config.target || short {
            self.first_above = None;
            return Some((item, false));
        }
        let since = *self.first_above.get_or_insert(now + config.interval);
        Some((item, now >= since))
    }
}

impl Moment<'_> {
    /// The control law: `interval / sqrt(count)` after `from`. A square root is correctly rounded
    /// on every machine, and so the same.
    fn control_law(&self, from: Instant, count: u32) -> Instant {
        let interval = self.config.interval.as_nanos() as f64;
        from + Duration::from_nanos((interval / f64::from(count).sqrt()) as u64)
    }

    fn mark<P: Packet>(&mut self, item: &mut Queued<P>) -> bool {
        let marks = self.config.ecn && item.packet.ecn().is_capable();
        if marks {
            item.packet.mark_ce();
            *self.marked += 1;
        }
        marks
    }
}
