//! How long losses cost, and what timeouts do.

use super::*;
use link::every_ack;

/// A transfer of 200 segments, the first 40 at once, some of which are lost.
fn transfer(sack: bool, drops: &[u32]) -> Bed {
    let sender = TcpSenderConfig {
        size: Some(1448 * 200),
        congestion: Congestion::Reno,
        initial_window: 40,
        handshake: false,
        sack,
        ..TcpSenderConfig::default()
    };
    let receiver = TcpReceiverConfig {
        sack,
        ..every_ack()
    };
    let path = Path {
        drops: drops.to_vec(),
        rate: mbps(1000),
        ..Path::default()
    };
    let mut bed = Bed::new(sender, receiver, path);
    bed.finish();
    bed
}

/// Round trips of 50 ms from the first retransmission to the last.
fn repair_time(bed: &Bed) -> f64 {
    let mut seen = std::collections::BTreeSet::new();
    let again: Vec<Instant> = bed
        .sent
        .iter()
        .filter(|(_, seq)| !seen.insert(*seq))
        .map(|(at, _)| *at)
        .collect();
    again[again.len() - 1]
        .saturating_since(again[0])
        .as_secs_f64()
        / 0.05
}

#[test]
fn one_loss_is_repaired_in_a_round_trip() {
    for sack in [true, false] {
        let bed = transfer(sack, &[20]);
        let stats = bed.sender.stats();
        assert_eq!((stats.timeouts, stats.recoveries), (0, 1), "SACK {sack}");
        assert_eq!(stats.retransmitted, 1, "SACK {sack}");
    }
}

#[test]
fn sack_repairs_many_losses_at_once_and_newreno_one_a_round_trip() {
    let drops: Vec<u32> = (0..8).map(|n| 4 + 4 * n).collect();
    let repair = |sack| {
        let bed = transfer(sack, &drops);
        let stats = bed.sender.stats();
        assert_eq!((stats.timeouts, stats.recoveries), (0, 1), "SACK {sack}");
        assert_eq!(stats.retransmitted, 8, "SACK {sack}");
        repair_time(&bed)
    };
    let (sack, newreno) = (repair(true), repair(false));
    assert!(sack <= 1.0, "SACK {sack:.2} round trips");
    assert!((newreno - 7.0).abs() < 0.2, "NewReno {newreno:.2}");
}

#[test]
fn timeouts_double_and_obey_the_floor() {
    // The first segment is lost again and again: the times of its transmissions are the timeouts.
    let sender = TcpSenderConfig {
        size: Some(1448),
        handshake: false,
        rto_initial: ms(50),
        rto_min: ms(300),
        ..TcpSenderConfig::default()
    };
    let path = Path {
        drops: vec![0; 6],
        ..Path::default()
    };
    let mut bed = Bed::new(sender, every_ack(), path);
    bed.finish();
    let times: Vec<Instant> = bed.sent.iter().map(|(at, _)| *at).collect();
    let gaps: Vec<u64> = times
        .windows(2)
        .map(|pair| pair[1].saturating_since(pair[0]).as_millis() as u64)
        .collect();
    assert_eq!(gaps, [300, 600, 1200, 2400, 4800, 9600]);
    assert_eq!(bed.sender.stats().timeouts, 6);
}

#[test]
fn the_timeout_follows_rfc_6298() {
    // One sample R: SRTT = R, RTTVAR = R/2, so 3R = 600 ms, then a second timeout is twice that.
    let sender = TcpSenderConfig {
        size: Some(1448 * 2),
        initial_window: 1,
        rto_granularity: ms(1),
        handshake: false,
        ..TcpSenderConfig::default()
    };
    let path = Path {
        rtt: ms(200),
        rate: mbps(1_000_000),
        drops: vec![1, 1],
        ..Path::default()
    };
    let mut bed = Bed::new(sender, every_ack(), path);
    bed.finish();
    let since = |later: usize| {
        let gap = bed.sent[later].0.saturating_since(bed.sent[later - 1].0);
        gap.as_millis()
    };
    assert_eq!((since(2), since(3)), (600, 1200));
}

#[test]
fn a_lost_retransmission_waits_for_the_timeout_unless_looked_for() {
    let run = |find_lost_retransmissions| {
        let sender = TcpSenderConfig {
            size: Some(1448 * 300),
            congestion: Congestion::Reno,
            initial_window: 40,
            initial_ssthresh: Some(40),
            handshake: false,
            find_lost_retransmissions,
            ..TcpSenderConfig::default()
        };
        let path = Path {
            drops: vec![10, 10, 20],
            ..Path::default()
        };
        let mut bed = Bed::new(sender, every_ack(), path);
        bed.finish();
        *bed.sender.stats()
    };
    let (waiting, looking) = (run(false), run(true));
    assert_eq!((waiting.timeouts, looking.timeouts), (1, 0));
    // The loss of a retransmission is congestion of its own (RFC 5681 §3.1).
    assert_eq!(waiting.ssthresh * 2.0, looking.ssthresh);
}

