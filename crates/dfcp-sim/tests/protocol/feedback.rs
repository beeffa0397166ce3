//! Feedback on difficult paths: late packets are not taken for lost, the way back is not filled, and
//! an outage ends when the path comes back.

use crate::common::{MS, SECOND, established, link};
use dfcp_proto::{Duration, Profile, Rate, TransportConfig};
use dfcp_sim::{Limit, LinkConfig, ObjectTransfer, Pair, PairConfig, Side};

/// A sender at nine tenths of `mbit` over such a link and `backward`, however that goes.
fn config(mbit: u64, forward: LinkConfig, backward: LinkConfig, seed: u64) -> PairConfig {
    let rate = Rate::from_bps(mbit * 1_000_000).mul_f64(0.9 * 1472.0 / 1500.0);
    PairConfig {
        backward,
        client: TransportConfig::default().profile(Profile::auto().with_fixed_rate(rate)),
        ..PairConfig::symmetric(forward, seed)
    }
}

/// Sends for `time` without end; gives the pair and the bytes that arrived.
fn send(config: PairConfig, time: Duration) -> (Pair, u64) {
    let mut pair = established(config);
    let mut transfer = ObjectTransfer::start(&mut pair, 1 << 40);
    pair.run_until(time, |pair| transfer.poll(pair));
    (pair, transfer.delivered)
}

#[test]
fn late_packets_are_not_taken_for_lost() {
    let late = |reorder, reorder_delay, link| LinkConfig {
        reorder,
        reorder_delay,
        ..link
    };
    let paths = [
        (
            "30 ms of jitter",
            100,
            LinkConfig {
                jitter: MS(30).into(),
                ..link(100, 50)
            },
        ),
        ("a fifth 30 ms late", 100, late(0.2, MS(30), link(100, 50))),
        ("5 % 5 ms late", 100, late(0.05, MS(5), link(100, 100))),
        (
            "8 ms of jitter",
            400,
            LinkConfig {
                jitter: MS(8).into(),
                ..link(400, 80)
            },
        ),
    ];
    for (name, mbit, path) in paths {
        let back = link(mbit, 50);
        let (mut pair, _) = send(config(mbit, path, back, 11), 3 * SECOND);
        let stats = pair.connection(Side::Client).stats();
        let lost = stats.packets_lost as f64 / stats.packets_sent as f64;
        assert!(
            lost <= 0.02,
            "{name}, seed 11: {lost} of packets taken for lost"
        );
    }
}

#[test]
fn losses_are_found_as_soon_as_ever_where_packets_come_in_order() {
    let path = LinkConfig {
        loss: 0.01.into(),
        ..link(100, 50)
    };
    let (mut pair, delivered) = send(config(100, path, link(100, 50), 3), 3 * SECOND);
    let stats = pair.connection(Side::Client).stats();
    assert_eq!(stats.spurious_losses, 0);
    assert!(stats.packets_lost * 125 > stats.packets_sent, "{stats:?}");
    assert!(delivered > 28_000_000, "{delivered}");
}

#[test]
fn feedback_takes_two_percent_of_what_arrives() {
    for mbit in [5, 20, 100] {
        let (mut pair, _) = send(config(mbit, link(mbit, 50), link(mbit, 50), 5), 5 * SECOND);
        let stats = pair.connection(Side::Server).stats();
        let share = stats.bytes_sent as f64 / stats.bytes_received as f64;
        // A little more for the handshake and the first flight.
        assert!(share <= 0.022, "{mbit} Mbit/s: {share}");
    }
}

