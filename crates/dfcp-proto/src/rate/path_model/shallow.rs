//! Where a path is full: what its queue holds, and the rate that it refuses to exceed where it has
//! next to no queue.

use super::tuning::loss::CERTAIN;
use super::tuning::shallow::*;
use crate::rate::FateInGroups;
use crate::time::Instant;

/// Packets and losses of a round, apart for long queues and short ones. A queue that overflows loses
/// when it is long; a path that loses by itself does so at any length.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossByQueue {
    /// Where long begins, seconds.
    long_from: f64,
    /// Longest queue, seconds.
    pub(super) longest: f64,
    long: Fate,
    short: Fate,
    /// Queues that packets met, those that lost ones did in this round, and the means of those of rounds,
    /// seconds.
    all: Delays,
    lost: Delays,
    events: Delays,
}

/// Number, sum and sum of squares of delays.
#[derive(Clone, Copy, Debug, Default)]
struct Delays {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Delays {
    fn add(&mut self, delay: f64, count: f64) {
        self.count += count;
        self.sum += count * delay;
        self.squares += count * delay * delay;
    }

    fn mean(self) -> f64 {
        self.sum / self.count.max(1.0)
    }

    fn deviation(self) -> f64 {
        (self.squares / self.count.max(1.0) - self.mean() * self.mean())
            .max(0.0)
            .sqrt()
    }

    fn fade(self) -> Self {
        Self {
            count: FADE * self.count,
            sum: FADE * self.sum,
            squares: FADE * self.squares,
        }
    }
}

/// What became of packets, some of which are counted by their bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    acked: f64,
    lost: f64,
}

impl Fate {
    fn add(&mut self, fate: crate::rate::Fate) {
        self.acked += fate.acked as f64;
        self.lost += fate.lost as f64;
    }

    fn packets(self) -> f64 {
        self.acked + self.lost
    }

    /// Whether more than this share is lost, beyond what chance may add to it.
    fn lost_more_than(self, share: f64, chance: f64) -> bool {
        self.lost > (share + OVERFLOW + chance) * self.packets() + 1.0
    }

    fn fade(self) -> Self {
        Self {
            acked: FADE * self.acked,
            lost: FADE * self.lost,
        }
    }
}

impl LossByQueue {
    /// For the next round: a queue is long if it is longer than half of the longest now. What was seen
    /// counts ever less, since a queue that overflows now and then loses a packet in several rounds.
    pub(super) fn next(&self) -> Self {
        Self {
            long_from: self.longest / 2.0,
            longest: 0.0,
            long: self.long.fade(),
            short: self.short.fade(),
            all: self.all.fade(),
            lost: Delays::default(),
            events: self.events.fade(),
        }
    }

    /// Packets acknowledged and lost while the newest saw a queue of `queue` seconds.
    pub(super) fn add(&mut self, queue: f64, acked: f64, lost: f64) {
        self.longest = self.longest.max(queue);
        let fate = if queue > self.long_from {
            &mut self.long
        } else {
            &mut self.short
        };
        fate.acked += acked;
        fate.lost += lost;
        let queue = queue.max(0.0);
        self.all.add(queue, acked + lost);
        self.lost.add(queue, lost);
    }

    /// An overflow was seen: what showed it shows no other.
    pub(super) fn forget(&mut self) {
        (self.long, self.short) = (Fate::default(), Fate::default());
    }

    /// The round is over: its losses count once, however many a burst took.
    pub(super) fn end_round(&mut self) {
        if self.has_lost() {
            self.events.add(self.lost.mean(), 1.0);
        }
    }

    /// The longest queue of the round, or what rounds that lost of late met on average, if that is longer,
    /// seconds: it may be their losses that show an overflow.
    pub(super) fn overflowed_at(&self) -> f64 {
        self.longest.max(self.events.mean())
    }

    /// Whether the round lost a packet. (Packets are counted by bytes.)
    fn has_lost(&self) -> bool {
        self.lost.count > 0.5
    }

    /// Share lost while the queue was short (Laplace's rule of succession), if enough was sent then.
    pub(super) fn short_loss(&self) -> Option<f64> {
        let packets = self.short.packets();
        (packets >= JUDGED_PACKETS).then(|| (self.short.lost + 1.0) / (packets + 2.0))
    }

    /// Whether the round lost at a queue longer than usual where losses follow the queue.
    pub(super) fn is_overflow(&self) -> bool {
        self.follows_delay() && self.lost.mean() > self.all.mean()
    }

