//! The parameters of DFCP-J §4.6 and DFCP-TR §2.6, and what else a connection is told.

use super::code::Code;
use super::header::HEADER_LEN;
use crate::config::Payload;
use crate::observe::{Observe, Observers, Vantage};
use crate::profile::rc_udp;
use crate::rate::{BlockWait, MaxRate, RateController};
use crate::time::Duration;
use dfcp_fec::raptor::{RaptorParameters, State};
use std::fmt;
use std::sync::Arc;

/// When the sender stops sending symbols of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Sending {
    /// Not before its ACK (§4.5). A first pass over the block, sized by the measured loss; what then
    /// is missing, before new blocks; and when there is neither, a packet of each block of the
    /// window without an ACK in turn, without a pause.
    Rateless,
    /// After k (1 + `extra`) symbols, whatever arrives (TR §2.6).
    Fixed {
        /// Redundancy sent, as a fraction of k; it covers the code and the loss.
        extra: f64,
    },
    /// After as many as the measured loss asks for; more only when they turn out not to be enough
    /// (§4.5).
    Expected,
    /// After as many as the measured loss asks for and 2.5 standard deviations more: the redundancy
    /// follows the loss (TR §2.6). With ACKs on, more as `Expected`.
    Adaptive,
}

/// Redundancy ε.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Redundancy {
    /// The receiver has enough of a block at (1 + ε) k symbols; ε covers LDPC and LT together.
    pub epsilon: f64,
    /// When the sender has sent enough.
    pub sending: Sending,
}

/// Which acknowledgements are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledge {
    /// One for each block (DFCP-J §4.5).
    EachBlock,
    /// One for each window, cumulative (TR §2.6).
    EachWindow,
    /// None: the sender goes on by itself.
    Off,
}

/// When a block is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// As soon as enough symbols are there (§4.5).
    Received,
    /// When it is decoded.
    Decoded,
}

/// Whether a coding phase is carried out (§4.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// It is.
    On,
    /// Encoding: the first block is encoded and sent in place of all. Decoding: only whether it
    /// would be possible is found out.
    Off,
}

/// What makes a block complete whose bytes are not decoded (virtual payload, or decoding off).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The number of its symbols: (1 + ε) k are taken to be enough.
    Count,
    /// That they would decode: the code's graph is followed without its bytes.
    Structure,
}

/// How large blocks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSize {
    /// k · T bytes of [`Config::code`].
    Fixed,
    /// As suits `bytes`, expected to be sent: one block for a short object, blocks of about 1 MB for
    /// a long transfer (§4.5). The connecting side decides.
    Flexible {
        /// Bytes expected.
        bytes: u64,
    },
}

/// How long the last packet of a block's first pass is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LastPacket {
    /// As long as the others, as the papers' figures imply: a block takes whole packets.
    #[default]
    Whole,
    /// Only as long as ⌈(1 + ε) k⌉ asks for.
    Exact,
}

/// What the packets travel in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// UDP datagrams.
    Udp,
    /// IP packets of an experimental protocol number.
    Ip,
}

pub(super) type MakeRate = Arc<dyn Fn() -> Box<dyn RateController> + Send + Sync>;

/// Settings of a connection.
#[derive(Clone)]
pub struct Config {
    /// The code; offered in SYN, settled in SYNACK.
    pub code: Code,
    /// Whether it is taken as it is; RaptorQ always is.
    pub block_size: BlockSize,
    /// Bytes that will be sent, S_m: the connecting side tells them in SYN (RC-UDP §IV-B), and
    /// sends so many and no more. `None`: as many as are written. Without meaning on the other side.
    pub message: Option<u64>,
    /// Most unacknowledged blocks, W: what the receiver keeps.
    pub window: u32,
    /// Most blocks that this side sends at once, though the window be larger: 1 is block by block.
    pub blocks_at_once: u32,
    /// Redundancy.
    pub redundancy: Redundancy,
    /// Which ACKs.
    pub acknowledge: Acknowledge,
    /// When a block is acknowledged.
    pub moment: Moment,
    /// Encoding on or off.
    pub encoding: Codec,
    /// Decoding on or off.
    pub decoding: Codec,
    /// What makes a block complete that is not decoded.
    pub completion: Completion,
    /// How long a block's last packet is.
    pub last_packet: LastPacket,
    /// Makes the rate controller.
    pub rate: MakeRate,
    /// Bytes or sizes only.
    pub payload: Payload,
    /// UDP or IP.
    pub carrier: Carrier,
    /// Largest IP packet, bytes.
    pub mtu: u16,
    /// Bytes written and not acknowledged.
    pub send_buffer: u64,
    /// Memory for incomplete or unread blocks, bytes: three for each byte of a block.
    pub receive_budget: u64,
    /// Silence after which the peer is given up.
    pub idle_timeout: Duration,
    /// Silence after which the peer is asked whether it is there (at least 100 ms, at most a third
    /// of the idle timeout): the connection lives as long as both sides do, and so do NAT bindings.
    pub keep_alive: Option<Duration>,
    /// Who sees what happens; [`Config::observer`] adds one.
    pub observers: Observers,
}

/// Which IP packets are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4, without options.
    Ipv4,
    /// IPv6, without extensions.
    Ipv6,
}

