//! TCP-competitive mode: a window that grows and shrinks as CUBIC's (RFC 9438).
//!
//! Who keeps a queue short beside senders that fill it gets what they leave, which is next to
//! nothing (Copa §2.2, Nimbus). So a sender that finds itself in their queue does as they do, until
//! the queue is gone or a trial, a moment at three quarters of the rate, shows that it is its own.
//! While the delay is stationary the window does not grow: then it may be delay of the path itself,
//! which a larger window would only fill.

use super::elasticity::{ElasticityTest, Flow, QueueOwner, ServiceVariation};
use super::tuning::cubic::*;
use crate::time::{Duration, Instant};

/// Tells a delay that stays as it is from a queue that others work on: that one moves, because
/// loss-based senders keep filling and emptying it.
#[derive(Clone, Copy, Debug)]
struct Stationary {
    least: f64,
    highest: f64,
}

impl Stationary {
    fn new(queue: f64) -> Self {
        let (least, highest) = (queue, queue);
        Self { least, highest }
    }

    /// With the delay of now, if all so far are of one constant.
    fn with(self, path: &WindowPath) -> Option<Self> {
        let joined = self.joined(Self::new(path.queue));
        joined.is_still(path).then_some(joined)
    }

    fn joined(self, other: Self) -> Self {
        Self {
            least: self.least.min(other.least),
            highest: self.highest.max(other.highest),
        }
    }

    fn is_still(&self, path: &WindowPath) -> bool {
        let allowed = RESOLUTION + RESOLUTION_SHARE * path.rtt + path.resolution;
        self.highest - self.least < allowed
    }
}

/// A moment at three quarters of the rate.
#[derive(Clone, Copy, Debug)]
struct Trial {
    test: ElasticityTest,
    /// The delay since what it sends is seen; `Some(None)` if it has moved since.
    bottom: Option<Option<Stationary>>,
}

impl Trial {
    /// Takes a delay; where it stands, if it does.
    fn follow(&mut self, now: Instant, path: &WindowPath) -> Option<Stationary> {
        let elapsed = now.saturating_since(self.test.since).as_secs_f64();
        if elapsed < path.settled {
            return None;
        }
        let bottom = self.bottom.get_or_insert(Some(Stationary::new(path.queue)));
        *bottom = bottom.and_then(|stationary| stationary.with(path));
        *bottom
    }
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct CubicWindow {
    /// Bytes.
    window: f64,
    /// CUBIC's W_max, the start of its epoch, and K; bytes and seconds.
    most: f64,
    epoch: Instant,
    k: f64,
    /// CUBIC's W_est, bytes.
    reno: f64,
    grown: Instant,
    /// Packets lost in this round, and those that arrived.
    lost: u64,
    acked: u64,
    /// The last decrease, and what was sent until then.
    decreased: Option<(Instant, u64)>,
    /// Set while the delay has not moved since the mode began.
    stationary: Option<Stationary>,
    trial_at: Instant,
    interval: Duration,
    trial: Option<Trial>,
    /// Where the delay stood in the last one, if others seemed to keep a queue there.
    bottom: Option<Stationary>,
    /// It began with an overflow.
    answers_overflow: bool,
}

/// Losses and marks in one feedback, and what is known then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lost {
    pub(super) packets: u64,
    /// Packets that arrived meanwhile.
    pub(super) acked: u64,
    pub(super) marked: bool,
    pub(super) acked_total: u64,
    pub(super) sent_total: u64,
    /// Share lost that is the path's own, and its standard deviation over a window.
    pub(super) own: f64,
    pub(super) deviation: f64,
    pub(super) packet: f64,
    pub(super) rtt: f64,
    pub(super) settled: f64,
}

impl CubicWindow {
    /// Begins with `window` bytes, and with a trial after `wait` seconds.
    pub(super) fn new(now: Instant, window: f64, queue: f64, wait: f64) -> Self {
        Self {
            window,
            most: window,
            epoch: now,
            k: 0.0,
            reno: window,
            grown: now,
            lost: 0,
            acked: 0,
            decreased: None,
            stationary: Some(Stationary::new(queue)),
            trial_at: now + Duration::from_secs_f64(wait),
            interval: FIRST_INTERVAL,
            trial: None,
            bottom: None,
            answers_overflow: false,
        }
    }

    /// The same after an overflow, which it answers, when `sent_total` bytes were sent. Whose the queue
    /// is shows in its losses, not in a delay that moves.
    pub(super) fn after_overflow(mut self, now: Instant, packet: f64, sent_total: u64) -> Self {
        self.answers_overflow = true;
        self.stationary = None;
        self.cut(now, packet, sent_total);
        self
    }

    /// Whether it began with an overflow.
    pub(super) fn answers_overflow(&self) -> bool {
        self.answers_overflow
    }

    /// Whether it is as large as before the last decrease.
    pub(super) fn has_recovered(&self) -> bool {
        self.window >= self.most
    }

    pub(super) fn window(&self) -> f64 {
        self.window
    }

    /// No more than `most` bytes: what a receiver claims is not believed beyond.
    pub(super) fn limit(&mut self, most: f64) {
        self.window = self.window.min(most);
    }

