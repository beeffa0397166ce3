//! How often a busy socket is looked at.
//!
//! Waking up costs more than handling a packet. While packets come and go one by one in quick
//! succession, it is enough to look for them once in a while, as long as it is known when each
//! arrived. The first packets after a silence, and all of slow traffic, are taken at once.

use dfcp_proto::Instant;
use std::time::Duration;

/// Packets are counted over spans of this length.
const SPAN: Duration = Duration::from_millis(4);
/// Traffic becomes busy with this many packets, in and out together, for every two times that a packet
/// may wait; it stays so with two, lest chance change it.
const BUSY_PACKETS: u32 = 3;
/// Spans of busy traffic before packets wait: a small object is over by then.
const BUSY_SPANS: u32 = 8;
/// What a full-sized packet takes of a socket's buffer, bytes: two KiB for its bytes and the system's
/// record of it (Linux, `truesize`).
const PACKET_ROOM: usize = 2304;
/// Part of the socket's buffer that packets may fill before they are looked for: a look that comes
/// late finds room for twice as many more.
const BUFFER_PART: usize = 3;
/// Packets that may wait at most, whatever the buffer: with what they take there, half a megabyte,
/// they are still in the processor's cache when they are read.
const MAX_WAITING: u32 = 256;

/// What packets may wait for each other on the shortest path. Who can bear less is impatient.
pub(crate) const LEAST_PATIENCE: Duration = Duration::from_millis(1);

/// See the module's text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cadence {
    /// Packets that may wait.
    most: u32,
    /// Longest time that a packet may wait while there are many.
    patience: Duration,
    /// Packets that arrived in the running span, and those of them that are of impatient connections.
    arrived: u32,
    impatient: u32,
    /// Whether these were half of them in the last span.
    is_eager: bool,
    /// Start of the running span, and packets since.
    since: Instant,
    packets: u32,
    /// Busy spans in a row.
    busy: u32,
    /// Time between looks, as of the last span.
    interval: Duration,
}

impl Cadence {
    /// For a socket whose buffer for what arrives has `buffer` bytes.
    pub(crate) fn new(buffer: usize) -> Self {
        let fit = u32::try_from(buffer / BUFFER_PART / PACKET_ROOM).unwrap_or(u32::MAX);
        Self {
            most: fit.clamp(1, MAX_WAITING),
            patience: Duration::ZERO,
            arrived: 0,
            impatient: 0,
            is_eager: false,
            since: Instant::ZERO,
            packets: 0,
            busy: 0,
            interval: Duration::ZERO,
        }
    }

    /// Packets may wait for `patience` from the next span on.
    pub(crate) fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Packets of a connection arrived.
    pub(crate) fn arrived(&mut self, packets: usize, are_impatient: bool) {
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        self.arrived = self.arrived.saturating_add(packets);
        if are_impatient {
            self.impatient = self.impatient.saturating_add(packets);
        }
    }

    /// Whether the socket is looked at as often as impatient connections want it: where they bring half of what
    /// arrives. So nobody makes it be looked at for more packets of others than he sends himself.
    pub(crate) fn is_eager(&self) -> bool {
        self.is_eager
    }

    /// Packets arrived or were sent.
    pub(crate) fn count(&mut self, now: Instant, packets: usize) {
        self.packets = self
            .packets
            .saturating_add(u32::try_from(packets).unwrap_or(u32::MAX));
        let span = now.saturating_since(self.since);
        if span < SPAN {
            return;
        }
        let each = span / self.packets.max(1);
        let least = match self.busy {
            BUSY_SPANS.. => 2,
            _ => BUSY_PACKETS,
        };
        self.busy = match each.saturating_mul(least) <= 2 * self.patience {
            true => self.busy.saturating_add(1),
            false => 0,
        };
        self.interval = self.patience.min(each.saturating_mul(self.most));
        if self.arrived > 0 {
            self.is_eager = self.impatient >= self.arrived.div_ceil(2);
            (self.arrived, self.impatient) = (0, 0);
        }
        (self.since, self.packets) = (now, 0);
    }

    /// When to look for packets next, if they may wait; `None` if they are to be taken as they come.
    pub(crate) fn next_look(&self, now: Instant) -> Option<Instant> {
        let recent = now.saturating_since(self.since) < 2 * SPAN;
        let waits = recent && self.busy >= BUSY_SPANS && !self.interval.is_zero();
        waits.then(|| now + self.interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_millis(1);

    /// Bytes of a buffer for 64 packets and twice as many.
    const BUFFER: usize = 3 * 64 * PACKET_ROOM;

    fn patient() -> Cadence {
        let mut cadence = Cadence::new(BUFFER);
        cadence.set_patience(PATIENCE);
        cadence
    }

    /// Packets `gap` apart for `time`, looked for when the cadence says; how many looks there were,
    /// and the longest wait of a packet.
    fn run(
        cadence: &mut Cadence,
        start: Instant,
        gap: Duration,
        time: Duration,
    ) -> (u32, Duration) {
        let (mut next_packet, mut now) = (start, start);
        let (mut looks, mut longest) = (0, Duration::ZERO);
        while now < start + time {
            now = now.max(next_packet);
            longest = longest.max(now.saturating_since(next_packet));
            looks += 1;
            let mut count = 0;
            while next_packet <= now {
                next_packet += gap;
                count += 1;
            }
            cadence.count(now, count);
            now = cadence.next_look(now).unwrap_or(next_packet);
        }
        (looks, longest)
    }

    #[test]
    fn a_busy_socket_is_looked_at_once_in_a_while() {
        let mut cadence = patient();
        let gap = Duration::from_micros(120); // 100 Mbit/s
        let time = Duration::from_secs(1);
        let (looks, longest) = run(&mut cadence, Instant::ZERO, gap, time);
        assert!((900..1500).contains(&looks), "{looks} looks in a second");
        assert!(longest <= PATIENCE, "a packet waited {longest:?}");
    }

    #[test]
    fn a_socket_is_eager_where_half_of_what_arrives_is_impatient() {
        let mut cadence = patient();
        let mut now = Instant::ZERO;
        let mut after = |mine, others| {
            cadence.arrived(mine, true);
            cadence.arrived(others, false);
            now += SPAN;
            cadence.count(now, mine + others);
            cadence.is_eager()
        };
        assert!(after(1, 0));
        // As long as nothing arrives that stays so.
        assert!(after(0, 0));
        assert!(!after(0, 10));
        assert!(!after(4, 5));
        assert!(after(5, 5));
    }

    #[test]
    fn few_packets_wait_however_fast_they_come() {
        let mut cadence = patient();
        let gap = Duration::from_micros(4); // 3 Gbit/s
        let (_, longest) = run(&mut cadence, Instant::ZERO, gap, Duration::from_secs(1));
        assert!(longest <= gap * 65, "a packet waited {longest:?}");
    }

    #[test]
    fn slow_traffic_and_the_first_packets_after_a_silence_do_not_wait() {
        let mut cadence = patient();
        let second = Duration::from_secs(1);
        let slow = run(
            &mut cadence,
            Instant::ZERO,
            Duration::from_millis(2),
            second,
        );
        assert_eq!(slow.1, Duration::ZERO);
        let fast = Duration::from_micros(120);
        let later = Instant::ZERO + second;
        assert!(run(&mut cadence, later, fast, second).1 > Duration::ZERO);
        // 20 ms: more packets than a small object has.
        let (_, longest) = run(
            &mut cadence,
            later + 2 * second,
            fast,
            Duration::from_millis(20),
        );
        assert_eq!(longest, Duration::ZERO);
    }
}
