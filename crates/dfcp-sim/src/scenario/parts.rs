//! Block schedulers and feedback by name: with the code and the rate control, the parts that a
//! file may put in place of a profile's.

use dfcp_proto::Profile;
use dfcp_proto::feedback::FeedbackKind;
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

/// Words of kinds of feedback.
pub(super) const FEEDBACK: [(&str, Option<FeedbackKind>); 5] = [
    ("profile", None),
    ("timed", Some(FeedbackKind::Timed)),
    ("block-acks", Some(FeedbackKind::BlockAcks)),
    ("each-packet", Some(FeedbackKind::EachPacket)),
    ("each-round-trip", Some(FeedbackKind::EachRoundTrip)),
];

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
