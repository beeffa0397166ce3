use super::*;
use crate::rate::path_model::loss::PathLoss;
use crate::time::Duration;

const PACKET: f64 = 1500.0;
/// Bytes per second.
const RATE: f64 = 12.5e6;

/// A path of 50 ms that loses by itself in bursts and carries no more than `capacity`.
struct Path {
    capacity: f64,
    loss: f64,
    burst: f64,
    state: u64,
    is_bad: bool,
    sent: u64,
    delivered: f64,
}

impl Path {
    fn new(capacity: f64, loss: f64, burst: f64, seed: u64) -> Self {
        Self {
            capacity,
            loss,
            burst,
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            is_bad: false,
            sent: 0,
            delivered: 0.0,
        }
    }

    /// Xorshift (Marsaglia 2003), 0 to 1.
    fn random(&mut self) -> f64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) as f64 / (1u64 << 53) as f64
    }

    /// One packet at `rate`: the sample that its acknowledgement would give.
    fn packet(&mut self, time: f64, rate: f64) -> AckPoint {
        let leave = 1.0 / self.burst;
        let enter = leave * self.loss / (1.0 - self.loss);
        let change = if self.is_bad { leave } else { enter };
        if self.random() < change {
            self.is_bad = !self.is_bad;
        }
        let refused = self.random() > self.capacity / rate;
        self.sent += PACKET as u64;
        if !self.is_bad && !refused {
            self.delivered += PACKET;
        }
        let at = Duration::from_secs_f64(time);
        let sent_at = Instant::ZERO + at;
        AckPoint::new(at, sent_at, self.sent, self.delivered as u64)
    }
}

/// Rounds at [`RATE`] until there is an alarm, then a test: its verdict.
fn verdict(path: &mut Path) -> Option<LossCause> {
    verdict_at(path, RATE)
}

fn verdict_at(path: &mut Path, asked: f64) -> Option<LossCause> {
    let (mut loss, mut time) = (PathLoss::default(), 0.0);
    let mut start = path.packet(time, asked);
    let mut test: Option<LossTest> = None;
    for count in 0..400_000u64 {
        let rate = test.as_ref().map_or(asked, LossTest::rate);
        time += PACKET / rate;
        let now = Instant::ZERO + Duration::from_secs_f64(time);
        let ack = path.packet(time, rate);
        if let Some(test) = &mut test {
            test.on_sent(path.sent, 0.05, 0.0, PACKET);
            if let Some(cause) = test.on_ack(now, ack, PACKET) {
                return Some(cause);
            }
        } else if count % 416 == 415 {
            let round = Stretch::between(&start, &ack, PACKET);
            start = ack;
            loss.end_round(&round, false);
            if loss.is_excessive() && loss.may_test(now) {
                let delivered = round.delivered / round.seconds;
                test = Some(LossTest::new(
                    now,
                    asked,
                    delivered,
                    loss.alarm(),
                    path.sent,
                ));
            }
        }
    }
    None
}

#[test]
fn loss_of_the_path_is_told_from_congestion_whatever_its_bursts() {
    let (mut wrong, mut all) = (0, 0);
    for (loss, burst) in [
        (0.05, 1.0),
        (0.2, 1.0),
        (0.09, 12.0),
        (0.2, 12.0),
        (0.09, 50.0),
    ] {
        for seed in 1..=20 {
            let cause = verdict(&mut Path::new(f64::INFINITY, loss, burst, seed));
            all += 1;
            wrong += u32::from(matches!(cause, Some(LossCause::Congestion(_))));
        }
    }
    // Few pairs and their own scatter: one test in fifteen errs. Eight losses, less than a burst,
    // erred in half.
    assert!(wrong * 10 <= all, "{wrong} of {all} blamed the sender");
}

#[test]
fn congestion_is_found_beside_the_paths_own_loss() {
    for (loss, burst) in [(0.001, 1.0), (0.1, 1.0), (0.05, 5.0)] {
        for seed in 1..=20 {
            let cause = verdict(&mut Path::new(0.6 * RATE, loss, burst, seed));
            let Some(LossCause::Congestion(Blame { delivered, .. })) = cause else {
                panic!("{loss} in bursts of {burst}, seed {seed}: {cause:?}");
            };
            let capacity = delivered / (1.0 - loss);
            assert!((capacity / RATE - 0.6).abs() < 0.12, "{capacity}");
        }
    }
}

