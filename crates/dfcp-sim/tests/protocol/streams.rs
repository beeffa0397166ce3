//! Streams: order, both directions, interleaving, flow control, resets.

use crate::common::raw::RawClient;
use crate::common::{Flow, MS, SECOND, established, link, lossy, run_flows};
use dfcp_proto::wire::Frame;
use dfcp_proto::{ChannelId, ChannelKind, Duration, Event, Read, TransportConfig, VarInt};
use dfcp_sim::{LinkConfig, Pair, PairConfig, Side};

const MIB: u64 = 1 << 20;

fn stream(pair: &mut Pair, size: u64) -> Flow {
    Flow::open(pair, Side::Client, ChannelKind::Stream, size)
}

/// Receive budget of the server 1 MiB, so that limits are reached soon.
fn small_budget(loss: f64, seed: u64) -> Pair {
    let config = PairConfig {
        server: TransportConfig::default().receive_budget(MIB),
        ..PairConfig::symmetric(lossy(loss), seed)
    };
    established(config)
}

#[test]
fn both_directions_at_once() {
    let mut pair = established(PairConfig::symmetric(lossy(0.1), 1));
    let there = stream(&mut pair, MIB);
    let back = Flow::new(there.channel, Side::Server, MIB);
    let mut flows = [there, back];
    // The server can answer once it knows of the stream.
    flows[0].write(&mut pair);
    let opened = Event::Opened(flows[0].channel);
    assert!(pair.run_until(SECOND, |pair| pair.hosts[1].events.contains(&opened)));
    assert!(run_flows(&mut pair, &mut flows, 60 * SECOND), "{flows:?}");
}

#[test]
fn interleaved_streams_share_the_connection_evenly() {
    let mut pair = established(PairConfig::symmetric(lossy(0.05), 2));
    let mut flows: Vec<Flow> = (0..5).map(|_| stream(&mut pair, 4 * MIB)).collect();
    let mut least_at_half = None;
    let done = pair.run_until(60 * SECOND, |pair| {
        let done = flows
            .iter_mut()
            .filter_map(|flow| (!flow.poll(pair)).then_some(()))
            .count()
            == 0;
        if flows.iter().any(|f| f.received > 2 * MIB) && least_at_half.is_none() {
            least_at_half = flows.iter().map(|f| f.received).min();
        }
        done
    });
    assert!(done, "{flows:?}");
    assert!(
        least_at_half > Some(MIB),
        "one stream had {least_at_half:?} when another had 2 MiB"
    );
}

/// What is lost of the first window is repaired a round trip later, and all that came behind it waits for that:
/// the sender goes on meanwhile, as one whose receiver takes what comes in any order.
#[test]
fn a_hole_does_not_close_the_first_window() {
    let path = LinkConfig {
        loss: 0.01.into(),
        ..link(100, 200)
    };
    let time = |kind, seed| {
        let transport = TransportConfig::default().initial_stream_window(MIB / 2);
        let mut pair = established(PairConfig {
            client: transport.clone(),
            server: transport,
            ..PairConfig::symmetric(path.clone(), seed)
        });
        let size = 3 * MIB;
        let mut flow = Flow::open(&mut pair, Side::Client, kind, size);
        let begun = pair.now;
        assert!(pair.run_until(20 * SECOND, |pair| {
            if flow.written < size {
                flow.write(pair);
            }
            flow.read_some(pair, usize::MAX);
            flow.received == size
        }));
        pair.now.saturating_since(begun)
    };
    let sum = |kind| (1..=5).map(|seed| time(kind, seed)).sum::<Duration>();
    let (stream, object) = (sum(ChannelKind::Stream), sum(ChannelKind::Object));
    assert!(stream < object.mul_f64(1.15), "{stream:?} for {object:?}");
}

#[test]
fn tiny_messages_arrive_without_waiting_for_more() {
    let mut pair = established(PairConfig::symmetric(lossy(0.0), 3));
    let mut flow = stream(&mut pair, 2000);
    flow.chunk = 10;
    let mut sent = 0;
    while sent < 2000 {
        let message: Vec<u8> = vec![7; 10];
        let now = pair.now;
        let client = pair.connection(Side::Client);
        assert_eq!(client.write(now, flow.channel, &message), Ok(10));
        sent += 10;
        pair.flush();
        let mut got = 0;
        // One way is 10 ms; nothing may wait for a second message.
        assert!(
            pair.run_until(MS(25), |pair| {
                let (now, mut buffer) = (pair.now, [0; 64]);
                match pair
                    .connection(Side::Server)
                    .read(now, flow.channel, &mut buffer)
                {
                    Ok(Read::Data(n)) => got += n,
                    _ => return false,
                }
                got == 10
            }),
            "message ending at {sent}"
        );
    }
}

