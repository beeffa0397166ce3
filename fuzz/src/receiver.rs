//! A hostile receiver: any feedback to a connection that sends.

use super::Input;
use super::live::Watch;
use super::raw::{self, RawClient};
use dfcp_proto::wire::{Frame, VarInt, write_varint};
use dfcp_proto::{ChannelId, ChannelKind, Duration};

/// Bytes that a connection keeps of what it sends; at most twice as many beside for the symbols that its
/// encoders are made of, and a mebibyte for what else there is.
const SEND_BUFFER: u64 = 1 << 23;
const MAY_HOLD: usize = 3 * SEND_BUFFER as usize + (1 << 20);
/// A packet that was sent has a record of 80 bytes, in a list that has room for twice as many when it has just
/// doubled; and as much again if it is lost, among those that may only be late.
const RECORD: usize = 320;
/// Twelve times what arrived may be in flight or lost beyond the first 128 packets (docs/spec/auto.md), and as much
/// again in four timeouts.
const CLAIM: u64 = 1 + 2 * 12;
const AT_FIRST: u64 = 2 * 128 + 64;
/// A timeout beyond the fourth lets a 64th of a window go, or two packets (docs/spec/auto.md).
const PERSISTENT: u64 = 64;
/// Half seconds of silence at the end; in each there is one timeout at most.
const SILENCE: u64 = 40;

/// Time that a run of the body takes on its own clock, before the end that says nothing more.
const LONGEST: Duration = Duration::from_secs(2);

/// The types of frames that no function writes.
const ACK: u8 = 2;
const BLOCKS: u8 = 3;
const SACK: u8 = 5;

struct Receiver {
    raw: RawClient,
    channels: [ChannelId; 2],
    /// Packet numbers that arrived and were not acknowledged yet, and all that arrived.
    waiting: Vec<u64>,
    sent: u64,
    acked: u64,
    /// Of those sent so many are in what may be held.
    recorded: u64,
    /// Probe timeouts, while there was a connection.
    timeouts: u64,
}

impl Receiver {
    fn new(input: &mut Input<'_>) -> Self {
        let mut params = raw::params();
        (params.max_data, params.max_stream_data) = (1 << 40, 1 << 40);
        params.feedback = u64::from(input.byte() % 8);
        let transport = dfcp_proto::TransportConfig::default().send_buffer(SEND_BUFFER);
        let server = raw::server_with(transport, |_| true);
        let mut raw = RawClient::connect_with(server, &params);
        let kinds = [ChannelKind::Object, ChannelKind::Stream];
        let channels = kinds.map(|kind| raw.connection().open(kind).expect("there may be sixteen"));
        Self {
            raw,
            channels,
            waiting: Vec::new(),
            sent: 0,
            acked: 0,
            recorded: 0,
            timeouts: 0,
        }
    }

    /// An application that always has more, for so many milliseconds.
    fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            let now = self.raw.now;
            if let Some(connection) = self.raw.server.connection(self.raw.handle) {
                for id in self.channels {
                    while connection.write(now, id, &[7; 16_384]).is_ok_and(|n| n > 0) {}
                }
            }
            let (sent, waiting) = (&mut self.sent, &mut self.waiting);
            self.raw.receive(|pn, frame| {
                *sent += u64::from(matches!(frame, Frame::Symbol { .. }));
                if waiting.last() != Some(&pn) {
                    waiting.push(pn);
                }
            });
            self.raw.now += Duration::from_millis(1);
            let now = self.raw.now;
            self.raw.server.handle_timeout(now);
        }
    }

    /// Acknowledges the oldest `count` packets that arrived, with any times.
    fn acknowledge(&mut self, count: usize, at: u64, delay: u64, ce: u64) {
        let count = count.min(self.waiting.len());
        let mut out = Vec::new();
        // One range in a frame is enough for all.
        for pn in self.waiting.drain(..count) {
            out.push(ACK);
            [pn, at, delay, ce, 1, 0]
                .iter()
                .for_each(|&v| write_varint(&mut out, v));
            if out.len() > 1100 {
                self.raw.send(&out);
                out.clear();
            }
        }
        self.acked += count as u64;
        if !out.is_empty() {
            self.raw.send(&out);
        }
    }

    fn timeouts(&self) -> u64 {
        let connection = self.raw.server.peek(self.raw.handle);
        connection.map_or(0, |connection| connection.stats().probes)
    }

    /// What is sent is in proportion to what was acknowledged.
    fn check_sent(&mut self) {
        self.timeouts = self.timeouts.max(self.timeouts());
        let (sent, acked) = (self.sent, self.acked);
        let window = CLAIM / 2 * acked + AT_FIRST / 2;
        let unanswered = self.timeouts * (window / PERSISTENT).max(2);
        assert!(
            sent <= CLAIM * acked + AT_FIRST + unanswered,
            "{sent} packets, {acked} acknowledged, {} timeouts",
            self.timeouts
        );
    }

    /// What is held grows with what was sent, by no more than the records of packets.
    fn check_held(&mut self, watch: &mut Watch) {
        let more = self.sent - self.recorded;
        self.recorded = self.sent;
        watch.raise(more as usize * RECORD);
        watch.check();
    }

    fn is_over(&self) -> bool {
        let connection = self.raw.server.peek(self.raw.handle);
        connection.is_none_or(|connection| connection.is_closed())
    }
}

