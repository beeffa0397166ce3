//! Sender and receiver over a simulated path: what a user would measure.

use super::code::{Code, Coder};
use super::config::{
    Acknowledge, BlockSize, Codec, Completion, LastPacket, Moment, Redundancy, Sending,
};
use super::data::{Ack, AckKind, DataHeader, Report, Settled};
use super::recv::Receiver;
use super::send::Sender;
use crate::config::Payload;
use crate::rate::{MaxRate, RateController};
use crate::time::{Duration, Instant, Rate};
use dfcp_fec::raptor::{RaptorParameters, State};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

mod goodput;
mod hostile;
mod modes;
mod rc_udp;

/// Bytes of a full packet on the wire.
const PACKET: u64 = 1456 + 24 + 20;
/// When simulations begin.
const BEGIN: Instant = Instant::from_nanos(1_000_000_000);

/// The published code with sizes only.
fn settled(window: u32, sending: Sending) -> Settled {
    let state = State::from_seed(1);
    Settled {
        code: Code::Raptor(RaptorParameters::published(state)),
        coder: None,
        initial: state,
        window,
        at_once: u32::MAX,
        message: None,
        redundancy: Redundancy {
            epsilon: 0.1,
            sending,
        },
        acknowledge: Acknowledge::EachBlock,
        moment: Moment::Received,
        encoding: Codec::On,
        decoding: Codec::On,
        completion: Completion::Count,
        last_packet: LastPacket::Whole,
        payload: Payload::Virtual,
        symbols_per_packet: 1456,
        rtt: None,
        send_buffer: 4 << 30,
    }
}

/// Small blocks of real bytes: k = 2000 symbols of 16 bytes.
fn real(window: u32, sending: Sending) -> Settled {
    let virtual_payload = settled(window, sending);
    let code = Code::Raptor(RaptorParameters {
        k: 2000,
        n: 2100,
        symbol_size: 16,
        ..RaptorParameters::published(virtual_payload.initial)
    });
    Settled {
        coder: Some(Coder::new(&code).expect("within limits")),
        code,
        payload: Payload::Real,
        symbols_per_packet: 91,
        send_buffer: 1 << 20,
        ..virtual_payload
    }
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn chance(&mut self, p: f64) -> bool {
        (self.next() >> 11) as f64 / ((1u64 << 53) as f64) < p
    }
}

/// The application's byte number `at`.
fn byte(at: u64) -> u8 {
    (at * 167 + (at >> 8)) as u8
}

/// What the path does to data packets.
#[derive(Clone, Copy)]
struct Network {
    /// Of the sender's access link.
    access: Rate,
    /// A bottleneck: what comes faster than this finds a queue of so many packets full.
    share: Option<(Rate, u64)>,
    /// Lost at random.
    loss: f64,
    /// Lost at random from some time on.
    later: Option<(Duration, f64)>,
    /// Of answers.
    ack_loss: f64,
    /// Chance to come twice, and chance to be held up by a tenth of the round trip.
    chaos: f64,
    rtt: Duration,
}

impl Network {
    fn clean(access: u64, rtt: Duration) -> Self {
        Self {
            access: Rate::from_bps(access),
            share: None,
            loss: 0.0,
            later: None,
            ack_loss: 0.0,
            chaos: 0.0,
            rtt,
        }
    }
}

enum Arriving {
    Data(DataHeader, Vec<u8>),
    Ack(Ack),
}

/// Goes by time, then by order of departure.
struct Event(Instant, u64, Arriving);

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.0, other.1).cmp(&(self.0, self.1))
    }
}

/// A sender, a receiver and the path between them. The access link takes a packet when it is free.
struct Simulation {
    now: Instant,
    network: Network,
    sender: Sender,
    receiver: Receiver,
    random: Random,
    events: BinaryHeap<Event>,
    order: u64,
    access_free: Instant,
    bottleneck_free: Instant,
    /// Bytes to write, as room allows.
    to_write: u64,
    written: u64,
    read: u64,
    sent: u64,
    last_read: Instant,
    /// Payload has bytes.
    real: bool,
    /// What is read must be what was written.
    check: bool,
    reader_sleeps: bool,
}

impl Simulation {
    fn new(settled: &Settled, network: Network, rate: Box<dyn RateController>, seed: u64) -> Self {
        let now = BEGIN;
        Self {
            now,
            network,
            sender: Sender::new(now, settled, rate),
            receiver: Receiver::new(now, settled),
            random: Random(seed),
            events: BinaryHeap::new(),
            order: 0,
            access_free: now,
            bottleneck_free: now,
            to_write: 0,
            written: 0,
            read: 0,
            sent: 0,
            last_read: now,
            real: settled.payload == Payload::Real,
            check: true,
            reader_sleeps: false,
        }
    }

