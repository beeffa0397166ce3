//! TFRC, reports each round trip and the receive window: what their users would miss.

use crate::common::raw::{RawClient, params, server_with};
use crate::common::{MS, SECOND, link, transfer, with_profile};
use dfcp_proto::profile::ChameleonParameters;
use dfcp_proto::rate::{
    FixedRate, OscillationReduction, PathReport, Specification, Tfrc, tcp_throughput,
};
use dfcp_proto::scheduler::{FlowControl, SelectiveRepeat};
use dfcp_proto::wire::{Frame, SackReport, TransportParams};
use dfcp_proto::{
    ChannelId, ChannelKind, Duration, Instant, Profile, Rate, Read, SchemeId, TransportConfig,
};
use dfcp_sim::{LinkConfig, Pair, PairConfig, Side};

/// UDP payload of Chameleon's packets of 1000 bytes, as good as.
const PACKET: f64 = 1050.0;

/// A client that always has something to say, and a server that reads it at a rate.
struct Stream {
    pair: Pair,
    channel: ChannelId,
    /// Bytes per second; `None` for all at once.
    reads: Option<f64>,
    since: Instant,
    read: u64,
    /// Read since then.
    counted: u64,
}

impl Stream {
    fn new(config: PairConfig, reads: Option<f64>) -> Self {
        let mut pair = Pair::new(config);
        assert!(pair.establish(8 * SECOND));
        let client = pair.connection(Side::Client);
        let channel = client.open(ChannelKind::Stream).expect("a channel");
        let since = pair.now;
        Self {
            pair,
            channel,
            reads,
            since,
            read: 0,
            counted: 0,
        }
    }

    fn poll(&mut self) {
        let now = self.pair.now;
        let client = self.pair.connection(Side::Client);
        while client.write(now, self.channel, &[7; 65_536]).expect("open") > 0 {}
        let elapsed = now.saturating_since(self.since).as_secs_f64();
        let allowed = self.reads.map_or(u64::MAX, |rate| (rate * elapsed) as u64);
        let server = self.pair.connection(Side::Server);
        let mut buffer = [0; 1000];
        while self.counted + 1000 <= allowed
            && let Ok(Read::Data(n)) = server.read(now, self.channel, &mut buffer)
        {
            self.counted += n as u64;
            self.read += n as u64;
        }
        self.pair.flush();
    }

    /// Reads at this rate from now on.
    fn reads(&mut self, rate: Option<f64>) {
        (self.reads, self.since, self.counted) = (rate, self.pair.now, 0);
    }

    /// Bytes per second that the server read over `time`.
    fn run(&mut self, time: Duration) -> f64 {
        let (start, before) = (self.pair.now, self.read);
        while self.pair.now < start + time {
            self.pair.run_until(MS(2), |_| false);
            self.poll();
        }
        let seconds = self.pair.now.saturating_since(start).as_secs_f64();
        (self.read - before) as f64 / seconds
    }

    fn beyond_window(&mut self) -> u64 {
        self.pair.connection(Side::Server).stats().beyond_window
    }
}

fn chameleon(specification: Specification, flow_control: FlowControl) -> Profile {
    Profile::chameleon_with(ChameleonParameters {
        specification,
        flow_control,
        ..ChameleonParameters::default()
    })
}

/// Loss on the way there only.
fn path(mbit: u64, rtt_ms: u64, loss: f64) -> LinkConfig {
    LinkConfig {
        loss: loss.into(),
        ..link(mbit, rtt_ms)
    }
}

fn stream(profile: Profile, path: LinkConfig, seed: u64, reads: Option<f64>) -> Stream {
    let mut config = with_profile(path, seed, profile);
    config.backward.loss = 0.0.into();
    Stream::new(config, reads)
}

#[test]
fn the_long_run_rate_is_that_of_the_equation() {
    for specification in [Specification::Rfc5348, Specification::Rfc3448] {
        let profile = chameleon(specification, FlowControl::Off);
        let mut stream = stream(profile, path(100, 50, 0.01), 41, None);
        stream.run(10 * SECOND);
        let rate = stream.run(120 * SECOND) * PACKET / 1000.0;
        // Losses of single packets are events of their own, but for those within a round trip of
        // the last: at 100 packets between losses and 24 a round trip, 24 % fewer events.
        let packets = rate * 0.05 / PACKET;
        let p = 0.01 / (1.0 + 0.01 * packets);
        let expected = tcp_throughput(PACKET, MS(50), p);
        let ratio = rate / expected;
        println!("{specification:?}: {ratio:.3} of the equation");
        assert!((0.85..1.15).contains(&ratio), "{specification:?}: {ratio}");
    }
}

#[test]
fn a_slow_reader_sets_the_rate_and_nothing_is_dropped() {
    let profile = chameleon(Specification::Rfc3448, FlowControl::AvailWin);
    let mut stream = stream(profile, path(1, 20, 0.0), 42, Some(75_000.0));
    stream.run(2 * SECOND);
    for (reads, least, most) in [
        (Some(75_000.0), 0.98, 1.02),
        (Some(12_500.0), 0.95, 1.05),
        (Some(40_000.0), 0.95, 1.05),
    ] {
        stream.reads(reads);
        stream.run(2 * SECOND);
        let share = stream.run(20 * SECOND) / reads.unwrap_or(1.0);
        println!("reads {reads:?}: {share:.3} of it");
        assert!((least..most).contains(&share), "{reads:?}: {share}");
    }
    stream.reads(None);
    stream.run(5 * SECOND);
    let free = stream.run(10 * SECOND);
    assert!(free > 0.85 * 125_000.0, "{free}");
    assert_eq!(stream.beyond_window(), 0);
}

