//! Bodies of the fuzz targets. `cargo +nightly fuzz run TARGET` drives them with new inputs; the
//! tests of dfcp-sim replay the committed corpus through the same functions. The targets in `transfer.rs`
//! are replayed by the tests of dfcp-transfer, that in `tun.rs` by those of dfcp-tun.

use dfcp_fec::{BlockSpec, SchemeId, scheme};
use dfcp_proto::wire::{
    Frame, FrameIter, Packet, TransportParams, VIRTUAL_PAYLOAD, emit_reset, emit_version,
};
use dfcp_proto::{ChannelId, ChannelKind, Duration, Event, Instant};
use dfcp_sim::{LinkConfig, Pair, PairConfig, Side};

pub mod answers;
pub mod handshake;
pub mod hostile;
pub mod live;
pub mod published;
pub mod raptor;
pub mod rate;
pub mod raw;
pub mod receiver;
pub mod resets;
pub mod rlnc;
pub mod solves;

/// The body of a target.
pub type Body = fn(&[u8]);

/// A target by name, for the replay.
pub const TARGETS: [(&str, Body); 16] = [
    ("answers", answers::answers),
    ("packet", packet),
    ("frames", frames),
    ("params", params),
    ("datagrams", datagrams),
    ("sealed_frames", sealed_frames),
    ("decoder", decoder),
    ("published", published::packets),
    ("raptor", raptor::decoder),
    ("rate", rate::feedback),
    ("rlnc", rlnc::vectors),
    ("handshake", handshake::handshake),
    ("migration", hostile::migration),
    ("receiver", receiver::feedback),
    ("resets", resets::resets),
    ("solves", solves::solves),
];

