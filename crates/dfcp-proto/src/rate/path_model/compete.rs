//! Beside senders that fill the queue until it overflows, such as TCP.
//!
//! Who keeps a queue short beside them gets what they leave, which is next to nothing. So a sender
//! that finds itself in their queue does as they do: a window that grows as CUBIC's (RFC 9438) and
//! shrinks with congestion, until the queue is gone or turns out to be its own.
//!
//! Whose queue it is shows when a sender slows down. Alone, it is served as fast as before, and the
//! queue shrinks; with others, they get what it gave up. So [`Watch`] compares what the path serves
//! before and after with what it was offered, and [`Wobble`] knows how much the service changes by
//! itself: where that is much, as on a radio link, nothing is concluded.

use crate::time::{Duration, Instant};

/// CUBIC's constants (RFC 9438 §4.1, §4.6): packets per second cubed, and what a decrease leaves.
const CUBIC: f64 = 0.4;
const DECREASE: f64 = 0.7;
/// Growth per round trip of a window as fair as Reno's with this decrease (RFC 9438 §4.3), packets.
const RENO: f64 = 3.0 * (1.0 - DECREASE) / (1.0 + DECREASE);
/// Most that CUBIC's curve may be ahead of the window (RFC 9438 §4.4).
const MOST_AHEAD: f64 = 1.5;
/// Least window, packets.
const LEAST: f64 = 4.0;
/// Rate of a trial, as a share of the rate before.
const TRIAL_SHARE: f64 = 0.75;
/// Time between trials where nothing asks for one: doubles from the first to the last.
const FIRST_INTERVAL: Duration = Duration::from_secs(2);
const LAST_INTERVAL: Duration = Duration::from_secs(8);
/// What is offered must have changed by this to say anything: ln(1/0.87).
const TELLING: f64 = 0.14;
/// A service that follows what we send by more than this has others in it: with a share s of the
/// traffic it follows by 1 − s at least.
const FOLLOWS: f64 = 0.3;
/// And the change must be so many times what the service changes by itself.
const WOBBLES: f64 = 4.0;
/// A queue that changed by less than this and this share of the round trip is calm.
const CALM: f64 = 0.000_5;
const CALM_SHARE: f64 = 0.005;

/// What the path was offered and what it served over some time, bytes per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) offered: f64,
    pub(super) served: f64,
}

/// Whose a queue is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Whose {
    /// Ours: it is served as before though we send less.
    Own,
    /// Others keep it full.
    Others,
    /// Nobody's: what was taken for a queue is a longer path.
    Path,
}

/// How much the service changes by itself from one loop of control to the next, as a logarithm.
#[derive(Debug, Default)]
pub(super) struct Wobble {
    mean: f64,
    last: Option<(Instant, Flow)>,
}

impl Wobble {
    /// Takes the state of now; a loop of control takes `settled` seconds.
    pub(super) fn update(&mut self, now: Instant, flow: Flow, settled: f64) {
        let Some((at, before)) = self.last else {
            self.last = Some((now, flow));
            return;
        };
        let elapsed = now.saturating_since(at).as_secs_f64();
        if elapsed < settled {
            return;
        }
        if elapsed < 2.0 * settled {
            let change = (flow.served / before.served).ln();
            let asked = (flow.offered / before.offered).ln();
            // What lies between no change and what was asked for is no surprise.
            let own = change - change.clamp(asked.min(0.0), asked.max(0.0));
            self.mean += (own.abs() - self.mean) / 8.0;
        }
        self.last = Some((now, flow));
    }

    /// What was served about a loop ago, or now if that is more.
    fn most_served(&self, flow: Flow) -> f64 {
        self.last
            .map_or(flow.served, |(_, f)| f.served.max(flow.served))
    }
}

/// A look at a queue while we send less than before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    since: Instant,
    before: Flow,
    /// The most that we were served before.
    pub(super) served: f64,
    pub(super) queue: f64,
}

impl Watch {
    pub(super) fn new(now: Instant, before: Flow, queue: f64, wobble: &Wobble) -> Self {
        Self {
            since: now,
            before,
            served: wobble.most_served(before),
            queue,
        }
    }

    /// What was sent before still adds to the queue for a loop of control: begins again from there.
    pub(super) fn follow_growth(&mut self, now: Instant, flow: Flow, queue: f64, loop_time: f64) {
        let early = now.saturating_since(self.since).as_secs_f64() < loop_time + self.queue;
        if early && queue > 1.1 * self.queue + 0.001 {
            self.before.offered = self.before.offered.max(flow.offered);
            self.before.served = flow.served;
            self.queue = queue;
        }
    }

    /// Whose the queue is, once that shows: no sooner than after one and a half times `settled`.
    pub(super) fn judge(
        &self,
        now: Instant,
        flow: Flow,
        settled: f64,
        wobble: &Wobble,
    ) -> Option<Whose> {
        let elapsed = now.saturating_since(self.since).as_secs_f64();
        let change = (self.before.offered / flow.offered.max(1.0)).ln();
        if change < TELLING || elapsed < 1.5 * settled {
            return None;
        }
        let follows = (self.before.served / flow.served.max(1.0)).ln();
        Some(if follows < (FOLLOWS * change).max(WOBBLES * wobble.mean) {
            Whose::Own
        } else {
            Whose::Others
        })
    }
}

