//! A peer that lies: no panic, no hang, bounded memory.

use super::*;

fn state(random: &mut Random, known: &[State]) -> State {
    let pick = random.next();
    match known.get((pick % 64) as usize) {
        Some(&state) => state,
        None => State::from_seed(pick as u32),
    }
}

fn number(random: &mut Random) -> u32 {
    let value = random.next() as u32;
    match random.next() % 4 {
        0 => value,
        1 => u32::MAX - value % 4,
        _ => value % 40,
    }
}

fn modes(random: &mut Random) -> Settled {
    let sending = match random.next() % 4 {
        0 => Sending::Rateless,
        1 => Sending::Expected,
        2 => Sending::Adaptive,
        _ => Sending::Fixed { extra: 0.2 },
    };
    let acknowledge = match random.next() % 3 {
        0 => Acknowledge::EachBlock,
        1 => Acknowledge::EachWindow,
        _ => Acknowledge::Off,
    };
    let window = 1 + number(random) % 50;
    let settled = match random.next() % 2 {
        0 => settled(window, sending),
        _ => real(window, sending),
    };
    Settled {
        acknowledge,
        ..settled
    }
}

#[test]
fn answers_that_lie_neither_crash_nor_hang_a_sender() {
    for seed in 0..100 {
        let mut random = Random(seed);
        let settled = modes(&mut random);
        let mut sender = Sender::new(BEGIN, &settled, Box::new(MaxRate));
        let (mut now, mut known, mut out) = (BEGIN, Vec::new(), Vec::new());
        for _ in 0..2000 {
            match random.next() % 8 {
                0 if settled.payload == Payload::Virtual => {
                    sender.write_virtual(random.next() % 200_000);
                }
                0 => {
                    sender.write(&vec![1; (random.next() % 50_000) as usize]);
                }
                1 => sender.flush(),
                2..4 => {
                    let report = Report {
                        packets: number(&mut random),
                        bytes: random.next(),
                        ce: number(&mut random),
                        clock: random.next(),
                        decoded: number(&mut random),
                        limit: number(&mut random),
                        missing: number(&mut random),
                    };
                    let kind = match random.next() % 3 {
                        0 => AckKind::Block,
                        1 => AckKind::More,
                        _ => AckKind::Echo,
                    };
                    let ack = Ack {
                        kind,
                        block: number(&mut random),
                        state: state(&mut random, &known),
                        report: random.chance(0.75).then_some(report),
                    };
                    sender.on_ack(now, &ack);
                }
                4 => {
                    now += Duration::from_nanos(random.next() % 200_000_000);
                    sender.handle_timeout(now);
                    let next = sender.poll_timeout();
                    assert!(
                        next.is_none_or(|at| at > now),
                        "seed {seed}: {next:?} {now:?}"
                    );
                }
                _ => {
                    out.clear();
                    if let Some(packet) = sender.poll_packet(now, &mut out) {
                        known.insert(0, packet.header.state);
                        known.truncate(40);
                    }
                }
            }
        }
    }
}

#[test]
fn data_that_lies_neither_crashes_a_receiver_nor_fills_it() {
    for seed in 0..100 {
        let mut random = Random(seed);
        let settled = modes(&mut random);
        let mut receiver = Receiver::new(BEGIN, &settled);
        let mut now = BEGIN;
        for _ in 0..3000 {
            now += Duration::from_nanos(random.next() % 2_000_000);
            let header = DataHeader {
                block: number(&mut random),
                state: state(&mut random, &[]),
                echo: random.chance(0.3),
                short: random.chance(0.3),
            };
            let length = match (random.next() % 4, settled.payload) {
                (0, _) => (random.next() % 3000) as usize,
                (_, Payload::Virtual) => 6,
                _ => 16 * (1 + (random.next() % 100) as usize),
            };
            let payload: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
            receiver.on_data(now, random.next() as u8, &header, &payload);
            while let Some(mut job) = receiver.take_solve_job() {
                job.run();
                receiver.finish_solve(now, job);
            }
            if random.chance(0.1) {
                while receiver.poll_ack().is_some() {}
                receiver.read(now, &mut [0; 5000]);
            }
            if random.chance(0.01) {
                receiver.finish_at(number(&mut random));
            }
            receiver.handle_timeout(now);
            let next = receiver.poll_timeout();
            assert!(next.is_none_or(|at| at > now), "seed {seed}");
            assert!(
                receiver.blocks_kept() <= settled.window as usize,
                "seed {seed}"
            );
        }
    }
}
