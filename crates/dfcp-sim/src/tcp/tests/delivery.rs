//! All data arrive, whatever is lost.

use super::*;
use link::every_ack;
use proptest::prelude::*;

fn controls() -> [Congestion; 6] {
    [
        Congestion::Reno,
        Congestion::Cubic(CubicConfig::default()),
        Congestion::Cubic(CubicConfig {
            hystart: true,
            ..CubicConfig::linux_2_6_26()
        }),
        Congestion::HighSpeed,
        Congestion::HTcp,
        Congestion::Bbr,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn everything_arrives(
        control in 0usize..6,
        size in 1u64..200_000,
        options in prop::array::uniform7(any::<bool>()),
        loss in 0.0f64..0.5,
        ack_loss in 0.0f64..0.5,
        queue in 2usize..50,
        drops in prop::collection::vec(0u32..140, 0..60),
        seed in any::<u64>(),
    ) {
        let [sack, timestamps, limited_transmit, delayed, handshake, prr, find] = options;
        let sender = TcpSenderConfig {
            size: Some(size),
            congestion: controls()[control],
            sack,
            timestamps,
            limited_transmit,
            handshake,
            ecn: prr,
            find_lost_retransmissions: find,
            reduction: if prr { WindowReduction::Proportional } else { WindowReduction::AtOnce },
            ..TcpSenderConfig::default()
        };
        let receiver = TcpReceiverConfig {
            sack,
            timestamps,
            ecn: prr,
            delayed_ack: delayed.then(DelayedAck::default),
            ..TcpReceiverConfig::default()
        };
        let path = Path {
            loss, ack_loss, queue, drops, seed,
            rate: mbps(10),
            rtt: ms(20),
            mark_above: 5,
            ..Path::default()
        };
        let mut bed = Bed::new(sender, receiver, path);
        bed.finish();
        prop_assert_eq!(bed.receiver.in_order_bytes(), size);
        prop_assert_eq!(bed.sender.stats().bytes_acked, size);
    }
}

#[test]
fn handshake_costs_one_round_trip() {
    let time = |handshake| {
        let sender = TcpSenderConfig {
            size: Some(1000),
            handshake,
            ..TcpSenderConfig::default()
        };
        Bed::new(sender, every_ack(), Path::default()).finish()
    };
    let extra = time(true) - time(false);
    assert!(extra >= ms(50) && extra < ms(51), "{extra:?}");
}

#[test]
fn handshake_survives_loss_and_doubles_its_timeout() {
    let time = |lost_syns, lost_syn_acks| {
        let sender = TcpSenderConfig {
            size: Some(1000),
            ..TcpSenderConfig::default()
        };
        let path = Path {
            lost_syns,
            lost_syn_acks,
            ..Path::default()
        };
        let mut bed = Bed::new(sender, every_ack(), path);
        (bed.finish().as_secs(), bed.sender.stats().timeouts)
    };
    assert_eq!(time(2, 0), (3, 2), "1 s and 2 s");
    assert_eq!(time(0, 2), (3, 2));
    assert_eq!(time(1, 2), (7, 3));
}

#[test]
fn delayed_acks_halve_their_number() {
    let acks = |delayed_ack| {
        let receiver = TcpReceiverConfig {
            delayed_ack,
            ..TcpReceiverConfig::default()
        };
        let sender = TcpSenderConfig {
            size: Some(1448 * 1000),
            ..TcpSenderConfig::default()
        };
        let mut bed = Bed::new(sender, receiver, Path::default());
        bed.finish();
        bed.receiver.stats().acks
    };
    assert_eq!(acks(None), 1000);
    let delayed = acks(Some(DelayedAck::default()));
    assert!((500..=510).contains(&delayed), "{delayed}");
}

#[test]
fn quick_acks_come_at_the_start_and_after_disorder() {
    let delayed = DelayedAck {
        quick: 4,
        ..DelayedAck::default()
    };
    let mut receiver = TcpReceiver::new(TcpReceiverConfig {
        delayed_ack: Some(delayed),
        ..TcpReceiverConfig::default()
    });
    let mut acknowledged = |seqs: &[u32]| {
        let mut answer = |seq: &u32| {
            let segment = Segment {
                seq: *seq,
                payload: 1448,
                ..Segment::default()
            };
            receiver.on_segment(Instant::ZERO, Ecn::NotEct, &segment);
            receiver.poll_transmit(Instant::ZERO).is_some()
        };
        seqs.iter().map(&mut answer).collect::<Vec<_>>()
    };
    let start = acknowledged(&[0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(start, [true, true, true, true, false, true, false, true]);
    // The ACKs of 9, which is beyond a gap, and of 8, which fills it, are two of the four.
    let gap = acknowledged(&[9, 8, 10, 11, 12, 13, 14]);
    assert_eq!(gap, [true, true, true, true, false, true, false]);
}

#[test]
fn a_lone_segment_is_acknowledged_after_the_delay() {
    let sender = TcpSenderConfig {
        size: Some(1000),
        handshake: false,
        ..TcpSenderConfig::default()
    };
    let mut bed = Bed::new(sender, TcpReceiverConfig::default(), Path::default());
    let time = bed.finish();
    assert!(time >= ms(90) && time < ms(91), "{time:?}");
}

#[test]
fn buffers_cap_the_rate() {
    // 100 segments a round trip of 50 ms are 23.2 Mbit/s.
    for (send_buffer, receive_buffer) in [(Some(144_800), None), (None, Some(144_800))] {
        let sender = TcpSenderConfig {
            send_buffer,
            ..TcpSenderConfig::default()
        };
        let receiver = TcpReceiverConfig {
            receive_buffer,
            ..every_ack()
        };
        let path = Path {
            rate: mbps(1000),
            ..Path::default()
        };
        let goodput = Bed::new(sender, receiver, path).goodput(ms(1000), ms(5000));
        let expected = 144_800.0 * 8.0 / 0.05;
        assert!((goodput / expected - 1.0).abs() < 0.01, "{goodput}");
    }
}

#[test]
fn sizes_follow_the_options() {
    let mut receiver = TcpReceiver::new(every_ack());
    let mut data = |seq| {
        let segment = Segment {
            seq,
            payload: 1448,
            ..Segment::default()
        };
        receiver.on_segment(Instant::ZERO, Ecn::NotEct, &segment);
        let (ack, _) = receiver.poll_transmit(Instant::ZERO).expect("an ACK");
        (ack.ip_size(), ack.sack.iter().count())
    };
    assert_eq!(data(0), (52, 0));
    assert_eq!(data(2), (64, 1));
    assert_eq!(data(4), (72, 2));
    assert_eq!(data(6), (80, 3));
    assert_eq!(data(8), (80, 3));
    let flat = TcpSenderConfig {
        sizes: Sizes::Flat {
            data_header: 52,
            ack: 40,
        },
        handshake: false,
        ..TcpSenderConfig::default()
    };
    let mut sender = TcpSender::new(flat);
    sender.start(Instant::ZERO);
    let (segment, _) = sender.poll_transmit(Instant::ZERO).expect("data");
    assert_eq!(segment.ip_size(), 1500);
}

#[test]
fn bad_parameters_are_named() {
    let config = TcpSenderConfig {
        size: Some(u64::MAX),
        ..TcpSenderConfig::default()
    };
    assert_eq!(config.validate(), Err(TcpConfigError::Size(u64::MAX)));
    let config = TcpSenderConfig {
        send_buffer: Some(1000),
        ..TcpSenderConfig::default()
    };
    assert!(matches!(
        config.validate(),
        Err(TcpConfigError::Buffer { .. })
    ));
    let config = TcpSenderConfig {
        congestion: Congestion::Cubic(CubicConfig {
            beta: f64::NAN,
            ..CubicConfig::default()
        }),
        ..TcpSenderConfig::default()
    };
    assert!(matches!(
        config.validate(),
        Err(TcpConfigError::Factor { .. })
    ));
}
