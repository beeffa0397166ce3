//! Network coding beyond one path: relays that recode, and several paths at once.
//!
//! A flow sends blocks of K symbols with random linear network coding (`dfcp_fec`, RLNC; CTCP §4.4)
//! by CTCP's rules: each path has its own packet numbers, round trip, loss estimate p (Algorithm 1)
//! and token pool (Algorithm 2); the block that gets the next symbol is the first one of which
//! fewer are expected to arrive, over all paths together, than the receiver still needs
//! (Algorithm 3), passing over blocks that faster paths complete before it arrives. Which path a symbol took does not matter: the receiver counts degrees of freedom.
//!
//! - *Several paths*: the sending half (module `outbound`) has a path (module `path`) for each.
//! - *Recoding*: a relay is a receiver for the hop before it and a sender for the hop after it. It
//!   keeps the independent symbols of each block as they came, and sends combinations of them.
//!   Losses of a hop are made up for on that hop, so a chain carries what its worst link carries,
//!   where routers that only forward lose on every link.
//!
//! Payload is virtual: symbols have coefficients but no bytes, so that linear dependence is real.
//!
//! Invariants: at most `numblks` blocks are open at any node, each with K vectors at most; a node
//! reports only what it has; nothing is sent for a block beyond what is expected to be needed.

mod inbound;
mod outbound;
mod path;
mod relay;
mod sink;
mod source;
#[cfg(test)]
mod tests;

use crate::engine::{Agent, Body, Chain, FlowConfig, LinkId, Outgoing, Pace};
use crate::packet::{Ecn, Priority};
use crate::random::Seed;
use dfcp_proto::profile::CtcpParameters;
use dfcp_proto::rate::{FixedRate, MaxRate, RateController, Tokens};
use dfcp_proto::{Instant, Rate};

/// What nodes between source and sink do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Relaying {
    /// Pass packets on.
    #[default]
    Forward,
    /// Combine what they have of a block, at every node of the route.
    Recode,
}

/// What a path's sending rate follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CodedControl {
    /// CTCP's tokens.
    #[default]
    Tokens,
    /// This rate: IP packets without their IP and UDP headers.
    Fixed(Rate),
    /// As fast as the first link of each hop takes packets. For one path only.
    LineRate,
}

/// Settings of a coded flow.
#[derive(Clone, Debug, PartialEq)]
pub struct CodedConfig {
    /// Blocks, loss estimate and tokens; blocks have at most 256 symbols.
    pub ctcp: CtcpParameters,
    /// What a sending rate follows.
    pub control: CodedControl,
    /// What nodes on the way do.
    pub relaying: Relaying,
    /// Bytes of a full IP packet.
    pub packet: u32,
    /// Routes beside the flow's own: there and back.
    pub others: Vec<(Vec<LinkId>, Vec<LinkId>)>,
}

impl Default for CodedConfig {
    fn default() -> Self {
        Self {
            ctcp: CtcpParameters::default(),
            control: CodedControl::default(),
            relaying: Relaying::default(),
            packet: 1500,
            others: Vec::new(),
        }
    }
}

/// Bytes of IPv4 and UDP headers, of a data packet's own (path 1, number 8, block 8, ESI or
/// nothing 3), and of a report's (path 1, number 8, first block 8, limit 3, arrival 4).
const IP_UDP: u32 = 28;
const DATA_HEADER: u32 = IP_UDP + 20;
const REPORT_HEADER: u32 = IP_UDP + 24;

impl CodedConfig {
    /// Bytes of a symbol: what a packet leaves beside headers and, where relays recode, the
    /// coefficients. `None` if that is nothing.
    pub fn symbol_size(&self) -> Option<u32> {
        let vector = match self.relaying {
            Relaying::Forward => 0,
            Relaying::Recode => self.ctcp.block_symbols,
        };
        let size = self.packet.checked_sub(DATA_HEADER + vector)?;
        (size > 0).then_some(size)
    }

    /// What holds senders back.
    pub(crate) fn pace(&self) -> Pace {
        match self.control {
            CodedControl::LineRate => Pace::FirstLink,
            _ => Pace::Own,
        }
    }

    fn controller(&self) -> Box<dyn RateController> {
        match self.control {
            CodedControl::Tokens => Box::new(Tokens::new(self.ctcp.tokens)),
            CodedControl::Fixed(rate) => Box::new(FixedRate::new(rate)),
            CodedControl::LineRate => Box::new(MaxRate),
        }
    }

    fn numblks(&self) -> u64 {
        u64::from(self.ctcp.open_blocks.max(1))
    }