/// A window that competes.
#[derive(Debug)]
pub(super) struct Compete {
    /// Bytes.
    window: f64,
    /// CUBIC's W_max, the start of its epoch, and K; bytes and seconds.
    most: f64,
    epoch: Instant,
    k: f64,
    /// CUBIC's W_est, bytes.
    reno: f64,
    grown: Instant,
    /// Packets lost in this round.
    lost: u64,
    /// The last decrease, and what was sent until then.
    decreased: Option<(Instant, u64)>,
    /// Least and most of a queue that has not changed since. It may be a longer path, which a window
    /// that grows would only fill.
    calm: Option<(f64, f64)>,
    trial_at: Instant,
    interval: Duration,
    trial: Option<Watch>,
}

impl Compete {
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
            decreased: None,
            calm: Some((queue, queue)),
            trial_at: now + Duration::from_secs_f64(wait),
            interval: FIRST_INTERVAL,
            trial: None,
        }
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
        self.trial.map(|t| TRIAL_SHARE * t.before.served)
    }

    /// Feedback: the window grows, if it was `used` and the queue is one.
    pub(super) fn grow(&mut self, now: Instant, rtt: f64, packet: f64, queue: f64, used: bool) {
        let elapsed = now.saturating_since(self.grown).as_secs_f64();
        self.grown = now;
        self.calm = self
            .calm
            .map(|(least, most)| (least.min(queue), most.max(queue)))
            .filter(|(least, most)| most - least < CALM + CALM_SHARE * rtt);
        if !used || self.trial.is_some() || self.calm.is_some() {
            // The curve waits as well.
            self.epoch += Duration::from_secs_f64(elapsed);
            return;
        }
        let time = now.saturating_since(self.epoch).as_secs_f64() + rtt;
        let cubic = self.most + CUBIC * (time - self.k).powi(3) * packet;
        self.reno += RENO * packet * elapsed / rtt;
        let target = cubic.max(self.reno).min(MOST_AHEAD * self.window);
        if target > self.window {
            self.window += (target - self.window) * (elapsed / rtt).min(1.0);
        }
    }

    /// Packets were lost, or marked, when what was sent as byte `acked_total` is the newest
    /// acknowledged and `sent_total` bytes were sent. More than chance explains, `base` a packet,
    /// is congestion: ours and that of the others.
    pub(super) fn on_lost(&mut self, now: Instant, at: &Lost) {
        if let Some((since, sent_total)) = self.decreased {
            // Losses are found up to a quarter of a round trip after what was sent beside them.
            let early = now.saturating_since(since).as_secs_f64() < 1.5 * at.rtt;
            if early || at.acked_total < sent_total {
                self.lost = 0;
                return;
            }
        }
        self.lost += at.packets;
        let expected = at.base * self.window / at.packet;
        if at.marked || self.lost as f64 > expected + 3.0 * expected.sqrt() {
            self.decrease(now, at);
        }
    }

    fn decrease(&mut self, now: Instant, at: &Lost) {
        self.decreased = Some((now, at.sent_total));
        // Fast convergence (RFC 9438 §4.7): who has less than before leaves more.
        self.most = if self.window < self.most {
            self.window * (1.0 + DECREASE) / 2.0
        } else {
            self.window
        };
        self.window = (DECREASE * self.window).max(LEAST * at.packet);
        self.reno = self.window;
        self.k = ((self.most - self.window).max(0.0) / at.packet / CUBIC).cbrt();
        self.epoch = now;
        self.trial = None;
        // Others decrease now as well: whose the queue is shows once that is over.
        self.trial_at = now + Duration::from_secs_f64(2.0 * at.settled);
    }

    /// A round is over.
    pub(super) fn end_round(&mut self) {
        self.lost = 0;
    }

    /// Looks from time to time whose the queue is, by sending less for a moment.
    pub(super) fn watch(
        &mut self,
        now: Instant,
        flow: Flow,
        queue: f64,
        settled: f64,
        wobble: &Wobble,
    ) -> Option<Whose> {
        let Some(trial) = &self.trial else {
            if now >= self.trial_at {
                self.trial = Some(Watch::new(now, flow, queue, wobble));
            }
            return None;
        };
        let whose = trial.judge(now, flow, settled, wobble);
        let late = now.saturating_since(trial.since).as_secs_f64() > 4.0 * settled;
        if whose.is_some() || late {
            self.trial = None;
            self.trial_at = now + self.interval;
            self.interval = (self.interval * 2).min(LAST_INTERVAL);
        }
        match whose {
            Some(Whose::Others) if self.calm.is_some() => Some(Whose::Path),
            whose => whose,
        }
    }
}

