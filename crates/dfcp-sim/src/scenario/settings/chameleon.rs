//! `chameleon`: what Chameleon and plain TFRC can be told.

use dfcp_proto::profile::ChameleonParameters;
use dfcp_proto::rate::{OscillationReduction, Specification};
use dfcp_proto::scheduler::FlowControl;

use crate::scenario::fields::{Bytes, Count, Fields, OneOf, Section};
use crate::scenario::model::ChameleonSpec;

impl Default for ChameleonSpec {
    fn default() -> Self {
        Self {
            parameters: ChameleonParameters::default(),
            window: 64, // Chameleon §IV-A: 64 KB
        }
    }
}

impl ChameleonSpec {
    /// Without flow control: TFRC that sends what was lost again.
    pub fn tfrc(mut self) -> Self {
        self.parameters.flow_control = FlowControl::Off;
        self
    }
}

impl Section for ChameleonSpec {
    fn fields(&mut self, f: &mut Fields<'_>) {
        let texts = [
            ("rfc3448", Specification::Rfc3448),
            ("rfc5348", Specification::Rfc5348),
        ];
        let reductions = [
            ("off", OscillationReduction::Off),
            ("on", OscillationReduction::On),
        ];
        f.item("packet", &mut self.parameters.packet, Bytes(16, 9000));
        f.item("window", &mut self.window, Count(1, 255));
        f.item("tfrc", &mut self.parameters.specification, OneOf(&texts));
        let reduction = &mut self.parameters.reduction;
        f.item("oscillation_reduction", reduction, OneOf(&reductions));
    }
}
