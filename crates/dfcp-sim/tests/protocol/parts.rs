//! Parts of an application's own, beside those that profiles here are made of.

use crate::common::{Flow, SECOND, established, lossy, run_flows, transfer};
use dfcp_proto::feedback::{Arrival, FIRST_PRIVATE, FeedbackPolicy};
use dfcp_proto::rate::{Feedback, FixedRate, PathReport, RateController};
use dfcp_proto::{ChannelKind, Duration, Instant, Profile, Rate, TransportConfig};
use dfcp_sim::{PairConfig, Side};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Reports at the first packet, then 5 ms later at the earliest; counts the packets that it sees.
#[derive(Debug)]
struct Spaced {
    due: Option<Instant>,
    last: Option<Instant>,
    seen: Arc<AtomicU64>,
}

const SPACE: Duration = Duration::from_millis(5);

impl FeedbackPolicy for Spaced {
    fn number(&self) -> u64 {
        FIRST_PRIVATE
    }

    fn max_delay(&self, _rtt: Duration, _gap: Duration) -> Duration {
        SPACE
    }

    fn on_packet(&mut self, now: Instant, _arrival: &Arrival) {
        self.seen.fetch_add(1, Ordering::Relaxed);
        let next = self.last.map_or(now, |last| (last + SPACE).max(now));
        self.due.get_or_insert(next);
    }

    fn on_urgent(&mut self, now: Instant) {
        self.due = Some(now);
    }

    /// Has no receive window: this must not take the place of what blocks need.
    fn report(&mut self, _now: Instant) -> Option<PathReport> {
        Some(PathReport::default())
    }

    fn due(&self) -> Option<Instant> {
        self.due
    }

    fn on_sent(&mut self, now: Instant, _size: u64) {
        (self.last, self.due) = (Some(now), None);
    }
}

fn spaced(seen: &Arc<AtomicU64>) -> impl Fn() -> Box<dyn FeedbackPolicy> + Send + Sync + 'static {
    let seen = seen.clone();
    move || {
        let (due, last, seen) = (None, None, seen.clone());
        Box::new(Spaced { due, last, seen })
    }
}

#[test]
fn feedback_of_ones_own_is_given_by_a_receiver_that_knows_it() {
    let seen = Arc::new(AtomicU64::new(0));
    let client = TransportConfig::default().profile(Profile::auto().with_feedback(spaced(&seen)));
    for (knows, seed) in [(true, 61), (false, 62)] {
        seen.store(0, Ordering::Relaxed);
        let server = match knows {
            true => TransportConfig::default().answer_with(spaced(&seen)),
            false => TransportConfig::default(),
        };
        let config = PairConfig {
            client: client.clone(),
            server,
            ..PairConfig::symmetric(lossy(0.02), seed)
        };
        transfer(config, ChannelKind::Object, 1_000_000, 20 * SECOND);
        let packets = seen.load(Ordering::Relaxed);
        assert_eq!(packets > 600, knows, "{packets} packets, seed {seed}");
        assert_eq!(packets == 0, !knows, "{packets} packets, seed {seed}");
    }
}

/// A fixed rate that remembers what it was told last: bytes sent, and those of them that arrived.
#[derive(Debug)]
struct Recorder {
    rate: FixedRate,
    sent: Arc<AtomicU64>,
    delivered: Arc<AtomicU64>,
}

impl RateController for Recorder {
    fn on_established(&mut self, now: Instant, rtt: Duration, packet_size: u64) {
        self.rate.on_established(now, rtt, packet_size);
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.rate.on_feedback(feedback);
        if let Some(newest) = feedback.newest {
            self.sent.store(newest.sent_total, Ordering::Relaxed);
            let delivered = newest.delivered_total;
            self.delivered.store(delivered, Ordering::Relaxed);
        }
    }

    fn pacing_rate(&self) -> Rate {
        self.rate.pacing_rate()
    }

    fn window(&self) -> u64 {
        self.rate.window()
    }

    fn initial_burst(&self) -> u64 {
        self.rate.initial_burst()
    }
}

#[test]
fn acknowledgements_of_what_comes_do_not_pass_for_lost() {
    let (sent, delivered) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let seed = 63;
    let (told, arrived) = (sent.clone(), delivered.clone());
    let profile = Profile::auto().with_rate(move || {
        Box::new(Recorder {
            rate: FixedRate::new(Rate::from_bps(1_000_000)),
            sent: told.clone(),
            delivered: arrived.clone(),
        })
    });
    let config = PairConfig {
        client: TransportConfig::default().profile(profile),
        ..PairConfig::symmetric(lossy(0.0), seed)
    };
    let mut pair = established(config);
    // Each packet that comes is acknowledged beside few packets of the client's own.
    let mut flows = [(Side::Server, 4_000_000), (Side::Client, 100_000)]
        .map(|(side, size)| Flow::open(&mut pair, side, ChannelKind::Stream, size));
    assert!(run_flows(&mut pair, &mut flows, 20 * SECOND), "seed {seed}");
    let [sent, delivered] = [sent, delivered].map(|bytes| bytes.load(Ordering::Relaxed));
    assert!(sent > 100_000, "seed {seed}: {sent}");
    assert_eq!(sent, delivered, "seed {seed}: no packet was lost");
}
