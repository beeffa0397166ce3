//! Rate control of DFCP flows: what a file says of it (`control` and its parameters, in whatever
//! section) and the controller that this makes.

use dfcp_proto::Rate;
use dfcp_proto::profile::rc_udp;
use dfcp_proto::rate::{
    BlockWait, FixedRate, MarkResponse, Marked, MaxRate, Ordered, OscillationReduction, PathModel,
    ProbeGap, ProbeRate, RateController, Specification, Tfrc, Tokens,
};

use super::fields::{BitRate, Fields, Number, OrWord, RateOrWord, Section};

/// A rate controller of the protocol core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControlSpec {
    /// Which.
    pub law: ControlLaw,
    /// How far above its estimate a measuring controller sends, as a fraction.
    pub overestimate: f64,
    /// What one that obeys orders sends at before the first.
    pub initial_rate: Rate,
    /// The tight link's capacity, where pairs need not find it: UDP payload bits.
    pub capacity: Option<Rate>,
}

/// What a rate follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlLaw {
    /// What the profile's does.
    Profile,
    /// This rate, without backing off.
    Fixed(Rate),
    /// As fast as the first link takes it.
    LineRate,
    /// The same, with pauses between blocks (RC-UDP).
    BlockWait,
    /// A network controller's orders.
    Ordered,
    /// The available bandwidth, by packet pairs.
    ProbeGap,
    /// The available bandwidth, by chirps.
    ProbeRate,
    /// Congestion marks.
    Marked,
    /// A model of the path (`auto`).
    PathModel,
    /// The same, of low-latency queues (L4S).
    PathModelL4s,
    /// The same, which gives way to everybody else (a scavenger).
    PathModelBackground,
    /// Tokens (CTCP).
    Tokens,
    /// The equation of TCP's throughput (RFC 5348).
    Tfrc,
}

impl ControlLaw {
    /// Whether only the first link holds it back.
    pub fn is_at_line_rate(self) -> bool {
        matches!(self, Self::LineRate | Self::BlockWait)
    }
}

const WORDS: [(&str, ControlLaw); 12] = [
    ("profile", ControlLaw::Profile),
    ("line rate", ControlLaw::LineRate),
    ("block-wait", ControlLaw::BlockWait),
    ("ordered", ControlLaw::Ordered),
    ("probe-gap", ControlLaw::ProbeGap),
    ("probe-rate", ControlLaw::ProbeRate),
    ("marked", ControlLaw::Marked),
    ("path-model", ControlLaw::PathModel),
    ("path-model-l4s", ControlLaw::PathModelL4s),
    ("path-model-background", ControlLaw::PathModelBackground),
    ("tokens", ControlLaw::Tokens),
    ("tfrc", ControlLaw::Tfrc),
];

impl Default for ControlSpec {
    fn default() -> Self {
        Self {
            law: ControlLaw::Profile,
            overestimate: 0.05,
            initial_rate: Rate::from_bps(10_000_000),
            capacity: None,
        }
    }
}

impl ControlSpec {
    /// A new controller; `None` for the profile's own.
    pub fn controller(&self) -> Option<Box<dyn RateController>> {
        Some(match (self.law, self.capacity) {
            (ControlLaw::Profile, _) => return None,
            (ControlLaw::Fixed(rate), _) => Box::new(FixedRate::new(rate)),
            (ControlLaw::LineRate, _) => Box::new(MaxRate),
            (ControlLaw::BlockWait, _) => {
                Box::new(BlockWait::new(Box::new(MaxRate), rc_udp::DELTA_T))
            }
            (ControlLaw::Ordered, _) => Box::new(Ordered::new(self.initial_rate)),
            (ControlLaw::ProbeGap, None) => Box::new(ProbeGap::new(self.overestimate)),
            (ControlLaw::ProbeGap, Some(capacity)) => {
                Box::new(ProbeGap::with_capacity(self.overestimate, capacity))
            }
            (ControlLaw::ProbeRate, _) => Box::new(ProbeRate::new(self.overestimate)),
            (ControlLaw::Marked, _) => Box::new(Marked::new()),
            (ControlLaw::PathModel, _) => Box::new(PathModel::new()),
            (ControlLaw::PathModelL4s, _) => {
                Box::new(PathModel::new().with_marks(MarkResponse::Scalable))
            }
            (ControlLaw::PathModelBackground, _) => Box::new(PathModel::new().yielding()),
            (ControlLaw::Tokens, _) => Box::new(Tokens::default()),
            (ControlLaw::Tfrc, _) => {
                Box::new(Tfrc::new(Specification::Rfc5348, OscillationReduction::On))
            }
        })
    }
}

impl Section for ControlSpec {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("control", &mut self.law, LAW);
        f.item("overestimate", &mut self.overestimate, Number(0.0, 10.0));
        f.item("initial_rate", &mut self.initial_rate, BitRate);
        f.item("capacity", &mut self.capacity, OrWord("measured", BitRate));
    }
}

/// A rate, or what is followed.
const LAW: RateOrWord<'_, ControlLaw> = RateOrWord {
    words: &WORDS,
    of: ControlLaw::Fixed,
    rate: |law| match law {
        ControlLaw::Fixed(rate) => Some(*rate),
        _ => None,
    },
};