#[test]
fn a_slow_reader_holds_the_sender_back() {
    let mut pair = small_budget(0.02, 4);
    let mut flow = stream(&mut pair, 6 * MIB);
    for _ in 0..400 {
        flow.write(&mut pair);
        pair.run_until(MS(50), |_| false);
        flow.read_some(&mut pair, 32_768);
    }
    assert!(flow.is_done(&pair), "{flow:?}");
    let sent = pair.connection(Side::Client).stats().bytes_sent;
    assert!(
        sent < 8 * MIB,
        "{sent} bytes sent for 6 MiB to a slow reader"
    );
}

#[test]
fn the_sender_never_passes_the_reader_by_more_than_the_window() {
    let mut pair = small_budget(0.0, 5);
    let mut flow = stream(&mut pair, 6 * MIB);
    pair.run_until(5 * SECOND, |pair| {
        flow.write(pair);
        false
    });
    let unread = pair.connection(Side::Server).stats().bytes_received;
    assert!(
        unread < MIB,
        "{unread} bytes sent to a reader that reads nothing"
    );
    assert!(
        run_flows(&mut pair, std::slice::from_mut(&mut flow), 30 * SECOND),
        "{flow:?}"
    );
}

/// Whoever waits for a reader asks now and then, as a credit may have been lost, and not at the pace of round
/// trips: that was three hundred packets a second on a local network, for as long as nobody read.
#[test]
fn a_stream_that_waits_for_its_reader_costs_little_and_goes_on_at_once() {
    let config = PairConfig::symmetric(link(100, 2), 21);
    let mut pair = established(config);
    let mut flow = stream(&mut pair, 40 * MIB);
    pair.run_until(5 * SECOND, |pair| {
        flow.write(pair);
        false
    });
    let sent = |pair: &mut Pair| pair.connection(Side::Client).stats().packets_sent;
    let before = sent(&mut pair);
    pair.run_until(10 * SECOND, |_| false);
    let asked = sent(&mut pair) - before;
    assert!(
        (10..=120).contains(&asked),
        "{asked} packets in ten seconds"
    );
    let begun = pair.now;
    assert!(run_flows(
        &mut pair,
        std::slice::from_mut(&mut flow),
        30 * SECOND
    ));
    let took = pair.now.saturating_since(begun);
    assert!(took < 4 * SECOND, "{took:?} for 40 MiB at 100 Mbit/s");
}

#[test]
fn a_stream_that_nobody_reads_does_not_stop_another() {
    for (seed, loss) in [(6, 0.0), (7, 0.2)] {
        let mut pair = small_budget(loss, seed);
        let mut ignored = stream(&mut pair, 4 * MIB);
        let mut read = stream(&mut pair, 4 * MIB);
        let done = pair.run_until(60 * SECOND, |pair| {
            ignored.write(pair);
            read.poll(pair)
        });
        assert!(done, "seed {seed}: {read:?}");
    }
}

#[test]
fn streams_that_are_read_no_more_leave_room_to_others() {
    for (seed, loss) in [(9, 0.0), (10, 0.05)] {
        let server = TransportConfig::default()
            .receive_budget(8 * MIB)
            .initial_stream_window(64 << 10);
        let config = PairConfig {
            server,
            ..PairConfig::symmetric(lossy(loss), seed)
        };
        let mut pair = established(config);
        let mut ignored: Vec<Flow> = (0..40).map(|_| stream(&mut pair, 8 * MIB)).collect();
        // Some of them were read for a while, and may have more than a new one.
        pair.run_until(60 * SECOND, |pair| {
            for flow in &mut ignored[..4] {
                flow.write(pair);
                if flow.received < MIB {
                    flow.read_some(pair, 32_768);
                }
            }
            ignored[..4].iter().all(|flow| flow.received >= MIB)
        });
        for flow in &mut ignored {
            flow.write(&mut pair);
        }
        pair.run_until(5 * SECOND, |_| false);
        let mut read = stream(&mut pair, 8 * MIB);
        let done = run_flows(&mut pair, std::slice::from_mut(&mut read), 60 * SECOND);
        assert!(done, "seed {seed}: {read:?}");
    }
}

