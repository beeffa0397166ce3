//! Every number of the controller, by the part that uses it, each with its derivation or its source.
//!
//! Times are seconds, rates bytes per second, gains and shares plain factors. Three rules give most of
//! the numbers:
//!
//! * *Who measures n things errs by a share of 1/n or 1/√n*: how long something is measured follows
//!   from the error that its use can bear.
//! * *A loop of control* is what passes until an action shows in what is measured: a round trip, the
//!   queue, and the spans over which delay and rate are measured. Nothing is decided twice in one.
//! * *What stands in an RFC or a controller in wide use* is taken from there, so that flows of both
//!   kinds meet on known terms.

/// The queue that is aimed at, how it is seen, and what follows from it: used by all parts.
pub(super) mod queue {
    /// Least standing queue that is aimed at: twice the least interval of feedback, the shortest queue
    /// that can be held by it.
    pub const MIN_TARGET: f64 = 0.002;
    /// Most: a sixth of the 150 ms one way that a conversation does not notice (ITU-T G.114).
    pub const MAX_TARGET: f64 = 0.025;
    /// Rate at which the target is twice the least, 100 Mbit/s: midway by logarithms between 0.76
    /// Mbit/s, where the target is at its most, and 10 Gbit/s, where it is within a tenth of its least.
    pub const FAIR_RATE: f64 = 12.5e6;
    /// Packets of the least queue that is aimed at: TCP Vegas keeps two to four in it (Brakmo and
    /// Peterson 1995; Linux's alpha and beta). With fewer a slow link whose rate varies runs empty.
    pub const LEAST_PACKETS: f64 = 3.0;
    /// Packets of the shortest queue that can be told from none: with one packet waiting on average
    /// there are two or none.
    pub const VISIBLE_PACKETS: f64 = 1.5;
    /// Share of what a queue was seen to hold that is aimed at: with half of it others have room.
    pub const HELD_SHARE: f64 = 0.5;
    /// From this share of the target on the bottleneck counts as busy: midway between it and none.
    pub const BUSY_SHARE: f64 = 0.5;
    /// A queue shorter than this is none: half of the least target.
    pub const MIN_BUSY: f64 = 0.001;
    /// A queue shorter than this is not measured: kernels' timestamps are tens of microseconds off.
    pub const MIN_VISIBLE: f64 = 0.000_1;
    /// What a queue of this sender's own comes to at most, as a share of its target (`docs/spec/auto.md`,
    /// Stability: an overshoot below 1/e).
    pub const OVERSHOOT: f64 = 1.37;
    /// Targets from which on a queue is long, so that its loss is congestion: alone one is held, with an
    /// overshoot below 1/e of it (`docs/spec/auto.md`, Stability), and a newcomer adds another.
    pub const LONG_TARGETS: f64 = 3.0;
    /// And twice the jitter, which is a mean of differences: spikes of twice the mean are no queue.
    pub const LONG_JITTERS: f64 = 2.0;
    /// The range of a noise, in mean differences of two of its values: three for a uniform
    /// distribution, and three standard deviations to each side for a normal one are five.
    pub const RANGE: f64 = 6.0;
    /// What the target recovers by in a round after the network said no: doubled in 14 rounds, so that
    /// a round that marks or refuses again, one in ten, finds it still lower.
    pub const RECOVERY: f64 = 1.05;
    /// Least share of the target after repeated refusals: the least of a queue of 25 ms is then about
    /// the least target.
    pub const LEAST_SCALE: f64 = 0.1;
    /// Longest group of packets that leave together: half of the queue that is aimed at, so that it is
    /// no disturbance to it, and an eighth of what a queue that overflowed holds, so that groups of
    /// several flows find room.
    pub const GROUP_TARGETS: f64 = 0.5;
    pub const GROUP_HELD: f64 = 0.125;
}

