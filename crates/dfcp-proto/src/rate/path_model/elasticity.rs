//! Elasticity test: is a standing queue caused by this sender, or by cross traffic that fills it?
//!
//! A sender that is alone at the bottleneck is served as fast as before when it sends less, and the
//! queue shrinks. Beside senders that fill the queue, these take what it gives up: its service
//! follows what it sends (elastic cross traffic; Goyal et al., Nimbus, SIGCOMM 2022, tests the same
//! with pulses). [`ElasticityTest`] compares service before and after with what was offered;
//! [`ServiceVariation`] knows how much the service changes by itself: where that is much, as on a
//! radio link, nothing is concluded.

use super::tuning::elasticity::*;
use crate::time::Instant;

/// What the path was offered and what it served over some time, bytes per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) offered: f64,
    pub(super) served: f64,
    /// Share lost of it, and how many packets it was.
    pub(super) lost: f64,
    pub(super) packets: f64,
}

/// Who causes a standing queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum QueueOwner {
    /// This sender: it is served as before though it sends less.
    Own,
    /// Cross traffic keeps it full.
    CrossTraffic,
    /// Nobody: what was taken for a queue is delay of the path itself.
    Path,
}

/// How much the service changes by itself from one loop of control to the next, as a logarithm.
#[derive(Debug, Default)]
pub(super) struct ServiceVariation {
    mean: f64,
    last: Option<(Instant, Flow)>,
}

impl ServiceVariation {
    /// Takes the state of now; a loop of control takes `settled` seconds.
    pub(super) fn update(&mut self, now: Instant, flow: Flow, settled: f64) {
        let Some((at, before)) = self.last else {
            self.last = Some((now, flow));
            return;
        };
        let elapsed = now.saturating_since(at).as_secs_f64();
        if elapsed < settled {
            return;
        }
        if elapsed < 2.0 * settled {
            let change = (flow.served / before.served.max(1.0)).ln();
            let asked = (flow.offered / before.offered.max(1.0)).ln();
            // What lies between no change and what was asked for is no surprise.
            let own = change - change.clamp(asked.min(0.0), asked.max(0.0));
            self.mean += (own.abs() - self.mean) * WEIGHT;
        }
        self.last = Some((now, flow));
    }

    /// What was served about a loop ago, or now if that is more.
    fn most_served(&self, flow: Flow) -> f64 {
        self.last
            .map_or(flow.served, |(_, f)| f.served.max(flow.served))
    }
}

/// A look at a queue while we send less than before.
#[derive(Clone, Copy, Debug)]
pub(super) struct ElasticityTest {
    pub(super) since: Instant,
    pub(super) before: Flow,
    /// The most that we were served before.
    pub(super) served: f64,
    pub(super) queue: f64,
}

impl ElasticityTest {
    pub(super) fn new(
        now: Instant,
        before: Flow,
        queue: f64,
        variation: &ServiceVariation,
    ) -> Self {
        Self {
            since: now,
            before,
            served: variation.most_served(before),
            queue,
        }
    }

    /// What was sent before still adds to the queue for a loop of control: begins again from there.
    pub(super) fn follow_growth(&mut self, now: Instant, flow: Flow, queue: f64, loop_time: f64) {
        let early = now.saturating_since(self.since).as_secs_f64() < loop_time + self.queue;
        if early && queue > GROWS * self.queue + GROWS_BY {
            self.before.offered = self.before.offered.max(flow.offered);
            self.before.served = flow.served;
            self.queue = queue;
        }
    }

    /// Who causes the queue, once that shows: no sooner than after one and a half times `settled`.
    /// [`QueueOwner::Own`] where nothing is concluded.
    pub(super) fn verdict(
        &self,
        now: Instant,
        flow: Flow,
        queue: f64,
        settled: f64,
        variation: &ServiceVariation,
    ) -> Option<QueueOwner> {
        let elapsed = now.saturating_since(self.since).as_secs_f64();
        let change = (self.before.offered / flow.offered.max(1.0)).ln();
        if change < TELLING || elapsed < LOOPS * settled {
            return None;
        }
        let follows = (self.before.served / flow.served.max(1.0)).ln();
        let unclear = follows < VARIATIONS * variation.mean;
        // What a queue of our own would have lost by now.
        let drained = (1.0 - flow.offered / self.before.served).max(0.0) * elapsed;
        let drains = self.queue - queue > DRAINS * drained.min(self.queue);
        let own = follows < FOLLOWS * change || unclear && drains;
        Some(if own {
            QueueOwner::Own
        } else {
            QueueOwner::CrossTraffic
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn flow(offered: f64, served: f64) -> Flow {
        Flow {
            offered,
            served,
            lost: 0.0,
            packets: 0.0,
        }
    }

    #[test]
    fn a_queue_belongs_to_who_gets_what_we_give_up() {
        let quiet = ServiceVariation::default();
        let test = ElasticityTest::new(at(0), flow(110.0, 100.0), 0.010, &quiet);
        let verdict =
            |offered, served| test.verdict(at(300), flow(offered, served), 0.010, 0.1, &quiet);
        assert_eq!(verdict(75.0, 100.0), Some(QueueOwner::Own));
        assert_eq!(verdict(75.0, 75.0), Some(QueueOwner::CrossTraffic));
        // Half of the traffic is ours: 0.375 of 0.875 instead of a half.
        assert_eq!(verdict(75.0, 86.0), Some(QueueOwner::CrossTraffic));
        assert_eq!(verdict(105.0, 90.0), None, "too small a change to tell");
        let early = test.verdict(at(100), flow(75.0, 75.0), 0.010, 0.1, &quiet);
        assert_eq!(early, None, "not yet to be seen");
    }

    #[test]
    fn a_service_that_changes_by_itself_says_nothing() {
        let mut variation = ServiceVariation::default();
        for i in 0..100 {
            let served = if i % 2 == 0 { 100.0 } else { 70.0 };
            variation.update(at(100 * i), flow(100.0, served), 0.1);
        }
        let test = ElasticityTest::new(at(0), flow(100.0, 100.0), 0.010, &variation);
        let owner = test.verdict(at(300), flow(75.0, 75.0), 0.0, 0.1, &variation);
        assert_eq!(owner, Some(QueueOwner::Own));
    }
}
