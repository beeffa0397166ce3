//! Receivers whose reports are wrong, old or sparse: what they cause is bounded, counted, and over
//! when they are right again.

use crate::common::raw::{RawClient, params, server_with};
use crate::common::{MS, SECOND};
use dfcp_proto::wire::{Frame, TransportParams, write_varint};
use dfcp_proto::{ChannelId, ChannelKind, ConnectionStats, Duration, TransportConfig};
use std::collections::{BTreeMap, VecDeque};

/// A receiver behind a path of one packet a millisecond, 11.8 Mbit/s, 20 ms and a queue of 40.
struct Receiver {
    raw: RawClient,
    /// Packets on their way, and when they arrive if the path is free.
    path: VecDeque<(Duration, Packet)>,
    /// Symbols that the blocks still lack, and where they end, by offset.
    blocks: BTreeMap<u64, (u64, u64)>,
    id: ChannelId,
    /// All before is complete.
    done_below: u64,
    /// Arrived and not acknowledged: number, time.
    arrived: VecDeque<(u64, Duration)>,
    elapsed: Duration,
    carried: u64,
    sent: u64,
}

/// A packet that asks for feedback; one without data has no symbols.
#[derive(Clone, Copy)]
struct Packet {
    number: u64,
    /// Of its block.
    offset: u64,
    block_len: u64,
    symbols: u64,
}

/// True to reported µs.
type Clock = fn(u64) -> u64;

/// How a receiver reports.
struct Reporting {
    /// Its clock, µs, from the true time.
    clock: Clock,
    /// How long it holds a report back.
    held: Duration,
    /// Which packets it acknowledges.
    says: fn(u64) -> bool,
}

const HONEST: Reporting = Reporting {
    clock: |us| 1_000_000_000 + us,
    held: Duration::ZERO,
    says: |_| true,
};

impl Receiver {
    fn new() -> Self {
        let server = server_with(TransportConfig::default(), |_| true);
        let unlimited = TransportParams {
            max_data: 1 << 40,
            ..params()
        };
        let mut raw = RawClient::connect_with(server, &unlimited);
        let object = raw.connection().open(ChannelKind::Object);
        let id = object.expect("channels");
        Self {
            raw,
            path: VecDeque::new(),
            blocks: BTreeMap::new(),
            id,
            done_below: 0,
            arrived: VecDeque::new(),
            elapsed: Duration::ZERO,
            carried: 0,
            sent: 0,
        }
    }

    /// Runs for `time`; gives the packets that the path carried meanwhile.
    fn run(&mut self, time: Duration, reporting: &Reporting) -> u64 {
        let (end, before) = (self.elapsed + time, self.carried);
        while self.elapsed < end {
            self.elapsed += MS(1);
            self.raw.now += MS(1);
            let (now, id) = (self.raw.now, self.id);
            let connection = self.raw.connection();
            while connection.write(now, id, &[7; 65_536]).is_ok_and(|n| n > 0) {}
            self.raw.server.handle_timeout(now);
            let (elapsed, path, sent) = (self.elapsed, &mut self.path, &mut self.sent);
            self.raw.receive(|number, frame| {
                if matches!(frame, Frame::Ping) {
                    let ping = Packet {
                        number,
                        offset: 0,
                        block_len: 0,
                        symbols: 0,
                    };
                    path.push_back((elapsed + MS(20), ping));
                }
                if let Frame::Symbol { header, data } = frame {
                    *sent += 1;
                    let block_len = header.block.bytes(data.len()).expect("a block");
                    let packet = Packet {
                        number,
                        offset: header.offset,
                        block_len,
                        symbols: block_len.div_ceil(data.len() as u64),
                    };
                    path.push_back((elapsed + MS(20), packet));
                }
            });
            self.path.truncate(60);
            if let Some(&(at, packet)) = self.path.front()
                && at <= elapsed
            {
                self.path.pop_front();
                self.carried += 1;
                self.arrived.push_back((packet.number, elapsed));
                self.take(packet);
            }
            while let Some(&(pn, at)) = self.arrived.front()
                && at + reporting.held <= elapsed
            {
                self.arrived.pop_front();
                if (reporting.says)(pn) {
                    self.acknowledge(pn, (reporting.clock)(at.as_micros() as u64), elapsed - at);
                }
            }
        }
        self.carried - before
    }

