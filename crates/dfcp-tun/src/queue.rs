//! The queue before a connection: flow queues with controlled delay, RFC 8290. What waits longer than the
//! path is worth is marked or dropped here, and a download does not make a call wait.
//!
//! A queue is on the list of new ones, on that of old ones, or idle and empty.

use std::collections::VecDeque;
use std::time::Duration;

use crate::packet;

/// Of RFC 8290 §5.2: flow queues, bytes a queue sends in its turn (an Ethernet frame), the delay that may
/// stand, and the time in which it must not fall below.
const QUEUES: usize = 1024;
const QUANTUM: i64 = 1514;
const TARGET: Duration = Duration::from_millis(5);
const INTERVAL: Duration = Duration::from_millis(100);
/// Bytes that all queues hold: 300 ms of 100 Mbit/s. CoDel drops long before; this bounds what does not
/// listen.
const LIMIT: usize = 4 << 20;
/// What a packet counts for beyond its bytes.
const OVERHEAD: usize = 64;

/// A packet that waits.
#[derive(Debug)]
struct Waiting {
    since: Duration,
    packet: Vec<u8>,
}

/// The variables of RFC 8289 §5.3.
#[derive(Debug, Default)]
struct CoDel {
    first_above: Option<Duration>,
    dropping: bool,
    drop_next: Duration,
    count: u32,
    last_count: u32,
}

#[derive(Debug, Default)]
struct Flow {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    codel: CoDel,
    credit: i64,
    is_listed: bool,
}

/// What became of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Dropped since they waited too long, or there was no room.
    pub dropped: u64,
    /// Marked instead.
    pub marked: u64,
}

/// See the module's text.
#[derive(Debug)]
pub struct Queue {
    flows: Vec<Flow>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    bytes: usize,
    counts: QueueCounts,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            flows: (0..QUEUES).map(|_| Flow::default()).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            bytes: 0,
            counts: QueueCounts::default(),
        }
    }
}

impl Flow {
    fn pop(&mut self) -> Option<Waiting> {
        let next = self.waiting.pop_front()?;
        self.bytes -= next.packet.len() + OVERHEAD;
        Some(next)
    }

    /// Takes a packet; says whether packets have waited too long for an interval.
    fn take(&mut self, now: Duration) -> Option<(Waiting, bool)> {
        let Some(next) = self.pop() else {
            self.codel.first_above = None;
            self.codel.dropping = false;
            return None;
        };
        let waited = now.saturating_sub(next.since);
        // Less than a packet that waits is no standing queue.
        if waited < TARGET || self.bytes <= QUANTUM as usize {
            self.codel.first_above = None;
            return Some((next, false));
        }
        let since = *self.codel.first_above.get_or_insert(now + INTERVAL);
        Some((next, now >= since))
    }

    /// Takes the next packet, dropping or marking as the control law asks.
    fn dequeue(&mut self, now: Duration, counts: &mut QueueCounts) -> Option<Vec<u8>> {
        let (mut next, mut late) = self.take(now)?;
        if !self.codel.dropping {
            if late {
                self.codel.enter(now);
                if counts.punish(&mut next.packet) {
                    (next, _) = self.take(now)?;
                }
            }
            return Some(next.packet);
        }
        while late && now >= self.codel.drop_next {
            self.codel.count = self.codel.count.saturating_add(1);
            let was_dropped = counts.punish(&mut next.packet);
            self.codel.drop_next = control_law(self.codel.drop_next, self.codel.count);
            if !was_dropped {
                return Some(next.packet);
            }
            (next, late) = self.take(now)?;
        }
        self.codel.dropping = late;
        Some(next.packet)
    }
}

impl CoDel {
    /// Enters the dropping state; soon after the last one, about where that left off.
    fn enter(&mut self, now: Duration) {
        self.dropping = true;
        let delta = self.count.saturating_sub(self.last_count);
        let recently = now.saturating_sub(self.drop_next) < INTERVAL * 16;
        self.count = if delta > 1 && recently { delta } else { 1 };
        self.drop_next = control_law(now, self.count);
        self.last_count = self.count;
    }
}

fn control_law(from: Duration, count: u32) -> Duration {
    from + INTERVAL.div_f64(f64::from(count.max(1)).sqrt())
}

impl QueueCounts {
    /// Marks a packet, or has it dropped: true.
    fn punish(&mut self, packet: &mut [u8]) -> bool {
        let is_marked = packet::mark(packet);
        match is_marked {
            true => self.marked += 1,
            false => self.dropped += 1,
        }
        !is_marked
    }
}