/// Takes fields off the front of the input; zeros when it is used up.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    fn number(&mut self) -> usize {
        usize::from(self.byte()) << 8 | usize::from(self.byte())
    }

    /// Eight bytes: small numbers as often as large ones.
    fn wide(&mut self) -> u64 {
        let shift = self.byte() % 64;
        let mut bytes = [0; 8];
        let given = self.bytes(8);
        bytes[..given.len()].copy_from_slice(given);
        u64::from_be_bytes(bytes) >> shift
    }

    fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (head, tail) = self.0.split_at(n.min(self.0.len()));
        self.0 = tail;
        head
    }

    fn word(&mut self) -> u32 {
        (self.number() as u32) << 16 | self.number() as u32
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Any datagram: parsing is total, and what parses is written and read again the same.
pub fn packet(data: &[u8]) {
    let Ok(packet) = Packet::parse(data) else {
        return;
    };
    let again = match packet {
        Packet::Syn(syn) => syn.emit(data.len()),
        Packet::SynAck(synack) => synack.emit(data.len()),
        Packet::Ack(ack) => ack.emit(),
        Packet::Version {
            client_cid,
            versions,
        } => {
            let list: Vec<u32> = versions
                .chunks_exact(4)
                .map(|v| u32::from_be_bytes([v[0], v[1], v[2], v[3]]))
                .collect();
            emit_version(client_cid, &list)
        }
        Packet::Retry(retry) => retry.emit(),
        Packet::Reset { cid, token } => emit_reset(cid, token),
        Packet::Sealed(_) => return,
    };
    assert_eq!(Packet::parse(&again), Ok(packet));
}

/// Any plaintext: frames parse or not, and what parses is written and read again the same.
pub fn frames(data: &[u8]) {
    for frame in FrameIter::new(data) {
        let Ok(frame) = frame else { return };
        let mut out = Vec::new();
        frame.emit(&mut out);
        let again = FrameIter::new(&out).next().expect("a frame was written");
        same_frame(&frame, &again.expect("what we write parses"));
    }
}

fn same_frame(a: &Frame<'_>, b: &Frame<'_>) {
    match (a, b) {
        (
            Frame::Ack { head, ranges },
            Frame::Ack {
                head: head2,
                ranges: ranges2,
            },
        ) => {
            assert_eq!(head, head2);
            let (first, second): (Vec<_>, Vec<_>) =
                (ranges.iter().collect(), ranges2.iter().collect());
            assert_eq!(first, second);
            assert!(
                first.windows(2).all(|w| *w[1].end() + 1 < *w[0].start()),
                "apart, descending"
            );
        }
        (Frame::Blocks(a), Frame::Blocks(b)) => {
            assert_eq!((a.channel, a.done_below), (b.channel, b.done_below));
            assert_eq!(a.iter().collect::<Vec<_>>(), b.iter().collect::<Vec<_>>());
        }
        // Numbers may come in more bytes than they need, and are written in as few as can be.
        (Frame::Sack(a), Frame::Sack(b)) => {
            assert_eq!((a.path, a.channel), (b.path, b.channel));
            assert_eq!((a.avail_win, a.offset), (b.avail_win, b.offset));
            assert!(a.pairs().eq(b.pairs()));
        }
        _ => assert_eq!(a, b),
    }
}

/// Any transport parameters.
pub fn params(data: &[u8]) {
    if let Ok(params) = TransportParams::parse(data) {
        assert_eq!(TransportParams::parse(&params.emit()), Ok(params));
    }
}

/// Two connections with 20,000 bytes under way, what 64 strangers said, and the pair itself.
const PAIR_HOLDS: usize = 1 << 20;

/// Strangers' datagrams, captured and changed ones among them, into both ends of a connection that
/// moves data: nothing closes, and the data arrive.
pub fn datagrams(data: &[u8]) {
    let mut input = Input(data);
    let link = LinkConfig {
        delay: Duration::from_millis(5),
        ..LinkConfig::default()
    };
    let watch = live::Watch::allow(PAIR_HOLDS);
    let mut pair = Pair::new(PairConfig::symmetric(link, 1));
    assert!(pair.establish(Duration::from_secs(1)));
    let id = pair
        .connection(Side::Client)
        .open(ChannelKind::Object)
        .expect("a channel");
    let payload = [0x5a; 20_000];
    let now = pair.now;
    let client = pair.connection(Side::Client);
    assert_eq!(client.write(now, id, &payload), Ok(payload.len()));
    pair.connection(Side::Client)
        .finish_channel(id)
        .expect("open");
    let mut captured: Vec<Vec<u8>> = Vec::new();
    for _ in 0..64 {
        if input.is_empty() {
            break;
        }
        pair.flush();
        for link in &pair.links {
            captured.extend(
                link.clone()
                    .poll(pair.now + Duration::from_secs(1))
                    .map(|p| p.data),
            );
        }
        let op = input.byte();
        let side = if op & 1 == 0 {
            Side::Client
        } else {
            Side::Server
        };
        let mut datagram = match op >> 1 & 3 {
            0 => {
                let len = input.number() % 1600;
                input.bytes(len).to_vec()
            }
            _ if captured.is_empty() => continue,
            kind => {
                let mut copy = captured[input.number() % captured.len()].clone();
                let at = input.number() % copy.len();
                match kind {
                    1 => copy[at] ^= input.byte(),
                    2 => copy.truncate(at),
                    _ => {}
                }
                copy
            }
        };
        let remote = pair.hosts[side.other() as usize].address;
        let now = pair.now;
        pair.hosts[side as usize]
            .endpoint
            .handle_datagram(now, remote, op >> 6, &mut datagram);
        if op & 8 != 0 {
            pair.run_until(Duration::from_millis(u64::from(op >> 4)), |_| false);
        }
        watch.check();
    }
    let mut got = 0;
    pair.run_until(Duration::from_secs(5), |pair| {
        let now = pair.now;
        while let Ok(Some((_, bytes))) = pair.connection(Side::Server).take_block(now, id) {
            assert!(bytes.iter().all(|&b| b == 0x5a));
            got += bytes.len();
            pair.connection(Side::Server).recycle(now, bytes);
        }
        got == payload.len()
    });
    for host in &pair.hosts {
        let closed = host.events.iter().find(|e| matches!(e, Event::Closed(_)));
        assert_eq!(closed, None, "a stranger closed the connection");
    }
    assert_eq!(got, payload.len());
}

/// What the server of a hand-made client may hold of what that sends.
const BUDGET: u64 = 4 << 20;
/// And beside: a quarter of it for decoders and spare buffers, the datagrams of a connection (1 MiB),
/// symbols in parts (256 KiB), the connection itself and what the body holds.
const MAY_HOLD: usize = BUDGET as usize * 5 / 4 + (3 << 19);
/// Operations that rebuilding may take for each byte that came: RaptorQ counts as 270 for each byte
/// of a block and is tried six times at most; the other codes take less.
const OPERATIONS: u64 = 6 * 270;

/// Work is in proportion to what came.
fn check_work(raw: &raw::RawClient) {
    let (said, solved) = (raw.said, raw.solved);
    assert!(
        solved <= OPERATIONS * said,
        "{solved} operations for {said} bytes"
    );
}

/// What a client says of itself, of which the input chooses any numbers. It takes real symbols, since the
/// server refuses who does not.
fn params_of(input: &mut Input<'_>) -> TransportParams {
    let mut params = raw::params();
    let chosen = input.number();
    let numbers = [
        &mut params.max_datagram,
        &mut params.max_data,
        &mut params.max_stream_data,
        &mut params.max_channels,
        &mut params.idle_timeout_ms,
        &mut params.schemes,
        &mut params.feedback,
        &mut params.receive_packets,
        &mut params.round_trip_us,
        &mut params.max_block_symbols,
        &mut params.application,
    ];
    for (i, number) in numbers.into_iter().enumerate() {
        if chosen >> i & 1 == 1 {
            *number = input.wide() >> 2; // what a varint holds
        }
    }
    params.max_datagram = params.max_datagram.max(1200);
    params.schemes &= !VIRTUAL_PAYLOAD;
    params
}

/// Any transport parameters and frames from an authenticated peer: the connection may close, never panic, hold more than it
/// may, or work more than what came is worth.
pub fn sealed_frames(data: &[u8]) {
    let mut input = Input(data);
    let server = raw::small_server(BUDGET);
    let watch = live::Watch::allow(MAY_HOLD);
    let mut raw = raw::RawClient::connect_with(server, &params_of(&mut input));
    for kind in [ChannelKind::Stream, ChannelKind::Object] {
        if let Some(id) = raw.connection().open(kind) {
            let now = raw.now;
            let connection = raw.connection();
            connection.write(now, id, &[7; 30_000]).expect("open");
        }
    }
    for _ in 0..48 {
        if input.is_empty() {
            break;
        }
        let op = input.byte();
        let len = input.number() % 1400;
        let plaintext = input.bytes(len);
        if op & 0x80 != 0 {
            raw.skip(u64::from(op & 0x7f) << 12);
        }
        raw.send(plaintext);
        raw.now += Duration::from_micros(u64::from(op & 0x7f) * 100);
        let now = raw.now;
        raw.server.handle_timeout(now);
        raw.receive(|_, _| {});
        watch.check();
        check_work(&raw);
        read_everything(&mut raw, now, op);
    }
    for _ in 0..30 {
        raw.now += Duration::from_millis(200);
        let now = raw.now;
        raw.server.handle_timeout(now);
        raw.receive(|_, _| {});
    }
}

/// An application that reads, and now and then has enough.
fn read_everything(raw: &mut raw::RawClient, now: Instant, op: u8) {
    let Some(connection) = raw.server.connection(raw.handle) else {
        return;
    };
    let mut buffer = [0; 4096];
    while let Some(event) = connection.poll_event() {
        if let Event::Opened(id) | Event::Readable(id) = event {
            if op & 0x10 != 0 {
                connection.stop_channel(now, id, 9.into());
                connection.end_recv(id);
            }
            let _ = connection.read(now, id, &mut buffer);
            while let Ok(Some((_, bytes))) = connection.take_block(now, id) {
                connection.recycle(now, bytes);
            }
            if op & 0x08 != 0 {
                while connection.take_gap(id).is_some() {}
            }
        }
    }
    if op & 0x20 != 0 {
        connection.reset_channel(ChannelId(u64::from(op & 0xf)), 5.into());
    }
}

/// Any symbols into a decoder. With the lowest bit of the first byte set they come from an encoder
/// of the same block, and a block that says it is complete is the source.
pub fn decoder(data: &[u8]) {
    let mut input = Input(data);
    let mode = input.byte();
    let id = [
        SchemeId::Arq,
        SchemeId::Dense,
        SchemeId::RaptorQ,
        SchemeId::Raptor,
        SchemeId::Rlnc,
    ][usize::from(mode >> 1) % 5];
    let (k, size) = (u32::from(input.byte()) % 70, u16::from(input.byte()) % 40);
    let honest = mode & 1 == 1;
    let Ok(spec) = BlockSpec::new(k, size, u64::from(mode)) else {
        return;
    };
    let Ok(mut decoder) = scheme(id).decoder(spec, Vec::new()) else {
        return;
    };
    let source: Vec<u8> = (0..spec.source_len())
        .map(|i| (i * 7 + i / 256) as u8)
        .collect();
    let mut encoder = scheme(id)
        .encoder(spec, source.clone())
        .expect("the decoder took it");
    // The source, the encoder's intermediate symbols, and 200 symbols of 40 bytes with their rows.
    let watch = live::Watch::allow(1 << 19);
    let (mut pushed, mut operations) = (0, 0);
    for _ in 0..200 {
        if input.is_empty() {
            break;
        }
        watch.check();
        let esi = u32::from(input.byte()) << (input.byte() % 20);
        let mut symbol = vec![0; spec.symbol_size()];
        if honest {
            let _ = encoder.write_symbol(esi, &mut symbol);
        } else {
            let len = usize::from(input.byte()) % (spec.symbol_size() + 2);
            symbol = input.bytes(len).to_vec();
        }
        let before = decoder.needed();
        match decoder.push(esi, &symbol) {
            Ok(_) => {
                pushed += 1;
                assert!(decoder.needed() <= before);
            }
            Err(_) => assert!(symbol.len() != spec.symbol_size() || esi >= 1 << 24),
        }
        if decoder.needed() == 0 {
            operations += decoder.solve_operations();
            assert!(
                operations <= OPERATIONS * pushed,
                "{operations} for {pushed}"
            );
            let solved = decoder.solve().unwrap_or(false);
            assert_eq!(solved, decoder.is_complete());
            if honest && solved {
                assert_eq!(decoder.source(), source);
            }
        }
    }
}