/// Numbers of a report: small ones, and any.
fn numbers(out: &mut Vec<u8>, input: &mut Input<'_>, count: usize) {
    (0..count).for_each(|_| write_varint(out, input.wide() >> 2));
}

/// Acknowledgements with any times and marks, of packets that did not arrive, reports of blocks, credits and
/// stops: the connection ends or goes on, what it holds is bounded, and what it sends stays in proportion
/// to what is acknowledged.
pub fn feedback(data: &[u8]) {
    let mut input = Input(data);
    let mut watch = Watch::allow(MAY_HOLD);
    let mut receiver = Receiver::new(&mut input);
    receiver.run(5);
    let end = receiver.raw.now + LONGEST;
    for _ in 0..500 {
        if input.is_empty() || receiver.raw.now >= end {
            break;
        }
        let op = input.byte();
        let channel = receiver.channels[usize::from(op >> 7)].0;
        let mut out = Vec::new();
        match op & 15 {
            // Everything arrived at once, or when the input says so.
            0..=3 => {
                let count = usize::from(input.byte());
                let clock = receiver.raw.now.as_nanos() / 1000;
                let (at, delay) = match op >> 4 & 3 {
                    0 => (clock, 0),
                    1 => (clock / 1000, 0),
                    2 => (input.wide() >> 2, 0),
                    _ => (clock, input.wide() >> 2),
                };
                let ce = if op & 15 == 3 { input.wide() >> 2 } else { 0 };
                receiver.acknowledge(count, at, delay, ce);
            }
            4 => {
                // Packets that may never have been sent.
                out.push(ACK);
                numbers(&mut out, &mut input, 4);
                let count = usize::from(input.byte() % 8);
                write_varint(&mut out, count as u64);
                numbers(&mut out, &mut input, (2 * count).saturating_sub(1));
            }
            5 | 6 => {
                out.push(BLOCKS);
                write_varint(&mut out, channel);
                numbers(&mut out, &mut input, 1);
                let count = usize::from(input.byte() % 16);
                write_varint(&mut out, count as u64);
                numbers(&mut out, &mut input, 2 * count);
            }
            7 => {
                out.push(SACK);
                numbers(&mut out, &mut input, 1);
                out.extend(input.word().to_be_bytes());
                write_varint(&mut out, channel);
                out.push(input.byte());
                numbers(&mut out, &mut input, 1);
                let count = usize::from(input.byte() % 8);
                write_varint(&mut out, count as u64);
                numbers(&mut out, &mut input, 2 * count);
            }
            8 => Frame::MaxData(input.wide() >> 2).emit(&mut out),
            9 => {
                let limit = input.wide() >> 2;
                Frame::MaxStreamData { channel, limit }.emit(&mut out);
            }
            10 => Frame::FeedbackRate(input.wide() >> 2).emit(&mut out),
            11 if op >> 4 & 7 == 7 => {
                let code = VarInt::from_u32(3);
                Frame::Stop { channel, code }.emit(&mut out);
            }
            11 if op >> 4 & 7 == 6 => Frame::FirstWindow(input.wide() >> 2).emit(&mut out),
            11 => Frame::ImmediateAck.emit(&mut out),
            12 => {
                // What was lost on the way.
                let count = usize::from(input.byte()).min(receiver.waiting.len());
                receiver.waiting.drain(..count);
            }
            _ => receiver.run(1 + u64::from(op >> 4) * 4),
        }
        if !out.is_empty() {
            receiver.raw.send(&out);
        }
        receiver.run(1 + u64::from(op >> 6));
        receiver.check_held(&mut watch);
        receiver.check_sent();
        if receiver.is_over() {
            break;
        }
    }
    // It ends, or goes on, without a word more from here.
    let before = receiver.timeouts();
    for _ in 0..SILENCE {
        receiver.raw.now += Duration::from_millis(500);
        receiver.run(1);
    }
    receiver.check_held(&mut watch);
    let timeouts = receiver.timeouts().saturating_sub(before);
    assert!(timeouts <= SILENCE, "{timeouts} timeouts");
    receiver.check_sent();
}
