//! CTCP: what its users would miss of it.

use crate::common::raw::{RawClient, params, server_with};
use crate::common::{Flow, MS, SECOND, established, link, run_flows, transfer, with_profile};
use crate::rate::Bulk;
use dfcp_proto::wire::Frame;
use dfcp_proto::{ChannelKind, Profile, SchemeId, TransportConfig};
use dfcp_sim::{LinkConfig, LossAt, Pair, PairConfig, Side};

/// The testbed of CTCP §6: loss before the bottleneck, one bandwidth-delay product of buffer.
fn testbed(loss: f64) -> LinkConfig {
    LinkConfig {
        loss: loss.into(),
        loss_at: LossAt::Entry,
        ..link(25, 25)
    }
}

/// Payload in a full IP packet of a long object.
const SHARE: f64 = 1429.0 / 1500.0;

fn bulk(path: LinkConfig, seed: u64) -> Bulk {
    let mut config = with_profile(path, seed, Profile::ctcp());
    config.backward.loss = 0.0.into();
    Bulk::from_pair(Pair::new(config))
}

#[test]
fn random_loss_costs_little_more_than_the_packets_lost() {
    for (loss, least) in [(0.0, 0.97), (0.01, 0.96), (0.05, 0.93), (0.2, 0.87)] {
        let mut bulk = bulk(testbed(loss), 31);
        bulk.run(2 * SECOND, MS(25));
        let seen = bulk.run(10 * SECOND, MS(25));
        let efficiency = seen.goodput() / (25.0 * SHARE);
        println!("loss {loss}: {efficiency:.3}");
        assert!(efficiency >= least, "loss {loss}: {efficiency:.3}");
    }
}

/// Where hosts let packets wait for each other, acknowledgements come in bundles and so do the packets that
/// they allow, which then queue behind each other: a back-off takes that for congestion, and the window
/// stays a part of the path's (0.39 of what is simulated here, at 25 Mbit/s and 50 ms with 1 % lost).
#[test]
fn hosts_let_its_packets_and_acknowledgements_go_one_by_one() {
    let patience = |profile| {
        let config = with_profile(testbed(0.0), 33, profile);
        let mut pair = Pair::new(PairConfig {
            // The receiver of a transfer needs no option.
            server: TransportConfig::default(),
            ..config
        });
        assert!(pair.establish(8 * SECOND));
        pair.run_until(SECOND, |_| false);
        let [sender, receiver] = &pair.hosts;
        (
            sender.endpoint.coalescing_delay(),
            receiver.endpoint.coalescing_delay(),
        )
    };
    assert_eq!(patience(Profile::ctcp()), (MS(0), MS(0)));
    let (sender, receiver) = patience(Profile::auto());
    assert!(sender > MS(0) && receiver > MS(0), "that costs wake-ups");
}

#[test]
fn a_blackout_costs_its_time_and_is_not_flooded() {
    let path = testbed(0.01);
    let mut bulk = bulk(path.clone(), 32);
    let before = bulk.run(3 * SECOND, MS(25)).goodput();
    bulk.set(LinkConfig {
        loss: 1.0.into(),
        ..path.clone()
    });
    let sent = bulk.sent();
    bulk.run(10 * SECOND, MS(25));
    let into_the_dark = bulk.sent() - sent;
    assert!(into_the_dark < 300_000, "{into_the_dark} bytes");
    bulk.set(path);
    bulk.run(3 * SECOND, MS(25));
    let after = bulk.run(3 * SECOND, MS(25)).goodput();
    assert!(after > 0.9 * before, "{after:.1} of {before:.1} Mbit/s");
}

/// The end of an object has nothing behind it that would tell of its loss: blocks stop counting on
/// packets after 1.5 round trips.
#[test]
fn short_objects_do_not_wait_long_for_lost_ends() {
    let (mut times, size) = (Vec::new(), 100_000);
    for seed in 0..40 {
        let mut pair = established(with_profile(testbed(0.1), 300 + seed, Profile::ctcp()));
        let begun = pair.now;
        let flow = Flow::open(&mut pair, Side::Client, ChannelKind::Object, size);
        let mut flows = [flow];
        assert!(run_flows(&mut pair, &mut flows, 10 * SECOND), "seed {seed}");
        times.push(pair.now.saturating_since(begun).as_secs_f64() / 0.025);
    }
    times.sort_by(f64::total_cmp);
    let (median, late) = (times[20], times[37]);
    println!("{median:.1} round trips, {late:.1} at worst but two");
    // Slow start takes four, the answer to the last packet one, and each repair 1.5.
    assert!(median < 11.0 && late < 16.0, "{median:.1}, {late:.1}");
}

#[test]
fn reordering_is_survived() {
    let path = LinkConfig {
        jitter: MS(8).into(),
        ..testbed(0.02)
    };
    let config = with_profile(path, 33, Profile::ctcp());
    transfer(config, ChannelKind::Object, 3_000_000, 60 * SECOND);
}

#[test]
fn claims_of_more_than_was_sent_are_ignored_and_counted() {
    let transport = TransportConfig::default().profile(Profile::ctcp());
    let mut wanted = params();
    wanted.schemes |= 1 << SchemeId::Rlnc as u64;
    let mut raw = RawClient::connect_with(server_with(transport, |_| true), &wanted);
    let channel = raw
        .connection()
        .open(ChannelKind::Object)
        .expect("room for a channel");
    let now = raw.now;
    let written = raw.connection().write(now, channel, &[7; 500_000]);
    assert!(written.is_ok_and(|n| n > 200_000));
    let (mut sent, mut second) = (0, 0);
    raw.receive(|_, frame| {
        if let Frame::Symbol { header, data } = *frame {
            assert_eq!(header.offset, 0, "all for the first block");
            let len = header.block.bytes(data.len()).expect("a block");
            (sent, second) = (sent + 1, len);
        }
    });
    assert!((1..=8).contains(&sent), "eight tokens, {sent} symbols");
    let mut claim = |needed: u32, offset: u64| {
        let mut report = Vec::new();
        Frame::emit_blocks(
            &mut report,
            channel.0,
            0,
            [(offset, needed)].into_iter(),
            900,
        );
        raw.send(&report);
        raw.connection().stats().implausible_reports
    };
    assert_eq!(claim(0, 0), 1, "complete with {sent} of 32");
    assert_eq!(claim(31 - sent, 0), 2, "one more than was sent");
    assert_eq!(claim(32 - sent, 0), 2, "all that was sent");
    assert_eq!(claim(0, second), 3, "a block that was not begun");
}
