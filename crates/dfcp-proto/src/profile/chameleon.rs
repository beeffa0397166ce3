//! Chameleon (Lochin, Jourjon and Ardon, "Design and Validation of a Reliable Rate Based Transport
//! Protocol", 2009), as a composition.

use super::{Part, Profile};
use crate::feedback::EachRoundTrip;
use crate::packet::LossRules;
use crate::rate::{OscillationReduction, Specification, Tfrc};
use crate::scheduler::{FlowControl, SelectiveRepeat};
use dfcp_fec::SchemeId;

/// What Chameleon can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChameleonParameters {
    /// Bytes of data in a packet.
    pub packet: u16,
    /// Which text TFRC follows.
    pub specification: Specification,
    /// Whether single round-trip times move the rate.
    pub reduction: OscillationReduction,
    /// Off: plain TFRC with retransmissions.
    pub flow_control: FlowControl,
    /// Packets that this side's own receive window holds (at least 1). The window that bounds what is
    /// sent is the peer's to say.
    pub window: u8,
}

impl Default for ChameleonParameters {
    /// The paper's: packets of 1 KB, RFC 3448, a window of 64 packets (§IV).
    fn default() -> Self {
        Self {
            packet: 1000,
            specification: Specification::Rfc3448,
            reduction: OscillationReduction::Off,
            flow_control: FlowControl::AvailWin,
            window: 64,
        }
    }
}

impl ChameleonParameters {
    /// For real paths: packets as large as the path takes, TFRC as it is specified now, and no window
    /// of packets, which would bound the rate to 64 KB a round trip: the credit of bytes that every
    /// receiver grants holds the sender back.
    pub fn for_any_path() -> Self {
        Self {
            packet: u16::MAX,
            specification: Specification::Rfc5348,
            reduction: OscillationReduction::On,
            flow_control: FlowControl::Off,
            ..Self::default()
        }
    }
}

impl Profile {
    /// Chameleon with its parameters as published.
    pub fn chameleon() -> Self {
        Self::chameleon_with(ChameleonParameters::default())
    }

    /// Chameleon: TFRC, one packet a block, lost packets sent again by selective acknowledgement, a
    /// receive window of packets, a report each round trip.
    pub fn chameleon_with(parameters: ChameleonParameters) -> Self {
        let ChameleonParameters {
            packet,
            specification,
            reduction,
            flow_control,
            window,
        } = parameters;
        Self {
            name: "chameleon",
            scheme: SchemeId::Arq,
            block_symbols: 1,
            block_time: None,
            max_symbol: packet.max(1).into(),
            rate: Part::rate(move || Tfrc::new(specification, reduction)),
            scheduler: Part::scheduler(move || SelectiveRepeat::new(flow_control)),
            feedback: Part::feedback(move || EachRoundTrip::new(window)),
            loss_rules: LossRules::default(),
        }
    }
}
