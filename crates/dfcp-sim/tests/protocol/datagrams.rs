//! Messages that nothing repeats, on a path that loses.

use crate::common::*;
use dfcp_proto::{ChannelKind, DatagramError, TransportConfig};
use dfcp_sim::{PairConfig, Side};
use std::collections::BTreeSet;

#[test]
fn datagrams_come_once_whole_and_as_the_path_lets_them() {
    let (seed, loss) = (71, 0.1);
    let mut pair = established(PairConfig::symmetric(lossy(loss), seed));
    let mut flow = Flow::open(&mut pair, Side::Client, ChannelKind::Object, 5_000_000);
    let (mut sent, mut got) = (0_u32, BTreeSet::new());
    let begun = pair.now;
    // Two each 10 ms beside an object: far below what the path carries.
    while pair.now < begun + 10 * SECOND {
        for _ in 0..2 {
            let datagram = [&sent.to_be_bytes()[..], &[7; 300]].concat();
            let taken = pair.connection(Side::Client).send_datagram(datagram);
            assert_eq!(taken, Ok(()));
            sent += 1;
        }
        pair.flush();
        pair.run_until(MS(10), |_| false);
        flow.poll(&mut pair);
        while let Some(datagram) = pair.connection(Side::Server).take_datagram() {
            assert_eq!((datagram.len(), datagram[4]), (304, 7), "seed {seed}");
            let number = u32::from_be_bytes(datagram[..4].try_into().expect("four bytes"));
            assert!(got.insert(number), "seed {seed}: {number} came twice");
        }
    }
    assert!(flow.is_done(&pair), "seed {seed}");
    let share = got.len() as f64 / f64::from(sent);
    assert!((share - (1.0 - loss)).abs() < 0.03, "seed {seed}: {share}");
    let stats = pair.connection(Side::Client).stats();
    assert_eq!(stats.datagrams_dropped, 0, "seed {seed}");
}

#[test]
fn a_path_that_is_too_slow_carries_the_newest() {
    let seed = 72;
    let mut config = PairConfig::symmetric(link(1, 20), seed);
    config.client = TransportConfig::default().datagram_buffer(20_000);
    let mut pair = established(config);
    let client = pair.connection(Side::Client);
    let most = client.max_datagram_size();
    let long = client.send_datagram(vec![0; most + 1]);
    assert_eq!(long, Err(DatagramError::TooLarge(most)));
    for i in 0..200_u8 {
        client.send_datagram(vec![i; 1000]).expect("fits");
    }
    let dropped = client.stats().datagrams_dropped;
    assert!((180..190).contains(&dropped), "{dropped}");
    pair.flush();
    pair.run_until(5 * SECOND, |_| false);
    let next = || pair.connection(Side::Server).take_datagram();
    let got: Vec<u8> = std::iter::from_fn(next).map(|d| d[0]).collect();
    assert_eq!(got, (dropped as u8..200).collect::<Vec<_>>());
}

#[test]
fn more_datagrams_than_the_path_carries_leave_half_of_it_to_streams() {
    let seed = 73;
    let mut pair = established(PairConfig::symmetric(link(10, 20), seed));
    let mut flow = Flow::open(&mut pair, Side::Client, ChannelKind::Object, u64::MAX);
    let mut got = 0;
    let begun = pair.now;
    // 16 Mbit/s beside an object that has no end.
    while pair.now < begun + 10 * SECOND {
        for _ in 0..20 {
            let taken = pair.connection(Side::Client).send_datagram(vec![7; 1000]);
            assert_eq!(taken, Ok(()));
        }
        pair.flush();
        pair.run_until(MS(10), |_| false);
        flow.poll(&mut pair);
        while let Some(datagram) = pair.connection(Side::Server).take_datagram() {
            got += datagram.len();
        }
    }
    // Of 10 Mbit/s each has about half; what datagrams lack is dropped at their sender.
    let share = got as f64 / (got as f64 + flow.received as f64);
    assert!((0.4..0.6).contains(&share), "seed {seed}: {share}");
    let total = got as f64 + flow.received as f64;
    assert!(total > 0.8 * 12.5e6, "seed {seed}: {total} bytes in all");
}

#[test]
fn a_few_datagrams_overtake_all_that_streams_have() {
    let seed = 74;
    let mut pair = established(PairConfig::symmetric(link(10, 20), seed));
    let mut flow = Flow::open(&mut pair, Side::Client, ChannelKind::Object, u64::MAX);
    for turn in 0..20 {
        pair.run_until(MS(50), |pair| flow.poll(pair));
        for byte in 0..3 {
            let datagram = vec![byte; 1000];
            let taken = pair.connection(Side::Client).send_datagram(datagram);
            assert_eq!(taken, Ok(()));
        }
        let before = pair.connection(Side::Client).stats();
        pair.flush();
        pair.run_until(MS(10), |_| false);
        let after = pair.connection(Side::Client).stats();
        let sent = after.datagrams_sent - before.datagrams_sent;
        assert_eq!(sent, 3, "seed {seed}, turn {turn}");
    }
}
