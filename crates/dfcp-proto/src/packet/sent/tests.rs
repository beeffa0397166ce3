use super::*;
use crate::wire::{AckHead, Frame, FrameIter};

const RTT: Duration = Duration::from_millis(20);

/// Packets 0 to 9, one a millisecond, each with a symbol.
fn ten(rules: LossRules) -> SentPackets<()> {
    let mut sent = SentPackets::new(rules);
    for ms in 0..10 {
        sent.push(NewPacket {
            time: at(ms),
            size: 1000,
            sent_total: 1000 * (ms + 1),
            ect: false,
            place: Place::Alone,
            symbol: Some(SymbolRef {
                channel: 2,
                offset: ms,
            }),
            control: Vec::new(),
            ack_eliciting: true,
        });
    }
    sent
}

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// An ACK of one packet alone.
fn acknowledge(sent: &mut SentPackets<()>, now: Instant, pn: u64) -> AckOutcome<()> {
    acknowledge_all(sent, now, &[(pn, pn)])
}

/// An ACK of ranges, the newest first.
fn acknowledge_all(
    sent: &mut SentPackets<()>,
    now: Instant,
    ranges: &[(u64, u64)],
) -> AckOutcome<()> {
    let mut frame = Vec::new();
    let largest = ranges[0].1;
    let head = AckHead {
        largest,
        ..AckHead::default()
    };
    Frame::emit_ack(&mut frame, head, ranges.iter().copied(), 100);
    match FrameIter::new(&frame).next() {
        Some(Ok(Frame::Ack { ranges, .. })) => sent.on_ack(now, largest, &ranges).expect("sent"),
        other => panic!("{other:?}"),
    }
}

fn numbers(packets: Vec<(u64, SentPacket<()>)>) -> Vec<u64> {
    packets.into_iter().map(|(pn, _)| pn).collect()
}

#[test]
fn what_was_acknowledged_costs_nothing_when_it_is_named_again() {
    let mut sent = ten(LossRules::default());
    // The first one is waited for, so that none is forgotten.
    let ranges = [[(6, 7), (2, 3)], [(9, 9), (2, 7)], [(9, 9), (1, 3)]];
    let news = [vec![6, 7, 2, 3], vec![9, 4, 5], vec![1]];
    for (ranges, news) in ranges.into_iter().zip(news) {
        let outcome = acknowledge_all(&mut sent, at(20), &ranges);
        assert_eq!(numbers(outcome.acked), news);
    }
    for _ in 0..100 {
        let outcome = acknowledge_all(&mut sent, at(20), &[(9, 9), (1, 7)]);
        assert!(outcome.acked.is_empty());
    }
    assert_eq!(sent.looked_at, 8, "each once");
    assert_eq!(sent.bytes_in_flight(), 2000);
    let named: Vec<_> = sent.named.clone().into_iter().collect();
    assert_eq!(named, [(1, 7), (9, 9)]);
    // What is forgotten takes no room.
    acknowledge_all(&mut sent, at(20), &[(0, 9)]);
    (0..2).for_each(|_| drop(sent.detect_lost(at(20), RTT)));
    assert!(sent.packets.is_empty() && sent.named.is_empty());
    assert!(
        acknowledge_all(&mut sent, at(20), &[(0, 9)])
            .acked
            .is_empty()
    );
    assert!(sent.named.is_empty());
}

#[test]
fn how_far_a_packet_may_be_overtaken_is_for_the_rules_to_say() {
    for (packet_threshold, lost) in [(3, vec![0]), (1, vec![0, 1, 2])] {
        let rules = LossRules {
            packet_threshold,
            ..LossRules::default()
        };
        let mut sent = ten(rules);
        acknowledge(&mut sent, at(20), 3);
        assert_eq!(numbers(sent.detect_lost(at(20), RTT)), lost);
    }
}