/// How long is measured.
pub(super) mod spans {
    /// The span of the standing queue is a round trip within these: ten of the least intervals of
    /// feedback, and the 100 ms over which CoDel (RFC 8289 §4.2) and most access networks call a queue
    /// standing.
    pub const SHORTEST: f64 = 0.010;
    pub const LONGEST: f64 = 0.100;
    /// The least of n delays with a jitter of J lies some 3 J/n above their floor: with n = 12 J ÷ T
    /// that is a quarter of the target T.
    pub const DELAY_SAMPLES: f64 = 12.0;
    /// Fewer samples come in any span; more than this many do not pay.
    pub const FEW_SAMPLES: f64 = 8.0;
    pub const MANY_SAMPLES: f64 = 64.0;
    /// Interarrival jitter times this is the time over which rates are measured: then two ends of a
    /// stretch, each off by the jitter, make an error of an eighth.
    pub const RATE_JITTERS: f64 = 16.0;
    /// And as many packets: one more or less of them is an error of a sixteenth.
    pub const RATE_PACKETS: f64 = 16.0;
    /// Longest time over which anything is measured: a person waits.
    pub const MOST: f64 = 1.0;
    /// A round has at least this many packets (one lost is 1.5 %), or takes this long and has as many
    /// as loss is judged by: then an alarm, of four rounds, comes within half a second.
    pub const ROUND_PACKETS: f64 = 64.0;
    pub const ROUND_TIME: f64 = 0.1;
    /// Samples kept however old: ten packets of a slow path.
    pub const MIN_SAMPLES: usize = 12;
    /// Samples from which on those count as one that arrived closer together than so many share the time that they
    /// are kept, 2.05 s at most: reports come a millisecond apart at least, which makes half as many.
    pub const MOST_SAMPLES: usize = 4096;
    /// Weight of a gap in the usual one: the memory of a round of 64 packets.
    pub const GAP_WEIGHT: f64 = 1.0 / 64.0;
    /// Weight of a packet in their mean size: as long a memory.
    pub const SIZE_WEIGHT: f64 = GAP_WEIGHT;
    /// Silence is a gap of an eighth of what is measured and of four usual gaps, beyond what feedback
    /// is late; and a stretch of which a quarter is silence says nothing: what it shows errs by that.
    pub const GAP_SHARE: f64 = 0.125;
    pub const GAPS: f64 = 4.0;
    pub const SILENT_SHARE: f64 = 0.25;
    /// Arrivals that are this many times rarer than expected have long gaps between them, which are no
    /// outages.
    pub const SPARSE: f64 = 4.0;
}

/// What may be sent whatever the model says.
pub(super) mod bounds {
    /// Never slower than this many packets in a round trip (RFC 5681 §3.1: a sender's least after a
    /// loss, so that acknowledgements are not delayed) or in this time, whichever is longer: on a short
    /// path even one packet a round trip may be a flood. A round trip counts with its queue, which so many packets may
    /// make on a slow path, up to a second: the least time after which TCP repeats one (RFC 6298 §2.4).
    pub const MIN_WINDOW: f64 = 2.0;
    pub const MIN_WINDOW_TIME: f64 = 0.25;
    pub const SLOWEST_WINDOW_TIME: f64 = 1.0;
    /// Packets in flight beyond what rate and delay ask for: the two of a least window, twice.
    pub const SPARE_WINDOW: f64 = 4.0;
    /// Seconds of data that may be in flight, in smoothed round trips: loss is noticed an eighth late,
    /// at most a quarter, and a gap would pass for a slow bottleneck.
    pub const WINDOW_ROUND_TRIPS: f64 = 1.5;
    /// The window covers the highest round trip of late up to this much above the least: the longest
    /// that link layers hold packets back while they work (a Wi-Fi scan, a handover).
    pub const MAX_HELD: f64 = 0.250;
    /// What feedback may come late: ten of its least intervals.
    pub const LATE_FEEDBACK: f64 = 0.010;
    /// The window covers no longer gaps between acknowledged packets: reports are held back no longer than this
    /// where the way back is narrow (`packet/reverse.rs`).
    pub const LONGEST_GAP: f64 = 0.100;
    /// An estimate above this multiple of what was delivered is not believed, and for so many round
    /// trips after start-up, which multiplied the rate while it was measured, above the second.
    pub const MAX_CLAIM: f64 = 2.0;
    pub const EARLY_CLAIM: f64 = 8.0;
    pub const EARLY_ROUND_TRIPS: u32 = 3;
    /// Packets in a round trip below which that does not count, and the least round trip for it.
    pub const CLAIM_PACKETS: f64 = 16.0;
    pub const CLAIM_TIME: f64 = 0.001;
    /// Loss up to which the path's own loss excuses missing deliveries: with the above, paths that lose
    /// up to 80 % keep their rate, and no claim makes more than five times what is delivered.
    pub const MAX_EXCUSE: f64 = 0.6;
    /// Least round trip: what two kernels on one wire reach.
    pub const LEAST_ROUND_TRIP: f64 = 0.000_05;
    /// While nothing is acknowledged, each of the first probe timeouts lets this share of a window go,
    /// at this share of the rate, about one window in all: a burst of loss that swallows a whole window
    /// ends only with packets that are sent into it, and a path that collapsed sees less than from a
    /// TCP sender after two halvings. The window counts as no smaller than the initial one, which any
    /// new connection may send unanswered: on slow paths bursts are longer than windows. Later, when
    /// congestion would be persistent (RFC 9002 §7.6.1: three timeouts; here four, as the first may
    /// fall into one burst), a timeout lets so little go that all together send half a hundredth of
    /// the rate: windows are a tenth of a second or so, and probes come four a second. It is the least
    /// window at least, so that silence is answered with no lower rate than anything else.
    pub const BLIND_SHARE: f64 = 0.25;
    pub const BLIND_TIMEOUTS: u32 = 4;
    pub const PERSISTENT_SHARE: f64 = 1.0 / 64.0;
    /// A sender that has more to send has a round trip's data in flight or a full window when a timeout comes, and
    /// one that pauses the few packets that were lost at the end: halfway between is neither. An initial window
    /// less, which is what silence is answered with at least: with less than that what was lost may be all.
    pub const PAUSED_SHARE: f64 = 0.5;
}