#[test]
fn a_stream_that_is_read_soon_has_the_whole_window() {
    let rtt = 200;
    let server = TransportConfig::default().initial_stream_window(64 << 10);
    let config = PairConfig {
        server,
        ..PairConfig::symmetric(link(100, rtt), 11)
    };
    let mut pair = established(config);
    let mut flow = stream(&mut pair, 40 * MIB);
    // 100 Mbit/s have 2.5 MB in a round trip; a window of 64 KiB would have 2.6 Mbit/s.
    let limit = SECOND * 10;
    let done = run_flows(&mut pair, std::slice::from_mut(&mut flow), limit);
    assert!(done, "{flow:?}");
}

/// What a stream is given at first must not hold back the search for the rate: that has doubled what is
/// in flight before what was lost of it is there, and all waits for that in order.
#[test]
fn a_stream_with_a_small_first_window_starts_as_fast_as_one_with_a_large_one() {
    let time = |window: u64, seed| {
        let server = TransportConfig::default().initial_stream_window(window);
        let config = PairConfig {
            server,
            ..PairConfig::symmetric(
                LinkConfig {
                    loss: 0.05.into(),
                    ..link(50, 80)
                },
                seed,
            )
        };
        let mut pair = established(config);
        let start = pair.now;
        let mut flow = stream(&mut pair, 10_000_000);
        let done = run_flows(&mut pair, std::slice::from_mut(&mut flow), SECOND * 20);
        assert!(done, "{flow:?}");
        pair.now.saturating_since(start).as_secs_f64()
    };
    let mut ratios: Vec<f64> = (30..33)
        .map(|seed| time(512 << 10, seed) / time(16 << 20, seed))
        .collect();
    ratios.sort_by(f64::total_cmp);
    assert!(
        ratios[1] < 1.05,
        "times over those of a large window: {ratios:?}"
    );
}

#[test]
fn what_waits_in_streams_that_nobody_reads_leaves_room_to_write() {
    let server = TransportConfig::default().initial_stream_window(16 << 10);
    let config = PairConfig {
        client: TransportConfig::default().send_buffer(MIB),
        server,
        ..PairConfig::symmetric(lossy(0.02), 12)
    };
    let mut pair = established(config);
    let mut ignored: Vec<Flow> = (0..10).map(|_| stream(&mut pair, 4 * MIB)).collect();
    pair.run_until(2 * SECOND, |pair| {
        ignored.iter_mut().for_each(|flow| flow.write(pair));
        false
    });
    let mut read = stream(&mut pair, 4 * MIB);
    let done = pair.run_until(60 * SECOND, |pair| {
        ignored.iter_mut().for_each(|flow| flow.write(pair));
        read.poll(pair)
    });
    assert!(done, "{read:?}");
}

#[test]
fn an_object_that_nobody_takes_stays_within_the_budget() {
    let mut pair = small_budget(0.05, 8);
    let mut flow = Flow::open(&mut pair, Side::Client, ChannelKind::Object, 5 * MIB);
    pair.run_until(5 * SECOND, |pair| {
        flow.write(pair);
        false
    });
    let held = pair.connection(Side::Server).stats().symbols_received * 1472;
    assert!(held < MIB + MIB / 4, "{held} bytes for a budget of 1 MiB");
    assert!(
        run_flows(&mut pair, std::slice::from_mut(&mut flow), 60 * SECOND),
        "{flow:?}"
    );
}

/// Opens a channel, writes, lets some of it arrive, and ends it early; far more often than there
/// are channels, with far more data than there is credit.
fn ended_early(kind: ChannelKind, seed: u64, end: impl Fn(&mut Pair, &Flow, u32)) {
    let mut pair = small_budget(0.1, seed);
    for round in 0..400 {
        let mut flow = Flow::open(&mut pair, Side::Client, kind, 300_000);
        flow.write(&mut pair);
        pair.run_until(MS((round % 60).into()), |_| false);
        end(&mut pair, &flow, round);
        // What the application of the server does with a channel that was reset.
        pair.run_until(MS(5), |_| false);
        for side in Side::BOTH {
            pair.hosts[side as usize].events.clear();
        }
    }
    pair.run_until(2 * SECOND, |_| false);
    let mut flow = Flow::open(&mut pair, Side::Client, kind, 3 * MIB);
    let done = run_flows(&mut pair, std::slice::from_mut(&mut flow), 60 * SECOND);
    let client = pair.connection(Side::Client).stats();
    assert!(done, "{kind:?}, seed {seed}: {flow:?}\n{client:?}");
}