    fn schedule(&mut self, at: Instant, arriving: Arriving) {
        self.order += 1;
        let late = self.network.rtt / 10;
        let copies = if self.random.chance(self.network.chaos) {
            2
        } else {
            1
        };
        let copy = |a: &Arriving| match a {
            Arriving::Data(header, payload) => Arriving::Data(*header, payload.clone()),
            Arriving::Ack(ack) => Arriving::Ack(*ack),
        };
        for _ in 0..copies {
            let held_up = self.random.chance(self.network.chaos);
            let at = if held_up { at + late } else { at };
            self.events.push(Event(at, self.order, copy(&arriving)));
        }
    }

    fn send(&mut self, header: DataHeader, payload: Vec<u8>) {
        self.sent += 1;
        self.access_free = self.access_free.max(self.now) + self.network.access.time_for(PACKET);
        let mut at = self.access_free;
        if let Some((rate, limit)) = self.network.share {
            let one = rate.time_for(PACKET);
            if self.bottleneck_free.saturating_since(at) > one * limit as u32 {
                return;
            }
            self.bottleneck_free = self.bottleneck_free.max(at) + one;
            at = self.bottleneck_free;
        }
        if !self.random.chance(self.network.loss) {
            self.schedule(at + self.network.rtt / 2, Arriving::Data(header, payload));
        }
    }

    /// Runs until `end`, or until everything is acknowledged and nothing is on its way.
    fn run(&mut self, end: Instant) {
        let mut buffer = Vec::new();
        loop {
            self.write();
            let mut wake = end;
            while self.access_free <= self.now {
                buffer.clear();
                let Some(packet) = self.sender.poll_packet(self.now, &mut buffer) else {
                    break;
                };
                assert!(packet.size + packet.elided <= 1456);
                self.send(packet.header, buffer.clone());
            }
            if self.access_free > self.now {
                wake = wake.min(self.access_free);
            }
            while let Some(ack) = self.receiver.poll_ack() {
                if !self.random.chance(self.network.ack_loss) {
                    self.schedule(self.now + self.network.rtt / 2, Arriving::Ack(ack));
                }
            }
            wake = self.sender.poll_timeout().map_or(wake, |t| wake.min(t));
            wake = self.receiver.poll_timeout().map_or(wake, |t| wake.min(t));
            wake = self.events.peek().map_or(wake, |e| wake.min(e.0));
            let idle = self.to_write == 0 && self.sender.all_acked() && self.events.is_empty();
            if wake >= end || idle {
                self.now = wake.min(end);
                return;
            }
            self.now = self.now.max(wake);
            if self
                .network
                .later
                .is_some_and(|(at, _)| self.now >= BEGIN + at)
            {
                self.network.loss = self.network.later.take().map_or(0.0, |(_, loss)| loss);
            }
            self.deliver();
        }
    }

    /// Writes what there is room for.
    fn write(&mut self) {
        let room = self.to_write.min(self.sender.room());
        if room == 0 {
            return;
        }
        let written = if self.real {
            let chunk: Vec<u8> = (self.written..self.written + room.min(100_000))
                .map(byte)
                .collect();
            self.sender.write(&chunk) as u64
        } else {
            self.sender.write_virtual(room)
        };
        self.written += written;
        self.to_write -= written;
        if self.to_write == 0 {
            self.sender.flush();
        }
    }

    /// Reads and checks what is there.
    fn read(&mut self) {
        let mut buffer = [0; 10_000];
        let mut read = 0;
        if self.real {
            loop {
                let len = self.receiver.read(self.now, &mut buffer);
                for (i, &b) in buffer[..len].iter().enumerate() {
                    let at = self.read + read + i as u64;
                    assert!(!self.check || b == byte(at), "byte {at}");
                }
                read += len as u64;
                if len == 0 {
                    break;
                }
            }
        } else {
            read = self.receiver.read_virtual(self.now);
        }
        if read > 0 {
            self.read += read;
            self.last_read = self.now;
        }
    }

    fn deliver(&mut self) {
        self.sender.handle_timeout(self.now);
        self.receiver.handle_timeout(self.now);
        while self.events.peek().is_some_and(|e| e.0 <= self.now) {
            match self.events.pop().map(|e| e.2) {
                Some(Arriving::Data(header, payload)) => {
                    self.receiver.on_data(self.now, 0, &header, &payload);
                    while let Some(mut job) = self.receiver.take_solve_job() {
                        job.run();
                        self.receiver.finish_solve(self.now, job);
                    }
                    if !self.reader_sleeps {
                        self.read();
                    }
                }
                Some(Arriving::Ack(ack)) => self.sender.on_ack(self.now, &ack),
                None => {}
            }
        }
    }
}