/// Start-up.
pub(super) mod startup {
    /// Gain until the bottleneck was seen: TCP's slow start doubles. BBR's 2.77 and 2.885 double what
    /// is delivered in each round trip as well, with samples that are older.
    pub const SEARCH_GAIN: f64 = 2.0;
    /// And then: looks whether there is more, with half of cruise's probe.
    pub const SEEN_GAIN: f64 = 1.1;
    /// What a doubling search has found at most beyond what a round delivered: it doubles in the round trip
    /// until that is known, and its newest sample is a round younger.
    pub const MISLED: f64 = SEARCH_GAIN * SEARCH_GAIN;
    /// Rounds without growth that end the search, as in BBR's full-pipe test, and what is growth.
    pub const STALE_ROUNDS: u32 = 3;
    pub const BEST_GROWTH: f64 = 1.1;
    /// Growth of what is delivered in a round that shows that the path carries more: a quarter where
    /// twice as much was sent (as BBR's).
    pub const GROWTH: f64 = 1.25;
    /// Rounds without it that end the growth: one may be a burst of loss.
    pub const FLAT_ROUNDS: u32 = 2;
    /// A queue that ends it, as a share of the round trip and at most: on a long path a short one may
    /// be chance. HyStart (RFC 9406 §4.2) ends at an eighth within 4 and 16 ms; a receiver's clock
    /// shows less than a sender's round trip does.
    pub const QUEUE_SHARE: f64 = 0.05;
    pub const MAX_QUEUE: f64 = 0.010;
    /// Packets that may leave unpaced at the very start (RFC 6928).
    pub const INITIAL_BURST: f64 = 10.0;
    /// First flight, packets, those beyond the burst spread over a round trip: as many as Chromium's
    /// QUIC begins with; of a path that is known to be fast at most what the next round trip would
    /// bring, all acknowledged: 32 + 3 × 32.
    pub const INITIAL_WINDOW: f64 = 32.0;
    pub const MAX_FIRST_FLIGHT: f64 = 128.0;
    /// A longer one is what the path carries in this share of a round trip as far as the handshake's
    /// packet pair shows it, so that an idle path still has room when the first word comes back.
    pub const FLIGHT_SHARE: f64 = 0.5;
    /// And on a slow path what it carries in two: a round trip's data, and as much again in its queue.
    pub const SLOW_FLIGHT: f64 = 2.0;
    /// What arrives drawn apart by more than this factor, and what kernels' timers and jitter are late
    /// by, met the bottleneck: pairs of a doubled rate come drawn apart by two.
    pub const DISPERSED: f64 = 1.3;
    pub const TIMER_ERROR: f64 = 0.000_3;
    /// Groups of packets are as long as what timers are late by anyway, as little as can be: a queue that
    /// is shorter than a group loses most of it, at any rate.
    pub const GROUP: f64 = TIMER_ERROR;
    /// The span of a train is a round trip times this within these: eight measurements in each round.
    pub const TRAIN_SHARE: f64 = 0.125;
    pub const SHORTEST_TRAIN: f64 = 0.002;
    pub const LONGEST_TRAIN: f64 = 0.020;
    /// And at least as many packets: one more or less is an error of a tenth.
    pub const TRAIN_PACKETS: f64 = 10.0;
    /// A gap between arrivals that takes so much more of a train's time than of its bytes is no
    /// bottleneck's work: served one by one, each of ten packets takes a tenth of both. Half tells a
    /// path that held packets back for longer than it delivered.
    pub const HELD: f64 = 0.5;
    /// Round trips with something to send after which start-up is over, whatever the receiver says: a
    /// doubling each, from two packets to a million.
    pub const MAX_ROUND_TRIPS: u32 = 20;
}