impl Queue {
    /// What became of packets so far.
    pub fn counts(&self) -> QueueCounts {
        self.counts
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Forgets all that waits.
    pub fn clear(&mut self) {
        *self = Self {
            counts: self.counts,
            ..Self::default()
        };
    }

    /// Adds a packet of the flow with this hash.
    pub fn push(&mut self, now: Duration, hash: u64, packet: Vec<u8>) {
        let index = (hash % QUEUES as u64) as usize;
        let flow = &mut self.flows[index];
        let size = packet.len() + OVERHEAD;
        flow.bytes += size;
        self.bytes += size;
        flow.waiting.push_back(Waiting { since: now, packet });
        if !flow.is_listed {
            flow.is_listed = true;
            flow.credit = QUANTUM;
            self.new.push_back(index);
        }
        while self.bytes > LIMIT {
            self.shed();
        }
    }

    /// Drops the oldest packets of the longest queue: half of it, so that the search for it is rare
    /// (RFC 8290 §4.1).
    fn shed(&mut self) {
        let Some(longest) = self.flows.iter_mut().max_by_key(|flow| flow.bytes) else {
            return;
        };
        let until = longest.bytes / 2;
        while longest.bytes > until
            && let Some(oldest) = longest.pop()
        {
            self.bytes -= oldest.packet.len() + OVERHEAD;
            self.counts.dropped += 1;
        }
    }

    /// Takes the packet that is next.
    pub fn pop(&mut self, now: Duration) -> Option<Vec<u8>> {
        loop {
            let from_new = !self.new.is_empty();
            let list = if from_new {
                &mut self.new
            } else {
                &mut self.old
            };
            let index = *list.front()?;
            let flow = &mut self.flows[index];
            if flow.credit <= 0 {
                flow.credit += QUANTUM;
                list.pop_front();
                self.old.push_back(index);
                continue;
            }
            let before = flow.bytes;
            let next = flow.dequeue(now, &mut self.counts);
            self.bytes -= before - flow.bytes;
            if let Some(packet) = next {
                flow.credit -= packet.len() as i64;
                return Some(packet);
            }
            list.pop_front();
            // A new queue waits for the old ones before it may be new again (§4.2).
            match from_new {
                true => self.old.push_back(index),
                false => flow.is_listed = false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::tests::v4;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn packet(len: usize) -> Vec<u8> {
        v4([10, 0, 0, 1], [10, 0, 0, 2], 17, &vec![0; len - 20])
    }

    #[test]
    fn a_thin_flow_does_not_wait_behind_a_thick_one() {
        let mut queue = Queue::default();
        for _ in 0..100 {
            queue.push(MS(0), 1, packet(1400));
        }
        queue.pop(MS(1)).unwrap();
        queue.push(MS(1), 2, packet(60));
        let behind = (0..3).position(|_| queue.pop(MS(1)).unwrap().len() == 60);
        assert!(behind.is_some());
    }

    #[test]
    fn bulk_flows_share() {
        let mut queue = Queue::default();
        for flow in [1, 1, 1, 2] {
            for _ in 0..100 {
                queue.push(MS(0), flow, packet(700 + 100 * flow as usize));
            }
        }
        let sizes: Vec<usize> = (0..60).map(|_| queue.pop(MS(1)).unwrap().len()).collect();
        let of = |len| sizes.iter().filter(|&&size| size == len).sum::<usize>() as f64;
        assert!((of(800) / of(900) - 1.0).abs() < 0.1, "{sizes:?}");
    }

    /// A source that sends a fifth more than leaves.
    fn overload(ecn: bool) -> (Queue, Duration) {
        let mut queue = Queue::default();
        let mut worst = MS(0);
        for tick in 0..20_000_u64 {
            let now = MS(tick);
            for _ in 0..1 + u64::from(tick % 5 == 0) {
                let mut packet = packet(1000);
                packet[1] = 2 * u8::from(ecn);
                queue.push(now, 1, packet);
            }
            queue.pop(now);
            if tick > 10_000 {
                let waits = queue.flows[1].waiting.front().map(|next| now - next.since);
                worst = worst.max(waits.unwrap_or_default());
            }
        }
        (queue, worst)
    }

    #[test]
    fn a_standing_queue_is_dropped_until_it_is_short() {
        let (queue, worst) = overload(false);
        assert!(queue.counts().dropped > 1000 && queue.counts().marked == 0);
        // Of a source that does not listen the queue is bounded only by the law's growing rate.
        assert!(worst < MS(1000), "{worst:?}");
        let (queue, _) = overload(true);
        assert!(queue.counts().marked > 1000);
    }

    #[test]
    fn the_longest_queue_makes_room() {
        let mut queue = Queue::default();
        queue.push(MS(0), 7, packet(500));
        for _ in 0..5000 {
            queue.push(MS(0), 1, packet(1400));
            assert!(queue.bytes <= LIMIT);
        }
        assert!(queue.counts().dropped > 1000);
        let mut left = 0;
        let mut thin = 0;
        while let Some(packet) = queue.pop(MS(1)) {
            left += packet.len() + OVERHEAD;
            thin += usize::from(packet.len() == 500);
        }
        assert!(left <= LIMIT && thin == 1 && queue.is_empty());
    }
}
