//! RED against the formulas of Floyd and Jacobson 1993.

use super::*;

/// A queue that every arrival finds `length` long.
struct Standing {
    queue: Queue<Parcel>,
    id: u64,
}

impl Standing {
    /// Fills the queue as if it had been below the thresholds.
    fn new(red: RedConfig, length: u64) -> Self {
        let config = QueueConfig {
            discipline: Discipline::Red(red),
            limit: Limit::Unlimited,
            ..QueueConfig::default()
        };
        let mut standing = Self {
            queue: Queue::new(&config, Shares::equal(), Seed(1).stream("red")),
            id: 0,
        };
        // Arrivals that RED drops on the way up are made again.
        while (standing.queue.packets() as u64) < length {
            standing.offer(Ecn::NotEct);
        }
        standing
    }

    fn offer(&mut self, ecn: Ecn) -> bool {
        let packet = Parcel {
            ecn,
            ..parcel(self.id, 0, 1000)
        };
        self.id += 1;
        let mut taken = true;
        let mut dropped = |_, cause| {
            assert_eq!(cause, DropCause::Early);
            taken = false;
        };
        self.queue
            .enqueue(at(0), queued(at(0), packet), &mut dropped);
        taken
    }

    /// One arrival; whether it was taken. The queue is as long afterwards as before.
    fn arrive(&mut self, ecn: Ecn) -> bool {
        let taken = self.offer(ecn);
        if taken {
            self.queue.dequeue(at(0), None, &mut |_, _| ());
        }
        taken
    }

    fn average(&self) -> f64 {
        self.queue.red_average().expect("this is RED")
    }
}

/// The average follows the queue itself, so that it is known.
fn at_once() -> RedConfig {
    RedConfig {
        weight: 1.0,
        ..RedConfig::default()
    }
}

/// Equation (2) of the paper: `k` arrivals that find a queue of `q` take the average from `a` to
/// `q + (a - q)(1 - w)^k`.
#[test]
fn average_is_exponentially_weighted() {
    let red = RedConfig {
        min_threshold: 1000.0,
        max_threshold: 3000.0,
        ..RedConfig::default()
    };
    let mut standing = Standing::new(red, 40);
    let before = standing.average();
    for _ in 0..500 {
        standing.arrive(Ecn::NotEct);
    }
    let expected = 40.0 + (before - 40.0) * (1.0 - red.weight).powi(500);
    let average = standing.average();
    assert!((average - expected).abs() < 1e-9, "{average}, {expected}");
}

/// §4 of the paper: an idle time counts as the packets that could have been sent in it.
#[test]
fn average_decays_while_idle() {
    let red = RedConfig {
        min_threshold: 1000.0,
        max_threshold: 3000.0,
        ..RedConfig::default()
    };
    let Standing { mut queue, .. } = Standing::new(red, 100);
    // A packet of 1000 bytes takes 1 ms.
    let rate = Some(Rate::from_bps(8_000_000));
    for _ in 0..100 {
        queue.dequeue(at(0), rate, &mut |_, _| ());
    }
    let before = queue.red_average().expect("this is RED");
    assert!(before > 1.0);
    let later = at(300_000_000);
    queue.pass(
        later,
        rate,
        queued(later, parcel(0, 0, 1000)),
        &mut |_, _| (),
    );
    let expected = before * (1.0 - red.weight).powi(300);
    let average = queue.red_average().expect("this is RED");
    assert!((average - expected).abs() < 1e-9, "{average}, {expected}");
}

/// §4 and §7 of the paper: at a constant average, the packets between two drops are uniform over
/// 1 to `1 / p_b - 1` by the algorithm of its Fig. 2, so that `2 p_b` of all are dropped.
#[test]
fn drops_between_thresholds_are_uniform() {
    for (length, inverse) in [(6, 100), (7, 50), (9, 25), (10, 20)] {
        let mut standing = Standing::new(at_once(), length);
        while standing.arrive(Ecn::NotEct) {}
        let mut gaps = vec![0_u64; inverse];
        let drops = 2_000 * (inverse as u64 - 1);
        for _ in 0..drops {
            let gap = 1 + std::iter::from_fn(|| standing.arrive(Ecn::NotEct).then_some(())).count();
            gaps[gap] += 1;
        }
        // 2000 expected in each, standard deviation 45.
        assert_eq!(gaps[0], 0);
        for (gap, &n) in gaps.iter().enumerate().skip(1) {
            assert!(
                (1_775..=2_225).contains(&n),
                "length {length}: {n} of {gap}"
            );
        }
    }
}

#[test]
fn nothing_is_dropped_below_and_everything_above_the_thresholds() {
    let share_dropped = |red: RedConfig, length| {
        let config = RedConfig {
            min_threshold: 1000.0,
            max_threshold: 3000.0,
            ..red
        };
        // Filled under thresholds that let it grow, then judged under the true ones.
        let mut standing = Standing::new(config, length);
        let State::Red(_, state) = &mut standing.queue.state else {
            unreachable!("this is RED");
        };
        **state = Red::new(red, Seed(1).stream("red"));
        standing.arrive(Ecn::NotEct);
        let dropped = (0..1000).filter(|_| !standing.arrive(Ecn::NotEct)).count();
        dropped as f64 / 1000.0
    };
    let gentle = at_once();
    let steep = RedConfig {
        gentle: false,
        ..gentle
    };
    assert_eq!(share_dropped(gentle, 4), 0.0);
    assert_eq!(share_dropped(steep, 15), 1.0);
    // A third of the way from max_p to one: p_b = 0.4, so gaps are 1 (two of three) or 2.
    let share = share_dropped(gentle, 20);
    assert!((share - 0.75).abs() < 0.03, "{share}");
    assert_eq!(share_dropped(gentle, 30), 1.0);
}

#[test]
fn capable_packets_are_marked_between_the_thresholds() {
    let red = RedConfig {
        ecn: true,
        ..at_once()
    };
    let mut standing = Standing::new(red, 10);
    for _ in 0..10_000 {
        assert!(standing.arrive(Ecn::Ect0));
    }
    let marked = standing.queue.marked();
    assert!((950..1050).contains(&marked), "{marked}");
    let dropped = (0..10_000)
        .filter(|_| !standing.arrive(Ecn::NotEct))
        .count();
    assert!((950..1050).contains(&dropped), "{dropped}");
}
