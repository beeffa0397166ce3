//! What the reverse path carries of feedback, as the sender of data sees it.
//!
//! Every report says when it left, on the clock of its sender, so their delays can be compared
//! although the clocks are not in step. Reports that queue on the way back delay every decision of
//! the sender, and what they take is lost to traffic that goes that way, so the other side is told to
//! send fewer: a quarter of what was seen to come through. Loss alone says nothing: a path that loses
//! nine reports in ten has room for the rest. Nor does a delay that is long for a while, unless more
//! is lost in it than without it.

use super::RttEstimator;
use crate::time::{Duration, Instant};

/// A queue on the way back is one of a quarter of the round trip, and of this at least: below it
/// decisions are hardly later for it, and timers of hosts make as much.
const LEAST_QUEUE: Duration = Duration::from_millis(10);
/// Reports in a row that queued and are judged together: by jitter alone as many are not late one after
/// the other. The path is held to be full when two such runs in a row show it. A path that is full
/// stays so; chance makes one in a thousand runs look like it where much is lost, there are ten a
/// second, and to be wrong costs half a minute of sparse feedback.
const RUN: u32 = 16;
/// The path is full if it carried less than this share of what it carries of as much otherwise.
const CARRIED: f64 = 0.9;
/// Weight of a report in the share that comes through while none queues: as many reports as a
/// quarter of lost ones needs to be known within a fifth of it.
const WEIGHT: f64 = 1.0 / 64.0;
/// Standard deviations beyond which chance explains nothing.
const CERTAIN: f64 = 3.0;
/// What feedback may take of a reverse path.
const SHARE: f64 = 0.25;
/// A limit is tried again after this time: what it costs then is one queue of about a round trip.
const TRUST: Duration = Duration::from_secs(30);
/// The least delay is that of this time and the same before: clocks drift apart by 5 ms in it at
/// 500 ppm, half of the least queue.
const MEMORY: Duration = Duration::from_secs(10);
/// IPv4 and UDP.
const HEADERS: u64 = 28;

/// Reports should be no rarer than this, however little the path carries: no rate control could do with
/// less.
pub fn longest_report_interval(rtt: Duration) -> Duration {
    Duration::from_millis(100).max(rtt / 2)
}

/// A report that arrived.
#[derive(Clone, Copy, Debug)]
pub struct ReportIn {
    /// Its packet number.
    pub number: u64,
    /// UDP payload bytes of its packet.
    pub size: u64,
    /// When it left, on its sender's clock.
    pub left: Duration,
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub struct ReversePath {
    newest: Option<u64>,
    quiet: Quiet,
    /// Least difference of the clocks, arrival less departure in ns, in this [`MEMORY`] and the last.
    least: [Option<i128>; 2],
    since: Instant,
    run: Option<Run>,
    /// Whether the run before it, without a report in between that did not queue, showed a full path.
    was_full: bool,
    limit: Option<(u64, Instant)>,
    /// Nothing is judged before: a queue drains.
    settled: Instant,
    /// Bytes of the last report, headers included.
    size: u64,
}

/// Reports while none queued.
#[derive(Clone, Copy, Debug, Default)]
struct Quiet {
    last: Option<u64>,
    /// Of late.
    sent: f64,
    arrived: f64,
}

impl Quiet {
    fn on_report(&mut self, number: u64) {
        if let Some(last) = self.last.replace(number) {
            self.sent += number.saturating_sub(last) as f64 - WEIGHT * self.sent;
            self.arrived += 1.0 - WEIGHT * self.arrived;
        }
    }

    /// Share that comes through.
    fn share(&self) -> f64 {
        if self.sent > 0.0 {
            self.arrived / self.sent
        } else {
            1.0
        }
    }
}

/// Reports in a row that queued.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: ReportIn,
    arrived: Instant,
    reports: u32,
    /// Of those after the first.
    bytes: u64,
}

impl ReversePath {
    /// Bytes a second, headers included, that feedback may take; `None`: as it likes.
    pub fn limit(&self) -> Option<u64> {
        self.limit.map(|(limit, _)| limit)
    }

    /// Time between reports at the limit; nothing without one.
    pub fn interval(&self) -> Duration {
        self.limit().map_or(Duration::ZERO, |limit| {
            Duration::from_secs_f64(self.size as f64 / limit.max(1) as f64)
        })
    }

