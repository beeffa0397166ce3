//! CTCP's congestion control (CTCP §4.3, Algorithm 2): additive increase, and on loss a back-off by
//! what the queue has added to the round trip.
//!
//! A token allows a packet to be in flight. Until the first loss each acknowledged packet adds one
//! (slow start), later α/tokens, which is α in a round trip. A loss makes
//!
//! tokens ← tokens · RTTmin/RTT:
//!
//! with a queue it empties that queue and no more; without one, where loss is the path's own,
//! nothing changes. A queue of less than two packets is none. Tokens then do not grow for two round
//! trips, which is about what TCP's recovery takes: beside it CTCP would have more.
//!
//! Where more than a packet of a round trip is lost, or more than [`RANDOM_LOSS`], losses say nothing of
//! congestion, and every chance meeting of packets would take tokens. There RTT is what stands in the
//! queue, the least of the last two rounds; and what the number of losses alone makes the queue
//! swing by, twice its standard deviation √(p · tokens), is no queue.
//!
//! After RTO = γ · RTT without an acknowledgement it starts again.
//!
//! Where Algorithm 2 is garbled or silent (`docs/spec/DEVIATIONS.md`): the increase is α/tokens;
//! tokens are the allowance for packets in flight; one back-off a round trip unless it is to be one
//! for every ACK that tells of a loss; the first loss ends slow start, which no finite threshold
//! would otherwise; tokens that the sender does not use do not grow.
//!
//! Packets are released by acknowledgements. The pacing rate, two windows a round trip, is what
//! slow start needs at most and binds only where feedback comes in bundles, which would be bursts.
//!
//! Invariants: round trips are the sender's own measurements, never the receiver's word; a packet
//! acknowledged adds at most one token; there are between one and [`MAX_TOKENS`] tokens, so a
//! hostile receiver gets no more than one that acknowledges what it did not receive, which the gaps
//! in packet numbers uncover.

use super::{Feedback, RateController};
use crate::time::{Duration, Instant, Rate};

/// What can be chosen of [`Tokens`]. Values that make no sense count as the nearest that do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenParameters {
    /// Tokens at the start and after a timeout.
    pub initial_tokens: u32,
    /// Tokens above which slow start ends without a loss; `None` for no threshold.
    pub slow_start_threshold: Option<u32>,
    /// α, tokens added in a round trip.
    pub increase: f64,
    /// γ, round trips without an acknowledgement after which it starts again; above one.
    pub timeout: f64,
    /// How often it backs off.
    pub back_off: BackOff,
    /// Which round trip counts as the least.
    pub min_rtt: MinRtt,
}

impl Default for TokenParameters {
    /// Eight tokens (CTCP §7.1) and α = 1 (§4.3); the paper names no γ, for which 3 is chosen.
    fn default() -> Self {
        Self {
            initial_tokens: 8,
            slow_start_threshold: None,
            increase: 1.0,
            timeout: 3.0,
            back_off: BackOff::OncePerRoundTrip,
            min_rtt: MinRtt::OfConnection,
        }
    }
}

/// How often tokens are taken away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackOff {
    /// Once for all packets lost in a round trip, as the analysis of CTCP §4.3 has it.
    #[default]
    OncePerRoundTrip,
    /// With every ACK that tells of a loss, as Algorithm 2 has it.
    EveryLoss,
}

/// Which round trip is RTTmin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinRtt {
    /// The least of the connection.
    #[default]
    OfConnection,
    /// The least since tokens last fell below their initial number: for paths whose delay varies by
    /// itself (CTCP §7.1, WiMAX).
    SinceFewTokens,
}

