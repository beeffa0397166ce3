//! Block schedulers and feedback by name: with the code and the rate control, the parts that a
//! file may put in place of a profile's.

use dfcp_proto::Profile;
use dfcp_proto::feedback::{BlockAcks, EachPacket, EachRoundTrip, FeedbackPolicy, Timed};
use dfcp_proto::scheduler::{Deficit, FlowControl, Rounding, SelectiveRepeat, Window};

/// A block scheduler of the protocol core, with parameters of its own, which are said here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerLaw {
    /// Expected arrivals against need, with margins (`auto`).
    Deficit,
    /// Without margins, eight open blocks (CTCP, Algorithm 3).
    Expected,
    /// A window of 64 blocks, each with 5 % redundancy (DFCP).
    Window,
    /// One block at a time with 1 % redundancy (RC-UDP).
    OneBlock,
    /// What was lost first, then new data (Chameleon), with no limit in packets.
    SelectiveRepeat,
}

/// Their words.
pub(super) const SCHEDULERS: [(&str, Option<SchedulerLaw>); 6] = [
    ("profile", None),
    ("deficit", Some(SchedulerLaw::Deficit)),
    ("expected", Some(SchedulerLaw::Expected)),
    ("window", Some(SchedulerLaw::Window)),
    ("one-block", Some(SchedulerLaw::OneBlock)),
    ("selective-repeat", Some(SchedulerLaw::SelectiveRepeat)),
];

/// A feedback policy of the protocol core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedbackLaw {
    /// On a clock (`auto`).
    Timed,
    /// At each block (DFCP).
    BlockAcks,
    /// At each packet (CTCP).
    EachPacket,
    /// Each round trip, with what the receiver has room for (Chameleon).
    EachRoundTrip,
}

/// Their words.
pub(super) const FEEDBACK: [(&str, Option<FeedbackLaw>); 5] = [
    ("profile", None),
    ("timed", Some(FeedbackLaw::Timed)),
    ("block-acks", Some(FeedbackLaw::BlockAcks)),
    ("each-packet", Some(FeedbackLaw::EachPacket)),
    ("each-round-trip", Some(FeedbackLaw::EachRoundTrip)),
];

impl FeedbackLaw {
    /// `profile` with this feedback, in which a receive window holds `window` packets.
    pub fn on(self, profile: Profile, window: u8) -> Profile {
        profile.with_feedback(move || -> Box<dyn FeedbackPolicy> {
            match self {
                Self::Timed => Box::new(Timed::default()),
                Self::BlockAcks => Box::new(BlockAcks::default()),
                Self::EachPacket => Box::new(EachPacket::default()),
                Self::EachRoundTrip => Box::new(EachRoundTrip::new(window)),
            }
        })
    }
}

impl SchedulerLaw {
    /// `profile` with this scheduler.
    pub fn on(self, profile: Profile) -> Profile {
        match self {
            Self::Deficit => profile.with_scheduler(|| Box::new(Deficit::default())),
            Self::Expected => {
                profile.with_scheduler(|| Box::new(Deficit::without_margin(8, Rounding::Down)))
            }
            Self::Window => profile.with_scheduler(|| Box::new(Window::new(64, 0.05))),
            Self::OneBlock => profile.with_scheduler(|| Box::new(Window::new(1, 0.01))),
            Self::SelectiveRepeat => {
                profile.with_scheduler(|| Box::new(SelectiveRepeat::new(FlowControl::Off)))
            }
        }
    }
}