    /// A packet with data arrived: reports are the lesser part of what comes that way.
    pub fn on_data(&mut self) {
        (self.run, self.was_full) = (None, false);
        self.quiet.last = None;
    }

    /// A report arrived; true if the limit changed.
    pub fn on_report(&mut self, now: Instant, rtt: &RttEstimator, report: ReportIn) -> bool {
        if self.newest.is_some_and(|newest| report.number <= newest) {
            return false;
        }
        self.newest = Some(report.number);
        self.size = report.size + HEADERS;
        if self
            .limit
            .is_some_and(|(_, since)| now.saturating_since(since) >= TRUST)
        {
            self.limit = None;
            return true;
        }
        if now < self.settled {
            self.least = [None; 2];
            return false;
        }
        let queue = self.queue(now, rtt, report.left);
        if queue < LEAST_QUEUE.max(rtt.min() / 4) {
            (self.run, self.was_full) = (None, false);
            self.quiet.on_report(report.number);
            return false;
        }
        self.quiet.last = None;
        let run = self.run.get_or_insert(Run {
            first: report,
            arrived: now,
            reports: 0,
            bytes: 0,
        });
        if run.reports > 0 {
            run.bytes += self.size;
        }
        run.reports += 1;
        if run.reports <= RUN {
            return false;
        }
        let run = *run;
        self.run = None;
        let carried = run.carried(now, report, self.quiet.share());
        let was_full = std::mem::replace(&mut self.was_full, carried.is_some());
        let Some(carried) = carried.filter(|_| was_full) else {
            return false;
        };
        self.was_full = false;
        let longest = longest_report_interval(rtt.min()).as_secs_f64();
        let least = self.size as f64 / longest;
        self.limit = Some(((carried * SHARE).max(least) as u64, now));
        // By then it has been heard, and the queue is gone.
        self.settled = now + rtt.smoothed() + queue;
        true
    }

    /// How much longer than the least a report took; no more than round trips grew, as clocks that
    /// run apart look like a queue too.
    fn queue(&mut self, now: Instant, rtt: &RttEstimator, left: Duration) -> Duration {
        let difference = i128::from(now.as_nanos()) - left.as_nanos() as i128;
        if now.saturating_since(self.since) >= MEMORY {
            self.since = now;
            self.least = [None, self.least[0]];
        }
        let present = self.least[0].map_or(difference, |least| least.min(difference));
        self.least[0] = Some(present);
        let least = self.least[1].map_or(present, |before| before.min(present));
        let extra = u64::try_from(difference - least).unwrap_or(u64::MAX);
        let grown = rtt.latest().saturating_sub(rtt.min());
        Duration::from_nanos(extra).min(grown)
    }
}