    /// Whether the round lost, and losses of late meet the queue when it is longer than what packets meet.
    /// What a path loses by itself meets it at any length.
    pub(super) fn follows_delay(&self) -> bool {
        let error = self.all.deviation() / self.events.count.max(1.0).sqrt();
        self.has_lost()
            && self.events.count >= FEW_EVENTS
            && self.events.mean() > self.all.mean() + CERTAIN * error
    }

    /// Whether long queues lost more than short ones, beyond chance. `path` is what the path itself
    /// loses, for when hardly a queue was short, and the standard deviation of that among so many.
    pub(super) fn overflows(&self, path: f64, deviation: impl Fn(f64) -> f64) -> bool {
        let (long, short) = (self.long, self.short);
        let is_known = short.packets() > SHORT_PACKETS;
        let elsewhere = if is_known {
            short.lost / short.packets()
        } else {
            path
        };
        let chance = if path > 0.0 || short.lost > 0.0 {
            let error = if is_known {
                deviation(short.packets())
            } else {
                0.0
            };
            CERTAIN * deviation(long.packets()).hypot(error)
        } else {
            0.0
        };
        long.lost_more_than(elsewhere, chance)
    }
}

/// Whether a queue overflowed in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overflow {
    Seen,
    None,
}

/// What is left of the knowledge that no more than `seconds` of a queue are free, `elapsed` seconds later.
fn forget(seconds: f64, elapsed: f64) -> f64 {
    (seconds * (elapsed / DOUBLED).exp2()).min(DEEPEST)
}

/// What the queue holds.
#[derive(Debug)]
pub(super) struct BufferEstimate {
    /// Seconds; grows slowly, as it may have been somebody else's queue that overflowed.
    pub(super) seconds: f64,
    /// The delay of the empty queue above which that is, seconds: the least that was held for it since.
    base: f64,
}

impl Default for BufferEstimate {
    fn default() -> Self {
        Self {
            seconds: DEEPEST,
            base: 0.0,
        }
    }
}

impl BufferEstimate {
    /// A round of `elapsed` seconds is over, in which the queue was `longest` seconds long above `base`, and
    /// whether it overflowed.
    pub(super) fn end_round(
        &mut self,
        longest: f64,
        base: f64,
        overflowed: Overflow,
        elapsed: f64,
    ) {
        self.seconds = forget(self.seconds, elapsed);
        if overflowed == Overflow::Seen {
            *self = Self {
                seconds: longest,
                base,
            };
        } else if base < self.base {
            // A queue stood in what was held for the delay of an empty one, and was part of what overflowed.
            self.seconds = (self.seconds + self.base - base).min(DEEPEST);
            self.base = base;
        }
    }
}

/// How long a group of packets may be for the queue to have room for all of it. A queue that has not loses
/// what is behind in a group more often than what is in front, at any rate; what the path loses by itself
/// it loses at any place.
#[derive(Debug)]
pub(super) struct GroupRoom {
    front: Fate,
    back: Fate,
    /// The longest that may be, seconds; grows slowly, as what a queue holds does.
    seconds: f64,
}

impl Default for GroupRoom {
    fn default() -> Self {
        Self {
            front: Fate::default(),
            back: Fate::default(),
            seconds: DEEPEST,
        }
    }
}

impl GroupRoom {
    /// Longest group, seconds.
    pub(super) fn room(&self) -> f64 {
        self.seconds
    }

    /// What became of packets that left in groups.
    pub(super) fn add(&mut self, groups: FateInGroups) {
        self.front.add(groups.front);
        self.back.add(groups.back);
    }

    /// A round of `elapsed` seconds is over, with groups of `group` seconds, if they are to be judged.
    pub(super) fn end_round(
        &mut self,
        group: Option<f64>,
        elapsed: f64,
        deviation: impl Fn(f64) -> f64,
    ) {
        self.seconds = forget(self.seconds, elapsed);
        let (front, back) = (self.front, self.back);
        (self.front, self.back) = (front.fade(), back.fade());
        let Some(group) = group.filter(|_| front.packets() > SHORT_PACKETS) else {
            return;
        };
        let chance = CERTAIN * deviation(back.packets()).hypot(deviation(front.packets()));
        if back.lost_more_than(front.lost / front.packets(), chance) {
            *self = Self {
                seconds: group / 2.0,
                ..Self::default()
            };
        }
    }
}

/// The rate that a path without a visible queue carried when it refused more: a little below it,
/// then at it for a while, then ever faster above, as CUBIC does with windows (RFC 9438 §4.2), until it is held
/// no more.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateCap {
    rate: f64,
    since: Instant,
    back_after: f64,
    /// How often it was refused again.
    again: u32,
}

