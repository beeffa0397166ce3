//! Controllers on a path that is known exactly: one FIFO queue, cross traffic as a fluid. The loop
//! here does what a sender does: asks for the departure, obeys the pacer, answers what asks for it.

use super::*;
use crate::packet::{Pacer, RttEstimator};

const PACKET: u64 = 1472;
const MBIT: u64 = 1_000_000;
/// Seconds of a phantom queue beyond which it marks.
const PHANTOM_MARK: f64 = 0.001;

/// A tight link and what else there is on the way.
#[derive(Clone, Copy, Debug)]
struct Path {
    capacity: Rate,
    cross: Rate,
    /// Longest queue, as time; what would wait longer is dropped.
    buffer: Duration,
    /// Packets that waited longer are marked.
    mark: Duration,
    /// Share of the capacity at which packets are marked though none wait (a phantom queue).
    phantom: f64,
    /// The way there and back without a queue.
    rtt: Duration,
    /// One packet in so many is lost behind the link.
    lose: u64,
    /// How far the receiver's clock is ahead.
    ahead: Duration,
    /// One packet in so many is answered.
    answer: u64,
}

impl Path {
    fn new(capacity_mbit: u64, cross_mbit: u64) -> Self {
        Self {
            capacity: Rate::from_bps(capacity_mbit * MBIT),
            cross: Rate::from_bps(cross_mbit * MBIT),
            buffer: Duration::from_millis(20),
            mark: Duration::MAX,
            phantom: f64::INFINITY,
            rtt: Duration::from_millis(20),
            lose: u64::MAX,
            ahead: Duration::from_secs(77),
            answer: 16,
        }
    }
}

/// An answer on its way back.
#[derive(Clone, Copy, Debug)]
struct Answer {
    at: Instant,
    ack: AckPoint,
    arrived: u64,
    lost: u64,
    marked: u64,
}

struct Sender {
    control: Box<dyn RateController>,
    path: Path,
    pacer: Pacer,
    rtt: RttEstimator,
    now: Instant,
    /// Seconds of queue at the link, and when.
    queue: (f64, Instant),
    /// Seconds of the phantom queue, as of then.
    phantom: f64,
    sent: u64,
    delivered: u64,
    packets: u64,
    /// Not reported yet.
    arrived: u64,
    lost: u64,
    marked: u64,
    answers: std::collections::VecDeque<Answer>,
    /// What there is to send: this rate since then, or as much as may leave.
    app: Option<(Rate, Instant, u64)>,
    /// Bytes sent when there last was nothing to send.
    idle: u64,
}

impl Sender {
    fn new(mut control: Box<dyn RateController>, path: Path) -> Self {
        let now = Instant::from_nanos(5_000_000_000);
        control.on_established(now, path.rtt, PACKET);
        let mut pacer = Pacer::new(now, control.initial_burst(), PACKET);
        pacer.set(now, control.pacing_rate(), PACKET);
        Self {
            control,
            path,
            pacer,
            rtt: RttEstimator::default(),
            now,
            queue: (0.0, now),
            phantom: 0.0,
            sent: 0,
            delivered: 0,
            packets: 0,
            arrived: 0,
            lost: 0,
            marked: 0,
            answers: std::collections::VecDeque::new(),
            app: None,
            idle: 0,
        }
    }

    /// Runs for `time` and returns the rate sent, in Mbit/s.
    fn run(&mut self, time: Duration) -> f64 {
        let (from, end) = (self.sent, self.now + time);
        while self.now < end {
            let next = self.control.departure().at;
            let next = next.or_else(|| self.pacer.next_departure()).unwrap_or(end);
            let next = next.max(self.written_at());
            let answer = self.answers.front().map_or(end, |a| a.at);
            self.now = next.min(answer).max(self.now).min(end);
            if answer <= self.now {
                self.take_answer();
            } else if next <= self.now {
                self.send();
            }
        }
        (self.sent - from) as f64 * 8.0 / time.as_secs_f64() / MBIT as f64
    }

    /// When there is another packet to send.
    fn written_at(&self) -> Instant {
        self.app.map_or(Instant::ZERO, |(rate, since, before)| {
            since + rate.time_for(self.sent + PACKET - before)
        })
    }

