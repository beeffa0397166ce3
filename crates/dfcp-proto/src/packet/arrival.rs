//! Arrival times as the receiver reports them, held against what can be.
//!
//! The receiver's clock has its own origin and runs a little fast or slow, but between two packets
//! it cannot have advanced by more than the time from the first one's departure to the second one's
//! acknowledgement, nor by less than that from the first one's acknowledgement to the second one's
//! departure. A clock that did is not believed for a round trip: until then arrival times are those
//! of the acknowledgements here, as a TCP sender has them. Whatever a clock does, the times that come
//! out advance as time does.

use crate::time::{Duration, Instant};

/// Clocks may run this much fast or slow: chrony slews by 8.3 % at most unless it is told otherwise.
const SKEW: f64 = 0.1;
/// What rounding, and a batch of packets read at once, may add.
const GRAIN: f64 = 0.002;
/// A packet is compared with one of at least so many round trips before, so that a clock that is
/// wrong all the time is noticed.
const ROUNDS: u32 = 4;

/// What is said of the first packet, ns.
const ORIGIN: i128 = 1_000_000_000;

/// A packet and its acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Known {
    received: Duration,
    sent: Instant,
    acked: Instant,
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub struct ArrivalClock {
    /// Far back, nearer, and last.
    far: Option<Known>,
    near: Option<Known>,
    last: Option<Known>,
    /// What was said last of `last`, in ns.
    said: i128,
    /// From the receiver's clock to what is said, ns.
    shift: i128,
    distrusted_until: Option<Instant>,
}

/// What became of an arrival time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// When the packet arrived, on a clock that never leaps.
    pub at: Duration,
    /// The receiver's clock cannot be as it says.
    pub is_absurd: bool,
}

impl ArrivalClock {
    /// The receiver says that a packet sent at `sent` arrived at `received` on its clock; the word
    /// came at `now`. Packets are told of in the order of their numbers.
    pub fn read(
        &mut self,
        now: Instant,
        sent: Instant,
        received: Duration,
        rtt: Duration,
    ) -> Arrived {
        let packet = Known {
            received,
            sent,
            acked: now,
        };
        let known = [self.far, self.near, self.last];
        let is_absurd = known.iter().flatten().any(|before| !before.agrees(&packet));
        let ns = |time: Duration| i128::try_from(time.as_nanos()).unwrap_or(i128::MAX);
        let passed = self
            .last
            .map_or(Duration::ZERO, |last| now.saturating_since(last.acked));
        let own = self.said + ns(passed);
        if self.last.is_none() {
            // The origin is ours to choose: far from both ends of the numbers.
            self.shift = ORIGIN - ns(received);
        }
        if is_absurd {
            self.distrusted_until = Some(now + rtt);
            (self.far, self.near) = (None, None);
        } else if self.distrusted_until.is_some_and(|until| now >= until) {
            self.distrusted_until = None;
            self.shift = own - ns(received);
        }
        self.said = match self.distrusted_until {
            Some(_) => own,
            None => ns(received) + self.shift,
        };
        self.last = Some(packet);
        let near = *self.near.get_or_insert(packet);
        if self.far.is_none() || now.saturating_since(near.acked) >= ROUNDS * rtt {
            self.far = Some(near);
            self.near = Some(packet);
        }
        let at = u64::try_from(self.said).unwrap_or(0);
        Arrived {
            at: Duration::from_nanos(at),
            is_absurd,
        }
    }
}

impl Known {
    /// Whether `later` can have arrived when it is said to have.
    fn agrees(&self, later: &Self) -> bool {
        let Some(advance) = later.received.checked_sub(self.received) else {
            return false;
        };
        let advance = advance.as_secs_f64();
        let most = later.acked.saturating_since(self.sent).as_secs_f64();
        let least = later.sent.saturating_since(self.acked).as_secs_f64();
        (least * (1.0 - SKEW) - GRAIN..=most * (1.0 + SKEW) + GRAIN).contains(&advance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(50);

    /// A packet each millisecond for a second, whose arrivals `clock` names, given the true time in
    /// µs: how many readings were absurd, and the largest error of what came out, by the first.
    fn read(clock: impl Fn(u64) -> u64) -> (u32, Duration) {
        let (mut arrivals, mut absurd, mut worst) = (ArrivalClock::default(), 0, 0.0f64);
        let (start, mut first) = (Instant::from_nanos(1 << 40), None);
        for ms in 0..1000 {
            let sent = start + Duration::from_millis(ms);
            let received = Duration::from_micros(clock(1000 * ms + 25_000));
            let arrived = arrivals.read(sent + RTT, sent, received, RTT);
            absurd += u32::from(arrived.is_absurd);
            let at = arrived.at.as_secs_f64() - ms as f64 / 1e3;
            worst = worst.max((at - *first.get_or_insert(at)).abs());
        }
        (absurd, Duration::from_secs_f64(worst))
    }

    #[test]
    fn honest_clocks_are_read_as_they_are() {
        let (absurd, error) = read(|us| 77_000_000 + us);
        assert_eq!(absurd, 0);
        assert!(error < Duration::from_micros(10), "{error:?}");
        // 8.3 % fast.
        assert_eq!(read(|us| us * 1083 / 1000).0, 0);
        assert_eq!(read(|us| us * 917 / 1000).0, 0);
    }

    #[test]
    fn a_step_is_one_absurd_reading_and_no_error() {
        for (before, after) in [(1_000_000, 128_000), (128_000, 1_000_000), (1 << 60, 0)] {
            let (absurd, error) = read(|us| us + if us < 500_000 { before } else { after });
            assert_eq!(absurd, 1, "from {before} to {after}");
            assert!(error < Duration::from_millis(1), "{error:?}");
        }
    }

    #[test]
    fn clocks_that_run_backwards_stand_still_or_run_tenfold_are_not_believed() {
        type Clock = fn(u64) -> u64;
        let wrong: [(&str, Clock); 3] = [
            ("backwards", |us| 10_000_000 - us),
            ("still", |_| 5),
            ("tenfold", |us| 10 * us),
        ];
        for (name, clock) in wrong {
            let (absurd, error) = read(clock);
            assert!(absurd > 3, "{name}: {absurd}");
            assert!(error < Duration::from_millis(700), "{name}: {error:?}");
        }
    }
}