/// The law of cruise, its probes and drains.
pub(super) mod cruise {
    /// The integrator's time, in round trips: half a gain in each delay of feedback, which is stable
    /// with little overshoot (`docs/spec/auto.md`, Stability). Round trips count as no shorter than the
    /// spans that are measured.
    pub const LAW: f64 = 3.0;
    pub const LEAST_LOOP: f64 = 0.015;
    /// Highest pacing gain of the law: below BBR's 1.25 (draft-ietf-ccwg-bbr, ProbeBW_UP), as it stays
    /// until the delay answers and not for a round trip.
    pub const MAX_GAIN: f64 = 1.2;
    /// The lowest: what CUBIC leaves of its window (RFC 9438 §4.6), so that no queue costs this sender
    /// more at once than a loss costs CUBIC.
    pub const MIN_GAIN: f64 = 0.7;
    /// Below this gain we give way, and look whether others take it: above it what is given up is
    /// within the errors of timestamps (0.1 ms of a round trip of 20 ms).
    pub const GIVING_WAY: f64 = 0.995;
    /// Above this one a round probed, and teaches no loss: twice as far on the other side.
    pub const PROBING: f64 = 1.01;
    /// Most that the estimate grows in a round trip while the queue is empty: BBR's probe.
    pub const MAX_GROWTH: f64 = 1.25;
    /// Twelve doublings: from the gentlest probe to the strongest on the longest path.
    pub const MAX_PROBE_GAIN: f64 = 4096.0;
    /// Round trips, and least time, without a faster probe after the path said no: BBR's cycle.
    pub const HOLD_ROUND_TRIPS: f64 = 8.0;
    pub const MIN_HOLD: f64 = 0.5;
    /// Round trips and rate spans from one probe to the next, as BBR probes once in eight round trips.
    pub const PROBE_LOOPS: f64 = 8.0;
    /// What such a probe asks for beyond the estimate, twice what rates err by; twice as much after a
    /// probe that found more, as far as start-up does.
    pub const FIRST_PROBE: f64 = 0.125;
    pub const MAX_PROBE: f64 = 1.0;
    /// A probe lasts a rate span and a quarter, so that a whole span lies within it.
    pub const PROBE_SPANS: f64 = 1.25;
}

/// The base delay and its memory.
pub(super) mod base {
    use crate::time::Duration;

    /// A delay that is no further above the base shows it: a queue shorter than that is none.
    pub const NEAR: f64 = super::queue::MIN_BUSY;
    /// How long it is remembered after it was seen: as BBR's interval of ProbeRTT (draft-ietf-ccwg-bbr, 5 s).
    pub const MEMORY: Duration = Duration::from_secs(5);
    /// The same of the least round trip, from which windows follow: twice as long, as one that grew with the queue that
    /// it makes would know no end where a link nearly stands still.
    pub const ROUND_TRIP_MEMORY: Duration = Duration::from_secs(10);
    /// And then for a drain: at its gain, as at that of a queue that is long, one is empty within five times its length.
    pub const EMPTIED: f64 = 5.0;
    /// At least the longest drain of a path that is neither slow nor long ([`super::spans::MOST`]).
    pub const DRAIN_TIME: Duration = Duration::from_secs(1);
    /// Longest time between looks for a queue that the base may hide, which is the memory doubled three times: a route
    /// that became longer and loses much costs a deep drain in 40 s.
    pub const DOUBT_AT_MOST: Duration = Duration::from_secs(40);
}

/// Drains.
pub(super) mod drain {
    use crate::time::Duration;

