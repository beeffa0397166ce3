//! CTCP, network-coded TCP (CTCP, "Network Coded TCP", 2012), as a composition.

use super::{Part, Profile};
use crate::feedback::EachPacket;
use crate::packet::{LossEstimate, LossRules, Reordering, Unanswered};
use crate::rate::{TokenParameters, Tokens};
use crate::scheduler::{Deficit, Rounding};
use dfcp_fec::SchemeId;

/// What can be chosen of CTCP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CtcpParameters {
    /// `blksize`: source symbols of a block.
    pub block_symbols: u32,
    /// `numblks`: blocks that may be begun and not acknowledged.
    pub open_blocks: u32,
    /// µ: weight of a packet in the loss estimate p (Algorithm 1).
    pub loss_weight: f64,
    /// Age at which blocks count no more on a packet, in eighths of a round trip (Algorithm 3).
    pub expiry_eighths: u32,
    /// Ignored: a packet is lost as soon as a later one is acknowledged (Algorithm 1). Adaptive: not
    /// before three are, and later where packets are seen to change places.
    pub reordering: Reordering,
    /// What becomes of the fraction of a packet in Algorithm 3.
    pub rounding: Rounding,
    /// Congestion control (Algorithm 2).
    pub tokens: TokenParameters,
}

impl Default for CtcpParameters {
    /// Blocks of 32 (§6.2) and 1.5 round trips (§4.5); the paper does not name µ and `numblks`: µ
    /// remembers 512 packets, and sixteen blocks are twice what 25 Mbit/s carry in 100 ms (eight
    /// would hold such a path to 60 %).
    fn default() -> Self {
        Self {
            block_symbols: 32,
            open_blocks: 16,
            loss_weight: 1.0 / 512.0,
            expiry_eighths: 12,
            reordering: Reordering::Ignored,
            rounding: Rounding::Down,
            tokens: TokenParameters::default(),
        }
    }
}

impl CtcpParameters {
    /// For real paths: blocks enough for any product of bandwidth and delay that the credit allows
    /// (sixteen are 730 kB a round trip), and packets may change places.
    pub fn for_any_path() -> Self {
        Self {
            open_blocks: 1024,
            reordering: Reordering::Adaptive,
            ..Self::default()
        }
    }
}

impl Profile {
    /// CTCP with its parameters as published.
    pub fn ctcp() -> Self {
        Self::ctcp_with(CtcpParameters::default())
    }

    /// CTCP: network-coded blocks, tokens, the deficit rule without a margin, every packet
    /// acknowledged at once and lost as soon as a later one is acknowledged.
    pub fn ctcp_with(parameters: CtcpParameters) -> Self {
        let CtcpParameters {
            open_blocks,
            rounding,
            tokens,
            ..
        } = parameters;
        Self {
            name: "ctcp",
            scheme: SchemeId::Rlnc,
            block_symbols: parameters.block_symbols.max(1),
            block_time: None,
            max_symbol: usize::from(u16::MAX),
            rate: Part::rate(move || Tokens::new(tokens)),
            scheduler: Part::scheduler(move || {
                Deficit::without_margin(open_blocks as usize, rounding)
            }),
            feedback: Part::feedback(EachPacket::default),
            loss_rules: LossRules {
                packet_threshold: match parameters.reordering {
                    Reordering::Ignored => 1,
                    Reordering::Adaptive => LossRules::default().packet_threshold,
                },
                time_threshold_eighths: parameters.expiry_eighths.max(8),
                reordering: parameters.reordering,
                unanswered: Unanswered::WrittenOff,
                estimate: LossEstimate::Smoothed(parameters.loss_weight),
            },
        }
    }
}