#[test]
fn where_packets_overtake_others_those_far_enough_behind_are_lost() {
    let mut sent = ten(LossRules::default());
    sent.reordering.on_late(Duration::from_millis(4));
    acknowledge(&mut sent, at(10), 9);
    // Between four and five milliseconds are waited for.
    assert_eq!(numbers(sent.detect_lost(at(10), RTT)), [0, 1, 2, 3, 4]);
}

#[test]
fn reordering_that_is_ignored_leaves_the_threshold() {
    for (reordering, lost) in [
        (Reordering::Adaptive, vec![]),
        (Reordering::Ignored, vec![4, 5]),
    ] {
        let mut sent = ten(LossRules {
            packet_threshold: 1,
            reordering,
            ..LossRules::default()
        });
        acknowledge(&mut sent, at(20), 3);
        assert_eq!(numbers(sent.detect_lost(at(20), RTT)), [0, 1, 2]);
        let outcome = acknowledge(&mut sent, at(21), 0);
        assert_eq!(outcome.spurious, 1);
        acknowledge(&mut sent, at(22), 6);
        assert_eq!(
            numbers(sent.detect_lost(at(22), RTT)),
            lost,
            "{reordering:?}"
        );
    }
}

#[test]
fn a_packet_that_nothing_overtook_is_written_off_once_and_stays_in_flight() {
    let rules = LossRules {
        time_threshold_eighths: 12,
        unanswered: Unanswered::WrittenOff,
        ..LossRules::default()
    };
    let mut sent = ten(rules);
    assert_eq!(sent.loss_time(RTT), Some(at(30)), "1.5 round trips");
    assert!(sent.write_off(at(29), RTT).is_empty());
    let offsets = |symbols: Vec<SymbolRef>| symbols.iter().map(|s| s.offset).collect::<Vec<_>>();
    assert_eq!(offsets(sent.write_off(at(31), RTT)), [0, 1]);
    assert!(sent.write_off(at(31), RTT).is_empty(), "once");
    assert_eq!(
        (sent.bytes_in_flight(), sent.loss_time(RTT)),
        (10_000, Some(at(32)))
    );
    // One of them arrives, and so does a packet that is not too old.
    let outcome = acknowledge(&mut sent, at(31), 1);
    assert!(outcome.acked[0].1.was_written_off());
    assert_eq!(outcome.spurious, 0, "it was not declared lost");
    assert!(
        !acknowledge(&mut sent, at(31), 2).acked[0]
            .1
            .was_written_off()
    );
    assert_eq!(sent.bytes_in_flight(), 8000);
    let mut patient = ten(LossRules::default());
    assert!(patient.write_off(at(1000), RTT).is_empty());
    assert_eq!(patient.loss_time(RTT), None);
}

#[test]
fn nothing_in_flight_is_counted_on_once_nothing_is_answered() {
    let offsets = |symbols: Vec<SymbolRef>| symbols.iter().map(|s| s.offset).collect::<Vec<_>>();
    let mut sent = ten(LossRules::default());
    acknowledge_all(&mut sent, at(20), &[(0, 3)]);
    let odd = |symbol: &SymbolRef| symbol.offset % 2 == 1;
    assert_eq!(offsets(sent.write_off_unanswered(odd)), [5, 7, 9]);
    assert_eq!(offsets(sent.write_off_unanswered(|_| true)), [4, 6, 8]);
    assert!(sent.write_off_unanswered(|_| true).is_empty(), "once");
    assert_eq!(sent.bytes_in_flight(), 6000);
}

#[test]
fn who_acknowledges_no_report_is_noticed() {
    let mut sent: SentPackets<()> = SentPackets::new(LossRules::default());
    for count in 0..=MAX_BESIDE {
        assert!(!sent.is_excessive(), "{count}");
        sent.push(NewPacket {
            time: at(0),
            size: 50,
            sent_total: 0,
            ect: false,
            place: Place::Alone,
            symbol: None,
            control: Vec::new(),
            ack_eliciting: false,
        });
    }
    assert!(sent.is_excessive());
}
