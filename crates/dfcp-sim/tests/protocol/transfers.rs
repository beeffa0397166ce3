//! Objects and streams of all sizes over all kinds of paths arrive complete and right.

use crate::common::{
    Flow, MS, SECOND, established, link, lossy, run_flows, scheme, transfer, with_profile,
};
use dfcp_proto::rate::{PathModel, Tokens};
use dfcp_proto::scheduler::{Deficit, Rounding, Window};
use dfcp_proto::{ChannelKind, Instant, Profile, Rate, SchemeId, TransportConfig};
use dfcp_sim::{LinkConfig, Pair, PairConfig, Side};
use std::net::SocketAddr;

/// Bytes of one full block of the default profile, as the core cuts it at 1472-byte datagrams.
fn block_len() -> u64 {
    let config = PairConfig::symmetric(link(50, 20), 1);
    let mut pair = established(config);
    let flow = Flow::open(&mut pair, Side::Client, ChannelKind::Object, 1 << 20);
    let mut flows = [flow];
    flows[0].write(&mut pair);
    let mut len = None;
    pair.run_until(10 * SECOND, |pair| {
        let now = pair.now;
        let server = pair.connection(Side::Server);
        if let Ok(Some((_, bytes))) = server.take_block(now, flows[0].channel) {
            len.get_or_insert(bytes.len() as u64);
            server.recycle(now, bytes);
        }
        len.is_some()
    });
    len.expect("a block arrived")
}

#[test]
fn a_file_over_a_slow_path_arrives_in_steps_of_half_a_second() {
    let rate = Rate::from_bps(256_000);
    let slow = LinkConfig {
        rate: rate.into(),
        ..link(1, 100)
    };
    let mut pair = established(PairConfig::symmetric(slow, 1));
    let flow = Flow::open(&mut pair, Side::Client, ChannelKind::Object, 1 << 20);
    let mut flows = [flow];
    let (mut lens, mut total) = (Vec::new(), 0);
    pair.run_until(60 * SECOND, |pair| {
        flows[0].write(pair);
        let now = pair.now;
        let server = pair.connection(Side::Server);
        if let Ok(Some((_, bytes))) = server.take_block(now, flows[0].channel) {
            lens.push(bytes.len() as u64);
            total += bytes.len() as u64;
            server.recycle(now, bytes);
        }
        total == 1 << 20
    });
    assert_eq!(total, 1 << 20, "{lens:?}");
    // What leaves before anything is known of the path may be a block of the usual size, and the rest is no two.
    let (last, lens) = lens.split_last().expect("blocks arrived");
    let most = rate.bytes_in(SECOND / 2);
    assert!(lens[1..].iter().all(|&len| len <= most), "{lens:?}");
    assert!(*last < 2 * most, "{last}");
}

fn impaired() -> Vec<(&'static str, LinkConfig)> {
    let jitter = LinkConfig {
        jitter: MS(8).into(),
        reorder: 0.05,
        reorder_delay: MS(15),
        ..lossy(0.0)
    };
    vec![
        ("clean", lossy(0.0)),
        ("5 %", lossy(0.05)),
        ("20 %", lossy(0.2)),
        ("50 %", lossy(0.5)),
        ("jitter and reordering", jitter),
        (
            "duplication",
            LinkConfig {
                duplicate: 0.3,
                ..lossy(0.02)
            },
        ),
        (
            "corruption",
            LinkConfig {
                corrupt: 0.1,
                ..lossy(0.0)
            },
        ),
        (
            "no queue, no rate",
            LinkConfig {
                delay: MS(5),
                ..LinkConfig::default()
            },
        ),
    ]
}

#[test]
fn objects_of_every_size_arrive_over_every_path() {
    let block = block_len();
    assert!(block > 100_000, "{block}");
    for (seed, (name, link)) in (100..).zip(impaired()) {
        for size in [0, 1, block, block + 1, 3_000_000] {
            println!("{name}, {size} bytes, seed {seed}");
            let config = PairConfig::symmetric(link.clone(), seed);
            let pair = transfer(config, ChannelKind::Object, size, 120 * SECOND);
            assert!(pair.links[0].stats().packets_in > 0);
        }
    }
}

#[test]
fn streams_arrive_over_every_path() {
    for (seed, (name, link)) in (200..).zip(impaired()) {
        for size in [0, 1, 700_000] {
            println!("{name}, {size} bytes, seed {seed}");
            let config = PairConfig::symmetric(link.clone(), seed);
            transfer(config, ChannelKind::Stream, size, 120 * SECOND);
        }
    }
}

