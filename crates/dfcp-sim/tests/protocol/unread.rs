//! Streams that nobody reads, beside others.

use crate::common::{Flow, MS, SECOND, established, link, run_flows};
use dfcp_proto::{ChannelKind, Duration, TransportConfig};
use dfcp_sim::{LinkConfig, Pair, PairConfig, Side};

const MIB: u64 = 1 << 20;

/// A pair with many streams, which begin with 1/64 of what the server may hold.
fn pair(link: LinkConfig, (budget, send_buffer): (u64, u64), seed: u64) -> Pair {
    let transport = || {
        TransportConfig::default()
            .max_channels(1000)
            .receive_budget(budget)
            .initial_stream_window(budget / 64)
            .send_buffer(send_buffer)
    };
    established(PairConfig {
        client: transport(),
        server: transport(),
        ..PairConfig::symmetric(link, seed)
    })
}

fn stream(pair: &mut Pair, size: u64) -> Flow {
    let mut flow = Flow::open(pair, Side::Client, ChannelKind::Stream, size);
    flow.chunk = 8192;
    flow
}

/// Writes what there is room for now and then, and reads `each` bytes of every stream in all.
fn leave(pair: &mut Pair, flows: &mut [Flow], each: usize, time: Duration) {
    for _ in 0..10 {
        for flow in &mut *flows {
            flow.write(pair);
            let rest = each.saturating_sub(flow.received as usize);
            flow.read_some(pair, rest.max(1).min(each));
        }
        pair.run_until(time / 10, |_| false);
    }
}

/// How long a stream takes that is read.
fn time_of(pair: &mut Pair, size: u64) -> Duration {
    let begun = pair.now;
    let mut flows = [stream(pair, size)];
    let done = run_flows(pair, &mut flows, 120 * SECOND);
    assert!(done, "{flows:?}");
    pair.now.saturating_since(begun)
}

/// Many programs that wait beside one that does not.
#[test]
fn three_hundred_that_are_not_read_leave_one_that_is_half_of_its_rate() {
    let (budget, size) = (32 * MIB, 8 * MIB);
    let ample = (budget, 4 * budget);
    let path = || link(100, 40);
    let mut alone = pair(path(), ample, 1);
    time_of(&mut alone, size); // what the path carries is known then
    let alone = time_of(&mut alone, size);
    // Nobody reads them, or nobody does since windows are smaller. A small send buffer is full of what they
    // were given before that, and leaves less.
    let small = (budget, budget / 8);
    for (read, memory, times) in [(0, ample, 2), (20_000, ample, 2), (0, small, 3)] {
        let mut pair = pair(path(), memory, 1);
        time_of(&mut pair, size);
        let mut unread: Vec<Flow> = (0..300).map(|_| stream(&mut pair, 4 * MIB)).collect();
        for flow in &mut unread {
            flow.write_to(&mut pair, read);
        }
        pair.run_until(3 * SECOND, |_| false);
        for flow in &mut unread {
            flow.read_some(&mut pair, read as usize);
            assert_eq!(flow.received, read);
        }
        leave(&mut pair, &mut unread, 0, 10 * SECOND);
        let beside = time_of(&mut pair, size);
        assert!(
            beside <= times * alone,
            "{beside:?} beside others of which {read} were read, {memory:?}, {alone:?} alone"
        );
    }
}

/// A stream that waits for its reader keeps the sender waiting in every round trip, also while others have little to
/// say. What is known of the path stays known.
#[test]
fn one_that_is_not_read_makes_nobody_forget_the_path() {
    let time = |unread: bool| {
        let mut pair = pair(link(100, 80), (32 * MIB, 128 * MIB), 1);
        time_of(&mut pair, 8 * MIB);
        let mut waits = unread.then(|| stream(&mut pair, 4 * MIB));
        let mut talk = stream(&mut pair, MIB);
        for said in 1..400 {
            talk.write_to(&mut pair, 500 * said);
            talk.read_some(&mut pair, usize::MAX);
            if let Some(flow) = &mut waits {
                flow.write(&mut pair);
            }
            pair.run_until(MS(10), |_| false);
        }
        time_of(&mut pair, 2 * MIB)
    };
    let (beside, alone) = (time(true), time(false));
    assert!(
        10 * beside <= 11 * alone,
        "{beside:?} beside one that is not read, {alone:?} alone"
    );
}

