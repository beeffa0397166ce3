//! Windows and rates of the algorithms on a path.

use super::*;
use link::every_ack;

fn with_loss(loss: f64, seed: u64) -> Path {
    Path {
        rate: mbps(10_000),
        queue: 100_000,
        rtt: ms(20),
        loss,
        seed,
        ..Path::default()
    }
}

/// The average window in segments, from goodput.
fn average_window(congestion: Congestion, path: Path, seconds: u64) -> f64 {
    let rtt = path.rtt.as_secs_f64();
    let loss = path.loss;
    let mut bed = Bed::bulk(congestion, path);
    let goodput = bed.goodput(ms(5000), Duration::from_secs(seconds));
    goodput / (1.0 - loss) * rtt / (1448.0 * 8.0)
}

#[test]
fn slow_start_doubles_each_round_trip() {
    let sender = TcpSenderConfig {
        initial_window: 3,
        handshake: false,
        ..TcpSenderConfig::default()
    };
    let path = Path {
        rate: mbps(10_000),
        ..Path::default()
    };
    let mut bed = Bed::new(sender, every_ack(), path);
    bed.run_until(ms(275));
    let mut sent = [0; 6];
    for (at, _) in &bed.sent {
        sent[(at.saturating_since(Instant::ZERO).as_millis() / 50) as usize] += 1;
    }
    assert_eq!(sent, [3, 6, 12, 24, 48, 96]);
}

#[test]
fn reno_follows_the_square_root_law() {
    // Mathis et al. 1997: W = sqrt(3/2p) with an acknowledgement for every segment.
    for (loss, seconds) in [(1e-3, 200), (3e-3, 200), (1e-2, 200)] {
        let windows =
            [1, 2, 3].map(|seed| average_window(Congestion::Reno, with_loss(loss, seed), seconds));
        let window = windows.iter().sum::<f64>() / 3.0;
        let expected = (1.5 / loss).sqrt();
        let ratio = window / expected;
        assert!(
            (ratio - 1.0).abs() < 0.15,
            "p {loss}: {ratio:.3}, {windows:?}"
        );
    }
}

#[test]
fn highspeed_follows_its_response_function() {
    // RFC 3649 §5: W = 0.12 / p^0.835, where that is above Reno's.
    for loss in [1e-4, 3e-5] {
        let window = average_window(Congestion::HighSpeed, with_loss(loss, 1), 150);
        let expected = 0.12 / loss.powf(0.835);
        let ratio = window / expected;
        assert!((ratio - 1.0).abs() < 0.2, "p {loss}: {ratio:.3}");
    }
}

#[test]
fn one_loss_leaves_each_its_share() {
    let shares = [
        (Congestion::Reno, 0.5),
        (Congestion::Cubic(CubicConfig::default()), 0.7),
        (
            Congestion::Cubic(CubicConfig::linux_2_6_26()),
            717.0 / 1024.0,
        ),
        (Congestion::HTcp, 0.5),
    ];
    for (congestion, share) in shares {
        let sender = TcpSenderConfig {
            congestion,
            initial_window: 100,
            initial_ssthresh: Some(100),
            handshake: false,
            ..TcpSenderConfig::default()
        };
        let path = Path {
            drops: vec![50],
            ..Path::default()
        };
        let mut bed = Bed::new(sender, every_ack(), path);
        let mut before = 0.0;
        while bed.sender.stats().recoveries == 0 {
            before = bed.sender.stats().cwnd;
            assert!(bed.step(Instant::from_nanos(1_000_000_000)), "no recovery");
        }
        let kept = bed.sender.stats().cwnd / before;
        assert!((kept - share).abs() < 1e-9, "{congestion:?}: {kept}");
    }
}

#[test]
fn loss_based_algorithms_fill_a_clean_path() {
    let controls = [
        Congestion::Reno,
        Congestion::Cubic(CubicConfig::default()),
        Congestion::Cubic(CubicConfig::linux_2_6_26()),
        Congestion::HighSpeed,
        Congestion::HTcp,
    ];
    for congestion in controls {
        let path = Path {
            queue: 417,
            ..Path::default()
        };
        let goodput = Bed::bulk(congestion, path).goodput(ms(10_000), ms(60_000));
        let best = 100e6 * 1448.0 / 1500.0;
        assert!(goodput > 0.97 * best, "{congestion:?}: {goodput:.3e}");
        assert!(goodput <= 1.001 * best, "{congestion:?}: {goodput:.3e}");
    }
}

#[test]
fn bbr_fills_a_lossy_path_without_filling_its_queue() {
    for loss in [0.0, 0.01] {
        let path = Path {
            rtt: ms(40),
            loss,
            ..Path::default()
        };
        let mut bed = Bed::bulk(Congestion::Bbr, path);
        let goodput = bed.goodput(ms(5000), ms(35_000));
        let share = goodput / (100e6 * 1448.0 / 1500.0 * (1.0 - loss));
        assert!(share > 0.9, "loss {loss}: {share:.3}");
        let srtt = bed.sender.stats().srtt.expect("it has samples");
        assert!(srtt < ms(80), "loss {loss}: {srtt:?}");
    }
}

#[test]
fn hystart_leaves_slow_start_before_the_queue_overflows() {
    let lost = |hystart| {
        let congestion = Congestion::Cubic(CubicConfig {
            hystart,
            ..CubicConfig::default()
        });
        // Five probation rounds from the 2560 segments that betray the queue: 7800 at most.
        let path = Path {
            queue: 8000,
            rtt: ms(100),
            ..Path::default()
        };
        let mut bed = Bed::bulk(congestion, path);
        bed.run_until(ms(6000));
        bed.sender.stats().retransmitted
    };
    assert_eq!(lost(true), 0);
    assert!(lost(false) > 500);
}

#[test]
fn marks_reduce_once_a_round_trip_without_loss() {
    let sender = TcpSenderConfig {
        congestion: Congestion::Reno,
        ecn: true,
        ..TcpSenderConfig::default()
    };
    let receiver = TcpReceiverConfig {
        ecn: true,
        ..every_ack()
    };
    let path = Path {
        rate: mbps(10),
        mark_above: 10,
        ..Path::default()
    };
    let mut bed = Bed::new(sender, receiver, path);
    let mut reductions = Vec::new();
    while bed.step(Instant::from_nanos(30_000_000_000)) {
        let count = bed.sender.stats().ecn_reductions as usize;
        if count > reductions.len() {
            reductions.push(bed.now);
        }
    }
    assert_eq!(bed.sender.stats().retransmitted, 0);
    assert!(reductions.len() >= 5, "{}", reductions.len());
    for pair in reductions.windows(2) {
        assert!(pair[1].saturating_since(pair[0]) >= ms(50), "{pair:?}");
    }
    assert!(bed.receiver.stats().marked > reductions.len() as u64);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let mut bed = Bed::bulk(Congestion::default(), with_loss(0.01, seed));
        bed.run_until(ms(3000));
        bed.sent
    };
    assert!(run(1) == run(1));
    assert!(run(1) != run(2));
}