/// A connection's packets of data, as links see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Of what IP carries.
    pub protocol: u8,
    /// Bytes of the headers below the connection's own, which its rate does not count.
    pub headers: u16,
    /// Bytes of a full IP packet.
    pub packet: u16,
}

/// Least time between two packets of a keep-alive.
const MIN_KEEP_ALIVE: Duration = Duration::from_millis(100);
/// An idle timeout has room for so many: some may be lost.
const KEEP_ALIVES: u32 = 3;

impl Default for Config {
    fn default() -> Self {
        Self {
            code: Code::Raptor(RaptorParameters::published(
                State::new(0x9e37_79b9, 0x85eb_ca6b, 0xc2b2_ae35)
                    .expect("within the generator's bounds"),
            )),
            block_size: BlockSize::Fixed,
            message: None,
            window: 10_000,
            blocks_at_once: u32::MAX,
            redundancy: Redundancy {
                epsilon: 0.1,
                sending: Sending::Rateless,
            },
            acknowledge: Acknowledge::EachBlock,
            moment: Moment::Received,
            encoding: Codec::On,
            decoding: Codec::On,
            completion: Completion::Count,
            last_packet: LastPacket::Whole,
            rate: Arc::new(|| Box::new(MaxRate)),
            payload: Payload::Real,
            carrier: Carrier::Udp,
            mtu: 1500,
            send_buffer: 64 << 20,
            receive_budget: 192 << 20,
            idle_timeout: Duration::from_secs(60),
            keep_alive: None,
            observers: Observers::default(),
        }
    }
}

/// Which of RC-UDP's codes (§IV-C names Raptor codes only).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RcUdpCode {
    /// RFC 6330, the Raptor code that needs least redundancy.
    #[default]
    RaptorQ,
    /// LDPC and LT as DFCP published them.
    Raptor,
}

impl RcUdpCode {
    /// The code with K = `k` and symbols of L = `symbol_size` bytes.
    pub fn code(self, k: u32, symbol_size: u16) -> Code {
        match self {
            Self::RaptorQ => Code::RaptorQ { k, symbol_size },
            Self::Raptor => {
                let (checks, of) = rc_udp::CHECK_NODES;
                let checks = (u64::from(k) * u64::from(checks)).div_ceil(of.into());
                Code::Raptor(RaptorParameters {
                    k,
                    n: u32::try_from(u64::from(k) + checks).unwrap_or(u32::MAX),
                    symbol_size,
                    // Each connection draws its own graph.
                    ..RaptorParameters::published(State::from_seed(1))
                })
            }
        }
    }
}

impl Config {
    /// RC-UDP ("On Raptor Coding Over UDP", §IV): blocks of 1 MB one by one, as fast as the host
    /// can until (1 + ε) K symbols are acknowledged, then a pause of δt for each packet dropped.
    /// `message` is the length S_m, if it is known; the code can be replaced.
    pub fn rc_udp(message: Option<u64>) -> Self {
        Self {
            code: RcUdpCode::default().code(rc_udp::BLOCK_SYMBOLS, rc_udp::SYMBOL_SIZE),
            message,
            window: rc_udp::WINDOW,
            blocks_at_once: 1,
            redundancy: Redundancy {
                epsilon: rc_udp::EPSILON,
                sending: Sending::Rateless,
            },
            ..Self::default()
        }
        .with_rate(|| Box::new(BlockWait::new(Box::new(MaxRate), rc_udp::DELTA_T)))
    }

    /// How large its packets of data are, as links see them.
    pub fn layout(&self, family: Family) -> Layout {
        const UDP_HEADER: u16 = 8;
        let ip = match family {
            Family::Ipv4 => 20,
            Family::Ipv6 => 40,
        };
        let (headers, protocol) = match self.carrier {
            Carrier::Udp => (ip + UDP_HEADER, 17),
            Carrier::Ip => (ip, 253),
        };
        let before = headers + HEADER_LEN as u16;
        let symbol = self.code.symbol_size().max(1);
        let symbols = self.mtu.saturating_sub(before) / symbol;
        Layout {
            protocol,
            headers,
            packet: before.saturating_add(symbols.saturating_mul(symbol)),
        }
    }

    /// How long silence lasts until a keep-alive.
    pub(super) fn keep_alive_interval(&self) -> Option<Duration> {
        let most = self.idle_timeout / KEEP_ALIVES;
        self.keep_alive.map(|i| i.min(most).max(MIN_KEEP_ALIVE))
    }

    /// The same with a rate controller of the caller's.
    pub fn with_rate(
        self,
        make: impl Fn() -> Box<dyn RateController> + Send + Sync + 'static,
    ) -> Self {
        Self {
            rate: Arc::new(make),
            ..self
        }
    }

    /// Asks `make`, too, for an observer of each connection ([`crate::observe`]).
    pub fn observer(
        mut self,
        make: impl Fn(&Vantage) -> Option<Box<dyn Observe>> + Send + Sync + 'static,
    ) -> Self {
        self.observers.add(make);
        self
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("code", &self.code)
            .field("window", &self.window)
            .field("redundancy", &self.redundancy)
            .field("acknowledge", &self.acknowledge)
            .field("carrier", &self.carrier)
            .finish_non_exhaustive()
    }
}