#[test]
fn every_code_and_every_rate_carry_an_object() {
    let profiles = [
        ("dense 16", scheme(SchemeId::Dense, 16)),
        ("dense 256", scheme(SchemeId::Dense, 256)),
        ("RaptorQ 64", scheme(SchemeId::RaptorQ, 64)),
        ("RaptorQ 1000", scheme(SchemeId::RaptorQ, 1000)),
        ("Raptor 64", scheme(SchemeId::Raptor, 64)),
        ("Raptor 1000", scheme(SchemeId::Raptor, 1000)),
        ("RLNC 32", scheme(SchemeId::Rlnc, 32)),
        ("ARQ", scheme(SchemeId::Arq, 1)),
        (
            "fixed rate",
            Profile::auto().with_fixed_rate(Rate::from_bps(20_000_000)),
        ),
        ("CTCP", Profile::ctcp()),
        (
            "ARQ at a fixed rate",
            scheme(SchemeId::Arq, 1).with_fixed_rate(Rate::from_bps(20_000_000)),
        ),
    ];
    for (seed, (name, profile)) in (300..).zip(profiles) {
        for loss in [0.0, 0.2] {
            for kind in [ChannelKind::Object, ChannelKind::Stream] {
                println!("{name}, loss {loss}, {kind:?}, seed {seed}");
                let config = with_profile(lossy(loss), seed, profile.clone());
                transfer(config, kind, 2_500_000, 120 * SECOND);
            }
        }
    }
}

