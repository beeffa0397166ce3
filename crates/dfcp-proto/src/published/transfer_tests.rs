//! Sender and receiver over a simulated path: what a user would measure.

use super::config::{Acknowledge, Codec, Completion, Moment, Redundancy, Sending};
use super::data::{Ack, DATA_HEADER, DataHeader, Settled};
use super::recv::Receiver;
use super::send::Sender;
use crate::config::Payload;
use crate::rate::{FixedRate, MaxRate, RateController};
use crate::time::{Duration, Instant, Rate};
use dfcp_fec::raptor::{Degrees, RaptorParameters, State};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

const PACKET: u64 = 1456 + 24 + 20;

fn settled(window: u32, sending: Sending) -> Settled {
    let state = State::new(0x1234_5678, 0x2345_6789, 0x3456_789a).expect("valid");
    Settled {
        code: RaptorParameters {
            k: 63_536,
            n: 65_536,
            symbol_size: 1,
            ldpc_degree: 4,
            degrees: Degrees::Shokrollahi,
            precode: state,
        },
        raptor: None,
        initial: state,
        window,
        redundancy: Redundancy {
            epsilon: 0.1,
            sending,
        },
        acknowledge: Acknowledge::EachBlock,
        moment: Moment::Received,
        encoding: Codec::On,
        decoding: Codec::On,
        completion: Completion::Count,
        payload: Payload::Virtual,
        symbols_per_packet: 1456,
        rtt: None,
        send_buffer: 4 << 30,
    }
}

/// splitmix64.
#[derive(Clone)]
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

/// What the path does to data packets.
#[derive(Clone, Copy)]
struct Network {
    /// At which the sender's host puts packets on its access link.
    access: Rate,
    /// The share of the bottleneck: what comes faster finds a queue of so many packets full.
    share: Option<(Rate, u64)>,
    /// Lost at random.
    loss: f64,
    /// Lost from a later time on.
    later: Option<(Duration, f64)>,
    /// Of answers.
    ack_loss: f64,
    /// Packets sent twice, and held up by up to a tenth of the round trip.
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
    Data(DataHeader, [u8; 6]),
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
    read: u64,
    sent: u64,
    last_read: Instant,
}