    /// Most gain of a shallow drain: at that gain a queue is empty after five times its length. It is less where that takes
    /// too long, but no less than a deep one's. It is over at a quarter of the least target.
    pub const DRAIN_GAIN: f64 = 0.8;
    pub const DRAINED: f64 = 0.000_5;
    /// Loss from which on a drain is deep: so much would leave those who answer loss no window.
    pub const DEEP_FROM: f64 = super::loss::NO_WINDOW;
    /// Rate of a deep drain as a share of what is delivered, as BBR's window in ProbeRTT: all that share a path
    /// together send half of what it carries, whatever they sent before.
    pub const SHARE: f64 = 0.5;
    /// Packets that are counted in it, and the least of them that say anything.
    pub const PACKETS: f64 = super::loss_test::STRETCH_PACKETS;
    pub const LEAST_PACKETS: f64 = super::loss::LEAST_ROUND;
    /// Rounds that it is compared with, at least: that a rest loses less than each of them is one chance in nine.
    pub const LEAST_ROUNDS: usize = 8;
    /// And at most, the last ones, as a flood grows: six of so many may lose as little by the same chance.
    pub const ROUNDS: usize = 64;
    /// Time after a drain in which those of others end (the longest one) and what they lose is known.
    pub const AFTER_DRAIN: Duration = Duration::from_millis(1500);
}

/// Common looks.
pub(super) mod look {
    use crate::time::Duration;

    /// They fall on multiples of this on the clock, as often as drains; where one has shown what the path loses, on one
    /// of so many, which costs a sender of its own two thousandths (a quarter of 0.15 s in 20 s).
    pub const EVERY: Duration = super::base::MEMORY;
    pub const SELDOM: u64 = 4;
    /// What one has healed is believed until one shows otherwise, or a dozen could have.
    pub const BELIEVED: Duration = Duration::from_secs(60);
    /// So many in a row are judged together: of 64 packets of which a sixth was lost before, chance loses none only once in
    /// seventy thousand times, but three standard errors are as much as that sixth. No
    /// more than come in twenty seconds, as it must be the same flood.
    pub const TOGETHER: usize = 4;
    /// What is sent, as a share of what is delivered, until the queue is empty: a quarter less empties one that
    /// overflows in four times what it holds, of which the round trip has one already.
    pub const SHARE: f64 = 0.75;
    pub const QUEUES: f64 = 3.0;
    /// And then for so long, seconds: clocks that NTP keeps over the internet differ by a few tens of milliseconds
    /// (RFC 1059, abstract), so that two thirds of the looks are common.
    pub const TIME: f64 = 0.15;
}

/// What the delay varies by itself.
pub(super) mod delay {
    /// Weight of a sample in the interarrival jitter (RFC 3550 §6.4.1).
    pub const JITTER_WEIGHT: f64 = 1.0 / 16.0;
    /// Weight of a span in the wander: a memory of eight loops, as that of probes.
    pub const WANDER_WEIGHT: f64 = 1.0 / 8.0;
    /// Delay within three mean differences is noise (of a normal distribution, within 3.4 standard
    /// deviations), less an eighth of the target, which the law can bear.
    pub const WANDERS: f64 = 3.0;
    pub const BORNE: f64 = 0.125;
    /// Time in which a floor that is not confirmed sinks to 1/e of its height: the base delay's own
    /// memory is five to ten.
    pub const FLOOR_TIME: f64 = 5.0;
    /// Loops of control in a row that stay below half of the floor and show that it is gone.
    pub const FLOOR_LOOPS: f64 = 4.0;
    pub const FLOOR_SHARE: f64 = 0.5;
}

/// Whose queue it is.
pub(super) mod elasticity {
    /// What is offered must have changed by this to say anything: ln(1/0.87). Less than half of what a
    /// trial changes (a quarter).
    pub const TELLING: f64 = 0.14;
    /// A service that follows what we send by more than this has others in it: with a share s of the
    /// traffic it follows by 1 − s at least.
    pub const FOLLOWS: f64 = 0.3;
    /// And the change must be so many times what the service changes by itself: four mean deviations
    /// are three standard ones (RFC 6298 has four as well).
    pub const VARIATIONS: f64 = 4.0;
    /// Weight of a loop of control in the variation: a memory of eight loops.
    pub const WEIGHT: f64 = 1.0 / 8.0;
    /// A verdict needs a loop and a half: what is measured then was sent after the change, all of it.
    pub const LOOPS: f64 = 1.5;
    /// Where the service is unclear, half of what a queue of our own would have lost must be gone.
    pub const DRAINS: f64 = 0.5;
    /// A queue grew that is a tenth and half of the least target longer.
    pub const GROWS: f64 = 1.1;
    pub const GROWS_BY: f64 = 0.001;
}

