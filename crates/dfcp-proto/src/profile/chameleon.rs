//! Chameleon (Lochin, Jourjon and Ardon, "Design and Validation of a Reliable Rate Based Transport
//! Protocol", 2009), as a composition.

use super::Profile;
use crate::feedback::FeedbackKind;
use crate::packet::LossRules;
use crate::rate::{OscillationReduction, Specification, Tfrc};
use crate::scheduler::{FlowControl, SelectiveRepeat};
use dfcp_fec::SchemeId;
use std::sync::Arc;

/// What Chameleon can be told. The receive window is the receiver's to say
/// ([`TransportConfig::receive_packets`](crate::TransportConfig::receive_packets)).
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
}

impl Default for ChameleonParameters {
    /// The paper's: packets of 1 KB, RFC 3448.
    fn default() -> Self {
        Self {
            packet: 1000,
            specification: Specification::Rfc3448,
            reduction: OscillationReduction::Off,
            flow_control: FlowControl::AvailWin,
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
        } = parameters;
        Self {
            name: "chameleon",
            scheme: SchemeId::Arq,
            block_symbols: 1,
            max_symbol: packet.max(1).into(),
            rate: Arc::new(move || Box::new(Tfrc::new(specification, reduction))),
            scheduler: Arc::new(move || Box::new(SelectiveRepeat::new(flow_control))),
            feedback: FeedbackKind::EachRoundTrip,
            loss_rules: LossRules::default(),
        }
    }
}
