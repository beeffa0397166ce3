//! `rc_udp`: what a flow of RC-UDP can be told (RC-UDP §IV).

use dfcp_proto::profile::rc_udp;
use dfcp_proto::published::RcUdpCode;

use super::transport::PAYLOADS;
use crate::engine::DfcpPayload;
use crate::scenario::control::{ControlLaw, ControlSpec};
use crate::scenario::fields::{Bytes, Fields, Number, OneOf, OrWord, Section, Time};
use crate::scenario::model::RcUdpSpec;

impl Default for RcUdpSpec {
    /// RC-UDP §IV-C and §V-A; the sending rate it leaves open.
    fn default() -> Self {
        Self {
            block: 1_000_000,
            symbol: rc_udp::SYMBOL_SIZE,
            epsilon: rc_udp::EPSILON,
            code: RcUdpCode::RaptorQ,
            delta_t: rc_udp::DELTA_T,
            control: ControlSpec {
                law: ControlLaw::LineRate,
                ..ControlSpec::default()
            },
            payload: DfcpPayload::Virtual,
            mtu: None,
        }
    }
}

impl Section for RcUdpSpec {
    fn fields(&mut self, f: &mut Fields<'_>) {
        let codes = [
            ("raptorq", RcUdpCode::RaptorQ),
            ("raptor", RcUdpCode::Raptor),
        ];
        f.item("block", &mut self.block, Bytes(1, 1 << 26));
        f.item("symbol", &mut self.symbol, Bytes(1, 65_000));
        f.item("epsilon", &mut self.epsilon, Number(0.0, 10.0));
        f.item("code", &mut self.code, OneOf(&codes));
        f.item("delta_t", &mut self.delta_t, Time);
        self.control.fields(f);
        f.item("payload", &mut self.payload, OneOf(&PAYLOADS));
        f.item("mtu", &mut self.mtu, OrWord("path", Bytes(128, 65_535)));
    }
}
