//! A hostile receiver of the published wire: any answers to a connection that sends.

use super::Input;
use super::live::Watch;
use dfcp_proto::published::header::{Header, Kind, PseudoHeader, Report, seal};
use dfcp_proto::published::{
    Acknowledge, Code, Config, Connection, ConnectionHandle, Endpoint, GeneratorState, Listen,
    RaptorParameters, Redundancy, Sending,
};
use dfcp_proto::rate::{FixedRate, Marked, MaxRate, ProbeGap, ProbeRate, RateController};
use dfcp_proto::{Duration, Instant, Rate};
use std::net::SocketAddr;
use std::sync::Arc;

const PORT: u16 = 7;
/// Bytes that are written and not acknowledged; blocks have about as much again for the symbols that their
/// encoders are made of. Beside them a table of packets to be answered, which doubles up to 4 MiB.
const SEND_BUFFER: u64 = 1 << 17;
const MAY_HOLD: usize = 4 * SEND_BUFFER as usize + (1 << 23);
const WINDOW: u32 = 4;
/// Packets that carry a block, of either code, with some to spare.
const NEEDED: u64 = 3;
/// Packets that are taken at a time from a sender that may have no end of them.
const MOST: u64 = 2000;
const RATE: Rate = Rate::from_bps(20_000_000);
/// What leaves at once beside that.
const BURST: u64 = 100_000;

fn controller(pick: u8) -> Box<dyn RateController> {
    match pick % 5 {
        0 => Box::new(FixedRate::new(RATE)),
        1 => Box::new(ProbeGap::new(0.05)),
        2 => Box::new(ProbeRate::new(0.05)),
        3 => Box::new(Marked::new()),
        _ => Box::new(MaxRate),
    }
}

fn config(mode: u8, rate: u8) -> Config {
    let code = match mode & 2 {
        0 => Code::Raptor(RaptorParameters {
            k: 300,
            n: 330,
            symbol_size: 8,
            ..RaptorParameters::published(GeneratorState::from_seed(1))
        }),
        _ => Code::RaptorQ {
            k: 12,
            symbol_size: 200,
        },
    };
    Config {
        code,
        window: WINDOW,
        redundancy: Redundancy {
            epsilon: 0.2,
            sending: Sending::Expected,
        },
        acknowledge: match mode & 4 {
            0 => Acknowledge::EachBlock,
            _ => Acknowledge::EachWindow,
        },
        send_buffer: SEND_BUFFER,
        ..Config::default()
    }
    .with_rate(move || controller(rate))
}

/// A sender, what it sent, and the receiver that may say anything.
struct Attack {
    sender: Endpoint,
    handle: ConnectionHandle,
    remote: SocketAddr,
    now: Instant,
    /// Headers of data packets, the latest ones.
    heard: Vec<Header>,
    packets: u64,
    bytes: u64,
    blocks: u32,
}

impl Attack {
    /// An honest handshake.
    fn begin(config: Config) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let config = Arc::new(config);
        let listen = Listen {
            port: PORT,
            config: config.clone(),
            max_connections: 1,
            memory: u64::MAX,
        };
        let mut receiver = Endpoint::new(Some(listen), 2);
        let mut sender = Endpoint::new(None, 1);
        let remote = SocketAddr::from(([10, 0, 0, 2], 1));
        let own = SocketAddr::from(([10, 0, 0, 1], 1));
        let handle = sender.connect(now, remote, PORT, config).expect("a port");
        let mut out = Vec::new();
        for _ in 0..2 {
            while sender.poll_transmit(now, 1, &mut out).is_some() {
                receiver.handle_packet(now, own, 0, &out);
                out.clear();
            }
            while receiver.poll_transmit(now, 1, &mut out).is_some() {
                sender.handle_packet(now, remote, 0, &out);
                out.clear();
            }
        }
        assert!(receiver.accept().is_some());
        Self {
            sender,
            handle,
            remote,
            now,
            heard: Vec::new(),
            packets: 0,
            bytes: 0,
            blocks: 0,
        }
    }

    fn connection(&mut self) -> Option<&mut Connection> {
        self.sender.connection(self.handle)
    }

    /// Takes what is sent by now.
    fn hear(&mut self) {
        let (mut out, mut count) = (Vec::new(), 0);
        while count < MOST && self.sender.poll_transmit(self.now, 1, &mut out).is_some() {
            count += 1;
            if let Ok((header, _)) = Header::parse(&out, &PseudoHeader::Udp)
                && matches!(header.kind, Kind::Data { .. })
            {
                self.packets += 1;
                self.bytes += out.len() as u64;
                self.blocks = self.blocks.max(header.block + 1);
                if self.heard.len() == 64 {
                    self.heard.remove(0);
                }
                self.heard.push(header);
            }
            out.clear();
        }
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.sender.handle_timeout(self.now);
        let next = self.sender.poll_timeout();
        assert!(next.is_none_or(|at| at > self.now), "it never waits");
    }

    fn say(&mut self, like: &Header, kind: Kind, block: u32, report: Option<Report>) {
        let header = Header {
            source: like.destination,
            destination: like.source,
            block,
            kind,
            report,
            ..*like
        };
        let mut out = Vec::new();
        header.emit(&mut out);
        seal(&mut out, &PseudoHeader::Udp);
        self.sender.handle_packet(self.now, self.remote, 0, &out);
    }
}