/// What was read of a stream once promises it more; its reader may stop all the same.
#[test]
fn a_hundred_that_were_read_and_are_not_any_more_starve_nobody() {
    // A proxy's window and budget, of which the endpoint's memory grants one connection an eighth.
    let (budget, size) = (256 * MIB, 8 * MIB);
    // A share for each of a hundred gave it 1 MB a second; what it earns by being read gives it 4. Three hundred
    // leave nothing to earn; they left it 50 kB a second, 2 KiB in a round trip.
    for (count, each, send_buffer, size, within) in [
        (100, 300_000, 32 * MIB, size, 5),
        (300, 100_000, 128 * MIB, size / 4, 25),
    ] {
        let transport = || {
            TransportConfig::default()
                .max_channels(1000)
                .receive_budget(budget)
                .initial_stream_window(MIB / 2)
                .send_buffer(send_buffer)
        };
        let mut pair = established(PairConfig {
            client: transport(),
            server: transport(),
            ..PairConfig::symmetric(link(100, 40), 1)
        });
        time_of(&mut pair, size);
        let mut stopped: Vec<Flow> = (0..count).map(|_| stream(&mut pair, 40 * MIB)).collect();
        for _ in 0..400 {
            for flow in &mut stopped {
                flow.write(&mut pair);
                let rest = u64::saturating_sub(each, flow.received);
                flow.read_some(&mut pair, rest as usize);
            }
            pair.run_until(MS(50), |_| false);
        }
        let beside = time_of(&mut pair, size);
        // Alone it takes 0.76 s; beside them it had nothing in 120 s.
        assert!(
            beside < within * SECOND,
            "{beside:?} beside {count} others, of {send_buffer} bytes"
        );
    }
}

/// They are cut short, not forgotten.
#[test]
fn those_that_were_not_read_go_on_when_they_are() {
    let path = LinkConfig {
        loss: 0.03.into(),
        ..link(100, 40)
    };
    for read in [0, 3000, 150_000] {
        let mut pair = pair(path.clone(), (4 * MIB, 16 * MIB), 2);
        let mut flows: Vec<Flow> = (0..40).map(|_| stream(&mut pair, MIB / 2)).collect();
        leave(&mut pair, &mut flows, read, 5 * SECOND);
        // The last ones first, then all.
        let last = flows.split_off(30);
        for mut some in [last, flows] {
            assert!(run_flows(&mut pair, &mut some, 120 * SECOND), "{some:?}");
        }
    }
}

/// A read of a few bytes now and then is told, where the window is a few packets.
#[test]
fn slow_readers_beside_many_that_do_not_read_get_on() {
    let mut pair = pair(link(100, 40), (8 * MIB, 32 * MIB), 3);
    let mut unread: Vec<Flow> = (0..300).map(|_| stream(&mut pair, MIB)).collect();
    leave(&mut pair, &mut unread, 0, 10 * SECOND);
    let mut slow = stream(&mut pair, 60_000);
    let (mut steps, mut most) = (0, 0);
    while !slow.ended && steps < 2000 {
        slow.write(&mut pair);
        pair.run_until(MS(100), |_| false);
        let before = slow.received;
        slow.read_some(&mut pair, 700);
        most = if slow.received > before { 0 } else { most + 1 };
        assert!(most < 50, "nothing for {most} steps: {slow:?}");
        steps += 1;
    }
    assert!(slow.ended, "{slow:?}");
}

/// One after the other, each read a little and then no more.
#[test]
fn a_thousand_that_stop_one_after_the_other_starve_nobody() {
    let (budget, size) = (32 * MIB, MIB);
    let transport = || {
        TransportConfig::default()
            .max_channels(2000)
            .receive_budget(budget)
            .initial_stream_window(budget / 512)
            .send_buffer(budget / 2)
    };
    let mut pair = established(PairConfig {
        client: transport(),
        server: transport(),
        ..PairConfig::symmetric(link(1000, 2), 1)
    });
    let mut stopped: Vec<Flow> = Vec::new();
    for _ in 0..1000 {
        stopped.push(stream(&mut pair, MIB));
        for _ in 0..4 {
            let from = stopped.len().saturating_sub(20);
            for flow in &mut stopped[from..] {
                flow.write(&mut pair);
                let rest = 6500_u64.saturating_sub(flow.received);
                flow.read_some(&mut pair, rest as usize);
            }
            pair.run_until(MS(1), |_| false);
        }
    }
    let beside = time_of(&mut pair, size);
    assert!(beside < 20 * SECOND, "{beside:?} beside others");
}
