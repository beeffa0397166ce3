//! Which symbol leaves next: what window and pacer let go, of the channels that take turns.

use super::Connection;
use super::queue::{Level, Work};
use crate::block::{ChannelId, Cut, Cutter, SendChannel, SymbolOut};
use crate::time::{Duration, Instant};

impl Connection {
    /// The symbol that window, pacer and scheduler let go now; probes pass the first two, and nothing
    /// passes what an address that is not validated may get.
    pub(super) fn next_symbol(&mut self, now: Instant) -> Option<(ChannelId, SymbolOut)> {
        if self.is_fenced() {
            return None;
        }
        self.out.queue.release(now);
        let rtt = self.out.path.rtt.smoothed();
        let held_up = &mut self.out.redundancy.held_up;
        held_up.take_if(|since| *since + rtt < now);
        let probing = self.out.probes_due > 0;
        let ready = self.out.queue.is_ready();
        if !probing && self.has_data_ready() {
            let may_leave = self.has_window_room() && self.out.path.may_depart(now);
            may_leave.then_some(())?;
        }
        if let Some(split) = &self.out.split {
            return Some((split.channel, split.symbol));
        }
        let mut picked = (probing || ready).then(|| self.pick(now)).flatten();
        if picked.is_none() && self.begins_to_wait(now) {
            picked = self.pick(now);
        }
        if picked.is_some() {
            return picked;
        }
        self.out.queue.block();
        let waits = self.out.queue.has_new() || self.out.is_held_up(self.config.send_buffer);
        self.out.path.on_idle(waits);
        let mut senders = self.channels.senders().filter(|_| probing);
        senders.find_map(|(id, send)| Some((id, send.probe()?)))
    }

    /// Nothing may leave: open blocks get what the last ones get if they hold up what follows, until that was not
    /// so for a round trip. True if that begins.
    fn begins_to_wait(&mut self, now: Instant) -> bool {
        if !self.out.is_held_up(self.config.send_buffer) {
            return false;
        }
        if self.out.redundancy.held_up.replace(now).is_some() {
            return false;
        }
        let policy = self.out.redundancy.policy();
        let mut open = Vec::new();
        for (id, send) in self.channels.senders_mut() {
            send.refresh_all(policy);
            open.push(id);
        }
        open.into_iter().for_each(|id| self.activate(id));
        true
    }

    /// Serves channels by priority, and those of one priority in turn.
    fn pick(&mut self, now: Instant) -> Option<(ChannelId, SymbolOut)> {
        let cut = self.cut();
        let credit = self.out.max_data.saturating_sub(self.out.charged);
        let policy = self.out.redundancy.policy();
        let limit = policy.scheduler.max_open_blocks();
        let open = || self.channels.senders().map(|(_, send)| send.open_blocks());
        let full = limit < usize::MAX && open().sum::<usize>() >= limit;
        let hold = policy.hold(self.out.path.rtt.smoothed());
        let mut level = self.out.queue.highest();
        while let Some(priority) = level {
            let picked = self.pick_at(priority, &cut, (credit, full), (now, hold));
            if picked.is_some() {
                return picked;
            }
            level = self.out.queue.below(priority);
        }
        None
    }

    /// Blocks that lack symbols first, new blocks after, as far as credit goes and unless the window is
    /// full.
    fn pick_at(
        &mut self,
        priority: Level,
        cut: &Cut,
        (credit, full): (u64, bool),
        (now, hold): (Instant, Duration),
    ) -> Option<(ChannelId, SymbolOut)> {
        let policy = self.out.redundancy.policy();
        for work in [Work::Repair, Work::New] {
            if work == Work::New && full {
                continue;
            }
            let mut turn = self.out.queue.turn(priority, work);
            while let Some(id) = turn.next(&self.out.queue) {
                let Some(send) = self.channels.sender(id) else {
                    self.out.queue.remove(id, work);
                    continue;
                };
                // An error means a geometry that the code refuses: none is cut by us.
                let buffers = &mut self.out.buffers;
                let mut cutter = Cutter { cut, buffers };
                let mut begin =
                    |send: &mut SendChannel| send.next_new(&mut cutter, credit).ok().flatten();
                let symbol = match work {
                    Work::Repair if !full && send.begins_early(policy, cut) => {
                        begin(send).or_else(|| send.next_repair(policy, now, hold))
                    }
                    Work::Repair => send.next_repair(policy, now, hold),
                    Work::New => begin(send),
                };
                if let Some(symbol) = symbol {
                    return Some((id, symbol));
                }
                let queue = &mut self.out.queue;
                match work {
                    Work::Repair if !send.has_hungry() => queue.remove(id, work),
                    Work::Repair => {
                        if let Some(due) = send.waits_until(now, hold) {
                            queue.hold(id, due);
                        }
                    }
                    Work::New if send.is_at_limit() => queue.set_aside(id),
                    Work::New if !send.has_unsent() => queue.remove(id, work),
                    _ => {}
                }
            }
        }
        None
    }
}