/// A small number, one near `near`, or any.
fn number(input: &mut Input<'_>, near: u32) -> u32 {
    match input.byte() % 4 {
        0 => u32::from(input.byte()),
        1 => near.wrapping_add(u32::from(input.byte())).wrapping_sub(128),
        2 => u32::MAX - u32::from(input.byte()),
        _ => input.word(),
    }
}

/// Block acknowledgements and echoes with any reports, for packets that came and others, at any time. The
/// connection ends or goes on; what it holds is bounded. Where the receiver says that all arrived, what is
/// sent is bounded by what it asks for, whatever it asks for, and by the rate where that is fixed.
pub fn answers(data: &[u8]) {
    let mut input = Input(data);
    let watch = Watch::allow(MAY_HOLD);
    let mode = input.byte();
    // With any reports somebody may believe in a path that loses nearly everything.
    let (lossless, rate) = match mode & 1 {
        0 => (true, 4),
        _ => (false, input.byte() % 4),
    };
    let mut attack = Attack::begin(config(mode, rate));
    let start = attack.now;
    let (mut answers, mut steps) = (0u64, 1u64);
    for _ in 0..300 {
        if input.is_empty() {
            break;
        }
        let now = attack.now;
        if let Some(connection) = attack.connection() {
            let _ = connection.write(now, &[0x5a; 3000]);
        }
        attack.hear();
        let op = input.byte();
        let newest = attack.heard.last().copied();
        let heard = attack.heard.len().max(1);
        let picked = attack.heard.get(usize::from(input.byte()) % heard).copied();
        let Some(like) = (if op & 1 == 0 { newest } else { picked }) else {
            break;
        };
        let kind = match op >> 1 & 3 {
            0 => Kind::BlockAck { more: false },
            1 => Kind::BlockAck { more: true },
            _ => Kind::Echo,
        };
        let block = match op >> 3 & 3 {
            0 => number(&mut input, like.block),
            _ => like.block,
        };
        let report = (op & 0x20 == 0).then(|| Report {
            packets: match lossless {
                true => attack.packets as u32,
                false => number(&mut input, attack.packets as u32),
            },
            bytes: input.wide(),
            ce: number(&mut input, 0),
            clock: input.wide(),
            decoded: number(&mut input, like.block),
            limit: number(&mut input, like.block + WINDOW),
            missing: number(&mut input, NEEDED as u32),
        });
        attack.say(&like, kind, block, report);
        answers += 1;
        attack.hear();
        if op & 0x40 != 0 {
            attack.wait(Duration::from_millis(1 + u64::from(input.byte() >> 2)));
            steps += 1;
            attack.hear();
        }
        watch.check();
        // Each time a block has waited too long it is sent again, or a probe is.
        let asked = u64::from(attack.blocks) + answers + u64::from(WINDOW + 1) * steps;
        let most = 4 * NEEDED * asked;
        assert!(
            !lossless || attack.packets <= most,
            "{} packets, {most} would do",
            attack.packets
        );
        let time = attack.now.saturating_since(start);
        let most = BURST + RATE.bytes_in(time);
        assert!(
            lossless || rate != 0 || attack.bytes <= most,
            "{} bytes in {time:?}",
            attack.bytes
        );
        if attack.connection().is_none() {
            return;
        }
    }
    // It ends, or goes on, without a word more from here.
    for _ in 0..40 {
        attack.wait(Duration::from_millis(500));
        attack.hear();
        watch.check();
    }
}