/// More packets than any path holds; below it all arithmetic is exact enough.
const MAX_TOKENS: f64 = (1u64 << 24) as f64;
/// Least time without an acknowledgement that is a timeout: receivers may hold feedback back for a
/// while, and hosts wake up late.
const MIN_TIMEOUT: Duration = Duration::from_millis(50);
/// Packets that make a queue.
const QUEUE: f64 = 2.0;
/// Loss beyond what congestion control alone causes on any but the shortest paths.
const RANDOM_LOSS: f64 = 0.04;
/// Weight of a packet in the loss rate.
const LOSS_WEIGHT: f64 = 1.0 / 256.0;
/// Standard deviations of the losses of a round trip that are no queue.
const SWING: f64 = 2.0;
/// Most of the tokens that are taken for a swing.
const MAX_SWING: f64 = 0.25;
/// Round trips after a back-off without growth; where loss is random, one.
const RECOVERY: u64 = 2;
/// Pacing, in windows a round trip.
const PACING: f64 = 2.0;
const MIN_RTT: Duration = Duration::from_micros(1);
/// Whatever the round trip is, packets leave.
const MIN_RATE: Rate = Rate::from_bps(1000);

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Tokens {
    parameters: TokenParameters,
    tokens: f64,
    in_slow_start: bool,
    packet: u64,
    /// Latest and least round trip.
    rtt: Duration,
    min_rtt: Duration,
    /// The least round trips of the last round and of this one, which ends with the answer to byte
    /// `round_end`.
    rounds: [Duration; 2],
    round_end: u64,
    /// p, as far as congestion control needs it.
    loss_rate: f64,
    /// When an acknowledgement last came, or a timeout was noticed.
    last_ack: Instant,
    /// Bytes sent so far, and up to the newest packet acknowledged.
    sent_total: u64,
    acked_total: u64,
    /// Losses of packets up to here were answered.
    answered_total: u64,
    /// Tokens do not grow until a later packet is acknowledged.
    recovers_until: u64,
}

impl Default for Tokens {
    fn default() -> Self {
        Self::new(TokenParameters::default())
    }
}

impl Tokens {
    /// A controller that knows nothing of its path yet.
    pub fn new(parameters: TokenParameters) -> Self {
        let TokenParameters {
            increase, timeout, ..
        } = parameters;
        let parameters = TokenParameters {
            initial_tokens: parameters.initial_tokens.max(1),
            increase: if increase > 0.0 {
                increase.min(MAX_TOKENS)
            } else {
                0.0
            },
            timeout: if timeout > 1.0 { timeout.min(1e6) } else { 1.0 },
            ..parameters
        };
        Self {
            tokens: f64::from(parameters.initial_tokens).min(MAX_TOKENS),
            parameters,
            in_slow_start: true,
            packet: 1500,
            rtt: Duration::from_millis(100),
            min_rtt: Duration::MAX,
            rounds: [Duration::MAX; 2],
            round_end: 0,
            loss_rate: 0.0,
            last_ack: Instant::ZERO,
            sent_total: 0,
            acked_total: 0,
            answered_total: 0,
            recovers_until: 0,
        }
    }

    /// The tokens: packets that may be in flight.
    pub fn tokens(&self) -> f64 {
        self.tokens
    }

    /// γ · RTT without an acknowledgement: what was learnt of the path holds no more.
    fn check_timeout(&mut self, now: Instant) {
        let timeout = self.rtt.mul_f64(self.parameters.timeout).max(MIN_TIMEOUT);
        if now > self.last_ack + timeout {
            self.tokens = f64::from(self.parameters.initial_tokens).min(MAX_TOKENS);
            self.in_slow_start = true;
            self.answered_total = self.sent_total;
            self.last_ack = now;
        }
    }

    fn measure(&mut self, rtt: Duration, acked_total: u64) {
        self.rtt = rtt.max(MIN_RTT);
        self.min_rtt = self.min_rtt.min(self.rtt);
        if acked_total > self.round_end {
            self.rounds = [self.rounds[1], self.rtt];
            self.round_end = self.sent_total;
        }
        self.rounds[1] = self.rounds[1].min(self.rtt);
    }

    fn count(&mut self, acked: u64, lost: u64) {
        for (packets, is_lost) in [(acked, 0.0), (lost, 1.0)] {
            let weight = (packets as f64 * LOSS_WEIGHT).min(1.0);
            self.loss_rate += weight * (is_lost - self.loss_rate);
        }
    }

    fn loss_is_random(&self) -> bool {
        self.loss_rate > RANDOM_LOSS || self.loss_rate * self.tokens > 1.0
    }