#[test]
fn resets_free_channels_and_credit() {
    for (seed, kind) in [(20, ChannelKind::Object), (21, ChannelKind::Stream)] {
        ended_early(kind, seed, |pair, flow, round| {
            pair.connection(Side::Client)
                .reset_channel(flow.channel, (300 + round).into());
            if kind == ChannelKind::Stream {
                pair.connection(Side::Client).end_recv(flow.channel);
            }
            pair.flush();
            pair.run_until(SECOND, |pair| {
                let reset = |e: &Event| matches!(e, Event::Reset { channel, .. } if *channel == flow.channel);
                pair.hosts[1].events.iter().any(reset)
            });
            let now = pair.now;
            let server = pair.connection(Side::Server);
            if kind == ChannelKind::Stream {
                assert!(
                    server.read(now, flow.channel, &mut [0; 9]).is_err(),
                    "round {round}"
                );
                server.reset_channel(flow.channel, 0.into());
            }
            server.end_recv(flow.channel);
            pair.flush();
        });
    }
}

#[test]
fn stops_free_channels_and_credit() {
    for (seed, kind) in [(22, ChannelKind::Object), (23, ChannelKind::Stream)] {
        ended_early(kind, seed, |pair, flow, round| {
            pair.run_until(SECOND, |pair| {
                pair.hosts[1].events.contains(&Event::Opened(flow.channel))
            });
            let now = pair.now;
            let server = pair.connection(Side::Server);
            if round % 2 == 0 {
                server.stop_channel(now, flow.channel, (400 + round).into());
            }
            server.end_recv(flow.channel);
            if kind == ChannelKind::Stream {
                server.reset_channel(flow.channel, 1.into());
                pair.connection(Side::Client).end_recv(flow.channel);
            }
            pair.flush();
            pair.run_until(SECOND, |pair| {
                let stopped = |e: &Event| matches!(e, Event::Stopped { channel, .. } if *channel == flow.channel);
                pair.hosts[0].events.iter().any(stopped)
            });
            let now = pair.now;
            let client = pair.connection(Side::Client);
            assert!(
                client.write(now, flow.channel, b"x").is_err(),
                "round {round}"
            );
        });
    }
}

#[test]
fn a_reset_is_told_once_with_its_code() {
    let mut pair = established(PairConfig::symmetric(lossy(0.3), 24));
    let mut flow = stream(&mut pair, 10 * MIB);
    flow.write(&mut pair);
    pair.run_until(MS(100), |_| false);
    pair.connection(Side::Client)
        .reset_channel(flow.channel, 777.into());
    pair.flush();
    pair.run_until(3 * SECOND, |_| false);
    let told: Vec<_> = pair.hosts[1]
        .events
        .iter()
        .filter(|e| matches!(e, Event::Reset { .. }))
        .collect();
    assert_eq!(
        told,
        [&Event::Reset {
            channel: flow.channel,
            code: 777.into()
        }]
    );
    assert!(
        !pair.hosts[0]
            .events
            .contains(&Event::Acknowledged(flow.channel))
    );
}

#[test]
fn the_largest_code_arrives_as_it_was_given() {
    let mut pair = established(PairConfig::symmetric(lossy(0.0), 25));
    let mut flow = stream(&mut pair, MIB);
    flow.write(&mut pair);
    pair.connection(Side::Client)
        .reset_channel(flow.channel, VarInt::MAX);
    pair.flush();
    pair.run_until(SECOND, |_| false);
    let code = VarInt::try_from((1_u64 << 62) - 1).expect("the wire carries it");
    let reset = Event::Reset {
        channel: flow.channel,
        code,
    };
    assert!(pair.hosts[1].events.contains(&reset));
}

#[test]
fn a_reset_counts_blocks_that_never_arrived() {
    let mut raw = RawClient::connect();
    let granted = max_data(&mut raw);
    for index in 0..8 {
        raw.send_frames(&[Frame::Reset {
            channel: index << 2,
            code: 1.into(),
            charged: 3 << 20,
        }]);
    }
    raw.now += SECOND;
    let after = max_data(&mut raw);
    assert_eq!(
        after,
        granted + (24 << 20),
        "credit used by reset channels comes back"
    );
}

