//! `chameleon`: what Chameleon and plain TFRC can be told.

use dfcp_proto::profile::ChameleonParameters;
use dfcp_proto::rate::{OscillationReduction, Specification};

use crate::scenario::fields::{Bytes, Count, Fields, OneOf, Section};

impl Section for ChameleonParameters {
    fn fields(&mut self, f: &mut Fields<'_>) {
        let texts = [
            ("rfc3448", Specification::Rfc3448),
            ("rfc5348", Specification::Rfc5348),
        ];
        let reductions = [
            ("off", OscillationReduction::Off),
            ("on", OscillationReduction::On),
        ];
        f.item("packet", &mut self.packet, Bytes(16, 9000));
        f.item("window", &mut self.window, Count(1, 255));
        f.item("tfrc", &mut self.specification, OneOf(&texts));
        let reduction = &mut self.reduction;
        f.item("oscillation_reduction", reduction, OneOf(&reductions));
    }
}
