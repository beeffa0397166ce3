//! Windows of streams that nobody reads: the less credit is free, the less of its first window a stream may
//! use, so that streams whose readers have stopped never have all of it.

use super::{Connection, Control};
use crate::time::Instant;

impl Connection {
    /// Says how much of their first windows streams may use, if that has changed by a quarter.
    pub(super) fn review_first_window(&mut self, now: Instant) {
        let initial = self.config.initial_stream_window;
        let credit = &mut self.inc.credit;
        let (told, next) = (
            credit.first_window.min(initial),
            credit.first_window_now(initial),
        );
        let is_news = next <= told - told / 4 || next >= told + told / 3 || next == initial;
        if next == told || !is_news {
            return;
        }
        credit.first_window = next;
        self.out.control.retain(|c| *c != Control::FirstWindow);
        self.out.control.push_back(Control::FirstWindow);
        self.inc.policy.on_urgent(now);
        if next > told {
            return;
        }
        // What was read and did not matter while windows were large does now.
        for (id, recv) in self.channels.receivers_mut() {
            recv.begin_anew();
            if recv.new_limit(&mut self.inc.credit).is_some() {
                self.out.control.push_back(Control::MaxStreamData(id));
            }
        }
    }

    /// The peer says how much of their first windows streams may use.
    pub(super) fn on_first_window(&mut self, pn: u64, bytes: u64) {
        // One of a packet counts: each costs a look at every stream.
        if self
            .inc
            .newest_first_window
            .is_some_and(|newest| pn <= newest)
        {
            return;
        }
        self.inc.newest_first_window = Some(pn);
        let initial = self.peer_params.as_ref().map_or(0, |p| p.max_stream_data);
        let withheld = initial.saturating_sub(bytes);
        let had = std::mem::replace(&mut self.out.withheld, withheld);
        if withheld == had {
            return;
        }
        for (id, send) in self.channels.senders_mut() {
            send.withhold(withheld);
            if withheld < had && send.is_active() {
                self.out.queue.insert(id);
            }
        }
        if withheld < had {
            self.notify_waiting();
        }
    }
}