/// A policer below the rate on a path that loses two fifths by itself, at a rate of which a stretch
/// has few packets: neither cause is certain, but what slow stretches lost is known.
#[test]
fn a_test_of_two_causes_keeps_what_slow_stretches_lost() {
    let asked = RATE / 10.0;
    let mut both = 0;
    for seed in 1..=60 {
        let cause = verdict_at(&mut Path::new(0.76 * asked, 0.4, 1.0, seed), asked);
        match cause {
            Some(LossCause::Both { carried, remaining }) => {
                both += 1;
                assert!(
                    (carried / asked - 0.76).abs() < 0.1,
                    "seed {seed}: {cause:?}"
                );
                assert!((remaining - 0.4).abs() < 0.06, "seed {seed}: {cause:?}");
            }
            Some(LossCause::Path(loss)) => {
                assert!(loss > 0.3, "seed {seed}: {cause:?}");
            }
            Some(LossCause::Congestion(Blame { remaining, .. })) => {
                assert!((remaining - 0.4).abs() < 0.15, "seed {seed}: {cause:?}");
            }
            Some(LossCause::Unknown) | None => panic!("seed {seed}: {cause:?}"),
        }
    }
    assert!(both > 0, "none of 60 was of both causes");
}

/// 500 kbit/s: three pairs of stretches take longer than ten seconds, and tell all the same.
#[test]
fn a_slow_path_is_given_the_time_that_a_test_needs() {
    for seed in 1..=20 {
        let asked = 500e3 / 8.0;
        let cause = verdict_at(&mut Path::new(f64::INFINITY, 0.4, 1.0, seed), asked);
        let known = matches!(cause, Some(LossCause::Path(loss)) if loss > 0.2);
        let blamed = matches!(
            cause,
            Some(LossCause::Congestion(_) | LossCause::Both { .. })
        );
        assert!(known || blamed, "seed {seed}: {cause:?}");
    }
}

/// The verdict of a test with stretches of `length` seconds, and after how many seconds it came.
fn carry_out(test: &mut LossTest, path: &mut Path, length: f64) -> (LossCause, f64) {
    let mut time = 0.0;
    loop {
        time += PACKET / test.rate();
        let ack = path.packet(time, test.rate());
        test.on_sent(path.sent, length, 0.0, PACKET);
        let now = Instant::ZERO + Duration::from_secs_f64(time);
        if let Some(cause) = test.on_ack(now, ack, PACKET) {
            return (cause, time);
        }
    }
}

/// Seconds that a test takes which begins with a round of which a burst left a fiftieth.
fn seconds_after_a_burst(seed: u64) -> f64 {
    let mut path = Path::new(f64::INFINITY, 0.26, 72.0, seed);
    let alarm = Alarm {
        known: 0.0,
        seen: 0.85,
        deviation: 0.3,
    };
    let mut test = LossTest::new(Instant::ZERO, RATE, RATE / 50.0, alarm, 0);
    carry_out(&mut test, &mut path, 0.01).1
}

/// A dozen pairs whose slow stretches are of a fiftieth of the rate take 6.8 s.
#[test]
fn a_test_that_begins_in_a_burst_goes_on_at_what_the_path_carries() {
    let seconds = (1..=20).map(seconds_after_a_burst).sum::<f64>() / 20.0;
    assert!(seconds < 5.5, "{seconds}");
}

#[test]
fn a_test_without_traffic_ends() {
    let alarm = PathLoss::default().alarm();
    let mut test = LossTest::new(Instant::ZERO, RATE, RATE, alarm, 0);
    let silent = AckPoint::new(Duration::ZERO, Instant::ZERO, 0, 0);
    let late = Instant::ZERO + Duration::from_secs(41);
    let cause = test.on_ack(late, silent, PACKET);
    assert_eq!(cause, Some(LossCause::Unknown));
}

#[test]
fn beside_another_sender_a_smaller_share_tells() {
    // Alone, or with little to heal: half.
    assert!((telling_share(0.05) - HEALED).abs() < 0.01);
    // 1.5 times what the path carries, from two: from 0.33 to 0.13.
    assert!((telling_share(1.0 / 3.0) - 0.5 * 0.61).abs() < 0.01);
    // Twice: from 0.5 to 0.29.
    assert!((telling_share(0.5) - 0.5 * 0.43).abs() < 0.01);
    assert!(telling_share(0.99) > 0.0 && telling_share(0.0) <= HEALED);
}

/// Two whose tests change pace in turns answer each other's changes.
#[test]
fn pairs_come_at_times_that_differ_and_fast_stretches_never_together() {
    let series = |seed| {
        let (mut order, mut pace, mut all) = (Order::new(seed), Pace::Slow, Vec::new());
        for _ in 0..64 {
            pace = order.after(pace);
            all.push(pace);
        }
        all
    };
    for seed in 1..=20 {
        let all = series(seed);
        let together = |two: &[Pace]| two == [Pace::Fast, Pace::Fast];
        assert!(!all.windows(2).any(together), "seed {seed}");
        assert_ne!(all, series(seed + 1), "seed {seed}");
    }
}