#[test]
fn a_narrow_way_back_is_not_filled() {
    let narrow = LinkConfig {
        rate: Rate::from_bps(200_000).into(),
        queue: Limit::Packets(400).into(),
        ..link(100, 50)
    };
    for loss in [0.0, 0.1] {
        let path = LinkConfig {
            loss: loss.into(),
            ..link(100, 50)
        };
        let mut pair = established(config(100, path, narrow.clone(), 9));
        let mut transfer = ObjectTransfer::start(&mut pair, 1 << 40);
        pair.run_until(2 * SECOND, |pair| transfer.poll(pair));
        let (before, delivered) = (pair.hosts[1].ip_bytes, transfer.delivered);
        let mut queue = Duration::ZERO;
        pair.run_until(10 * SECOND, |pair| {
            queue = queue.max(pair.links[1].queue_delay(pair.now));
            transfer.poll(pair)
        });
        let feedback = (pair.hosts[1].ip_bytes - before) as f64 * 8.0 / 10.0;
        assert!(
            feedback <= 55_000.0,
            "loss {loss}: {feedback} bit/s of feedback"
        );
        assert!(
            queue <= MS(60),
            "loss {loss}: {queue:?} of queue on the way back"
        );
        let goodput = (transfer.delivered - delivered) as f64 * 8.0 / 10.0 / 1e6;
        let limit = 90.0 * 1452.0 / 1500.0 * (1.0 - loss);
        assert!(goodput >= 0.93 * limit, "loss {loss}: {goodput} Mbit/s");
    }
}

#[test]
fn a_way_back_that_loses_nine_in_ten_is_used_as_before() {
    let lossy = LinkConfig {
        loss: 0.9.into(),
        ..link(100, 50)
    };
    let (pair, delivered) = send(config(100, link(100, 50), lossy, 13), 5 * SECOND);
    let reports = pair.links[1].stats().packets_in;
    assert!(reports > 3000, "{reports} reports in five seconds");
    assert!(delivered > 50_000_000, "{delivered}");
}

#[test]
fn an_outage_is_asked_about_sparingly_and_ends_with_the_path() {
    let mut pair = established(PairConfig::symmetric(link(100, 50), 17));
    let mut transfer = ObjectTransfer::start(&mut pair, 1 << 40);
    pair.run_until(SECOND, |pair| transfer.poll(pair));
    let gone = LinkConfig {
        loss: 1.0.into(),
        ..link(100, 50)
    };
    let now = pair.now;
    pair.links
        .iter_mut()
        .for_each(|link| link.set_config(now, gone.clone()));
    // What may be in flight leaves first.
    pair.run_until(SECOND, |pair| transfer.poll(pair));
    let sent = pair.hosts[0].ip_bytes;
    pair.run_until(4 * SECOND, |pair| transfer.poll(pair));
    let probes = pair.hosts[0].ip_bytes - sent;
    assert!(
        (400..1_000_000).contains(&probes),
        "{probes} bytes in four seconds of outage"
    );
    let now = pair.now;
    pair.links
        .iter_mut()
        .for_each(|back| back.set_config(now, link(100, 50)));
    let before = transfer.delivered;
    let resumed = pair.run_until(5 * SECOND, |pair| {
        transfer.poll(pair);
        transfer.delivered > before + 100_000
    });
    assert!(resumed);
    let after = pair.now.saturating_since(now);
    assert!(after <= MS(450), "back after {after:?}");
}

/// The window of a path that carries a hundred times as much would last for seconds at a cap.
#[test]
fn an_outage_is_not_flooded_at_a_cap() {
    let profile = Profile::auto().with_rate_cap(Rate::from_bps(8_000_000));
    let path = link(1000, 50);
    let mut pair = established(PairConfig {
        client: TransportConfig::default().profile(profile),
        ..PairConfig::symmetric(path.clone(), 19)
    });
    let mut transfer = ObjectTransfer::start(&mut pair, 1 << 40);
    pair.run_until(3 * SECOND, |pair| transfer.poll(pair));
    let set = |pair: &mut Pair, config: &LinkConfig| {
        let now = pair.now;
        let links = pair.links.iter_mut();
        links.for_each(|link| link.set_config(now, config.clone()));
    };
    let gone = LinkConfig {
        loss: 1.0.into(),
        ..path.clone()
    };
    set(&mut pair, &gone);
    let sent = pair.hosts[0].ip_bytes;
    pair.run_until(5 * SECOND, |pair| transfer.poll(pair));
    // A second at the cap is 1 MB.
    let into_the_dark = pair.hosts[0].ip_bytes - sent;
    assert!(into_the_dark < 500_000, "{into_the_dark} bytes");
    set(&mut pair, &path);
    let before = transfer.delivered;
    pair.run_until(3 * SECOND, |pair| transfer.poll(pair));
    let after = transfer.delivered - before;
    assert!(after > 2_000_000, "{after} bytes in three seconds after it");
}