impl Run {
    /// Bytes a second that came through, if they were clearly fewer than the share of those that left
    /// that comes through a path that is not full.
    fn carried(&self, now: Instant, last: ReportIn, share: f64) -> Option<f64> {
        let arriving = now.saturating_since(self.arrived).as_secs_f64();
        let leaving = last.left.saturating_sub(self.first.left).as_secs_f64();
        let mean = self.bytes as f64 / f64::from(self.reports - 1);
        let sent = mean * (last.number - self.first.number) as f64;
        let carried = self.bytes as f64 / arriving;
        // Of so many, chance takes this much more (a negative binomial distribution).
        let chance = CERTAIN * mean * (f64::from(self.reports - 1) * (1.0 - share)).sqrt();
        let full = carried * leaving < CARRIED * (share * sent - chance);
        (arriving > 0.0 && full).then_some(carried)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(25);
    const GAP: Duration = Duration::from_millis(1);

    /// Reports of `size` bytes with headers, one each millisecond for a second, over a path of `rate`
    /// bytes a second, each further delayed by `extra`; the limit that is found and when.
    fn report(rate: f64, size: u64, extra: fn(u64) -> Duration) -> Option<(u64, Duration)> {
        let (mut path, mut rtt) = (ReversePath::default(), RttEstimator::default());
        let start = Instant::from_nanos(1 << 40);
        let mut free = start;
        for number in 0..1000 {
            let sent = start + GAP * number as u32;
            free = free.max(sent) + Duration::from_secs_f64(size as f64 / rate);
            let now = free + DELAY + extra(number);
            rtt.update(now.saturating_since(sent) + DELAY, Duration::ZERO);
            let report = ReportIn {
                number,
                size: size - HEADERS,
                left: GAP * number as u32,
            };
            if path.on_report(now, &rtt, report) {
                return path
                    .limit()
                    .map(|limit| (limit, now.saturating_since(start)));
            }
        }
        None
    }

    #[test]
    fn a_narrow_path_is_found_within_two_round_trips_and_feedback_gets_a_quarter_of_it() {
        let (limit, after) = report(25_000.0, 110, |_| Duration::ZERO).expect("it is full");
        assert!((5_800..6_700).contains(&limit), "{limit}");
        assert!(after < 4 * (2 * DELAY), "{after:?}");
    }

    /// Reports, one each millisecond, by a clock that loses `drift` of the time. After `calm` the way there queues,
    /// and every other report is lost by chance: the limit that is found.
    fn lost_while_the_way_there_queues(calm: Duration, drift: f64) -> Option<u64> {
        let (mut path, mut rtt) = (ReversePath::default(), RttEstimator::default());
        let start = Instant::from_nanos(1 << 40);
        let calm = (calm.as_secs_f64() / GAP.as_secs_f64()) as u64;
        for number in 0..calm + 1000 {
            let sent = GAP * number as u32;
            let there = match number < calm {
                true => Duration::ZERO,
                false if number % 2 == 0 => continue,
                false => Duration::from_millis(40),
            };
            rtt.update(2 * DELAY + there, Duration::ZERO);
            let report = ReportIn {
                number,
                size: 110,
                left: sent.mul_f64(1.0 - drift),
            };
            path.on_report(start + sent + DELAY, &rtt, report);
        }
        path.limit()
    }

    #[test]
    fn loss_on_the_way_back_is_no_queue_while_the_way_there_has_one() {
        let none = lost_while_the_way_there_queues(Duration::from_secs(1), 0.0);
        assert_eq!(none, None);
        let drifting = lost_while_the_way_there_queues(Duration::from_secs(60), 5e-4);
        assert_eq!(drifting, None, "clocks that run apart");
    }

    #[test]
    fn a_wide_path_jitter_and_a_longer_way_are_no_reason() {
        let none = |_| Duration::ZERO;
        assert_eq!(report(1e6, 110, none), None);
        let jitter = |number: u64| Duration::from_micros(number * 7919 % 30_000);
        assert_eq!(report(1e6, 110, jitter), None, "jitter");
        let longer = |number| Duration::from_millis(if number > 300 { 100 } else { 0 });
        assert_eq!(report(1e6, 110, longer), None, "another way");
        let (mut path, mut rtt) = (ReversePath::default(), RttEstimator::default());
        // Two reports of five are lost, and the delay grows and shrinks within seconds.
        for number in (0..20_000).filter(|n| n % 5 % 2 == 0) {
            let left = GAP * number;
            let wave = (number % 4000).abs_diff(2000);
            let now = Instant::from_nanos(1 << 40) + left + DELAY + wave * GAP / 20;
            rtt.update(2 * DELAY + wave * GAP / 20, Duration::ZERO);
            let (number, size) = (u64::from(number), 80);
            let report = ReportIn { number, size, left };
            assert!(!path.on_report(now, &rtt, report), "{number}");
        }
    }

    #[test]
    fn many_lost_by_chance_in_a_delay_that_wanders_are_no_full_path() {
        // The way back of a path between continents: 42 % lost, the delay within 107 ms; ten minutes.
        for seed in 1..=5u64 {
            let (mut path, mut rtt) = (ReversePath::default(), RttEstimator::default());
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut random = || {
                // Xorshift (Marsaglia 2003), 0 to 1.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 11) as f64 / (1u64 << 53) as f64
            };
            let (mut from, mut to) = (0.0, 0.05);
            let gap = Duration::from_millis(7);
            for number in 0..85_000u32 {
                let step = f64::from(number % 143) / 143.0;
                if number % 143 == 0 {
                    (from, to) = (to, 0.107 * random());
                }
                let extra = Duration::from_secs_f64(from + (to - from) * step);
                if random() < 0.42 {
                    continue;
                }
                let left = gap * number;
                let way = Duration::from_millis(113) + extra;
                let now = Instant::from_nanos(1 << 40) + left + way;
                rtt.update(2 * way, Duration::ZERO);
                let (number, size) = (u64::from(number), 182);
                let report = ReportIn { number, size, left };
                assert!(!path.on_report(now, &rtt, report), "seed {seed}: {number}");
            }
        }
    }
}