    /// The tokens that are in the queue; 0 if they make none.
    fn queued(&self) -> f64 {
        let (rtt, least) = if self.loss_is_random() {
            let swing = SWING * (self.loss_rate * self.tokens).sqrt();
            let standing = self.rounds[0].min(self.rounds[1]);
            (standing, QUEUE.max(swing.min(MAX_SWING * self.tokens)))
        } else {
            (self.rtt, QUEUE)
        };
        let empty = self.min_rtt.as_secs_f64() / rtt.as_secs_f64();
        let queued = self.tokens * (1.0 - empty.min(1.0));
        if queued < least { 0.0 } else { queued }
    }

    fn back_off(&mut self) {
        let queued = self.queued();
        if queued > 0.0 {
            self.tokens = (self.tokens - queued).max(1.0);
            let further = if self.loss_is_random() {
                0
            } else {
                RECOVERY - 1
            };
            let more = (further * self.tokens as u64).saturating_mul(self.packet);
            self.recovers_until = self.sent_total.saturating_add(more);
        }
        self.in_slow_start = false;
        let few = self.tokens < f64::from(self.parameters.initial_tokens);
        if few && self.parameters.min_rtt == MinRtt::SinceFewTokens {
            self.min_rtt = self.rtt;
            self.rounds = [self.rtt; 2];
        }
        if self.parameters.back_off == BackOff::OncePerRoundTrip {
            self.answered_total = self.sent_total;
        }
    }

    fn grow(&mut self, acked: u64) {
        let acked = acked as f64;
        if self.in_slow_start {
            self.tokens += acked;
            let threshold = self.parameters.slow_start_threshold;
            self.in_slow_start = threshold.is_none_or(|most| self.tokens <= f64::from(most));
        } else {
            self.tokens += self.parameters.increase * acked / self.tokens;
        }
        self.tokens = self.tokens.min(MAX_TOKENS);
    }
}

impl RateController for Tokens {
    fn on_established(&mut self, now: Instant, rtt: Duration, packet_size: u64) {
        (self.rtt, self.packet) = (rtt.max(MIN_RTT), packet_size.max(1));
        self.last_ack = now;
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        let Feedback {
            now,
            acked_packets,
            lost_packets,
            ..
        } = *feedback;
        self.count(acked_packets, lost_packets);
        if acked_packets > 0 {
            self.check_timeout(now);
            self.last_ack = now;
        }
        let mut idle = false;
        if let Some(newest) = feedback.newest {
            // A small packet passes a slow link faster, as if a full one had met a queue.
            if newest.size == 0 || newest.size >= self.packet / 2 {
                self.measure(now.saturating_since(newest.sent_at), newest.sent_total);
            }
            self.acked_total = newest.sent_total;
            idle = feedback.idle_total >= newest.sent_total;
        }
        if lost_packets > 0 && self.acked_total > self.answered_total {
            self.back_off();
        } else if !idle && self.acked_total > self.recovers_until {
            self.grow(acked_packets);
        }
    }

    fn on_sent(&mut self, now: Instant, sent_total: u64) {
        self.sent_total = sent_total;
        self.check_timeout(now);
    }

    fn pacing_rate(&self) -> Rate {
        self.bandwidth().mul_f64(PACING).max(MIN_RATE)
    }

    fn window(&self) -> u64 {
        (self.tokens as u64).saturating_mul(self.packet)
    }

    fn initial_burst(&self) -> u64 {
        u64::from(self.parameters.initial_tokens).saturating_mul(self.packet)
    }

