//! Blocks of chosen symbols: a hostile sender who looks for those that never suffice.

use super::live::Watch;
use super::raw::{self, RawClient};
use super::{Input, check_work};
use dfcp_proto::wire::{BlockLen, Frame, SymbolHeader};
use dfcp_proto::{Duration, SchemeId};

/// What the server may hold: a quarter of it is what a client has at first, which must be enough for
/// the largest block.
const BUDGET: u64 = 12 << 20;
/// The same and a quarter, for decoders and spare buffers, and the connection itself.
const MAY_HOLD: usize = BUDGET as usize * 5 / 4 + (1 << 19);
/// What solving a block of 8192 symbols takes beside, its matrix most of all: 15 MB were seen.
const SOLVE: usize = 20 << 20;
/// The first object of a client.
const OBJECT: u64 = 2;
/// The least that a receiver takes of a longer block.
const SYMBOL: [u8; 256] = [7; 256];
/// Packets of a run of the body: three blocks of the largest size and what may follow.
const MOST_PACKETS: u32 = 3 * 8192 + 1000;

/// Blocks of every code and up to 8192 symbols, whose ESIs the sender chooses: runs of them, with any
/// start and step. Work and memory stay in proportion.
pub fn solves(data: &[u8]) {
    let mut input = Input(data);
    let watch = Watch::allow(MAY_HOLD).and_briefly(SOLVE);
    let server = raw::small_server(BUDGET);
    let mut raw = RawClient::connect_with(server, &raw::params());
    let (mut offset, mut packets) = (0, 0);
    while !input.is_empty() && packets < MOST_PACKETS {
        let op = input.byte();
        let (scheme, most) = match op & 3 {
            0 => (SchemeId::Dense, 256),
            1 => (SchemeId::Rlnc, 256),
            _ => (SchemeId::RaptorQ, 8192),
        };
        let k = (input.number() as u64 % most) + 1;
        for _ in 0..=op >> 5 {
            let (start, step) = (input.word() >> 8, input.number() as u32);
            let count = (input.number() as u32 % (k as u32 + 64)).min(MOST_PACKETS - packets);
            for i in 0..count {
                let esi = start.wrapping_add(i.wrapping_mul(step)) & 0xff_ffff;
                let header = SymbolHeader {
                    scheme,
                    channel: OBJECT,
                    offset,
                    block: BlockLen::Bytes(k * SYMBOL.len() as u64),
                    esi,
                };
                let data = &SYMBOL;
                raw.send_frames(&[Frame::Symbol { header, data }]);
            }
            packets += count;
            watch.check();
            check_work(&raw);
            if raw.closed().is_some() {
                return;
            }
        }
        if op & 4 == 0 {
            offset += k * SYMBOL.len() as u64;
        }
        raw.now += Duration::from_millis(u64::from(op >> 3 & 3) * 100);
        let now = raw.now;
        raw.server.handle_timeout(now);
        raw.receive(|_, _| {});
    }
}