    fn send(&mut self) {
        loop {
            if self.written_at() > self.now {
                self.idle = self.sent;
                return;
            }
            let departure = self.control.departure();
            let may = match departure.at {
                Some(at) => at <= self.now,
                None => self.pacer.available(self.now) >= PACKET,
            };
            if !may {
                return;
            }
            self.sent += PACKET;
            self.packets += 1;
            self.pacer.consume(PACKET);
            self.transfer(departure.immediate_ack || self.packets.is_multiple_of(self.path.answer));
            self.control.on_sent(self.now, self.sent);
            let rate = self.control.pacing_rate();
            self.pacer.set(self.now, rate, PACKET);
        }
    }

    /// Through the link, and the answer back if there is one.
    fn transfer(&mut self, answered: bool) {
        let path = self.path;
        let (queue, since) = self.queue;
        let passed = self.now.saturating_since(since).as_secs_f64();
        let load = path.cross.as_bps() as f64 / path.capacity.as_bps() as f64;
        let full = path.buffer.as_secs_f64();
        let queue = (queue + (load - 1.0) * passed).clamp(0.0, full);
        let own = path.capacity.time_for(PACKET).as_secs_f64();
        let fits = queue + own <= full;
        self.queue = (if fits { queue + own } else { queue }, self.now);
        self.phantom = (self.phantom - passed).max(0.0) + own / path.phantom;
        if !fits || self.packets.is_multiple_of(path.lose) {
            self.lost += 1;
            return;
        }
        let marked = queue > path.mark.as_secs_f64() || self.phantom > PHANTOM_MARK;
        self.marked += u64::from(marked);
        self.delivered += PACKET;
        self.arrived += 1;
        if !answered {
            return;
        }
        let wait = Duration::from_secs_f64(queue + own);
        let arrives = self.now + wait + path.rtt / 2;
        let clock = Duration::from_nanos(arrives.as_nanos()) + path.ahead;
        self.answers.push_back(Answer {
            at: arrives + path.rtt / 2,
            ack: AckPoint::new(clock, self.now, self.sent, self.delivered),
            arrived: std::mem::take(&mut self.arrived),
            lost: std::mem::take(&mut self.lost),
            marked: std::mem::take(&mut self.marked),
        });
    }

    fn take_answer(&mut self) {
        let Some(answer) = self.answers.pop_front() else {
            return;
        };
        let sample = self.now.saturating_since(answer.ack.sent_at);
        self.rtt.update(sample, Duration::ZERO);
        let mut feedback = Feedback::new(self.now, &self.rtt);
        feedback.newest = Some(answer.ack);
        feedback.acked_packets = answer.arrived;
        feedback.lost_packets = answer.lost;
        feedback.ce_packets = answer.marked;
        (feedback.idle_total, feedback.app_limited_total) = (self.idle, self.idle);
        self.control.on_feedback(&feedback);
        let rate = self.control.pacing_rate();
        self.pacer.set(self.now, rate, PACKET);
    }

    /// Seconds of queue now.
    fn queue(&self) -> f64 {
        self.queue.0
    }
}

const SECOND: Duration = Duration::from_secs(1);