/// What the path loses by itself.
pub(super) mod loss {
    /// Weight of a round in the path's mean loss and its variance: with rounds of 64 packets a mean of
    /// a thousand, which errs by 0.3 % at a loss of 1 %.
    pub const ROUND_WEIGHT: f64 = 1.0 / 16.0;
    /// What sinks when a round loses less than a test has shown: four times slower.
    pub const VERIFIED_WEIGHT: f64 = 1.0 / 64.0;
    /// Loss beyond the known that is worth a test: a hundredth, and an eighth of what is known. Less
    /// costs less than the test, and could hardly be told from chance.
    pub const TOLERANCE: f64 = 0.01;
    pub const TOLERANCE_SHARE: f64 = 0.125;
    /// Rounds over which loss is averaged before it raises an alarm: of 64 packets each their standard
    /// deviation at a loss of 1 % is 0.6 %, less than the tolerance.
    pub const ALARM_ROUNDS: f64 = 4.0;
    /// Standard deviations beyond which chance explains nothing: one in seven hundred and forty.
    pub const CERTAIN: f64 = 3.0;
    /// Loss of two rounds in a row that needs no statistics: their scatter, which the first of them has
    /// just enlarged, would call it chance for several rounds more.
    pub const MOST_OF_ROUND: f64 = 0.5;
    /// Most loss that is ever explained: rates stay within ten times of what arrives.
    pub const MOST_EXPLAINED: f64 = 0.9;
    /// Loss beyond the known that is a flood: Hysteria's Brutal, the boldest of the controllers in use, makes up for as
    /// much and no more.
    pub const FLOOD: f64 = 0.2;
    /// Loss at which Reno's window, √(3 ÷ 2p) packets (Mathis et al. 1997), is four, the least for which three
    /// duplicate acknowledgements repair a loss (RFC 5681 §3.2): beyond it a sender that answers loss lives by
    /// its timeouts, and CUBIC's window is Reno's when that small (RFC 9438 §4.3).
    pub const NO_WINDOW: f64 = 1.5 / 16.0;
    /// Packets of the shortest round that says anything: one lost is a sixteenth.
    pub const LEAST_ROUND: f64 = 16.0;
    /// Loops of control in which loss of our own making heals: the first sees the overload, with the
    /// second the rate is what was delivered, and the third delivers it.
    pub const HEALING_LOOPS: f64 = 3.0;
    /// A test without a verdict is tried again after so many loops, in which start-up ends, twice as many each time up
    /// to 2⁶ times, and at most after this many seconds: a flood that no test can tell harms others for no longer.
    pub const RETRY_LOOPS: f64 = 8.0;
    pub const RETRY_DOUBLINGS: u32 = 6;
    pub const RETRY_AT_MOST: f64 = 30.0;
}

/// The loss test.
pub(super) mod loss_test {
    /// Packets of a stretch, at least: with a twentieth lost, three are. Half as many say something.
    pub const STRETCH_PACKETS: f64 = 64.0;
    /// Standard errors that make a difference significant: one chance in forty, two-sided 5 %.
    pub const SIGNIFICANT: f64 = 2.0;
    /// Least pairs of stretches: a scatter of fewer is none.
    pub const MIN_PAIRS: u32 = 3;
    /// What few pairs widen the error by, over their number less one: Student's t at 5 % is 4.3, 3.2,
    /// 2.8 for three, four, five values, this 4.0, 3.3, 3.0.
    pub const STUDENT: f64 = 2.0;
    /// A test without a verdict ends after this many pairs and seconds, whichever comes last, and after
    /// ten times as long in any case; but with fewer pairs than say anything, which are some 400 packets on
    /// a slow path, as late as it would be tried again.
    pub const MAX_PAIRS: u32 = 12;
    pub const MAX_TIME: f64 = 1.0;
    pub const LAST_TIME: f64 = 10.0;
    pub const LAST_OF_FEW: f64 = super::loss::RETRY_AT_MOST;
    /// Rate of the slow stretches as a share of what arrives: well below it, so that a standing queue
    /// drains, and near enough to cost little.
    pub const SLOW: f64 = 0.8;
    /// Most rate of the fast stretches, in the same measure: loss that depends on the rate is half
    /// there.
    pub const FAST: f64 = 2.0;
    /// Share of the excess that must be healed for it to be congestion, of what would be with congestion
    /// alone: without any none is. And how much of that share must be certain.
    pub const HEALED: f64 = 0.5;
    pub const SURELY_HEALED: f64 = 0.5;
}

/// What a queue holds, and paths with next to none.
pub(super) mod shallow {
    use crate::time::Duration;