/// While the first segment is lost again and again, what arrives beyond it must not make the
/// window grow from timeout to timeout.
#[test]
fn the_window_does_not_grow_while_it_cannot_move() {
    let sender = TcpSenderConfig {
        congestion: Congestion::Reno,
        initial_window: 40,
        initial_ssthresh: Some(40),
        handshake: false,
        ..TcpSenderConfig::default()
    };
    let path = Path {
        drops: vec![10; 6],
        ..Path::default()
    };
    let mut bed = Bed::new(sender, every_ack(), path);
    while bed.sender.stats().timeouts < 5 {
        assert!(bed.step(Instant::ZERO + Duration::from_secs(100)));
    }
    assert_eq!(bed.sender.stats().cwnd, 1.0);
    assert!(bed.receiver.stats().segments < 400);
}

#[test]
fn a_lost_tail_within_recovery_needs_no_timeout() {
    // Rule 4 of RFC 6675: the rescue retransmission of the last segment.
    let bed = transfer(true, &[190, 199]);
    assert_eq!(bed.sender.stats().timeouts, 0);
}

#[test]
fn limited_transmit_saves_a_small_window_from_its_timeout() {
    let timeouts = |limited_transmit| {
        let sender = TcpSenderConfig {
            size: Some(1448 * 20),
            initial_window: 3,
            initial_ssthresh: Some(2),
            limited_transmit,
            ..TcpSenderConfig::default()
        };
        let path = Path {
            drops: vec![0],
            ..Path::default()
        };
        let mut bed = Bed::new(sender, every_ack(), path);
        bed.finish();
        bed.sender.stats().timeouts
    };
    assert_eq!((timeouts(true), timeouts(false)), (0, 1));
}

#[test]
fn proportional_reduction_keeps_sending_through_recovery() {
    // The longest silence of the sender while it comes down from 200 segments.
    let silence = |reduction| {
        let sender = TcpSenderConfig {
            congestion: Congestion::Reno,
            initial_window: 200,
            initial_ssthresh: Some(200),
            handshake: false,
            reduction,
            ..TcpSenderConfig::default()
        };
        let path = Path {
            drops: vec![300],
            rate: Rate::from_bps(200 * 1500 * 8 * 20),
            ..Path::default()
        };
        let mut bed = Bed::new(sender, every_ack(), path);
        bed.run_until(ms(500));
        assert_eq!(bed.sender.stats().retransmitted, 1);
        assert_eq!(bed.sender.stats().ssthresh.round(), 101.0);
        // After the first window, which goes at once.
        let steady = bed
            .sent
            .partition_point(|(at, _)| at.as_nanos() < 60_000_000);
        let gaps = bed.sent[steady..]
            .windows(2)
            .map(|p| p[1].0.saturating_since(p[0].0));
        gaps.max().expect("segments were sent")
    };
    let at_once = silence(WindowReduction::AtOnce);
    let proportional = silence(WindowReduction::Proportional);
    assert!(at_once > ms(20), "{at_once:?}");
    assert!(proportional < ms(5), "{proportional:?}");
}

#[test]
fn forged_acknowledgements_change_nothing() {
    let mut sender = TcpSender::new(TcpSenderConfig {
        handshake: false,
        ..TcpSenderConfig::default()
    });
    sender.start(Instant::ZERO);
    while sender.poll_transmit(Instant::ZERO).is_some() {}
    let before = *sender.stats();
    let mut forged = Segment {
        kind: Kind::Ack,
        seq: 500,
        window: 100,
        ..Segment::default()
    };
    sender.on_segment(Instant::ZERO, Ecn::NotEct, &forged);
    forged.seq = 0;
    forged.sack.push((400, 500));
    forged.sack.push((u32::MAX - 1, u32::MAX));
    sender.on_segment(Instant::ZERO, Ecn::NotEct, &forged);
    assert!(sender.poll_transmit(Instant::ZERO).is_none());
    assert_eq!(*sender.stats(), before);
}

#[test]
fn a_sender_stuck_behind_a_lost_retransmission_does_not_grow() {
    // Where timeouts rule, what is sent is what arrives and what is lost, and little more.
    for congestion in [Congestion::Reno, Congestion::default()] {
        let (mut sent, mut arrived) = (0, 0);
        for seed in 1..=3 {
            let path = Path {
                rtt: ms(1),
                loss: 0.1,
                seed,
                ..Path::default()
            };
            let mut bed = Bed::bulk(congestion, path);
            bed.run_until(Duration::from_secs(60));
            sent += bed.sender.stats().segments;
            arrived += bed.receiver.in_order_bytes() / 1448;
        }
        let ratio = sent as f64 * 0.9 / arrived as f64;
        assert!(ratio < 1.2, "{congestion:?}, seeds 1 to 3: {ratio:.2}");
    }
}
