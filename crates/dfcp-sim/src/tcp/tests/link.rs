//! A sender, a bottleneck with a queue, a receiver.

use super::*;
use crate::random::Random;
use std::collections::VecDeque;

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub const fn mbps(rate: u64) -> Rate {
    Rate::from_bps(rate * 1_000_000)
}

/// The way of data; acknowledgements return without loss unless `ack_loss` says otherwise.
#[derive(Clone, Debug)]
pub struct Path {
    pub rate: Rate,
    pub rtt: Duration,
    pub queue: usize,
    pub loss: f64,
    pub ack_loss: f64,
    /// Data segments whose first transmissions are lost, as often as they are named.
    pub drops: Vec<u32>,
    /// SYNs and SYN-ACKs to lose first.
    pub lost_syns: u32,
    pub lost_syn_acks: u32,
    /// Packets in the queue from which on ECN-capable ones are marked.
    pub mark_above: usize,
    pub seed: u64,
}

impl Default for Path {
    fn default() -> Self {
        Self {
            rate: mbps(100),
            rtt: ms(50),
            queue: 1000,
            loss: 0.0,
            ack_loss: 0.0,
            drops: Vec::new(),
            lost_syns: 0,
            lost_syn_acks: 0,
            mark_above: usize::MAX,
            seed: 1,
        }
    }
}

pub struct Bed {
    pub sender: TcpSender,
    pub receiver: TcpReceiver,
    pub now: Instant,
    path: Path,
    random: Random,
    busy_until: Instant,
    /// When queued packets leave the bottleneck.
    departures: VecDeque<Instant>,
    data: VecDeque<(Instant, Segment, Ecn)>,
    acks: VecDeque<(Instant, Segment, Ecn)>,
    /// When each data segment was sent.
    pub sent: Vec<(Instant, u32)>,
}

impl Bed {
    pub fn new(sender: TcpSenderConfig, receiver: TcpReceiverConfig, path: Path) -> Self {
        sender.validate().expect("a test's sender is valid");
        receiver.validate().expect("a test's receiver is valid");
        let mut bed = Self {
            sender: TcpSender::new(sender),
            receiver: TcpReceiver::new(receiver),
            now: Instant::ZERO,
            random: Seed(path.seed).stream("loss"),
            path,
            busy_until: Instant::ZERO,
            departures: VecDeque::new(),
            data: VecDeque::new(),
            acks: VecDeque::new(),
            sent: Vec::new(),
        };
        bed.sender.start(bed.now);
        bed.drain();
        bed
    }

    /// A bulk sender with acknowledgements for every segment.
    pub fn bulk(congestion: Congestion, path: Path) -> Self {
        let sender = TcpSenderConfig {
            congestion,
            ..TcpSenderConfig::default()
        };
        Self::new(sender, every_ack(), path)
    }

    fn drain(&mut self) {
        while let Some((segment, ecn)) = self.sender.poll_transmit(self.now) {
            if segment.kind == Kind::Data {
                self.sent.push((self.now, segment.seq));
            }
            self.forward(segment, ecn);
        }
        while let Some((segment, ecn)) = self.receiver.poll_transmit(self.now) {
            let lost = if segment.kind == Kind::SynAck {
                take(&mut self.path.lost_syn_acks)
            } else {
                self.random.chance(self.path.ack_loss)
            };
            if !lost {
                self.acks
                    .push_back((self.now + self.path.rtt / 2, segment, ecn));
            }
        }
    }

    fn forward(&mut self, segment: Segment, mut ecn: Ecn) {
        while self.departures.front().is_some_and(|at| *at <= self.now) {
            self.departures.pop_front();
        }
        if self.departures.len() > self.path.queue {
            return;
        }
        if ecn.is_capable() && self.departures.len() > self.path.mark_above {
            ecn = Ecn::Ce;
        }
        self.busy_until =
            self.busy_until.max(self.now) + self.path.rate.time_for(u64::from(segment.ip_size()));
        self.departures.push_back(self.busy_until);
        let lost = match segment.kind {
            Kind::Syn => take(&mut self.path.lost_syns),
            _ => match self.path.drops.iter().position(|seq| *seq == segment.seq) {
                Some(at) => {
                    self.path.drops.remove(at);
                    true
                }
                None => self.random.chance(self.path.loss),
            },
        };
        if !lost {
            self.data
                .push_back((self.busy_until + self.path.rtt / 2, segment, ecn));
        }
    }

    /// Handles the next event, if it is not after `end`.
    pub fn step(&mut self, end: Instant) -> bool {
        let data = self.data.front().map(|(at, ..)| *at);
        let ack = self.acks.front().map(|(at, ..)| *at);
        let timers = [self.sender.poll_timeout(), self.receiver.poll_timeout()];
        let next = [data, ack, timers[0], timers[1]]
            .into_iter()
            .flatten()
            .min();
        let Some(next) = next.filter(|next| *next <= end) else {
            return false;
        };
        self.now = self.now.max(next);
        if data == Some(next) {
            let (_, segment, ecn) = self.data.pop_front().expect("it has a front");
            self.receiver.on_segment(self.now, ecn, &segment);
        } else if ack == Some(next) {
            let (_, segment, ecn) = self.acks.pop_front().expect("it has a front");
            self.sender.on_segment(self.now, ecn, &segment);
        } else {
            self.sender.on_timeout(self.now);
            self.receiver.on_timeout(self.now);
        }
        self.drain();
        true
    }

    pub fn run_until(&mut self, end: Duration) {
        let end = Instant::ZERO + end;
        while self.step(end) {}
        self.now = end;
    }

    /// Runs to the end of the transfer; gives its time.
    pub fn finish(&mut self) -> Duration {
        let limit = Instant::ZERO + Duration::from_secs(100_000);
        while !self.sender.is_finished() {
            assert!(
                self.step(limit),
                "stalled at {:?}: {:?}",
                self.now,
                self.sender.stats()
            );
        }
        self.now.saturating_since(Instant::ZERO)
    }

    /// Goodput between two times, bits per second.
    pub fn goodput(&mut self, from: Duration, to: Duration) -> f64 {
        self.run_until(from);
        let before = self.receiver.in_order_bytes();
        self.run_until(to);
        let bytes = self.receiver.in_order_bytes() - before;
        bytes as f64 * 8.0 / (to - from).as_secs_f64()
    }
}

pub fn every_ack() -> TcpReceiverConfig {
    TcpReceiverConfig {
        delayed_ack: None,
        ..TcpReceiverConfig::default()
    }
}

fn take(count: &mut u32) -> bool {
    let some = *count > 0;
    *count = count.saturating_sub(1);
    some
}
