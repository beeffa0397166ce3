//! Paths that become narrower under a connection: open blocks go on in parts, nothing is lost.

use crate::common::{Flow, MS, SECOND, established, link, run_flows, with_profile};
use dfcp_proto::{ChannelKind, Profile};
use dfcp_sim::{Pair, PairConfig, Side};

/// Runs `flows` for `ms` each before the paths from client and server get the next of `mtus` (UDP
/// payload bytes), then to their end.
fn narrowing(pair: &mut Pair, flows: &mut [Flow], ms: u64, mtus: &[[usize; 2]]) {
    for mtu in mtus {
        run_flows(pair, flows, MS(ms));
        for (host, &bytes) in pair.hosts.iter_mut().zip(mtu) {
            host.path_mtu = bytes;
        }
    }
    assert!(run_flows(pair, flows, 60 * SECOND), "{mtus:?}: {flows:?}");
}

#[test]
fn a_transfer_goes_on_when_either_way_or_both_become_narrower() {
    for mtu in [[1300, 1472], [1472, 1300], [1210, 1210]] {
        let mut pair = established(PairConfig::symmetric(link(50, 40), 21));
        let size = 20_000_000;
        let mut flows = [Flow::open(
            &mut pair,
            Side::Client,
            ChannelKind::Object,
            size,
        )];
        let start = pair.now;
        narrowing(&mut pair, &mut flows, 1000, &[mtu]);
        let took = pair.now.saturating_since(start);
        assert!(took < MS(5500), "{mtu:?}: {took:?}");
        let stats = pair.connection(Side::Client).stats();
        assert_eq!(stats.black_holes, u64::from(mtu[0] < 1472), "{mtu:?}");
        assert!(stats.datagram_size <= mtu[0], "{mtu:?}");
        // What is found is nearly what there is.
        assert!(
            stats.datagram_size + 136 >= mtu[0],
            "{mtu:?}: {}",
            stats.datagram_size
        );
    }
}

#[test]
fn both_sides_send_and_the_path_changes_twice() {
    let mut pair = established(PairConfig::symmetric(link(50, 40), 22));
    let mut flows =
        Side::BOTH.map(|side| Flow::open(&mut pair, side, ChannelKind::Stream, 20_000_000));
    let mtus = [[1400, 1472], [1220, 1350], [1472, 1200]];
    narrowing(&mut pair, &mut flows, 1000, &mtus);
}

#[test]
fn no_stall_at_a_black_hole_is_longer_than_a_second() {
    for (mbit, rtt) in [(50, 40), (1000, 1)] {
        let size = mbit * 500_000;
        let mut pair = established(PairConfig::symmetric(link(mbit, rtt), 23));
        let mut flows = [Flow::open(
            &mut pair,
            Side::Client,
            ChannelKind::Object,
            size,
        )];
        run_flows(&mut pair, &mut flows, SECOND);
        pair.hosts[0].path_mtu = 1280;
        let (narrow, mut longest, mut last) = (pair.now, MS(0), pair.now);
        let mut received = flows[0].received;
        pair.run_until(2 * SECOND, |pair| {
            flows[0].poll(pair);
            if flows[0].received > received {
                received = flows[0].received;
                longest = longest.max(pair.now.saturating_since(last));
                last = pair.now;
            }
            false
        });
        let path = format!("{mbit} Mbit/s, {rtt} ms");
        assert!(
            last.saturating_since(narrow) > MS(1900),
            "{path}: it went on: {flows:?}"
        );
        assert!(longest < SECOND, "{path}: stood still for {longest:?}");
        // As fast as before, but for finding the rate anew.
        assert!(run_flows(&mut pair, &mut flows, 60 * SECOND));
        let took = pair.now.saturating_since(narrow);
        assert!(took < MS(6500), "{path}: {took:?}");
    }
}

#[test]
fn chance_alone_does_not_look_like_a_black_hole() {
    for seed in 0..5 {
        let lossy = dfcp_sim::LinkConfig {
            loss: 0.5.into(),
            ..link(20, 40)
        };
        let mut pair = established(PairConfig::symmetric(lossy, seed));
        let mut flows = [Flow::open(
            &mut pair,
            Side::Client,
            ChannelKind::Object,
            3_000_000,
        )];
        assert!(run_flows(&mut pair, &mut flows, 60 * SECOND), "seed {seed}");
        let stats = pair.connection(Side::Client).stats();
        assert_eq!(stats.black_holes, 0, "seed {seed}");
    }
}

#[test]
fn every_code_goes_on_in_parts() {
    use dfcp_proto::SchemeId::{Arq, RaptorQ, Rlnc};
    for scheme in [Arq, RaptorQ, Rlnc] {
        let profile = Profile::auto().with_scheme(scheme, 64);
        let mut pair = established(with_profile(link(50, 40), 24, profile));
        let mut flows = [Flow::open(
            &mut pair,
            Side::Client,
            ChannelKind::Object,
            8_000_000,
        )];
        narrowing(&mut pair, &mut flows, 500, &[[1250, 1472]]);
    }
}