fn probing(overestimate: f64) -> [(&'static str, Box<dyn RateController>); 2] {
    [
        ("gap", Box::new(ProbeGap::new(overestimate))),
        ("rate", Box::new(ProbeRate::new(overestimate))),
    ]
}

#[test]
fn probes_find_what_the_others_leave() {
    for cross in [0, 30, 60, 90] {
        for (name, control) in probing(0.0) {
            let mut sender = Sender::new(control, Path::new(100, cross));
            sender.run(2 * SECOND);
            let rate = sender.run(3 * SECOND);
            let available = (100 - cross) as f64;
            assert!(
                (rate / available - 1.0).abs() < 0.1,
                "{name}: {rate:.1} of {available} Mbit/s"
            );
        }
    }
}

#[test]
fn a_change_is_followed_within_a_second() {
    for (name, control) in probing(0.05) {
        let mut sender = Sender::new(control, Path::new(100, 30));
        sender.run(2 * SECOND);
        for cross in [70, 10] {
            sender.path.cross = Rate::from_bps(cross * MBIT);
            sender.run(SECOND);
            let rate = sender.run(SECOND);
            let available = (100 - cross) as f64;
            assert!(
                (rate / available - 1.0).abs() < 0.15,
                "{name}: {rate:.1} of {available} Mbit/s"
            );
        }
    }
}

#[test]
fn loss_of_the_path_is_no_congestion_to_probes() {
    for (name, control) in probing(0.0) {
        let path = Path {
            lose: 5,
            ..Path::new(100, 30)
        };
        let mut sender = Sender::new(control, path);
        sender.run(2 * SECOND);
        let rate = sender.run(3 * SECOND);
        assert!((63.0..77.0).contains(&rate), "{name}: {rate:.1} Mbit/s");
    }
}

#[test]
fn who_has_less_to_send_than_the_rate_allows_does_not_flood_a_path_that_became_slower() {
    let mut sender = Sender::new(Box::new(PathModel::new()), Path::new(100, 0));
    sender.run(3 * SECOND);
    // A live stream of 80 Mbit/s, for which the path has room, and then has not.
    sender.app = Some((Rate::from_bps(80 * MBIT), sender.now, sender.sent));
    let rate = sender.run(3 * SECOND);
    assert!((78.0..82.0).contains(&rate), "{rate:.1} Mbit/s");
    sender.path.capacity = Rate::from_bps(50 * MBIT);
    sender.path.answer = 13; // not always one that the full queue drops
    sender.run(2 * SECOND);
    let delivered = sender.delivered;
    let sent = sender.run(3 * SECOND);
    let delivered = (sender.delivered - delivered) as f64 * 8.0 / 3.0 / MBIT as f64;
    assert!(
        delivered > 45.0 && sent < 1.05 * delivered,
        "{sent:.1} Mbit/s sent, {delivered:.1} delivered"
    );
}

#[test]
fn a_known_capacity_is_not_asked_for() {
    let mut control = ProbeGap::with_capacity(0.0, Rate::from_bps(100 * MBIT));
    let now = Instant::ZERO;
    control.on_established(now, SECOND, PACKET);
    control.on_sent(now, PACKET);
    let gap = Rate::from_bps(100 * MBIT).time_for(PACKET);
    assert_eq!(control.departure().at, Some(now + gap));
    assert!(control.departure().immediate_ack);
}

#[test]
fn an_overestimate_is_added_to_the_estimate() {
    for (name, control) in probing(0.25) {
        let path = Path {
            // Too long to fill: the overestimate shows as such.
            buffer: 100 * SECOND,
            ..Path::new(100, 50)
        };
        let mut sender = Sender::new(control, path);
        sender.run(SECOND);
        sender.path.cross = Rate::from_bps(50 * MBIT);
        let rate = sender.run(SECOND);
        let ratio = rate * MBIT as f64 / sender.control.bandwidth().as_bps() as f64;
        assert!((1.15..1.35).contains(&ratio), "{name}: {ratio:.2}");
    }
}

#[test]
fn marks_cut_the_rate_though_nothing_waits() {
    let path = Path {
        phantom: 0.8,
        answer: 2,
        ..Path::new(100, 0)
    };
    let mut sender = Sender::new(Box::new(PathModel::new()), path);
    sender.run(5 * SECOND);
    // Cuts come in cycles of several seconds, which begin anywhere.
    let rate = sender.run(80 * SECOND);
    assert!((0.75 * 80.0..80.0).contains(&rate), "{rate:.1} Mbit/s");
    let fifths = (0..50).map(|_| sender.run(SECOND / 5));
    let highest = fifths.fold(0.0, f64::max);
    assert!(highest < 1.08 * 80.0, "{highest:.1} Mbit/s");
}

#[test]
fn marks_hold_the_queue_at_their_threshold() {
    for lose in [u64::MAX, 100] {
        let path = Path {
            mark: Duration::from_millis(4),
            lose,
            ..Path::new(100, 20)
        };
        let mut sender = Sender::new(Box::new(Marked::new()), path);
        sender.run(3 * SECOND);
        let rate = sender.run(5 * SECOND);
        assert!(rate > 0.9 * 80.0, "one in {lose} lost: {rate:.1} Mbit/s");
        let mut longest = 0.0_f64;
        for _ in 0..1000 {
            sender.run(Duration::from_millis(3));
            longest = longest.max(sender.queue());
        }
        assert!(longest < 0.012, "one in {lose} lost: {longest:.4} s");
    }
}

#[test]
fn without_marks_lost_packets_count() {
    let mut sender = Sender::new(Box::new(Marked::new()), Path::new(100, 20));
    sender.run(3 * SECOND);
    let (delivered, sent) = (sender.delivered, sender.sent);
    let rate = sender.run(5 * SECOND);
    assert!((70.0..90.0).contains(&rate), "{rate:.1} Mbit/s");
    let share = (sender.delivered - delivered) as f64 / (sender.sent - sent) as f64;
    assert!(share > 0.9, "{share:.3} of the packets arrive");
}

#[test]
fn silence_is_not_flooded() {
    let all = probing(0.05).into_iter().map(|(_, control)| control);
    for control in all.chain([Box::new(Marked::new()) as Box<dyn RateController>]) {
        let name = format!("{control:?}");
        let name = name.split([' ', '{']).next().unwrap_or_default().to_owned();
        let mut sender = Sender::new(control, Path::new(100, 0));
        let before = sender.run(3 * SECOND);
        assert!(before > 50.0, "{name}: {before:.1} Mbit/s");
        sender.path.buffer = Duration::ZERO; // nothing gets through
        let sent = sender.sent;
        sender.run(60 * SECOND);
        // Half a second at the full rate, then half of it, and so on: less than 1.5 s of it.
        let share = (sender.sent - sent) as f64 * 8.0 / (before * MBIT as f64);
        assert!(share < 1.5, "{name}: as much as in {share:.2} s");
        sender.path.buffer = Duration::from_millis(20);
        sender.run(3 * SECOND);
        let after = sender.run(SECOND);
        assert!(after > 50.0, "{name}: {after:.1} Mbit/s when it is back");
    }
}

#[test]
fn claims_do_not_raise_the_rate_beyond_what_arrives() {
    for (name, mut control) in probing(0.0) {
        let now = Instant::from_nanos(1_000_000_000);
        control.on_established(now, Duration::from_millis(20), PACKET);
        let rtt = RttEstimator::default();
        let mut sent = 0;
        // One packet a millisecond, 11.8 Mbit/s. The receiver says that all came at once.
        for ms in 0..4000 {
            let now = now + Duration::from_millis(ms);
            sent += PACKET;
            control.on_sent(now, sent);
            let mut feedback = Feedback::new(now, &rtt);
            let claim = Duration::from_nanos(ms);
            feedback.newest = Some(AckPoint::new(claim, now, sent, u64::MAX / 2));
            feedback.acked_packets = 1;
            control.on_feedback(&feedback);
        }
        let rate = control.pacing_rate().as_bps() as f64 / MBIT as f64;
        assert!(rate < 4.1 * 11.8, "{name}: {rate:.1} Mbit/s");
    }
}

/// What a sender is told of its packets in order: when each left, when feedback on it came, and when the receiver
/// says that it arrived. Then nothing more: four timeouts. What may be in flight stays within the first flight and
/// `times` what arrived, and as much again in the silence.
fn window_stays_within(
    times: u64,
    rtt: Duration,
    told: impl Iterator<Item = (Instant, Instant, Duration)>,
) {
    let mut control = PathModel::new();
    control.on_established(Instant::from_nanos(1_000_000_000), rtt, PACKET);
    let mut estimator = RttEstimator::default();
    estimator.update(rtt, Duration::ZERO);
    let first = control.window();
    let (mut arrived, mut last) = (0, Instant::ZERO);
    for (left, now, claim) in told {
        arrived += PACKET;
        last = now;
        control.on_sent(left, arrived);
        estimator.update(now.saturating_since(left), Duration::ZERO);
        let mut feedback = Feedback::new(now, &estimator);
        feedback.newest = Some(AckPoint::new(claim, left, arrived, arrived));
        feedback.acked_packets = 1;
        control.on_feedback(&feedback);
        let window = control.window();
        assert!(
            window <= first + times * arrived,
            "{} packets after {}",
            window / PACKET,
            arrived / PACKET
        );
    }
    for count in 1..=4 {
        control.on_timeout(last + rtt * (3 * count), count);
    }
    let (window, most) = (control.window(), 2 * (first + times * arrived));
    assert!(window <= most, "{} packets in silence", window / PACKET);
}

/// The first packets arrived at once, says the receiver, and those after them late. What may be in flight
/// follows what arrived by the sender's own clock, in the silence after that as well.
#[test]
fn before_a_round_trip_is_known_no_claim_opens_the_window() {
    let (start, rtt) = (
        Instant::from_nanos(1_000_000_000),
        Duration::from_millis(20),
    );
    let told = (1..=32).map(|count| {
        let claim = match count {
            0..=24 => Duration::from_nanos(count),
            _ => Duration::from_millis(40 + count),
        };
        (start, start + rtt + Duration::from_micros(count), claim)
    });
    window_stays_within(12, rtt, told);
}

/// A receiver acknowledges much at first, and then ever less of what left long ago: the round trip, which it makes
/// as long as it likes, opens no window.
#[test]
fn a_receiver_that_answers_ever_later_opens_no_window() {
    let start = Instant::from_nanos(1_000_000_000);
    let rtt = Duration::from_millis(5);
    let mut now = start + rtt;
    let told = (1..=140).map(|count| {
        now += Duration::from_micros(if count <= 100 { 500 } else { 10_000 });
        let late = Duration::from_millis(if count <= 24 { 0 } else { 40 + count });
        (start, now, late + Duration::from_nanos(count))
    });
    window_stays_within(12, rtt, told);
}

/// While start-up lasts, however many round trips that are, three times what arrived may be in flight beyond the
/// first flight: the receiver was slow first, and says then that much arrived at once.
#[test]
fn in_start_up_no_claim_opens_the_window() {
    let rtt = Duration::from_millis(200);
    let (mut now, mut claim) = (Instant::from_nanos(1_000_000_000) + rtt, Duration::ZERO);
    let told = (1..=300).map(|count| {
        let is_slow = count <= 50;
        now += Duration::from_micros(if is_slow { 10_000 } else { 1 });
        claim += Duration::from_nanos(if is_slow { 10_000_000 } else { 100 });
        (now - rtt, now, claim)
    });
    window_stays_within(3, rtt, told);
}

/// A queue that others fill marks the first packets already, before start-up has seen a rate.
#[test]
fn a_mark_on_the_first_packet_leaves_a_rate() {
    for response in [MarkResponse::Classic, MarkResponse::Scalable] {
        let mut control = PathModel::new().with_marks(response);
        let rtt = Duration::from_millis(20);
        control.on_established(Instant::ZERO, rtt, PACKET);
        let mut estimator = RttEstimator::default();
        estimator.update(rtt, Duration::ZERO);
        for count in 1..=4 {
            let (sent, now) = (count * PACKET, Instant::ZERO + rtt * count as u32);
            control.on_sent(now - rtt, sent);
            let mut feedback = Feedback::new(now, &estimator);
            feedback.newest = Some(AckPoint::new(rtt * count as u32, now - rtt, sent, sent));
            (feedback.acked_packets, feedback.ce_packets) = (1, u64::from(count == 1));
            control.on_feedback(&feedback);
        }
        // A quarter of the 32 packets with which it began.
        let per_round_trip = control.pacing_rate().bytes_in(rtt) / PACKET;
        assert!(
            per_round_trip >= 8,
            "{response:?}: {per_round_trip} packets"
        );
    }
}

#[test]
fn orders_are_obeyed_from_the_first_on() {
    let mut control = Ordered::new(Rate::from_bps(5 * MBIT));
    control.on_established(Instant::ZERO, Duration::from_millis(20), PACKET);
    assert_eq!(control.pacing_rate(), Rate::from_bps(5 * MBIT));
    control.on_order(Instant::ZERO, Rate::from_bps(400 * MBIT));
    assert_eq!(control.pacing_rate(), Rate::from_bps(400 * MBIT));
    // Without answers, four round trips of it.
    let window = 400 * MBIT / 8 * 4 / 50 + 64 * PACKET;
    assert_eq!(control.window(), window);
}

#[test]
fn loss_of_the_path_does_not_end_the_search_for_its_rate() {
    for lose in [5, 7, 10, 13] {
        // Answers too rare to show how the path spreads the first packets.
        let path = Path {
            lose,
            answer: 23,
            rtt: Duration::from_millis(50),
            ..Path::new(500, 0)
        };
        let mut sender = Sender::new(Box::new(PathModel::new()), path);
        let rates: Vec<f64> = (0..14).map(|_| sender.run(path.rtt)).collect();
        let found = rates.iter().any(|rate| *rate > 400.0);
        assert!(found, "one in {lose} lost: {rates:.0?} Mbit/s");
    }
}
