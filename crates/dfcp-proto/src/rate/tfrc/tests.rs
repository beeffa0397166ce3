//! TFRC as a receiver's reports drive it.

use super::*;
use crate::packet::RttEstimator;
use crate::rate::AckPoint;

const PACKET: u64 = 1000;
const RTT: Duration = Duration::from_millis(100);

/// A sender that gets a report each round trip.
struct Sender {
    tfrc: Tfrc,
    rtt: RttEstimator,
    now: Instant,
    sent: u64,
    delivered: u64,
}

impl Sender {
    fn new(specification: Specification) -> Self {
        let mut tfrc = Tfrc::new(specification, OscillationReduction::Off);
        let now = Instant::from_nanos(1_000_000_000);
        tfrc.on_established(now, RTT, PACKET);
        let mut rtt = RttEstimator::default();
        rtt.update(RTT, Duration::ZERO);
        Self {
            tfrc,
            rtt,
            now,
            sent: 0,
            delivered: 0,
        }
    }

    /// Bytes per second.
    fn rate(&self) -> f64 {
        self.tfrc.pacing_rate().as_bps() as f64 / 8.0
    }

    /// Sends for a round trip at its rate, of which `bytes` arrive, and gets this report.
    fn round(&mut self, bytes: u64, report: Option<PathReport>) {
        let sent = (self.rate() * RTT.as_secs_f64()) as u64;
        self.sent += sent;
        let sent_at = self.now;
        self.tfrc.on_sent(self.now, self.sent);
        self.now += RTT;
        self.delivered += bytes.min(sent);
        let mut feedback = Feedback::new(self.now, &self.rtt);
        let received = self.now.saturating_since(Instant::ZERO);
        feedback.newest = Some(AckPoint::new(received, sent_at, self.sent, self.delivered));
        feedback.acked_packets = bytes.min(sent) / PACKET;
        feedback.path = report;
        self.tfrc.on_feedback(&feedback);
    }

    /// A round in which everything arrives and the receiver says so, with loss event rate `p`.
    fn honest(&mut self, p: f64) {
        let receive_rate = self.rate();
        let report = PathReport {
            receive_rate,
            loss_event_rate: p,
        };
        self.round(u64::MAX, Some(report));
    }
}

#[test]
fn slow_start_doubles_each_round_trip_from_the_initial_rate() {
    let mut new = Sender::new(Specification::Rfc5348);
    assert_eq!(
        new.rate(),
        40_000.0,
        "four packets of 1000 bytes per 100 ms"
    );
    let mut old = Sender::new(Specification::Rfc3448);
    assert_eq!(old.rate(), 10_000.0);
    for _ in 0..5 {
        new.honest(0.0);
        old.honest(0.0);
    }
    assert_eq!(new.rate(), 32.0 * 40_000.0);
    assert_eq!(old.rate(), 32.0 * 10_000.0);
}

#[test]
fn slow_start_stops_at_twice_what_arrives() {
    let mut sender = Sender::new(Specification::Rfc5348);
    for _ in 0..20 {
        let report = PathReport {
            receive_rate: 100_000.0,
            loss_event_rate: 0.0,
        };
        sender.round(10_000, Some(report));
    }
    assert_eq!(sender.rate(), 200_000.0);
}

#[test]
fn with_loss_the_rate_is_the_equation_s() {
    for specification in [Specification::Rfc5348, Specification::Rfc3448] {
        let mut sender = Sender::new(specification);
        (0..6).for_each(|_| sender.honest(0.0));
        (0..3).for_each(|_| sender.honest(0.01));
        assert!((sender.rate() - 112_332.0).abs() < 2.0, "{}", sender.rate());
    }
}

#[test]
fn without_reports_the_sender_finds_the_same_by_itself() {
    let mut sender = Sender::new(Specification::Rfc5348);
    (0..4).for_each(|_| sender.round(u64::MAX, None));
    assert!(
        sender.rate() >= 8.0 * 40_000.0,
        "slow start: {}",
        sender.rate()
    );
    // From now on every hundredth packet is lost, an event of its own.
    let (mut packets, mut rates) = (0.0, Vec::new());
    for _ in 0..2000 {
        packets += sender.rate() * RTT.as_secs_f64() / PACKET as f64;
        if packets >= 100.0 {
            packets -= 100.0;
            let mut feedback = Feedback::new(sender.now, &sender.rtt);
            feedback.lost_packets = 1;
            sender.tfrc.on_feedback(&feedback);
        }
        sender.round(u64::MAX, None);
        rates.push(sender.rate());
    }
    let late = &rates[1000..];
    let mean = late.iter().sum::<f64>() / late.len() as f64;
    assert!((mean / 112_332.0 - 1.0).abs() < 0.1, "{mean}");
}