/// The parts of a profile that make it up.
type Part = (&'static str, fn(Profile) -> Profile);

#[test]
fn every_combination_of_parts_carries_an_object() {
    let codes = [
        (SchemeId::Arq, 1),
        (SchemeId::Dense, 64),
        (SchemeId::RaptorQ, 200),
        (SchemeId::Raptor, 200),
        (SchemeId::Rlnc, 64),
    ];
    let rates: [Part; 4] = [
        ("path model", |p| p.with_rate(|| Box::new(PathModel::new()))),
        ("fixed", |p| p.with_fixed_rate(Rate::from_bps(20_000_000))),
        ("maximum", Profile::with_max_rate),
        ("tokens", |p| p.with_rate(|| Box::new(Tokens::default()))),
    ];
    let schedulers: [Part; 3] = [
        ("deficit", |p| {
            p.with_scheduler(|| Box::new(Deficit::default()))
        }),
        ("deficit without margin", |p| {
            p.with_scheduler(|| Box::new(Deficit::without_margin(8, Rounding::Down)))
        }),
        ("window", |p| {
            p.with_scheduler(|| Box::new(Window::new(32, 0.05)))
        }),
    ];
    let feedbacks = [
        Profile::auto(),
        Profile::dfcp(),
        Profile::ctcp(),
        Profile::chameleon(),
    ]
    .map(|profile| profile.feedback);
    let path = LinkConfig {
        delay: MS(10),
        loss: 0.05.into(),
        ..LinkConfig::default()
    };
    let mut seed = 400;
    for (code, symbols) in codes {
        for (rate, with_rate) in rates {
            for (scheduler, with_scheduler) in schedulers {
                for feedback in feedbacks.clone() {
                    println!("{code:?}, {rate}, {scheduler}, {feedback:?}, seed {seed}");
                    let profile = Profile::dfcp().with_scheme(code, symbols);
                    let profile = Profile {
                        feedback,
                        ..with_scheduler(with_rate(profile))
                    };
                    let config = with_profile(path.clone(), seed, profile);
                    transfer(config, ChannelKind::Object, 600_000, 60 * SECOND);
                    seed += 1;
                }
            }
        }
    }
}

#[test]
fn maximum_rate_arrives_on_a_path_without_a_bottleneck() {
    let path = LinkConfig {
        delay: MS(10),
        loss: 0.1.into(),
        ..LinkConfig::default()
    };
    for kind in [
        SchemeId::Dense,
        SchemeId::RaptorQ,
        SchemeId::Raptor,
        SchemeId::Arq,
        SchemeId::Rlnc,
    ] {
        let config = with_profile(path.clone(), 7, scheme(kind, 0).with_max_rate());
        transfer(config, ChannelKind::Object, 4_000_000, 60 * SECOND);
    }
}

#[test]
fn rc_udps_parts_move_data_one_block_after_the_other() {
    let path = LinkConfig {
        rate: Rate::from_bps(50_000_000).into(),
        delay: MS(10),
        loss: 0.1.into(),
        ..LinkConfig::default()
    };
    for code in [SchemeId::RaptorQ, SchemeId::Raptor] {
        let profile = Profile::rc_udp().with_scheme(code, 100);
        let config = with_profile(path.clone(), 8, profile);
        transfer(config, ChannelKind::Object, 1_000_000, 60 * SECOND);
    }
}

#[test]
fn coding_costs_little_more_than_what_was_lost() {
    for (name, profile, allowed) in [
        ("auto", Profile::auto(), 1.06),
        ("RaptorQ", scheme(SchemeId::RaptorQ, 128), 1.09),
        ("ARQ", scheme(SchemeId::Arq, 1), 1.06),
    ] {
        for (loss, rtt) in [(0.0, 60), (0.05, 60), (0.2, 60), (0.05, 200)] {
            let size = 20_000_000;
            let path = LinkConfig {
                loss: loss.into(),
                ..link(100, rtt)
            };
            let pair = transfer(
                with_profile(path, 11, profile.clone()),
                ChannelKind::Object,
                size,
                60 * SECOND,
            );
            let ideal = size as f64 * 1500.0 / 1440.0 / (1.0 - loss);
            let overhead = pair.hosts[0].ip_bytes as f64 / ideal;
            println!("{name}, loss {loss}, {rtt} ms: overhead {overhead:.3}");
            assert!(
                overhead < allowed,
                "{name}, loss {loss}, {rtt} ms: overhead {overhead:.3}"
            );
        }
    }
}

#[test]
fn both_sides_may_have_ipv6_addresses() {
    let mut pair = Pair::new(PairConfig::symmetric(lossy(0.1), 41));
    for (host, port) in pair.hosts.iter_mut().zip([4000, 4001]) {
        host.address = SocketAddr::new("2001:db8::1".parse().expect("an address"), port);
        host.path_mtu = 1500 - 48;
    }
    assert!(pair.establish(8 * SECOND));
    let flow = Flow::open(&mut pair, Side::Client, ChannelKind::Object, 2_000_000);
    let mut flows = [flow];
    assert!(run_flows(&mut pair, &mut flows, 30 * SECOND));
    let size = pair.connection(Side::Client).stats().datagram_size;
    assert_eq!(size, 1500 - 48, "IPv6 leaves 1452 bytes of 1500");
}

#[test]
fn the_server_may_open_channels_too() {
    for kind in [ChannelKind::Object, ChannelKind::Stream] {
        let mut pair = established(PairConfig::symmetric(lossy(0.1), 42));
        let flow = Flow::open(&mut pair, Side::Server, kind, 1_500_000);
        let mut flows = [flow];
        assert!(
            run_flows(&mut pair, &mut flows, 30 * SECOND),
            "{kind:?}: {flows:?}"
        );
    }
}

#[test]
fn many_objects_one_after_the_other_and_at_once() {
    let mut pair = established(PairConfig::symmetric(lossy(0.05), 43));
    for round in 0..20 {
        let mut flows: Vec<Flow> = (0..40)
            .map(|i| Flow::open(&mut pair, Side::Client, ChannelKind::Object, 1000 * i))
            .collect();
        assert!(
            run_flows(&mut pair, &mut flows, 30 * SECOND),
            "round {round}"
        );
    }
}

#[test]
fn a_sender_keeps_to_the_codes_and_sizes_that_the_receiver_takes() {
    let narrow = TransportConfig::default()
        .accept_schemes(&[SchemeId::Dense])
        .max_block_symbols(20);
    for (code, symbols) in [
        (SchemeId::Dense, 128),
        (SchemeId::RaptorQ, 1000),
        (SchemeId::Raptor, 1000),
    ] {
        let config = PairConfig {
            server: narrow.clone(),
            ..with_profile(lossy(0.02), 3, scheme(code, symbols))
        };
        let mut pair = established(config);
        let mut flow = Flow::open(&mut pair, Side::Client, ChannelKind::Object, 1_000_000);
        let flows = std::slice::from_mut(&mut flow);
        assert!(run_flows(&mut pair, flows, 30 * SECOND), "{code:?}");
    }
}

/// An object of 25 MB over 50 Mbit/s, 200 ms and 5 % loss to a receiver that holds so much; how long it took, and
/// the symbols sent for each that carried data.
fn to_receiver_of(budget: u64) -> (f64, f64) {
    let path = LinkConfig {
        loss: 0.05.into(),
        ..link(50, 200)
    };
    let config = PairConfig {
        server: TransportConfig::default().receive_budget(budget),
        ..PairConfig::symmetric(path, 1)
    };
    let mut pair = transfer(config, ChannelKind::Object, 25_000_000, 60 * SECOND);
    let took = pair.now.saturating_since(Instant::ZERO).as_secs_f64();
    let stats = pair.connection(Side::Client).stats();
    let (source, repair) = (stats.source_symbols_sent, stats.repair_symbols_sent);
    (took, (source + repair) as f64 / source as f64)
}

/// Of two round trips' worth of credit blocks that wait for a repair, sent once their loss is known, have the half.
#[test]
fn who_holds_less_than_two_round_trips_gets_repairs_ahead_of_losses() {
    let (ample, usual) = to_receiver_of(32 << 20);
    let (scarce, more) = to_receiver_of(2 << 20);
    println!("{ample} s, {usual} a symbol; {scarce} s, {more} a symbol");
    assert!(
        scarce < 1.2 * ample,
        "{scarce} s, {ample} s with ample credit"
    );
    assert!(
        usual < 1.08,
        "{usual} symbols sent for each with ample credit"
    );
    assert!(more < 1.15, "{more} symbols sent for each");
}