    /// Loss in a round beyond what chance explains that overflow is taken for: of a thousand packets
    /// one, besides the one that always may be.
    pub const OVERFLOW: f64 = 0.001;
    /// Packets with a short queue that say what the path loses then.
    pub const SHORT_PACKETS: f64 = 16.0;
    /// What counts in the next round of what was seen of packets and losses: a memory of 64 rounds, which
    /// has ten losses and more where a queue that others fill loses a packet in five rounds.
    pub const FADE: f64 = 1.0 - super::loss::VERIFIED_WEIGHT;
    /// Rounds with losses that say whether losses follow the queue, at least.
    pub const FEW_EVENTS: f64 = 3.0;
    /// Packets with a short queue that say what the path itself loses: as many as a stretch of a loss test.
    pub const JUDGED_PACKETS: f64 = super::loss_test::STRETCH_PACKETS;
    /// Time in which a known depth doubles that is not seen again, seconds: a CUBIC flow of 1000 packets
    /// fills a queue again nine seconds after it overflowed (RFC 9438, K), and until then it holds what it
    /// held.
    pub const DOUBLED: f64 = 10.0;
    /// Longest queue that is thought of: a second (as the longest span).
    pub const DEEPEST: f64 = 1.0;
    /// Two refusals at rates this close, and not further apart than this, show a ceiling; one alone may
    /// be a burst of the path's own losses. Rates err by a sixteenth over a span, and by a quarter of
    /// that over the 16 spans and more that a test has; what chance makes the losses of two tests differ by comes on
    /// top, up to the dip below.
    pub const CLOSE: f64 = 0.015;
    pub const RECENT: Duration = Duration::from_secs(10);
    /// What arrives as an alarm comes is what the ceiling carries, give or take this: two of the four rounds that an
    /// alarm looks at may have been below it, and what is above it of the dip's curve is no more.
    pub const ALIKE: f64 = 0.125;
    /// How far below the ceiling we go, as a share of it: three times what the two may differ by.
    pub const DIP: f64 = 0.05;
    /// Round trips until it is reached again, and bounds of that time: CUBIC's K for a window of 100
    /// packets is 4.2 s, of ten 2 s.
    pub const RETURN: f64 = 20.0;
    pub const MIN_RETURN: f64 = 1.0;
    pub const MAX_RETURN: f64 = 2.0;
    /// Each refusal at the same rate doubles it so often, to eight times as long: what is above the ceiling is lost for as
    /// long as an alarm takes, so the rarer the less.
    pub const RETURN_DOUBLINGS: u32 = 3;
    /// What a dip spares in a policer's bucket is used up at twice that time, when as much above the ceiling is sent. Half
    /// as long again has shown that it is gone.
    pub const RELEASED: f64 = 3.0;
}

/// The window beside senders that fill the queue.
pub(super) mod cubic {
    use crate::time::Duration;

    /// CUBIC's constants (RFC 9438 §4.1, §4.6): packets per second cubed, and what a decrease leaves.
    pub const CUBIC: f64 = 0.4;
    pub const DECREASE: f64 = 0.7;
    /// Growth per round trip of a window as fair as Reno's with this decrease (RFC 9438 §4.3), packets.
    pub const RENO: f64 = 3.0 * (1.0 - DECREASE) / (1.0 + DECREASE);
    /// Most that CUBIC's curve may be ahead of the window (RFC 9438 §4.4).
    pub const MOST_AHEAD: f64 = 1.5;
    /// Least window, packets: what RFC 9438's DECREASE leaves of the initial window of ten, twice.
    pub const LEAST: f64 = 4.0;
    /// Pacing of the window, as Linux paces TCP in congestion avoidance.
    pub const PACING: f64 = 1.2;
    /// Round trips after a decrease in which losses still are of before: they are found up to a quarter
    /// of one after what was sent beside them.
    pub const LOSSES_LATE: f64 = 1.5;
    /// Rate of a trial, as a share of the rate before: what CUBIC's cut leaves, and a little more.
    pub const TRIAL_SHARE: f64 = 0.75;
    /// Loops of control after the beginning and after a decrease until the next trial, in which the
    /// others answer too; and those after which one without a verdict ends.
    pub const TRIAL_LOOPS: f64 = 2.0;
    pub const TRIAL_ENDS: f64 = 4.0;
    /// Time between trials where nothing asks for one: doubles from the first to the last. A quarter of
    /// the rate for two or three loops of 0.1 s in each costs 3 %, at last 1 %.
    pub const FIRST_INTERVAL: Duration = Duration::from_secs(2);
    pub const LAST_INTERVAL: Duration = Duration::from_secs(8);
    /// Standard errors of congestion's losses beyond the path's own: as for alarms.
    pub const BEYOND_CHANCE: f64 = 3.0;
    /// Change of the delay that says nothing, seconds and as a share of the round trip: the resolution
    /// of the clocks and of feedback. What delay varies by itself comes on top.
    pub const RESOLUTION: f64 = 0.000_5;
    pub const RESOLUTION_SHARE: f64 = 0.005;
}