    fn check(&self, flow: &FlowConfig) -> Result<(), String> {
        let k = self.ctcp.block_symbols;
        if !(1..=256).contains(&k) {
            return Err(format!("a block has 1 to 256 symbols, not {k}"));
        }
        if self.symbol_size().is_none() {
            return Err(format!(
                "a packet of {} bytes has no room beyond its headers and coefficients",
                self.packet
            ));
        }
        let paths = 1 + self.others.len();
        if paths > 256 {
            return Err(format!("{paths} paths are more than 256"));
        }
        if paths > 1 && self.relaying == Relaying::Recode {
            return Err("relays recode on one path only".into());
        }
        if paths > 1 && self.control == CodedControl::LineRate {
            return Err("only a single path can be sent on at line rate".into());
        }
        if self.relaying == Relaying::Recode && flow.forward.len() != flow.backward.len() {
            return Err("relays need a way back over the same nodes".into());
        }
        Ok(())
    }
}

/// A packet of a coded flow.
#[derive(Clone, Debug)]
pub struct CodedPacket {
    /// Which path it takes.
    pub path: u8,
    /// What it says.
    pub content: Content,
}

/// What a packet says.
#[derive(Clone, Debug)]
pub enum Content {
    /// A symbol.
    Data(Data),
    /// What a receiver has.
    Report(Report),
}

/// A symbol without its bytes.
#[derive(Clone, Debug)]
pub struct Data {
    /// The packet's number on its path.
    pub number: u64,
    /// Its block, counted from zero.
    pub block: u64,
    /// Source symbols of the block.
    pub symbols: u16,
    /// Its coefficients.
    pub symbol: Symbol,
}

/// The coefficients of a symbol.
#[derive(Clone, Debug)]
pub enum Symbol {
    /// Those of this encoding symbol ID.
    Esi(u32),
    /// These.
    Combination(Box<[u8]>),
}

/// What a receiver has: an answer to every data packet.
#[derive(Clone, Debug)]
pub struct Report {
    /// The packet answered and when it arrived; none where only the limit has moved.
    pub answers: Option<(u64, Instant)>,
    /// The first block of which it needs more (CTCP's `ack_currblk`).
    pub current: u64,
    /// Degrees of freedom that it has of this block and of those behind it.
    pub degrees: Vec<u16>,
    /// It takes no block from here on yet.
    pub limit: u64,
}

impl CodedPacket {
    /// As the engine sends it, on the route of its path. `full` is the size of a data packet.
    fn outgoing(self, full: u32, route: u8) -> Outgoing {
        let (size, priority) = match &self.content {
            Content::Data(_) => (full, Priority::Data),
            Content::Report(report) => (
                REPORT_HEADER + 2 * report.degrees.len() as u32,
                Priority::Control,
            ),
        };
        Outgoing {
            size,
            ecn: Ecn::NotEct,
            priority,
            route,
            body: Body::Coded(Box::new(self)),
        }
    }
}

/// The blocks of a flow and their seeds: what all nodes of a flow agree upon.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    seed: u64,
    symbol_size: u64,
    block_symbols: u32,
    /// Bytes to send.
    size: Option<u64>,
}

impl Blocks {
    /// Blocks of the flow; `None` for without end.
    fn count(&self) -> Option<u64> {
        let block = self.symbol_size * u64::from(self.block_symbols);
        self.size.map(|size| size.div_ceil(block))
    }

    /// Useful bytes of a block.
    fn bytes(&self, block: u64) -> u64 {
        let full = self.symbol_size * u64::from(self.block_symbols);
        let before = block.saturating_mul(full);
        self.size
            .map_or(full, |size| size.saturating_sub(before).min(full))
    }

    /// Source symbols of a block, zero beyond the last.
    fn symbols(&self, block: u64) -> u32 {
        self.bytes(block).div_ceil(self.symbol_size) as u32
    }

    fn spec(&self, block: u64, symbols: u16) -> Option<dfcp_fec::BlockSpec> {
        let seed = self.seed ^ block.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        dfcp_fec::BlockSpec::new(symbols.into(), 1, seed).ok()
    }
}

/// Makes the nodes of a flow.
///
/// # Errors
/// What makes no sense.
pub(crate) fn chain(config: &CodedConfig, flow: &FlowConfig, seed: Seed) -> Result<Chain, String> {
    config.check(flow)?;
    let mut random = seed.stream(&format!("{}.code", flow.name));
    let blocks = Blocks {
        seed: random.next_u64(),
        symbol_size: u64::from(config.symbol_size().unwrap_or(1)),
        block_symbols: config.ctcp.block_symbols,
        size: flow.size,
    };
    let relays = match config.relaying {
        Relaying::Forward => 0,
        Relaying::Recode => flow.forward.len().saturating_sub(1),
    };
    let relay = |_| -> Box<dyn Agent> {
        let seed = random.next_u64();
        Box::new(relay::Relay::new(config, blocks, seed))
    };
    Ok(Chain {
        source: Box::new(source::Source::new(config, blocks, flow)),
        relays: (0..relays).map(relay).collect(),
        sink: Box::new(sink::Sink::new(config, blocks)),
    })
}
