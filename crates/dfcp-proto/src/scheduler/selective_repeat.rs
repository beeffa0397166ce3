//! Chameleon's rule (Chameleon §II): what is missing goes again first, then new data as far as the
//! receiver has room, and nothing ahead of need.

use super::{BlockScheduler, BlockView, Room};
use crate::packet::Loss;

/// Whether the receiver's window holds new blocks back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowControl {
    /// By `avail_win`, where the receiver reports it.
    #[default]
    AvailWin,
    /// Only the credit does that holds for every profile.
    Off,
}

/// Selective repeat.
#[derive(Clone, Copy, Debug, Default)]
pub struct SelectiveRepeat {
    flow_control: FlowControl,
}

impl SelectiveRepeat {
    /// With `flow_control`.
    pub fn new(flow_control: FlowControl) -> Self {
        Self { flow_control }
    }
}

impl BlockScheduler for SelectiveRepeat {
    fn deficit(&self, block: &BlockView, _loss: Loss) -> u32 {
        block.needed.saturating_sub(block.in_flight)
    }

    /// The window is taken from the report and what was sent since its Offset is withdrawn, to the
    /// letter: packets that arrived since the report before count although there is room for more.
    fn allowance(&self, room: &Room) -> u64 {
        match self.flow_control {
            FlowControl::AvailWin => room.avail_win.saturating_sub(room.sent_since),
            FlowControl::Off => u64::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_sent_since_offset_are_withdrawn_from_the_window() {
        let scheduler = SelectiveRepeat::default();
        let room = |avail_win, sent_since| Room {
            avail_win,
            sent_since,
        };
        assert_eq!(scheduler.allowance(&room(64, 0)), 64);
        assert_eq!(scheduler.allowance(&room(60, 32)), 28);
        assert_eq!(scheduler.allowance(&room(10, 32)), 0);
        let free = SelectiveRepeat::new(FlowControl::Off);
        assert_eq!(free.allowance(&room(0, 32)), u64::MAX);
    }
}
