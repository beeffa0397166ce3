//! A peer that lies: no panic, no hang, bounded memory.

use super::super::code::PacketName;
use super::super::data::DATA_HEADER;
use super::*;
use crate::rate::{FixedRate, Marked, Ordered, ProbeGap, ProbeRate, Restrained};

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

fn controller(seed: u64) -> Box<dyn RateController> {
    let rate = Rate::from_bps(100_000_000);
    match seed % 6 {
        0 => Box::new(MaxRate),
        1 => Box::new(FixedRate::new(rate)),
        2 => Box::new(ProbeGap::new(0.05)),
        3 => Box::new(ProbeRate::new(0.05)),
        4 => Box::new(Restrained::new(Box::new(Ordered::new(rate)))),
        _ => Box::new(Marked::new()),
    }
}

#[test]
fn answers_that_lie_neither_crash_nor_hang_a_sender() {
    for seed in 0..100 {
        let mut random = Random(seed);
        let settled = modes(&mut random);
        let mut sender = Sender::new(BEGIN, &settled, controller(seed));
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

/// A packet of symbols that say nothing, of a block and with a state.
fn packet(receiver: &mut Receiver, now: Instant, block: u32, state: State, payload: &[u8]) {
    let header = DataHeader {
        block,
        state,
        echo: false,
        short: false,
    };
    receiver.on_data(now, 0, &header, payload);
}

fn solve(receiver: &mut Receiver, now: Instant) {
    while let Some(mut job) = receiver.take_solve_job() {
        job.run();
        receiver.finish_solve(now, job);
    }
}

#[test]
fn the_last_numbers_of_blocks_end_nothing() {
    for seed in 0..100 {
        let mut random = Random(seed);
        let settled = modes(&mut random);
        let length = match settled.payload {
            Payload::Virtual => 6,
            Payload::Real => 16,
        };
        let mut receiver = Receiver::new(BEGIN, &settled);
        receiver.start_at(u32::MAX - 40);
        let mut now = BEGIN;
        for _ in 0..500 {
            now += Duration::from_millis(1);
            let block = u32::MAX - (random.next() % 60) as u32;
            let payload = vec![1; length];
            let state = state(&mut random, &[]);
            packet(&mut receiver, now, block, state, &payload);
            solve(&mut receiver, now);
            if random.chance(0.1) {
                receiver.finish_at(u32::MAX);
            }
            while receiver.poll_ack().is_some() {}
            receiver.read(now, &mut [0; 5000]);
            receiver.read_virtual(now);
            receiver.handle_timeout(now);
        }
    }
}

#[test]
fn of_a_block_that_is_full_no_further_packets_are_noted() {
    let settled = Settled {
        completion: Completion::Structure,
        redundancy: Redundancy {
            epsilon: 50.0,
            sending: Sending::Rateless,
        },
        ..real(4, Sending::Rateless)
    };
    let mut receiver = Receiver::new(BEGIN, &settled);
    for n in 0..100_000 {
        packet(&mut receiver, BEGIN, 0, State::from_seed(n), &[0; 16]);
    }
    // Of 2 · 2100 + 256 symbols at most, 16 bytes each, in packets of at least 256 bytes, and 16 more.
    let noted = receiver.packets_noted();
    assert!(noted <= 295, "{noted} of 100,000");
}

#[test]
fn symbols_that_were_chosen_never_to_suffice_are_given_up() {
    const K: u32 = 10;
    let code = Code::RaptorQ {
        k: K,
        symbol_size: 4,
    };
    let coder = Coder::new(&code).expect("within limits");
    let state = |esi: u32| {
        let words = code.words(
            State::from_seed(1),
            PacketName {
                block: 0,
                index: esi,
                symbols: 1,
                useful: 4 * K,
            },
        );
        assert_eq!(code.useful(words, 0), Ok(Some(4 * K)));
        words
    };
    // One symbol in a hundred and more adds nothing to nine others: whoever chooses takes those.
    let nine = K..2 * K - 1;
    let adds_nothing = |esi: &u32| {
        let decoder = coder.decoder(Payload::Real, (0, K), Vec::new());
        let mut decoder = decoder.expect("a block");
        for esi in nine.clone().chain([*esi]) {
            decoder.push(state(esi), 1, &[0; 4]).expect("fits");
        }
        decoder.solve() == Ok(false)
    };
    let chosen = nine.clone().chain((2 * K..).filter(adds_nothing).take(71));
    let settled = Settled {
        coder: Some(coder.clone()),
        code: code.clone(),
        payload: Payload::Real,
        symbols_per_packet: 1,
        ..settled(4, Sending::Rateless)
    };
    let mut receiver = Receiver::new(BEGIN, &settled);
    for esi in chosen {
        packet(&mut receiver, BEGIN, 0, state(esi), &[0; 4]);
        solve(&mut receiver, BEGIN);
    }
    assert!(receiver.is_unsolvable(), "{:?}", receiver.stats());
}

/// The generator state of symbol `esi` of block 0 alone in a packet.
fn single(code: &Code, esi: u32) -> State {
    let useful = u32::try_from(code.block_bytes()).expect("small");
    let (block, symbols) = (0, 1);
    code.words(
        State::from_seed(1),
        PacketName {
            block,
            index: esi,
            symbols,
            useful,
        },
    )
}

#[test]
fn symbols_one_by_one_take_no_more_memory_than_their_block_is_counted() {
    let raptor = |k, n, symbol_size| {
        Code::Raptor(RaptorParameters {
            k,
            n,
            symbol_size,
            ..RaptorParameters::published(State::from_seed(1))
        })
    };
    for code in [
        raptor(2000, 2100, 1),
        raptor(100, 8000, 1),
        raptor(10, 12, 1000),
        Code::RaptorQ {
            k: 2000,
            symbol_size: 1,
        },
        Code::RaptorQ {
            k: 50,
            symbol_size: 64,
        },
    ] {
        let size = code.symbol_size();
        let settled = Settled {
            coder: Some(Coder::new(&code).expect("within limits")),
            code: code.clone(),
            payload: Payload::Real,
            symbols_per_packet: 1448 / size,
            redundancy: Redundancy {
                epsilon: 1.0,
                sending: Sending::Rateless,
            },
            ..settled(1, Sending::Rateless)
        };
        let mut receiver = Receiver::new(BEGIN, &settled);
        let mut most = 0;
        let symbol = vec![7; size.into()];
        // Repair symbols, which RaptorQ notes twice.
        for esi in code.k()..6 * code.k() + 600 {
            packet(&mut receiver, BEGIN, 0, single(&code, esi), &symbol);
            most = most.max(receiver.memory());
            solve(&mut receiver, BEGIN);
        }
        let counted = code.block_memory();
        assert!(
            4 * most as u64 <= 5 * counted,
            "{code:?}: {most} of {counted}"
        );
    }
}

#[test]
fn a_block_that_took_all_its_symbols_in_vain_is_given_up() {
    let code = Code::Raptor(RaptorParameters {
        k: 20,
        n: 24,
        symbol_size: 8,
        ..RaptorParameters::published(State::from_seed(1))
    });
    let coder = Coder::new(&code).expect("within limits");
    let mut chosen: Vec<State> = Vec::new();
    for candidate in (0..).map(State::from_seed) {
        let decoder = coder.decoder(Payload::Virtual, (0, 20), Vec::new());
        let mut decoder = decoder.expect("a block");
        let with = chosen.iter().take(300).chain([&candidate]);
        with.for_each(|&state| decoder.push(state, 1, &[]).expect("fits"));
        if decoder.solve() == Ok(false) {
            chosen.push(candidate);
        }
        // All that it takes, and some.
        if chosen.len() == 2 * 24 + 256 + 8 {
            break;
        }
    }
    let settled = Settled {
        coder: Some(coder),
        code,
        payload: Payload::Real,
        symbols_per_packet: 1,
        ..settled(4, Sending::Rateless)
    };
    let mut receiver = Receiver::new(BEGIN, &settled);
    for &state in &chosen {
        packet(&mut receiver, BEGIN, 0, state, &[0; 8]);
        solve(&mut receiver, BEGIN);
    }
    assert!(receiver.is_unsolvable(), "{:?}", receiver.stats());
}

/// Sends until a packet asks for an answer: its header.
fn until_echo(sender: &mut Sender, now: Instant) -> DataHeader {
    loop {
        let packet = sender.poll_packet(now, &mut Vec::new());
        let header = packet.expect("there is something to send").header;
        if header.echo {
            return header;
        }
    }
}

fn answer(header: &DataHeader, report: Report) -> Ack {
    Ack {
        kind: AckKind::Echo,
        block: header.block,
        state: header.state,
        report: Some(report),
    }
}

#[test]
fn a_block_that_lacks_more_than_all_is_sent_once_more_at_most() {
    let settled = settled(4, Sending::Expected);
    let mut sender = Sender::new(BEGIN, &settled, Box::new(MaxRate));
    sender.write_virtual(63_000);
    sender.flush();
    let header = until_echo(&mut sender, BEGIN);
    let now = BEGIN + Duration::from_millis(20);
    let report = Report {
        packets: 1,
        limit: 4,
        missing: u32::MAX,
        ..Report::default()
    };
    sender.on_ack(now, &answer(&header, report));
    let sent = (0..1000).map_while(|_| sender.poll_packet(now, &mut Vec::new()));
    // 48 packets are enough; of those that were to tell of the loss one in a few arrived.
    let (sent, needed) = (sent.count(), settled.packets_needed(63_000));
    assert!(sent <= 8 * needed as usize, "{sent}");
}

/// Notes what it is told to have arrived.
#[derive(Debug)]
struct Told(std::sync::Arc<std::sync::atomic::AtomicU64>);

impl RateController for Told {
    fn on_established(&mut self, _now: Instant, _rtt: Duration, _packet_size: u64) {}

    fn on_feedback(&mut self, feedback: &crate::rate::Feedback<'_>) {
        let told = feedback.newest.map_or(0, |newest| newest.delivered_total);
        self.0.store(told, std::sync::atomic::Ordering::Relaxed);
    }

    fn pacing_rate(&self) -> Rate {
        Rate::MAX
    }

    fn window(&self) -> u64 {
        u64::MAX
    }

    fn initial_burst(&self) -> u64 {
        u64::MAX
    }
}

#[test]
fn no_more_arrives_than_was_sent_and_never_less_than_before() {
    let told = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let settled = settled(4, Sending::Expected);
    let mut sender = Sender::new(BEGIN, &settled, Box::new(Told(told.clone())));
    sender.write_virtual(1_000_000);
    let mut before = 0;
    for (n, bytes) in (1..).zip([3000, u64::MAX, 0, 1 << 40]) {
        let header = until_echo(&mut sender, BEGIN);
        let report = Report {
            packets: n,
            limit: 4,
            bytes,
            ..Report::default()
        };
        sender.on_ack(BEGIN + Duration::from_millis(20), &answer(&header, report));
        let sent = sender.stats().packets * (settled.payload_bytes() + DATA_HEADER) as u64;
        let told = told.load(std::sync::atomic::Ordering::Relaxed);
        assert!((before..=sent).contains(&told), "{told} of {sent} sent");
        assert!(told == bytes.max(before) || told == sent);
        before = told;
    }
}