/// Congestion marks.
pub(super) mod marks {
    /// Weight of a round trip in means (RFC 8257 §4.2), and the most that the rate grows by in one, so
    /// that no growth makes more marks than a mean of them answers.
    pub const MEAN_WEIGHT: f64 = 1.0 / 16.0;
    /// A standing queue of this length that marks is a classic one: CoDel's target (RFC 8289 §4.3); a
    /// low-latency one begins at a fifth of it (RFC 9332 §A.1).
    pub const CLASSIC_QUEUE: f64 = 0.005;
    /// Round trips without a mark after which the rate grows faster, doubling: at a steady rate there
    /// are two marks in each (RFC 9331 §4.3).
    pub const HELD_ROUNDS: f64 = 8.0;
    /// Below this round trip growth is less, so that short ones take no more than their share
    /// (draft-briscoe-iccrg-prague-congestion-control, reduced RTT bias).
    pub const SHORT_ROUND_TRIP: f64 = 0.025;
    /// Longest group of packets: a quarter of what a low-latency queue holds before it marks.
    pub const MAX_GROUP: f64 = 0.000_25;
    /// Cut of a classic queue's marks: their share, within a tenth, a little less than what RFC 8511 asks of CUBIC
    /// (0.15), as this sender's queue is shorter, and the half of RFC 3168.
    pub const LEAST_CUT: f64 = 0.1;
    pub const MOST_CUT: f64 = 0.5;
}

/// Giving way to others.
pub(super) mod yielding {
    use crate::time::Duration;

    /// A queue of so many targets is not this sender's: alone it holds one, overshoots by less than half
    /// ([`super::queue::OVERSHOOT`]), and a group of packets is half of one.
    pub const LONG: f64 = 2.0;
    /// The first cut: what it overshot by when it came to the path's rate is gone then within a loop,
    /// and that queue was its own. It goes on at a little less than what it was served.
    pub const FIRST_CUT: f64 = 0.7;
    pub const OWN_SHARE: f64 = 0.9;
    /// An own queue does not come back within this time, as the rate is known then and neared gently
    /// from this share of it on: the memory of base delays.
    pub const MEMORY: f64 = 10.0;
    pub const NEAR: f64 = 0.75;
    /// While others have the path it sends this share of what the path carries: a fifth of the twentieth that it
    /// may take from them in all. The rest is for coming back while they are there.
    pub const AWAY: f64 = 0.01;
    /// But a packet in so many seconds, half of what it sends at least otherwise: it is to learn that they are gone.
    pub const LONGEST_AWAY: f64 = super::bounds::MIN_WINDOW_TIME;
    /// Comes back at this share of what the path carries: three doublings from all of it, and if others fill the path
    /// after all, an eighth of a loop of control is what waits more until that shows.
    pub const RETURN: f64 = 0.125;
    /// Delay that stays within the noise for so long is a longer route and nobody's queue: CUBIC moves its own by
    /// more, also where its window is flat (from 10 Gbit/s and 100 ms it is back where it was within 40 s, RFC 9438
    /// §4.2).
    pub const STEADY: Duration = Duration::from_secs(40);
    /// Round trips, or packets, without a queue after which others are gone, and the least time: longer than a TCP
    /// sender takes to fill the queue again that its cut emptied, on short paths.
    pub const CLEAR_ROUND_TRIPS: f64 = 8.0;
    pub const FIRST_CLEAR: f64 = 1.0;
    /// And share of packets at which a queue may seem to stand then: half of those that meet one where CUBIC empties
    /// it for half of the time, and twice what jitter makes of none (the least of 4r/T delays within r is above T/2
    /// once in e², 0.14).
    pub const LATE_SHARE: f64 = 0.25;
    /// Doubled each time that they are not, up to this: what CUBIC takes to come back from a cut to a
    /// window of 900 packets (RFC 9438 §4.2: the cube root of 0.3 · 900 ÷ 0.4 is 8.8 s), and what an idle
    /// path may stay idle for once others have left it.
    pub const MOST_CLEAR: f64 = 10.0;
}
