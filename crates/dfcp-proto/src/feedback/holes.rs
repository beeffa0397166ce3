//! Packets that did not arrive, found by number: a packet is lost once three later ones arrived
//! (RFC 5348 §5.1).

use crate::rate::{LossEvent, LossHistory};
use crate::time::{Duration, Instant};
use std::collections::VecDeque;

/// NDUPACK.
const LATER_PACKETS: u32 = 3;
/// Holes watched at a time; older ones count as lost.
const MAX_HOLES: usize = 64;
/// Loss events that one hole can be worth: enough to fill the history behind the interval that stands
/// for those left out.
const MAX_EVENTS: u64 = 10;

/// Consecutive numbers that are missing.
#[derive(Clone, Copy, Debug)]
struct Hole {
    first: u64,
    last: u64,
    /// Arrivals of the packets around it.
    before: Instant,
    after: Instant,
    /// Packets above it that arrived.
    later: u32,
}

impl Hole {
    /// When its `index`th packet would have arrived (RFC 5348 §5.2).
    fn arrival(&self, index: u64) -> Instant {
        self.before + Duration::from_secs_f64(self.slot() * (index + 1) as f64)
    }

    /// Seconds between its packets.
    fn slot(&self) -> f64 {
        let span = self.after.saturating_since(self.before);
        span.as_secs_f64() / (self.len() + 1) as f64
    }

    fn len(&self) -> u64 {
        self.last - self.first + 1
    }
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub(super) struct Holes {
    highest: Option<(u64, Instant)>,
    open: VecDeque<Hole>,
}

impl Holes {
    /// The highest number that arrived.
    pub fn highest(&self) -> Option<u64> {
        self.highest.map(|(number, _)| number)
    }

    /// Packet `number` arrived. Tells `losses` what is lost by that, where losses within `rtt` are
    /// one event; says whether an event began, and whether it was the first.
    pub fn on_packet(
        &mut self,
        now: Instant,
        number: u64,
        rtt: Duration,
        losses: &mut LossHistory,
    ) -> Option<LossEvent> {
        match self.highest {
            Some((highest, _)) if number <= highest => {
                self.fill(number);
                return None;
            }
            Some((highest, before)) if number > highest + 1 => self.open.push_back(Hole {
                first: highest + 1,
                last: number - 1,
                before,
                after: now,
                later: 0,
            }),
            _ => {}
        }
        self.highest = Some((number, now));
        self.open.iter_mut().for_each(|hole| hole.later += 1);
        let mut news = None;
        while let Some(&hole) = self.open.front()
            && (hole.later >= LATER_PACKETS || self.open.len() > MAX_HOLES)
        {
            self.open.pop_front();
            let event = lose(&hole, rtt, losses);
            news = news.or(event);
        }
        losses.on_packet(number);
        news
    }

    /// A late packet: the hole that it was in shrinks or splits.
    fn fill(&mut self, number: u64) {
        let at = self
            .open
            .iter()
            .position(|hole| (hole.first..=hole.last).contains(&number));
        let Some(at) = at else { return };
        let hole = self.open[at];
        self.open.remove(at);
        let mut insert = |place, part: Hole| {
            if part.first <= part.last {
                self.open.insert(place, part);
            }
        };
        // The times stay those of the whole: a late packet says little of when its neighbours were due.
        let (first, last) = (hole.first, hole.last);
        if number < last {
            let first = number + 1;
            insert(at, Hole { first, ..hole });
        }
        if number > first {
            let last = number - 1;
            insert(at, Hole { last, ..hole });
        }
    }
}

/// Books the loss of a whole hole.
fn lose(hole: &Hole, rtt: Duration, losses: &mut LossHistory) -> Option<LossEvent> {
    let (len, slot) = (hole.len(), hole.slot());
    // Packets that one event lasts.
    let packets = |time: f64| (time / slot.max(1e-12)) as u64 + 1;
    let step = packets(rtt.as_secs_f64());
    let (mut index, mut news) = (0, None);
    while index < len {
        let at = hole.arrival(index);
        let event = losses.on_loss(hole.first + index, at, rtt);
        if event == LossEvent::Same {
            let end = losses.event_at().map_or(at, |begun| begun + rtt);
            index += packets(end.saturating_since(at).as_secs_f64());
        } else {
            news = news.or(Some(event));
            // A long hole is many events, of which only the last are remembered.
            let events = (len - index).div_ceil(step);
            index += step.saturating_mul(1 + events.saturating_sub(MAX_EVENTS));
        }
    }
    news
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    /// Packets 10 ms apart, of which `numbers` arrive; the history after them.
    fn arrive(numbers: impl IntoIterator<Item = u64>) -> (LossHistory, u32) {
        let (mut holes, mut losses, mut events) = (Holes::default(), LossHistory::default(), 0);
        for number in numbers {
            let now = Instant::from_nanos(number * 10_000_000);
            let news = holes.on_packet(now, number, RTT, &mut losses);
            if news == Some(LossEvent::First) {
                losses.seed(100.0);
            }
            events += u32::from(news.is_some());
        }
        (losses, events)
    }

    #[test]
    fn three_later_packets_make_a_loss_and_reordering_does_not() {
        assert_eq!(arrive([0, 1, 3, 4]).0.event_rate(), 0.0);
        assert!(arrive([0, 1, 3, 4, 5]).0.event_rate() > 0.0);
        assert_eq!(arrive([0, 1, 3, 4, 2, 5, 6]).0.event_rate(), 0.0);
        // Of a hole of two, one arrives late.
        let (losses, events) = arrive([0, 1, 4, 2, 5, 6]);
        assert_eq!(events, 1);
        assert!(losses.event_rate() > 0.0);
    }

    #[test]
    fn losses_of_one_round_trip_are_one_event() {
        // Every fifth packet is lost: 50 ms apart, so every third loss begins an event.
        let (losses, events) = arrive((0..1000).filter(|n| n % 5 != 4));
        assert!((60..=70).contains(&events), "{events}");
        assert!((losses.event_rate() - 1.0 / 15.0).abs() < 0.005);
    }

    #[test]
    fn a_blackout_is_as_many_events_as_it_had_round_trips() {
        // 1000 packets are lost over 10 s, 100 round trips: events of 11 packets.
        let (losses, _) = arrive((0..100).chain(1100..1103));
        assert!(
            (losses.event_rate() - 1.0 / 11.0).abs() < 0.01,
            "{}",
            losses.event_rate()
        );
    }

    #[test]
    fn numbers_that_leap_cost_nothing() {
        let (losses, _) = arrive([0, 1 << 40, (1 << 40) + 1, (1 << 40) + 2]);
        assert!(losses.event_rate() > 0.0);
    }
}