    /// Rate of a running trial.
    pub(super) fn trial_rate(&self) -> Option<f64> {
        self.trial.map(|t| TRIAL_SHARE * t.test.before.served)
    }

    /// The delay that stands, where it has not moved.
    pub(super) fn standing_delay(&self) -> Option<f64> {
        self.stationary.map(|s| s.highest)
    }

    /// Feedback: the window grows, if it was `used` and the queue is one.
    pub(super) fn grow(&mut self, now: Instant, path: &WindowPath, used: bool) {
        let elapsed = now.saturating_since(self.grown).as_secs_f64();
        self.grown = now;
        self.stationary = self.stationary.and_then(|s| s.with(path));
        if !used || self.trial.is_some() || self.stationary.is_some() {
            // The curve waits as well.
            self.epoch += Duration::from_secs_f64(elapsed);
            return;
        }
        let time = now.saturating_since(self.epoch).as_secs_f64() + path.rtt;
        let cubic = self.most + CUBIC * (time - self.k).powi(3) * path.packet;
        self.reno += RENO * path.packet * elapsed / path.rtt;
        let target = cubic.max(self.reno).min(MOST_AHEAD * self.window);
        if target > self.window {
            self.window += (target - self.window) * (elapsed / path.rtt).min(1.0);
        }
    }

    /// Packets were lost, or marked, when what was sent as byte `acked_total` is the newest
    /// acknowledged and `sent_total` bytes were sent. More than chance explains of the path's own
    /// loss is congestion: ours and that of the others.
    pub(super) fn on_lost(&mut self, now: Instant, at: &Lost) {
        if let Some((since, sent_total)) = self.decreased {
            // Losses are found up to a quarter of a round trip after what was sent beside them.
            let early = now.saturating_since(since).as_secs_f64() < LOSSES_LATE * at.rtt;
            if early || at.acked_total < sent_total {
                (self.lost, self.acked) = (0, 0);
                return;
            }
        }
        self.lost += at.packets;
        self.acked += at.acked;
        let window = self.window / at.packet;
        // A round may be longer than a window.
        let packets = window.max((self.lost + self.acked) as f64);
        let chance = if at.own > 0.0 { at.deviation } else { 0.0 };
        let chance = BEYOND_CHANCE * chance * (window * packets).sqrt();
        let explained = at.own * packets + chance;
        if at.marked || self.lost as f64 > explained {
            self.decrease(now, at);
        }
    }

    fn decrease(&mut self, now: Instant, at: &Lost) {
        self.cut(now, at.packet, at.sent_total);
        // Others decrease now as well: who causes the queue shows once that is over.
        self.trial_at = now + Duration::from_secs_f64(TRIAL_LOOPS * at.settled);
    }

    /// CUBIC's answer to a loss (RFC 9438 §4.6).
    fn cut(&mut self, now: Instant, packet: f64, sent_total: u64) {
        self.decreased = Some((now, sent_total));
        // Fast convergence (RFC 9438 §4.7): who has less than before leaves more.
        self.most = if self.window < self.most {
            self.window * (1.0 + DECREASE) / 2.0
        } else {
            self.window
        };
        self.window = (DECREASE * self.window).max(LEAST * packet);
        self.reno = self.window;
        self.k = ((self.most - self.window).max(0.0) / packet / CUBIC).cbrt();
        self.epoch = now;
        self.trial = None;
    }

    /// A round is over.
    pub(super) fn end_round(&mut self) {
        (self.lost, self.acked) = (0, 0);
    }

    /// Finds out from time to time who causes the queue, by sending less for a moment.
    pub(super) fn look(
        &mut self,
        now: Instant,
        flow: Flow,
        path: &WindowPath,
        variation: &ServiceVariation,
    ) -> Option<QueueOwner> {
        let Some(trial) = &mut self.trial else {
            if now >= self.trial_at {
                let test = ElasticityTest::new(now, flow, path.queue, variation);
                let bottom = None;
                self.trial = Some(Trial { test, bottom });
            }
            return None;
        };
        let bottom = trial.follow(now, path);
        let test = trial.test;
        let owner = test.verdict(now, flow, path.queue, path.settled, variation);
        let late = now.saturating_since(test.since).as_secs_f64() > TRIAL_ENDS * path.settled;
        if owner.is_some() || late {
            self.trial = None;
            self.trial_at = now + self.interval;
            self.interval = (self.interval * 2).min(LAST_INTERVAL);
        }
        if owner != Some(QueueOwner::CrossTraffic) {
            return owner;
        }
        // The path's own delay is where two trials end, whatever was sent between them.
        let last = std::mem::replace(&mut self.bottom, bottom);
        let is_same = |last: Stationary| bottom.is_some_and(|now| last.joined(now).is_still(path));
        let stands = self.stationary.is_some() || last.is_some_and(is_same);
        Some(match stands {
            true => QueueOwner::Path,
            false => QueueOwner::CrossTraffic,
        })
    }
}

