//! Spreads packets over time: a token bucket filled at the rate controller's rate.

use crate::host::MAX_BATCH;
use crate::time::{Duration, Instant, Rate};

/// Packets leave in groups of this length unless told otherwise, so that one wake-up and one system
/// call serve several: the length of TCP's segmentation offload (Linux, `tcp_tso_autosize`).
const GROUP: Duration = Duration::from_millis(1);
/// One wake-up serves at most two system calls: more would save next to nothing.
const MAX_SYSTEM_CALLS: u64 = 2;
/// A driver that wakes up late may catch up on this much, and on no more than [`LATE_GROUPS`]: with
/// the group that is due they fill half of a queue that is known to hold eight.
const LATENESS: Duration = Duration::from_millis(3);
const LATE_GROUPS: u64 = 3;

/// Where a packet leaves in its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Packets leave one by one.
    #[default]
    Alone,
    /// Among the first half.
    Front,
    /// Behind the first half: a queue that has no room for all loses these.
    Back,
}

/// Token bucket; tokens are bytes.
#[derive(Clone, Debug)]
pub struct Pacer {
    rate: Rate,
    tokens: f64,
    updated: Instant,
    packet: u64,
    /// How long a group may take at the rate, and the most bytes that it may have.
    group: (Duration, u64),
    /// What follows from these: bytes that leave together, whole packets, never less than one, and the most
    /// tokens.
    group_bytes: u64,
    capacity: f64,
}

impl Pacer {
    /// Starts with `burst` bytes that may go at once.
    pub fn new(now: Instant, burst: u64, packet: u64) -> Self {
        let mut pacer = Self {
            rate: Rate::ZERO,
            tokens: burst as f64,
            updated: now,
            packet,
            group: (GROUP, u64::MAX),
            group_bytes: 0,
            capacity: 0.0,
        };
        pacer.size();
        pacer
    }

    /// The rate followed.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Follows the controller: `rate` from now on, for packets of about `packet` bytes.
    pub fn set(&mut self, now: Instant, rate: Rate, packet: u64) {
        self.refill(now);
        let slower = rate < self.rate;
        self.rate = rate;
        self.packet = packet;
        self.size();
        if slower {
            // What a driver that was late may catch up on is counted at the rate that it is sent at:
            // some milliseconds of a rate that was far too high are hundreds of packets.
            self.tokens = self.tokens.min(self.capacity);
        }
    }

    /// Packets may wait for each other for `time`, until together they have `bytes`.
    pub fn set_group(&mut self, time: Duration, bytes: u64) {
        self.group = (time, bytes);
        self.size();
    }

    /// Works out how large a group and the bucket are.
    fn size(&mut self) {
        let (time, bytes) = self.group;
        let packet = self.packet.max(1);
        let group = (self.rate.bytes_in(time).min(bytes) / packet).max(1) * packet;
        let late = self.rate.bytes_in(LATENESS);
        let late = late.min(group.saturating_mul(LATE_GROUPS));
        self.group_bytes = group;
        self.capacity = group.saturating_add(late).max(2 * self.packet) as f64;
    }

    fn refill(&mut self, now: Instant) {
        let elapsed = now.saturating_since(self.updated);
        self.updated = self.updated.max(now);
        let filled = self.tokens + self.rate.as_bps() as f64 / 8.0 * elapsed.as_secs_f64();
        // A starting burst may be above capacity; it is spent, never refilled.
        self.tokens = filled.min(self.capacity.max(self.tokens));
    }

    /// Bytes that may leave now.
    pub fn available(&mut self, now: Instant) -> u64 {
        self.refill(now);
        self.tokens.max(0.0) as u64
    }

    /// Counts `bytes` as sent.
    pub fn consume(&mut self, bytes: u64) {
        self.tokens -= bytes as f64;
    }

    /// Where a packet is in its group that leaves now.
    pub fn place(&self) -> Place {
        let group = self.group_bytes;
        match 2.0 * self.tokens <= group as f64 {
            _ if group <= self.packet => Place::Alone,
            false => Place::Front,
            true => Place::Back,
        }
    }

    /// `bytes` more may go at once.
    pub fn grant(&mut self, bytes: u64) {
        self.tokens += bytes as f64;
    }

    /// Forgets what was sent unasked beyond a group: at a low rate, probes after timeouts would else
    /// leave room for nothing but further probes.
    pub fn forgive(&mut self) {
        self.tokens = self.tokens.max(-self.capacity);
    }