    /// Counts a symbol to its block.
    fn take(&mut self, packet: Packet) {
        if packet.symbols == 0 || packet.offset < self.done_below {
            return;
        }
        let fresh = (packet.symbols, packet.offset + packet.block_len);
        let block = self.blocks.entry(packet.offset).or_insert(fresh);
        block.0 = block.0.saturating_sub(1);
        while let Some(&(0, end)) = self.blocks.get(&self.done_below) {
            self.blocks.remove(&self.done_below);
            self.done_below = end;
        }
    }

    fn acknowledge(&mut self, pn: u64, clock: u64, held: Duration) {
        let mut out = vec![0x02];
        for value in [pn, clock, held.as_micros() as u64, 0, 1, 0] {
            write_varint(&mut out, value);
        }
        let lacking = self
            .blocks
            .iter()
            .map(|(&offset, &(lacks, _))| (offset, lacks as u32));
        Frame::emit_blocks(&mut out, self.id.0, self.done_below, lacking, 1000);
        self.raw.send(&out);
    }

    fn stats(&mut self) -> ConnectionStats {
        self.raw.connection().stats()
    }
}

#[test]
fn arrival_times_that_cannot_be_are_counted_and_cost_nothing_for_long() {
    let wrong: [(&str, Clock); 5] = [
        ("backwards", |us| 900_000_000 - us),
        ("still", |_| 77),
        ("tenfold", |us| 10 * us),
        ("leaps", |us| us + (us / 500_000) * 3_600_000_000),
        ("back and forth", |us| us + (us / 300_000 % 2) * 5_000_000),
    ];
    for (name, clock) in wrong {
        let mut receiver = Receiver::new();
        let carried = receiver.run(2 * SECOND, &HONEST);
        assert!(carried > 1500, "{name}: {carried} of 2000 packets before");
        assert_eq!(receiver.stats().absurd_times, 0, "{name}");
        let sent = receiver.sent;
        let carried = receiver.run(3 * SECOND, &Reporting { clock, ..HONEST });
        assert!(receiver.stats().absurd_times > 0, "{name}");
        let sent = receiver.sent - sent;
        assert!(
            sent < 2 * carried + 500,
            "{name}: {sent} sent, {carried} carried"
        );
        receiver.run(SECOND, &HONEST);
        let absurd = receiver.stats().absurd_times;
        let carried = receiver.run(2 * SECOND, &HONEST);
        assert!(
            carried > 1600,
            "{name}: {carried} of 2000 packets afterwards"
        );
        assert_eq!(receiver.stats().absurd_times, absurd, "{name}");
    }
}

#[test]
fn reports_a_second_late_are_survived() {
    let mut receiver = Receiver::new();
    receiver.run(2 * SECOND, &HONEST);
    let (sent, late) = (
        receiver.sent,
        Reporting {
            held: SECOND,
            ..HONEST
        },
    );
    let carried = receiver.run(4 * SECOND, &late);
    let sent = receiver.sent - sent;
    assert!(sent < 2 * carried + 500, "{sent} sent, {carried} carried");
    receiver.run(2 * SECOND, &HONEST);
    let carried = receiver.run(2 * SECOND, &HONEST);
    assert!(carried > 1600, "{carried} of 2000 packets afterwards");
}

#[test]
fn acknowledging_only_what_came_first_is_a_path_that_lost_the_rest() {
    let mut receiver = Receiver::new();
    receiver.run(2 * SECOND, &HONEST);
    // Nothing above some number is ever acknowledged, then everything is again.
    let (sent, first) = (
        receiver.sent,
        Reporting {
            says: |pn| pn < 100,
            ..HONEST
        },
    );
    let carried = receiver.run(4 * SECOND, &first);
    let sent = receiver.sent - sent;
    assert!(sent < carried + 500, "{sent} sent, {carried} carried");
    let probes = receiver.stats().probes;
    assert!((3..40).contains(&probes), "{probes} probe timeouts");
    receiver.run(2 * SECOND, &HONEST);
    let carried = receiver.run(2 * SECOND, &HONEST);
    assert!(carried > 1600, "{carried} of 2000 packets afterwards");
}