#[test]
fn silence_halves_the_rate_each_time_the_timer_expires() {
    let mut sender = Sender::new(Specification::Rfc5348);
    (0..5).for_each(|_| sender.honest(0.0));
    let full = sender.rate();
    let mut send_at = |ms: u64| {
        let now = sender.now + Duration::from_millis(ms);
        sender.tfrc.on_sent(now, sender.sent);
        sender.tfrc.pacing_rate().as_bps() as f64 / 8.0
    };
    assert_eq!(send_at(399), full);
    assert_eq!(send_at(401), full / 2.0, "after four round trips");
    assert_eq!(send_at(801), full / 4.0);
    // A blackout of minutes, in which it goes on probing, leaves one packet in 64 seconds.
    let last = (1..600).map(|second| send_at(1000 * second)).last();
    assert!(
        last.is_some_and(|rate| (rate - 1000.0 / 64.0).abs() < 1.0),
        "{last:?}"
    );
}

#[test]
fn with_loss_silence_halves_the_rate_too() {
    let mut sender = Sender::new(Specification::Rfc3448);
    (0..6).for_each(|_| sender.honest(0.0));
    (0..3).for_each(|_| sender.honest(0.01));
    let full = sender.rate();
    sender.tfrc.on_sent(sender.now, sender.sent);
    sender
        .tfrc
        .on_sent(sender.now + Duration::from_millis(401), sender.sent);
    assert!(
        (sender.rate() / full - 0.5).abs() < 0.01,
        "{}",
        sender.rate()
    );
}

#[test]
fn absurd_reports_are_cut_to_what_was_delivered_and_counted() {
    let forged = [
        (f64::NAN, f64::NAN),
        (f64::INFINITY, -1.0),
        (1e300, 2.0),
        (-5.0, f64::INFINITY),
    ];
    for (receive_rate, loss_event_rate) in forged {
        let mut sender = Sender::new(Specification::Rfc5348);
        for _ in 0..100 {
            let report = PathReport {
                receive_rate,
                loss_event_rate,
            };
            // 100 kB/s arrive, whatever the receiver says.
            sender.round(10_000, Some(report));
            let most = 2.0 * REPORT_SLACK * (100_000.0 + 40_000.0);
            assert!(sender.rate() <= most, "{receive_rate}: {}", sender.rate());
            assert!(sender.tfrc.pacing_rate() > Rate::ZERO);
        }
        assert!(sender.tfrc.refused_reports() > 50);
    }
}

#[test]
fn a_receiver_cannot_deny_the_loss_that_acknowledgements_show() {
    let mut sender = Sender::new(Specification::Rfc5348);
    for round in 0..500 {
        if round > 5 && round % 5 == 0 {
            let mut feedback = Feedback::new(sender.now, &sender.rtt);
            feedback.lost_packets = 1;
            sender.tfrc.on_feedback(&feedback);
        }
        let report = PathReport {
            receive_rate: sender.rate(),
            loss_event_rate: 0.0,
        };
        sender.round(10_000, Some(report));
    }
    assert!(sender.tfrc.refused_reports() > 100);
    let own = sender.tfrc.own.loss_event_rate();
    let most = tcp_throughput(PACKET as f64, RTT, own / REPORT_SLACK);
    assert!(sender.rate() <= most * 1.001, "{} {most}", sender.rate());
}

#[test]
fn a_sender_with_little_to_say_keeps_its_rate_by_rfc_5348() {
    let mut sender = Sender::new(Specification::Rfc5348);
    (0..6).for_each(|_| sender.honest(0.0));
    let full = sender.rate();
    for _ in 0..10 {
        sender.sent += PACKET;
        sender.tfrc.on_sent(sender.now, sender.sent);
        let sent_at = sender.now;
        sender.now += RTT;
        sender.delivered += PACKET;
        let mut feedback = Feedback::new(sender.now, &sender.rtt);
        feedback.newest = Some(AckPoint::new(RTT, sent_at, sender.sent, sender.delivered));
        feedback.idle_total = sender.sent;
        feedback.acked_packets = 1;
        feedback.path = Some(PathReport {
            receive_rate: 10_000.0,
            loss_event_rate: 0.0,
        });
        sender.tfrc.on_feedback(&feedback);
    }
    assert!(sender.rate() >= full, "{} {full}", sender.rate());
}
