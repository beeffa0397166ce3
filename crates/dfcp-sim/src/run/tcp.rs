//! TCP of a scenario in the terms of its sender and receiver.

use crate::engine::TcpConfig;
use crate::scenario::{
    CongestionSpec, CubicSpec, CubicVariant as VariantSpec, HeaderSpec, HystartSpec, ReductionSpec,
    TcpSpec,
};
use crate::tcp::{
    Congestion, CubicConfig, CubicVariant, DelayedAck, Sizes, TcpReceiverConfig, TcpSenderConfig,
    WindowReduction,
};

/// ns-2 counts 40 bytes of headers whatever they carry.
const FLAT: Sizes = Sizes::Flat {
    data_header: 40,
    ack: 40,
};

pub(super) fn config(spec: &TcpSpec) -> TcpConfig {
    let sizes = match spec.headers {
        HeaderSpec::Exact => Sizes::Wire,
        HeaderSpec::Flat => FLAT,
    };
    let sender = TcpSenderConfig {
        mss: spec.mss,
        size: None,
        congestion: congestion(&spec.congestion),
        initial_window: spec.initial_window,
        initial_ssthresh: spec.initial_ssthresh,
        rto_min: spec.rto_min,
        rto_max: spec.rto_max,
        rto_initial: spec.rto_initial,
        rto_granularity: spec.rto_granularity,
        handshake: spec.handshake,
        timestamps: spec.timestamps,
        sack: spec.sack,
        ecn: spec.ecn,
        send_buffer: spec.send_window,
        limited_transmit: spec.limited_transmit,
        reduction: match spec.reduction {
            ReductionSpec::AtOnce => WindowReduction::AtOnce,
            ReductionSpec::Proportional => WindowReduction::Proportional,
        },
        find_lost_retransmissions: spec.find_lost_retransmissions,
        sizes,
    };
    let receiver = TcpReceiverConfig {
        mss: spec.mss,
        delayed_ack: spec.delayed_ack.map(|delayed| DelayedAck {
            segments: delayed.segments,
            timeout: delayed.timeout,
        }),
        timestamps: spec.timestamps,
        sack: spec.sack,
        ecn: spec.ecn,
        receive_buffer: spec.receive_window,
        sizes,
    };
    TcpConfig { sender, receiver }
}

fn congestion(spec: &CongestionSpec) -> Congestion {
    match spec {
        CongestionSpec::NewReno => Congestion::Reno,
        CongestionSpec::Cubic(cubic) => Congestion::Cubic(cubic_config(*cubic)),
        CongestionSpec::HighSpeed => Congestion::HighSpeed,
        CongestionSpec::HTcp => Congestion::HTcp,
        CongestionSpec::Bbr => Congestion::Bbr,
    }
}

fn cubic_config(spec: CubicSpec) -> CubicConfig {
    CubicConfig {
        variant: match spec.variant {
            VariantSpec::Rfc9438 => CubicVariant::Rfc9438,
            VariantSpec::Linux2626 => CubicVariant::Linux2626,
        },
        beta: spec.beta,
        fast_convergence: spec.fast_convergence,
        hystart: spec.hystart == HystartSpec::PlusPlus,
    }
}