    fn bandwidth(&self) -> Rate {
        let window = (self.tokens * self.packet as f64) as u64;
        Rate::from_transfer(window, self.rtt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::RttEstimator;
    use crate::rate::AckPoint;

    const PACKET: u64 = 1472;
    const LEAST: u64 = 20;

    /// A sender of which all that counts is what it is told.
    struct Told {
        tokens: Tokens,
        now: Instant,
        sent: u64,
        idle_total: u64,
    }

    impl Told {
        fn new(parameters: TokenParameters) -> Self {
            let mut tokens = Tokens::new(parameters);
            let now = Instant::from_nanos(1_000_000_000);
            tokens.on_established(now, Duration::from_millis(LEAST), PACKET);
            Self {
                tokens,
                now,
                sent: 0,
                idle_total: 0,
            }
        }

        fn send(&mut self) {
            self.sent += PACKET;
            self.tokens.on_sent(self.now, self.sent);
        }

        /// The packet sent `rtt_ms` ago as the last one is acknowledged, `lost` before it are not.
        fn hear(&mut self, rtt_ms: u64, acked: u64, lost: u64) {
            self.now += Duration::from_millis(1);
            let sent_at = Instant::from_nanos(self.now.as_nanos() - rtt_ms * 1_000_000);
            let rtt = RttEstimator::default();
            let mut feedback = Feedback::new(self.now, &rtt);
            feedback.newest = Some(AckPoint::new(Duration::ZERO, sent_at, self.sent, 0));
            feedback.acked_packets = acked;
            feedback.lost_packets = lost;
            feedback.idle_total = self.idle_total;
            self.tokens.on_feedback(&feedback);
        }

        /// A packet there and its answer back.
        fn exchange(&mut self, rtt_ms: u64, lost: u64) -> f64 {
            self.send();
            self.hear(rtt_ms, 1, lost);
            self.tokens.tokens()
        }
    }

    #[test]
    fn slow_start_doubles_and_then_a_round_trip_adds_alpha() {
        let mut told = Told::new(TokenParameters::default());
        for expected in 9..=64 {
            assert_eq!(told.exchange(LEAST, 0), f64::from(expected));
        }
        assert_eq!(told.exchange(LEAST, 1), 64.0, "no queue: nothing to empty");
        (0..64).for_each(|_| {
            told.exchange(LEAST, 0);
        });
        let grown = told.tokens.tokens() - 64.0;
        assert!((0.98..=1.0).contains(&grown), "{grown} in a round trip");
    }

    #[test]
    fn a_threshold_ends_slow_start() {
        let mut told = Told::new(TokenParameters {
            slow_start_threshold: Some(20),
            ..TokenParameters::default()
        });
        (0..100).for_each(|_| {
            told.exchange(LEAST, 0);
        });
        assert!((21.0..26.0).contains(&told.tokens.tokens()));
    }

    #[test]
    fn a_back_off_empties_the_queue_and_no_more() {
        let mut told = Told::new(TokenParameters::default());
        (0..92).for_each(|_| {
            told.exchange(LEAST, 0);
        });
        let burst = told.exchange(2 * LEAST, 0);
        assert_eq!(told.exchange(LEAST, 1), burst, "one packet met others");
        // Its queue stands for two rounds.
        told.exchange(2 * LEAST, 0);
        let before = told.exchange(2 * LEAST, 0);
        let after = told.exchange(2 * LEAST, 1);
        assert_eq!(after, before / 2.0, "half of it was queued");
        let grown = told.exchange(LEAST, 0);
        assert!(grown < after + 1.0, "no slow start");
        assert_eq!(told.exchange(LEAST, 3), grown, "loss without a queue");
    }

    #[test]
    fn two_round_trips_after_a_back_off_tokens_do_not_grow() {
        let mut told = Told::new(TokenParameters::default());
        told.exchange(LEAST, 0);
        (0..91).for_each(|_| {
            told.exchange(2 * LEAST, 0);
        });
        let after = told.exchange(2 * LEAST, 1);
        assert_eq!(after, 50.0);
        // The first of the two is on its way already.
        let pause = (0..200).take_while(|_| told.exchange(LEAST, 0) == after);
        let pause = pause.count();
        assert!((49..=52).contains(&pause), "{pause} packets");
    }

    /// Tokens before and after a loss that round trips of `before_ms` and `at_loss_ms` preceded, where
    /// one packet in `one_in` was lost before.
    fn loss_after(one_in: u64, before_ms: u64, at_loss_ms: u64) -> (f64, f64) {
        let mut told = Told::new(TokenParameters {
            slow_start_threshold: Some(98),
            increase: 0.0,
            ..TokenParameters::default()
        });
        (0..91).for_each(|_| {
            told.exchange(LEAST, 0);
        });
        for n in 1..=1000 {
            told.exchange(LEAST, u64::from(n % one_in == 0));
        }
        let before = told.exchange(before_ms, 0);
        (before, told.exchange(at_loss_ms, 1))
    }

    #[test]
    fn where_many_packets_are_lost_chance_meetings_take_no_tokens() {
        let (rare, often) = (500, 9);
        // One packet that met others.
        let (before, after) = loss_after(rare, LEAST, 2 * LEAST);
        assert_eq!(after, before / 2.0);
        let (before, after) = loss_after(often, LEAST, 2 * LEAST);
        assert_eq!(after, before);
        // A queue of 5 of 99 packets: the ten that are lost in a round trip make that by themselves.
        let (before, after) = loss_after(rare, LEAST + 1, LEAST + 1);
        assert!(after < before);
        let (before, after) = loss_after(often, LEAST + 1, LEAST + 1);
        assert_eq!(after, before);
        // One that they do not make.
        let (before, after) = loss_after(often, 2 * LEAST, 2 * LEAST);
        assert_eq!(after, before / 2.0);
    }

    /// Three ACKs that each tell of a loss among packets sent before the first of them came.
    fn losses_of_a_round_trip(back_off: BackOff) -> f64 {
        let mut told = Told::new(TokenParameters {
            back_off,
            increase: 0.0,
            ..TokenParameters::default()
        });
        told.exchange(LEAST, 0);
        (0..91).for_each(|_| {
            told.exchange(2 * LEAST, 0);
        });
        told.send();
        (0..3).for_each(|_| told.hear(2 * LEAST, 1, 1));
        told.tokens.tokens()
    }

    #[test]
    fn the_losses_of_a_round_trip_are_one_unless_each_is_to_count() {
        assert_eq!(losses_of_a_round_trip(BackOff::OncePerRoundTrip), 50.0);
        assert_eq!(losses_of_a_round_trip(BackOff::EveryLoss), 12.5);
    }

    #[test]
    fn silence_for_gamma_round_trips_starts_again() {
        let mut told = Told::new(TokenParameters::default());
        for _ in 0..92 {
            told.exchange(LEAST, 0);
        }
        told.now += Duration::from_millis(3 * LEAST - 1);
        told.send();
        assert_eq!(told.tokens.tokens(), 100.0, "not yet");
        told.now += Duration::from_millis(2);
        told.send();
        assert_eq!(told.tokens.tokens(), 8.0);
        // What was lost in the silence was answered by it.
        told.hear(2 * LEAST, 1, 50);
        assert_eq!(told.tokens.tokens(), 9.0, "slow start");
    }

    #[test]
    fn the_least_round_trip_is_measured_anew_where_that_is_wanted() {
        let jittery = |min_rtt| {
            let mut told = Told::new(TokenParameters {
                min_rtt,
                increase: 0.0,
                ..TokenParameters::default()
            });
            (0..92).for_each(|_| {
                told.exchange(5, 0);
            });
            (0..20).for_each(|_| {
                told.exchange(LEAST, 1);
            });
            told.tokens.tokens()
        };
        assert!(jittery(MinRtt::OfConnection) < 3.0);
        assert!(jittery(MinRtt::SinceFewTokens) > 6.0);
    }

    #[test]
    fn what_is_not_used_does_not_grow() {
        let mut told = Told::new(TokenParameters::default());
        for _ in 0..1000 {
            told.idle_total = told.sent + PACKET;
            told.exchange(LEAST, 0);
        }
        assert_eq!(told.tokens.tokens(), 8.0);
    }

    #[test]
    fn senseless_parameters_and_feedback_leave_a_window_and_a_bounded_rate() {
        for value in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e300] {
            let mut told = Told::new(TokenParameters {
                initial_tokens: 0,
                slow_start_threshold: Some(0),
                increase: value,
                timeout: value,
                ..TokenParameters::default()
            });
            for (rtt, acked, lost) in [(0, 1 << 60, 0), (1000, u64::MAX, 1), (500, 0, u64::MAX)] {
                told.send();
                told.hear(rtt, acked, lost);
                let window = told.tokens.window();
                assert!(
                    (PACKET..=PACKET << 24).contains(&window),
                    "{value}: {window}"
                );
                assert!(told.tokens.pacing_rate() > Rate::ZERO);
            }
        }
    }
}