/// Losses and marks in one feedback, and what is known then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lost {
    pub(super) packets: u64,
    pub(super) marked: bool,
    pub(super) acked_total: u64,
    pub(super) sent_total: u64,
    /// Loss that is the path's own.
    pub(super) base: f64,
    pub(super) packet: f64,
    pub(super) rtt: f64,
    pub(super) settled: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: f64 = 1500.0;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn flow(offered: f64, served: f64) -> Flow {
        Flow { offered, served }
    }

    #[test]
    fn a_queue_is_whose_who_gets_what_we_give_up() {
        let quiet = Wobble::default();
        let watch = Watch::new(at(0), flow(110.0, 100.0), 0.010, &quiet);
        let judge = |offered, served| watch.judge(at(300), flow(offered, served), 0.1, &quiet);
        assert_eq!(judge(75.0, 100.0), Some(Whose::Own));
        assert_eq!(judge(75.0, 75.0), Some(Whose::Others));
        // Half of the traffic is ours: 0.375 of 0.875 instead of a half.
        assert_eq!(judge(75.0, 86.0), Some(Whose::Others));
        assert_eq!(judge(105.0, 90.0), None, "too small a change to tell");
        let early = watch.judge(at(100), flow(75.0, 75.0), 0.1, &quiet);
        assert_eq!(early, None, "not yet to be seen");
    }

    #[test]
    fn a_service_that_changes_by_itself_says_nothing() {
        let mut wobble = Wobble::default();
        for i in 0..100 {
            let served = if i % 2 == 0 { 100.0 } else { 70.0 };
            wobble.update(at(100 * i), flow(100.0, served), 0.1);
        }
        let watch = Watch::new(at(0), flow(100.0, 100.0), 0.010, &wobble);
        let whose = watch.judge(at(300), flow(75.0, 75.0), 0.1, &wobble);
        assert_eq!(whose, Some(Whose::Own));
    }

    /// Feedback every millisecond for so long, with a queue that changes.
    fn grow(compete: &mut Compete, from: u64, to: u64) {
        for t in from..to {
            let queue = if t % 2 == 0 { 0.010 } else { 0.020 };
            compete.grow(at(t), 0.05, PACKET, queue, true);
        }
    }

    fn lost(packets: u64, acked_total: u64, sent_total: u64, base: f64) -> Lost {
        Lost {
            packets,
            marked: false,
            acked_total,
            sent_total,
            base,
            packet: PACKET,
            rtt: 0.05,
            settled: 0.1,
        }
    }

    #[test]
    fn the_window_is_cubics() {
        let mut compete = Compete::new(at(0), 1000.0 * PACKET, 0.010, 100.0);
        compete.on_lost(at(0), &lost(1, 0, 1000, 0.0));
        assert_eq!(compete.window(), 700.0 * PACKET);
        // K = (300 ÷ 0.4)^(1/3) = 9.09 s: back at what it was, and at first fast.
        grow(&mut compete, 1, 3000);
        assert!(compete.window() > 890.0 * PACKET, "{}", compete.window());
        grow(&mut compete, 3000, 9090);
        assert!((compete.window() / PACKET - 1000.0).abs() < 2.0);
        grow(&mut compete, 9090, 14000);
        assert!(compete.window() > 1040.0 * PACKET);
    }

    #[test]
    fn one_round_trip_shrinks_the_window_once() {
        let mut compete = Compete::new(at(0), 1000.0 * PACKET, 0.010, 100.0);
        compete.on_lost(at(10), &lost(5, 100, 1000, 0.0));
        compete.on_lost(at(30), &lost(5, 500, 1500, 0.0));
        compete.on_lost(at(90), &lost(5, 900, 1500, 0.0));
        assert_eq!(compete.window(), 700.0 * PACKET, "sent before the first");
        compete.on_lost(at(120), &lost(1, 1200, 1700, 0.0));
        assert_eq!(compete.window(), 490.0 * PACKET);
    }

    #[test]
    fn losses_of_the_path_do_not_shrink_the_window() {
        let mut compete = Compete::new(at(0), 1000.0 * PACKET, 0.010, 100.0);
        compete.on_lost(at(10), &lost(25, 100, 1000, 0.02));
        assert_eq!(compete.window(), 1000.0 * PACKET);
        compete.on_lost(at(20), &lost(15, 100, 1000, 0.02));
        assert!(compete.window() < 1000.0 * PACKET);
    }

    #[test]
    fn a_longer_path_is_not_filled() {
        let mut compete = Compete::new(at(0), 100.0 * PACKET, 0.030, 0.5);
        let quiet = Wobble::default();
        let mut whose = None;
        for t in 0..2000 {
            compete.grow(at(t), 0.1, PACKET, 0.030, true);
            // No bottleneck: what is offered is served, and the delay stays.
            let rate = compete.trial_rate().unwrap_or(1000.0);
            whose = whose.or(compete.watch(at(t), flow(rate, rate), 0.030, 0.2, &quiet));
        }
        assert_eq!(compete.window(), 100.0 * PACKET);
        assert_eq!(whose, Some(Whose::Path));
    }
}