#[test]
fn a_reader_that_sleeps_and_wakes_finds_its_sender_again() {
    for seed in 0..5 {
        let profile = chameleon(Specification::Rfc3448, FlowControl::AvailWin);
        let mut stream = stream(profile, path(10, 40, 0.1), 4300 + seed, None);
        stream.run(3 * SECOND);
        stream.reads(Some(0.0));
        assert_eq!(stream.run(20 * SECOND), 0.0);
        assert!(stream.read > 0, "seed {seed}");
        stream.reads(None);
        // The report of the open window may be lost: the sender asks at least once a second.
        assert!(stream.run(4 * SECOND) > 0.0, "seed {seed}");
        assert_eq!(stream.beyond_window(), 0, "seed {seed}");
    }
}

#[test]
fn without_flow_control_the_window_does_not_hold_it() {
    let profile = chameleon(Specification::Rfc3448, FlowControl::Off);
    let mut stream = stream(profile, path(1, 20, 0.0), 44, Some(10_000.0));
    stream.run(20 * SECOND);
    assert!(stream.beyond_window() > 0);
}

#[test]
fn a_blackout_is_not_flooded_and_ends() {
    let there = path(10, 50, 0.001);
    let profile = chameleon(Specification::Rfc5348, FlowControl::Off);
    let mut stream = stream(profile, there.clone(), 45, None);
    let before = stream.run(20 * SECOND);
    let set = |stream: &mut Stream, config: LinkConfig| {
        let now = stream.pair.now;
        stream.pair.links[0].set_config(now, config);
    };
    let sent = stream.pair.hosts[0].ip_bytes;
    set(&mut stream, path(10, 50, 1.0));
    stream.run(20 * SECOND);
    let into_the_dark = stream.pair.hosts[0].ip_bytes - sent;
    // Four round trips at the full rate, halved each time from then on.
    let most = 3.0 * before * 0.2 + 100_000.0;
    assert!((into_the_dark as f64) < most, "{into_the_dark} {most}");
    set(&mut stream, there);
    stream.run(15 * SECOND);
    let after = stream.run(20 * SECOND);
    assert!(after > 0.5 * before, "{after} {before}");
}

#[test]
fn transfers_survive_what_paths_do() {
    let awkward = LinkConfig {
        jitter: MS(15).into(),
        duplicate: 0.02,
        ..path(20, 40, 0.05)
    };
    for kind in [ChannelKind::Stream, ChannelKind::Object] {
        let config = with_profile(awkward.clone(), 46, Profile::chameleon());
        transfer(config, kind, 500_000, 120 * SECOND);
    }
}

/// Code, rate, scheduler and feedback of different papers in one connection.
#[test]
fn any_part_works_with_the_others() {
    let tfrc = || -> Box<dyn dfcp_proto::rate::RateController> {
        Box::new(Tfrc::new(Specification::Rfc5348, OscillationReduction::Off))
    };
    let selective = || -> Box<dyn dfcp_proto::scheduler::BlockScheduler> {
        Box::new(SelectiveRepeat::default())
    };
    let profiles = [
        Profile::auto().with_rate(tfrc),
        Profile::dfcp().with_rate(tfrc),
        Profile::ctcp().with_rate(tfrc),
        Profile::chameleon().with_scheme(SchemeId::Dense, 32),
        Profile::chameleon().with_scheme(SchemeId::RaptorQ, 100),
        Profile::chameleon().with_rate(|| Box::new(FixedRate::new(Rate::from_bps(5_000_000)))),
        Profile {
            feedback: Profile::auto().feedback,
            ..Profile::chameleon()
        },
        Profile {
            feedback: Profile::dfcp().feedback,
            ..Profile::chameleon()
        },
        Profile {
            feedback: Profile::chameleon().feedback,
            ..Profile::auto()
        },
        Profile::auto().with_scheduler(selective),
    ];
    for (n, profile) in (0..).zip(profiles) {
        println!("{profile:?}, profile {n}");
        let config = with_profile(path(10, 30, 0.02), 470 + n, profile);
        transfer(config, ChannelKind::Object, 1_000_000, 120 * SECOND);
    }
}

#[test]
fn forged_reports_are_counted_and_move_nothing() {
    let transport = TransportConfig::default().profile(Profile::chameleon());
    let params = TransportParams {
        receive_packets: 32,
        ..params()
    };
    let mut raw = RawClient::connect_with(server_with(transport, |_| true), &params);
    let channel = raw.connection().open(ChannelKind::Object).expect("room");
    let now = raw.now;
    assert!(raw.connection().write(now, channel, &[7; 500_000]).is_ok());
    raw.receive(|_, _| {});
    let sent = raw.connection().stats().packets_sent;
    let report = |rate: f64, p: f64, avail_win: u8, offset: u64| {
        let path = PathReport {
            receive_rate: rate,
            loss_event_rate: p,
        };
        SackReport::new(path, channel.0, avail_win, offset)
    };
    let whole = (1 << 62) - 1;
    let forged = [
        report(1e18, 0.0, 255, 0),
        report(1e18, 1.0, 200, whole),
        report(0.0, 0.5, 64, 499_999),
    ];
    for (n, forged) in (1..).zip(&forged) {
        let mut frame = Vec::new();
        // The first with a part of which hardly anything was sent.
        let parts = (forged.offset == 0).then_some(10..1 << 61);
        Frame::emit_sack(&mut frame, forged, parts.into_iter(), 900);
        raw.send(&frame);
        assert_eq!(raw.connection().stats().refused_reports, n, "{forged:?}");
    }
    let mut after = 0;
    for _ in 0..1000 {
        raw.now += MS(1);
        raw.receive(|_, _| after += 1);
    }
    let more = raw.connection().stats().packets_sent - sent;
    assert!(
        more < 200,
        "{more} packets ({after} frames) to a peer that says nothing true"
    );
}
