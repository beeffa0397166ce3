//! The parameters of DFCP-J §4.6 and DFCP-TR §2.6, and what else a connection is told.

use crate::config::Payload;
use crate::rate::{MaxRate, RateController};
use crate::time::Duration;
use dfcp_fec::raptor::{Degrees, RaptorParameters, State};
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
    pub code: RaptorParameters,
    /// Whether it is taken as it is.
    pub block_size: BlockSize,
    /// Most unacknowledged blocks, W.
    pub window: u32,
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
    /// Bytes of incomplete or unread blocks.
    pub receive_budget: u64,
    /// Silence after which the peer is given up.
    pub idle_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            code: RaptorParameters {
                k: 63_536,
                n: 65_536,
                symbol_size: 1,
                ldpc_degree: 4,
                degrees: Degrees::Shokrollahi,
                precode: State::new(0x9e37_79b9, 0x85eb_ca6b, 0xc2b2_ae35)
                    .expect("within the generator's bounds"),
            },
            block_size: BlockSize::Fixed,
            window: 10_000,
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
            receive_budget: 64 << 20,
            idle_timeout: Duration::from_secs(60),
        }
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