impl Simulation {
    fn new(settled: &Settled, network: Network, rate: Box<dyn RateController>, seed: u64) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
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
            read: 0,
            sent: 0,
            last_read: now,
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
            Arriving::Data(header, payload) => Arriving::Data(*header, *payload),
            Arriving::Ack(ack) => Arriving::Ack(*ack),
        };
        for _ in 0..copies {
            let held_up = self.random.chance(self.network.chaos);
            let at = if held_up { at + late } else { at };
            self.events.push(Event(at, self.order, copy(&arriving)));
        }
    }

    fn send(&mut self, header: DataHeader, payload: [u8; 6]) {
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

    /// Runs until `end`, or until everything is read and acknowledged.
    fn run(&mut self, end: Instant) {
        let mut buffer = Vec::new();
        loop {
            let room = self.to_write.min(self.sender.room());
            self.to_write -= self.sender.write_virtual(room);
            if room > 0 && self.to_write == 0 {
                self.sender.flush();
            }
            let mut wake = end;
            while self.access_free <= self.now {
                buffer.clear();
                let Some(packet) = self.sender.poll_packet(self.now, &mut buffer) else {
                    break;
                };
                assert_eq!(packet.size + packet.elided, 1456);
                let payload = buffer[..].try_into().expect("six bytes");
                self.send(packet.header, payload);
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
            if wake >= end || (self.to_write == 0 && self.sender.all_acked()) {
                self.now = wake.min(end);
                return;
            }
            // A timeout may be due again at once only if it leads to a packet.
            self.now = self.now.max(wake);
            if self
                .network
                .later
                .is_some_and(|(at, _)| self.now >= Instant::from_nanos(1_000_000_000) + at)
            {
                self.network.loss = self.network.later.take().map_or(0.0, |(_, loss)| loss);
            }
            self.deliver();
        }
    }

    fn deliver(&mut self) {
        self.sender.handle_timeout(self.now);
        self.receiver.handle_timeout(self.now);
        while self.events.peek().is_some_and(|e| e.0 <= self.now) {
            match self.events.pop().map(|e| e.2) {
                Some(Arriving::Data(header, payload)) => {
                    self.receiver.on_data(self.now, 0, &header, &payload);
                    let read = self.receiver.read_virtual(self.now);
                    if read > 0 {
                        self.read += read;
                        self.last_read = self.now;
                    }
                }
                Some(Arriving::Ack(ack)) => self.sender.on_ack(self.now, &ack),
                None => {}
            }
        }
    }
}

/// Useful bytes a second over `measured`, after `warm_up`, as a fraction of what `arriving` packets
/// a second could carry at 49 packets a block.
fn efficiency(
    settled: &Settled,
    network: Network,
    arriving: Rate,
    times: (u64, u64),
    seed: u64,
) -> f64 {
    let mut simulation = Simulation::new(settled, network, Box::new(MaxRate), seed);
    simulation.to_write = 1 << 50;
    let begin = simulation.now;
    let warm = begin + Duration::from_millis(times.0);
    simulation.run(warm);
    let before = simulation.receiver.stats().bytes;
    simulation.run(warm + Duration::from_millis(times.1));
    let bytes = simulation.receiver.stats().bytes - before;
    let blocks = f64::from(settled.packets_needed());
    let ideal = arriving.as_bps() as f64 / 8.0 / PACKET as f64 / blocks * 63_536.0;
    bytes as f64 / (ideal * times.1 as f64 / 1000.0)
}

#[test]
fn table() {
    for sending in [Sending::Rateless, Sending::Expected] {
        for window in [1000, 10_000] {
            for rtt_us in [800, 10_000, 100_000] {
                let mut line = format!("{sending:?} {window} {rtt_us}:");
                for loss in [0.0, 0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5] {
                    let mut network = Network::clean(1_000_000_000, Duration::from_micros(rtt_us));
                    network.loss = loss;
                    let arriving = network.access.mul_f64(1.0 - loss);
                    let e = efficiency(
                        &settled(window, sending),
                        network,
                        arriving,
                        (2000, 3000),
                        1,
                    );
                    line += &format!(" {e:.4}");
                }
                println!("{line}");
            }
        }
        for share in [100_000_000, 10_000_000, 1_000_000] {
            for queue in [10, 100, 1000] {
                let mut line = format!("{sending:?} share {share} queue {queue}:");
                for rtt_us in [800, 10_000, 100_000] {
                    let mut network = Network::clean(1_000_000_000, Duration::from_micros(rtt_us));
                    network.share = Some((Rate::from_bps(share), queue));
                    let e = efficiency(
                        &settled(10_000, sending),
                        network,
                        Rate::from_bps(share),
                        (2000, 10000),
                        1,
                    );
                    line += &format!(" {e:.4}");
                }
                println!("{line}");
            }
        }
    }
}

#[test]
fn series() {
    let var = |n: &str, d: u64| {
        std::env::var(n)
            .ok()
            .and_then(|v| v.parse().ok())
            .unwrap_or(d)
    };
    let mut network = Network::clean(1_000_000_000, Duration::from_micros(var("RTT", 100_000)));
    if var("SHARE", 10_000_000) < 1_000_000_000 {
        network.share = Some((Rate::from_bps(var("SHARE", 10_000_000)), var("QUEUE", 100)));
    }
    network.loss = var("LOSS", 0) as f64 / 1000.0;
    let settled = settled(
        var("W", 10_000) as u32,
        if var("EXP", 0) > 0 {
            Sending::Expected
        } else {
            Sending::Rateless
        },
    );
    let mut simulation = Simulation::new(&settled, network, Box::new(MaxRate), 1);
    simulation.to_write = 1 << 50;
    let mut before = 0;
    let ideal = (1.0 - network.loss) * var("SHARE", 10_000_000) as f64 / 8.0 / PACKET as f64 / 49.0
        * 63_536.0;
    for s in 0..var("SECONDS", 40) {
        simulation.run(simulation.now + Duration::from_secs(1));
        let b = simulation.receiver.stats();
        println!(
            "{s}: {:.3} loss {:.5} late {} {:?} {:?}",
            (b.bytes - before) as f64 / ideal,
            simulation.sender.stats().loss,
            b.late_packets,
            simulation.sender.debug(),
            simulation.sender.stats()
        );
        before = b.bytes;
    }
}