    /// When a worthwhile group may leave, seen from the last refill; `None` while the rate is
    /// zero.
    pub fn next_departure(&self) -> Option<Instant> {
        // A second system call is worth it if it is full.
        let (group, packet) = (self.group_bytes, self.packet.max(1));
        let full = (MAX_BATCH as u64 / packet).max(1) * packet;
        let group = match group / full {
            0 => group,
            calls => calls.min(MAX_SYSTEM_CALLS) * full,
        };
        let missing = (group as f64 - self.tokens).max(0.0).ceil() as u64;
        // A fast path moves a byte in less than the clock can tell: time must pass all the same.
        let least = Duration::from_nanos(u64::from(missing > 0));
        (self.rate > Rate::ZERO).then(|| self.updated + self.rate.time_for(missing).max(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends as a driver would for `time` and returns the bytes sent.
    fn drive(pacer: &mut Pacer, mut now: Instant, time: Duration) -> u64 {
        let (end, mut sent) = (now + time, 0);
        while now < end {
            while pacer.available(now) >= 1500 {
                pacer.consume(1500);
                sent += 1500;
            }
            now = pacer
                .next_departure()
                .expect("rate is set")
                .max(now + Duration::from_nanos(1));
        }
        sent
    }

    #[test]
    fn forgiven_packets_delay_others_by_no_more_than_a_group() {
        let (now, packet) = (Instant::ZERO, 1500);
        let mut pacer = Pacer::new(now, 0, packet);
        pacer.set(now, Rate::from_bps(120_000), packet);
        for _ in 0..1000 {
            pacer.consume(packet);
            pacer.forgive();
        }
        // Ten packets a second: two of debt and one to send.
        let next = pacer.next_departure().expect("a rate");
        assert!(
            next.saturating_since(now) < Duration::from_millis(301),
            "{next:?}"
        );
    }

    #[test]
    fn long_run_rate_is_the_set_rate() {
        for bps in [200_000, 10_000_000, 10_000_000_000] {
            let now = Instant::from_nanos(5);
            let mut pacer = Pacer::new(now, 0, 1500);
            pacer.set(now, Rate::from_bps(bps), 1500);
            let sent = drive(&mut pacer, now, Duration::from_secs(2)) as f64;
            let expected = bps as f64 / 4.0;
            assert!(
                (sent / expected - 1.0).abs() < 0.02 + 3000.0 / expected,
                "{bps}: {sent}"
            );
        }
    }

    /// Wake-ups in two seconds at 20 Mbit/s, and the largest group, in packets.
    fn groups(time: Duration, bytes: u64) -> (u64, u64) {
        let mut now = Instant::ZERO;
        let mut pacer = Pacer::new(now, 0, 1500);
        pacer.set(now, Rate::from_bps(20_000_000), 1500);
        pacer.set_group(time, bytes);
        let (end, mut wakeups, mut largest) = (now + Duration::from_secs(2), 0, 0);
        while now < end {
            let packets = pacer.available(now) / 1500;
            pacer.consume(packets * 1500);
            (wakeups, largest) = (wakeups + 1, largest.max(packets));
            let step = now + Duration::from_nanos(1);
            now = pacer.next_departure().expect("rate is set").max(step);
        }
        (wakeups, largest)
    }

    #[test]
    fn a_packet_is_at_the_back_of_its_group_once_half_of_it_has_left() {
        let now = Instant::ZERO;
        let mut pacer = Pacer::new(now, 1500, 1500);
        pacer.set(now, Rate::from_bps(12_000_000), 1500);
        pacer.set_group(Duration::from_millis(10), u64::MAX);
        // Ten packets, of which as many as are left say where the next one is.
        let rest = pacer.available(now);
        pacer.consume(rest);
        pacer.grant(15_000);
        let mut places = Vec::new();
        for _ in 0..10 {
            places.push(pacer.place());
            pacer.consume(1500);
        }
        assert_eq!(places[..5], [Place::Front; 5]);
        assert_eq!(places[5..], [Place::Back; 5]);
    }

    #[test]
    fn groups_are_as_long_as_allowed_and_no_larger() {
        // 3333 packets.
        let (wakeups, largest) = groups(Duration::from_millis(4), u64::MAX);
        assert!((550..570).contains(&wakeups), "{wakeups}");
        assert_eq!(largest, 6, "6.7 packets in 4 ms");
        let (wakeups, largest) = groups(Duration::from_millis(4), 3000);
        assert!((1650..1700).contains(&wakeups), "{wakeups}");
        assert_eq!(largest, 2);
        assert_eq!(groups(Duration::from_millis(4), 0).1, 1);
    }

    #[test]
    fn a_late_driver_fills_no_more_than_four_groups() {
        let mut pacer = Pacer::new(Instant::ZERO, 0, 1500);
        pacer.set(Instant::ZERO, Rate::from_bps(100_000_000), 1500);
        pacer.set_group(Duration::from_millis(4), 3000);
        let late = Instant::ZERO + Duration::from_secs(10);
        assert_eq!(pacer.available(late), 4 * 3000);
    }

    #[test]
    fn what_was_earned_at_a_high_rate_is_not_spent_at_a_low_one() {
        let mut pacer = Pacer::new(Instant::ZERO, 0, 1500);
        pacer.set(Instant::ZERO, Rate::from_bps(1_000_000_000), 1500);
        let later = Instant::ZERO + Duration::from_secs(1);
        assert!(
            pacer.available(later) > 300_000,
            "the window was full meanwhile"
        );
        pacer.set(later, Rate::from_bps(10_000_000), 1500);
        assert!(
            pacer.available(later) <= 4 * 1500,
            "four groups of a packet"
        );
    }

    #[test]
    fn a_late_driver_never_gets_more_than_the_catch_up_burst() {
        let mut pacer = Pacer::new(Instant::ZERO, 0, 1500);
        pacer.set(Instant::ZERO, Rate::from_bps(100_000_000), 1500);
        let late = Instant::ZERO + Duration::from_secs(10);
        assert!(pacer.available(late) <= 100_000_000 / 8 * 4 / 1000);
    }
}