fn max_data(raw: &mut RawClient) -> u64 {
    raw.send_frames(&[Frame::Ping]);
    raw.now += MS(20);
    let mut limit = 0;
    raw.receive(|_, frame| {
        if let Frame::MaxData(max) = frame {
            limit = limit.max(*max);
        }
    });
    limit
}

#[test]
fn a_receiver_of_much_data_keeps_its_own_record_short() {
    let path = link(100, 20);
    let mut pair = established(PairConfig::symmetric(path, 25));
    let mut flow = Flow::open(&mut pair, Side::Client, ChannelKind::Object, 40 * MIB);
    assert!(run_flows(
        &mut pair,
        std::slice::from_mut(&mut flow),
        30 * SECOND
    ));
    let server = pair.connection(Side::Server).stats();
    assert!(server.packets_sent > 1000);
    // It measured the path, so the sender acknowledged something of the receiver's.
    assert!(server.min_rtt < MS(25), "{:?}", server.min_rtt);
}

/// A server kept no state by which it could know the round trip; the client tells it.
#[test]
fn a_servers_lost_first_answer_is_repeated_after_round_trips_of_this_path() {
    let path = link(100, 10);
    let mut pair = Pair::new(PairConfig::symmetric(path.clone(), 8));
    pair.connect();
    let connected = |pair: &mut Pair| {
        let client = pair.try_connection(Side::Client);
        client.is_some_and(|client| client.is_established())
    };
    assert!(pair.run_until(SECOND, connected));
    let flow = stream(&mut pair, 100);
    let (channel, start) = (flow.channel, pair.now);
    let client = pair.connection(Side::Client);
    assert_eq!(client.write(start, channel, &[1; 100]), Ok(100));
    pair.flush();
    let dark = LinkConfig {
        loss: 1.0.into(),
        ..path.clone()
    };
    pair.links[1].set_config(start, dark);
    let mut buffer = [0; 200];
    let mut answer = |pair: &mut Pair| {
        let now = pair.now;
        if let Some(server) = pair.try_connection(Side::Server)
            && let Ok(Read::Data(_)) = server.read(now, channel, &mut buffer)
        {
            assert_eq!(server.write(now, channel, &[2; 50]), Ok(50));
            pair.flush();
        }
        let client = pair.connection(Side::Client);
        matches!(client.read(now, channel, &mut buffer), Ok(Read::Data(50)))
    };
    assert!(!pair.run_until(MS(30), &mut answer));
    let now = pair.now;
    pair.links[1].set_config(now, path);
    assert!(pair.run_until(SECOND, &mut answer));
    let waited = pair.now.saturating_since(start);
    assert!(waited < MS(100), "{waited:?} on a path of 10 ms");
}

/// A driver writes where it is told that it may, and nowhere else.
#[test]
fn of_those_that_wait_for_the_buffer_as_many_are_told_as_it_has_room_for() {
    let mut pair = established(PairConfig {
        client: TransportConfig::default()
            .send_buffer(MIB)
            .max_channels(200),
        server: TransportConfig::default().max_channels(200),
        ..PairConfig::symmetric(link(100, 20), 5)
    });
    let mut flows: Vec<Flow> = (0..150).map(|_| stream(&mut pair, MIB / 12)).collect();
    flows.iter_mut().for_each(|flow| flow.write(&mut pair));
    let (mut told, mut in_vain) = (0, 0);
    let mut later: Vec<ChannelId> = Vec::new();
    let mut done = false;
    for _ in 0..300 {
        // Some take their time.
        let mut may_write = std::mem::take(&mut later);
        done = pair.run_until(SECOND / 5, |pair| {
            for event in std::mem::take(&mut pair.hosts[0].events) {
                match event {
                    Event::Writable(id) if id.index() % 7 == 0 => later.push(id),
                    Event::Writable(id) => may_write.push(id),
                    _ => continue,
                }
                told += 1;
            }
            for id in may_write.drain(..) {
                let flow = flows.iter_mut().find(|flow| flow.channel == id);
                let flow = flow.expect("one of them");
                let before = flow.written;
                flow.write(pair);
                in_vain += u32::from(flow.written == before);
            }
            let read = |flow: &mut Flow| flow.read_some(pair, usize::MAX);
            flows.iter_mut().for_each(read);
            flows.iter().all(|flow| flow.ended)
        });
        if done {
            break;
        }
    }
    assert!(done, "{told} told, {in_vain} in vain, {flows:?}");
    assert!(in_vain * 4 < told, "{in_vain} of {told} in vain");
}