impl RateCap {
    /// The path refused more than `rate`, of which chance explains a share `error`.
    pub(super) fn new(now: Instant, rate: f64, error: f64, rtt: f64, before: Option<Self>) -> Self {
        let close = (CLOSE + error).min(DIP);
        let confirms = |c: &Self| c.is_recent(now) && (rate / c.rate - 1.0).abs() < close;
        let first = Self {
            rate,
            since: now,
            back_after: (RETURN * rtt).clamp(MIN_RETURN, MAX_RETURN),
            again: 0,
        };
        before
            .filter(confirms)
            .map_or(first, |before| Self { rate, ..before }.refused_again(now))
    }

    /// The same rate was refused again: it takes twice as long to come back to it.
    pub(super) fn refused_again(self, now: Instant) -> Self {
        let doubles = (1..=RETURN_DOUBLINGS).contains(&self.again);
        let longer = if doubles { 2.0 } else { 1.0 };
        Self {
            since: now,
            back_after: longer * self.back_after,
            again: self.again + 1,
            ..self
        }
    }

    /// Whether a refusal now would be of the same ceiling.
    fn is_recent(&self, now: Instant) -> bool {
        let recent = RECENT.as_secs_f64().max(RELEASED * self.back_after);
        self.elapsed(now) < recent
    }

    fn elapsed(&self, now: Instant) -> f64 {
        now.saturating_since(self.since).as_secs_f64()
    }

    /// Whether what was lost for a moment of `rate`, more than was refused of late, left what the ceiling carries,
    /// `carried`.
    pub(super) fn was_exceeded(&self, now: Instant, rate: f64, carried: f64) -> bool {
        let is_known = self.again > 0 && self.is_recent(now);
        is_known && rate > self.rate && (carried / self.rate - 1.0).abs() < ALIKE
    }

    /// Whether the rate is still below the ceiling, though it has been for longer than `settled` seconds: what is lost
    /// now has another cause.
    pub(super) fn is_below(&self, now: Instant, settled: f64) -> bool {
        let elapsed = self.elapsed(now);
        self.again > 0 && elapsed > settled && elapsed < self.back_after
    }