/// What a window is set by.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowPath {
    pub(super) rtt: f64,
    pub(super) packet: f64,
    /// Standing queue and the time of a loop of control, seconds.
    pub(super) queue: f64,
    /// What the delay varies by itself, seconds.
    pub(super) resolution: f64,
    pub(super) settled: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: f64 = 1500.0;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn path(rtt: f64, queue: f64) -> WindowPath {
        WindowPath {
            rtt,
            packet: PACKET,
            queue,
            resolution: 0.0,
            settled: 0.1,
        }
    }

    /// Feedback every millisecond for so long, with a queue that changes.
    fn grow(window: &mut CubicWindow, from: u64, to: u64) {
        for t in from..to {
            let queue = if t % 2 == 0 { 0.010 } else { 0.020 };
            window.grow(at(t), &path(0.05, queue), true);
        }
    }

    fn lost(packets: u64, acked_total: u64, sent_total: u64, own: f64) -> Lost {
        Lost {
            packets,
            acked: 0,
            marked: false,
            acked_total,
            sent_total,
            own,
            deviation: (own / 1000.0).sqrt(),
            packet: PACKET,
            rtt: 0.05,
            settled: 0.1,
        }
    }

    #[test]
    fn the_window_is_cubics() {
        let mut window = CubicWindow::new(at(0), 1000.0 * PACKET, 0.010, 100.0);
        window.on_lost(at(0), &lost(1, 0, 1000, 0.0));
        assert_eq!(window.window(), 700.0 * PACKET);
        // K = (300 ÷ 0.4)^(1/3) = 9.09 s: back at what it was, and at first fast.
        grow(&mut window, 1, 3000);
        assert!(window.window() > 890.0 * PACKET, "{}", window.window());
        grow(&mut window, 3000, 9090);
        assert!((window.window() / PACKET - 1000.0).abs() < 2.0);
        grow(&mut window, 9090, 14000);
        assert!(window.window() > 1040.0 * PACKET);
    }

    #[test]
    fn one_round_trip_shrinks_the_window_once() {
        let mut window = CubicWindow::new(at(0), 1000.0 * PACKET, 0.010, 100.0);
        window.on_lost(at(10), &lost(5, 100, 1000, 0.0));
        window.on_lost(at(30), &lost(5, 500, 1500, 0.0));
        window.on_lost(at(90), &lost(5, 900, 1500, 0.0));
        assert_eq!(window.window(), 700.0 * PACKET, "sent before the first");
        window.on_lost(at(120), &lost(1, 1200, 1700, 0.0));
        assert_eq!(window.window(), 490.0 * PACKET);
    }

    #[test]
    fn losses_of_the_path_do_not_shrink_the_window() {
        let mut window = CubicWindow::new(at(0), 1000.0 * PACKET, 0.010, 100.0);
        window.on_lost(at(10), &lost(25, 100, 1000, 0.02));
        assert_eq!(window.window(), 1000.0 * PACKET);
        window.on_lost(at(20), &lost(15, 100, 1000, 0.02));
        assert!(window.window() < 1000.0 * PACKET);
    }

    /// Whose a delay is that ends so in the first trial and the second, after a window that adds a queue of its own.
    fn owners_of(bottoms: [f64; 2]) -> Vec<QueueOwner> {
        let mut window = CubicWindow::new(at(0), 100.0 * PACKET, 0.080, 0.5);
        let quiet = ServiceVariation::default();
        let mut owners = Vec::new();
        for t in 0..4000 {
            let rate = window.trial_rate();
            let bottom = bottoms[owners.len().min(1)];
            let path = path(0.1, if rate.is_some() { bottom } else { 0.050 });
            window.grow(at(t), &path, true);
            let rate = rate.unwrap_or(1000.0);
            let flow = Flow {
                lost: 0.0,
                packets: 0.0,
                offered: rate,
                served: rate,
            };
            owners.extend(window.look(at(t), flow, &path, &quiet));
        }
        owners.truncate(2);
        owners
    }

    #[test]
    fn where_two_trials_end_alike_the_delay_is_the_paths() {
        use QueueOwner::{CrossTraffic, Path};
        assert_eq!(owners_of([0.030, 0.030]), [CrossTraffic, Path]);
        assert_eq!(owners_of([0.030, 0.034]), [CrossTraffic, CrossTraffic]);
    }

    #[test]
    fn a_longer_path_is_not_filled() {
        let mut window = CubicWindow::new(at(0), 100.0 * PACKET, 0.030, 0.5);
        let quiet = ServiceVariation::default();
        let mut owner = None;
        for t in 0..2000 {
            window.grow(at(t), &path(0.1, 0.030), true);
            // No bottleneck: what is offered is served, and the delay stays.
            let rate = window.trial_rate().unwrap_or(1000.0);
            let flow = Flow {
                lost: 0.0,
                packets: 0.0,
                offered: rate,
                served: rate,
            };
            owner = owner.or(window.look(at(t), flow, &path(0.1, 0.030), &quiet));
        }
        assert_eq!(window.window(), 100.0 * PACKET);
        assert_eq!(owner, Some(QueueOwner::Path));
        assert_eq!(window.standing_delay(), Some(0.030));
    }
}