    /// The rate to keep to, bytes per second.
    pub(super) fn rate(&self, now: Instant) -> f64 {
        let time = self.elapsed(now) / self.back_after;
        if self.again == 0 || time > RELEASED {
            return f64::INFINITY;
        }
        self.rate * (1.0 + DIP * (time - 1.0).powi(3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_cap_holds_once_it_is_confirmed_and_not_for_long() {
        let start = Instant::ZERO;
        let first = RateCap::new(start, 100.0, 0.0, 0.05, None);
        assert_eq!(first.rate(start), f64::INFINITY, "one may be a burst");
        let other = RateCap::new(start + SECOND, 90.0, 1.0, 0.05, Some(first));
        assert_eq!(other.rate(start + SECOND), f64::INFINITY, "another rate");
        let again = RateCap::new(start + SECOND, 101.0, 0.0, 0.05, Some(first));
        let rate = |after: u32| again.rate(start + SECOND * (1 + after));
        assert!(rate(0) < 0.96 * 101.0);
        assert!((rate(1) - 101.0).abs() < 0.01);
        assert!(rate(2) < 1.1 * 101.0);
        assert_eq!(rate(4), f64::INFINITY, "nothing was refused for long");
        // Each further refusal doubles the time in which it is kept to.
        let third = again.refused_again(start + SECOND * 4);
        assert!(third.rate(start + SECOND * 5) < 101.0);
        assert!((third.rate(start + SECOND * 6) - 101.0).abs() < 0.01);
        let mut last = third;
        for _ in 0..20 {
            last = last.refused_again(start);
        }
        assert!((last.rate(start + SECOND * 8) - 101.0).abs() < 0.01);
        let late = RateCap::new(start + SECOND * 11, 100.0, 0.0, 0.05, Some(first));
        assert_eq!(late.rate(start + SECOND * 11), f64::INFINITY);
    }

    /// A round after one whose queue was 4 ms: 500 packets each with a long and a short queue.
    fn round(lost_long: f64, lost_short: f64) -> LossByQueue {
        let mut before = LossByQueue::default();
        before.add(0.004, 1.0, 0.0);
        let mut round = before.next();
        round.add(0.003, 500.0 - lost_long, lost_long);
        round.add(0.001, 500.0 - lost_short, lost_short);
        round
    }

    #[test]
    fn only_losses_at_long_queues_show_an_overflow() {
        let deviation = |packets: f64| (0.01 * 0.99 / packets).sqrt();
        assert!(round(40.0, 0.0).overflows(0.0, deviation));
        assert!(round(40.0, 5.0).overflows(0.01, deviation));
        assert!(
            !round(5.0, 5.0).overflows(0.01, deviation),
            "the path's own"
        );
        assert!(
            !round(40.0, 40.0).overflows(0.01, deviation),
            "at any length"
        );
        assert!(!round(0.0, 40.0).overflows(0.0, deviation));
    }

    #[test]
    fn what_a_queue_holds_is_not_believed_for_ever() {
        let mut buffer = BufferEstimate::default();
        buffer.end_round(0.003, 0.02, Overflow::Seen, 0.1);
        assert_eq!(buffer.seconds, 0.003);
        for _ in 0..300 {
            buffer.end_round(0.0, 0.02, Overflow::None, 0.1);
        }
        assert!(buffer.seconds > 0.02);
    }

    #[test]
    fn a_queue_that_passed_for_the_path_counts_for_what_the_queue_holds() {
        let mut buffer = BufferEstimate::default();
        buffer.end_round(0.003, 0.045, Overflow::Seen, 0.1);
        for base in [0.045, 0.060, 0.045, 0.026, 0.026] {
            buffer.end_round(0.0, base, Overflow::None, 0.0);
        }
        assert!((buffer.seconds - 0.022).abs() < 1e-9, "{buffer:?}");
        // Where nothing has overflowed all that there may be is known.
        let mut unknown = BufferEstimate::default();
        unknown.end_round(0.0, 0.026, Overflow::None, 0.1);
        assert_eq!(unknown.seconds, DEEPEST);
    }

    /// What groups may be long, in seconds, after rounds of a millisecond with groups of as much in which
    /// `fate` became of the packets of either half.
    fn room_after(rounds: u32, fate: impl Fn(u32) -> [crate::rate::Fate; 2]) -> f64 {
        let deviation = |packets: f64| (0.05 * 0.95 / packets).sqrt();
        let mut groups = GroupRoom::default();
        for round in 0..rounds {
            let [front, back] = fate(round);
            groups.add(FateInGroups { front, back });
            groups.end_round(Some(groups.room().min(0.001)), 0.001, deviation);
        }
        groups.room()
    }

    #[test]
    fn groups_that_lose_their_ends_become_shorter_and_others_stay() {
        let fate = |acked, lost| crate::rate::Fate { acked, lost };
        // The path's own loss: one packet in 21, anywhere.
        let even = |_| [fate(20, 1), fate(20, 1)];
        assert_eq!(room_after(1000, even), DEEPEST);
        // In bursts that take either half.
        let bursts = |round: u32| match round % 12 {
            0 => [fate(15, 6), fate(21, 0)],
            6 => [fate(21, 0), fate(15, 6)],
            _ => [fate(21, 0); 2],
        };
        assert_eq!(room_after(1000, bursts), DEEPEST);
        let ends = |_| [fate(20, 1), fate(14, 7)];
        let short = room_after(30, ends);
        assert!(short < 0.0005);
        // Longer ones are tried again after a while: twice as long in ten seconds.
        let then = |round| if round < 30 { ends(round) } else { even(round) };
        let again = room_after(10_030, then) / short;
        assert!((again - 2.0).abs() < 0.1, "{again}");
    }

    /// Rounds of 64 packets whose queue goes from 4 to 12 ms in 16 rounds and falls, as CUBIC's does; a
    /// packet is lost where `loses` says so of the round.
    fn sawtooth(loses: impl Fn(usize) -> bool) -> bool {
        let mut round = LossByQueue::default();
        let mut follows = false;
        for number in 0..96 {
            let queue = 0.004 + 0.0005 * (number % 16) as f64;
            let lost = if loses(number) { 1.0 } else { 0.0 };
            round.add(queue, 64.0 - lost, lost);
            round.end_round();
            follows |= round.follows_delay();
            round = round.next();
        }
        follows
    }

    #[test]
    fn one_loss_at_the_top_of_each_sawtooth_shows_an_overflow() {
        assert!(sawtooth(|round| round % 16 >= 13));
        // As many losses, wherever the queue is.
        assert!(!sawtooth(|round| round % 5 == 0));
        assert!(!sawtooth(|_| true), "in every round");
    }
}
