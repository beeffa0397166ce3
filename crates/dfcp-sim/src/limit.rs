//! What a perfect sender could get through a path: the measure that goodput is divided by.
//!
//! A perfect sender keeps the tightest link of its route busy with full UDP datagrams, knows of
//! every loss at once, and sends nothing twice that arrived. It gets what the links offer over the
//! window that is looked at, less what they lose by themselves, less headers:
//!
//! - what a link offers is its rate over time, less outages, changes included; of a recorded link
//!   exactly the opportunities within the window;
//! - a policer, a shaper and grants count with what they let pass in the long run, not with the
//!   burst that a full bucket lets pass once;
//! - outages count when and as long as they are, random ones too: they follow from the seed alone;
//! - other loss counts by its expectation ([`LossModel::mean_loss`](crate::link::LossModel)): a
//!   short run with long bursts can come out a little above the limit, or below it;
//! - a loss behind a link's transmitter has taken its share of that link, one before a link's
//!   queue only of the links before it ([`LossAt`]);
//! - of each packet of the path's MTU, 28 bytes are headers of IPv4 and UDP.
//!
//! Other flows count for nothing: it is the limit of the path, not of a fair share of it.

use dfcp_proto::{Duration, Instant};

use crate::link::{Grants, LinkConfig, LinkRate, LossAt, RateTrace};
use crate::scenario::{FlowSpec, LinkIndex, Scenario};

/// Bytes of IPv4 and UDP headers in every packet.
const HEADERS: u32 = 28;

/// A span of time, its end not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// When it begins.
    pub from: Instant,
    /// When it ends.
    pub to: Instant,
}

impl Window {
    fn length(&self) -> Duration {
        self.to.saturating_since(self.from)
    }
}

/// Useful bits a second that a perfect sender of UDP payload could bring over a flow's route
/// within a window; `None` where no link of it limits the rate, the window is empty, or the flow
/// has several routes.
pub fn goodput_limit(scenario: &Scenario, flow: &FlowSpec, window: Window) -> Option<f64> {
    if !flow.others.is_empty() || window.length().is_zero() {
        return None;
    }
    let route: Vec<Life<'_>> = flow
        .forward
        .iter()
        .map(|link| Life::of(scenario, *link))
        .collect();
    let mut cuts: Vec<Instant> = route.iter().flat_map(|life| life.cuts(window)).collect();
    cuts.retain(|at| *at > window.from && *at < window.to);
    cuts.extend([window.from, window.to]);
    cuts.sort();
    cuts.dedup();
    let mut bits = 0.0;
    for ends in cuts.windows(2) {
        let piece = Window {
            from: ends[0],
            to: ends[1],
        };
        bits += unchanged(&route, piece)?;
    }
    Some(bits / window.length().as_secs_f64())
}

/// The limit in bits over a piece of time in which no link of the route changes.
fn unchanged(route: &[Life<'_>], piece: Window) -> Option<f64> {
    let mut least = None;
    // From the last link to the first: how much of what leaves a link arrives.
    let mut arrives = 1.0;
    for life in route.iter().rev() {
        let config = life.at(piece.from);
        let (factor, outage_loss) = life.outages(piece);
        let lost = 1.0 - (1.0 - config.loss.mean_loss()) * (1.0 - outage_loss);
        let behind = match config.loss_at {
            LossAt::Exit => arrives * (1.0 - lost),
            LossAt::Entry => arrives,
        };
        if let Some(offered) = offered(config, piece) {
            let bits = offered * factor * behind;
            least = Some(least.map_or(bits, |least: f64| least.min(bits)));
        }
        arrives *= 1.0 - lost;
    }
    let configs = || route.iter().map(|life| life.at(piece.from));
    let mtu = configs().filter_map(|config| config.mtu).min();
    least.map(|bits| bits * payload_share(mtu))
}

/// Bits of IP packets of the link's MTU that a link takes within a window; `None` where it has no
/// rate.
fn offered(config: &LinkConfig, window: Window) -> Option<f64> {
    let seconds = window.length().as_secs_f64();
    let line = match &config.rate {
        LinkRate::Unlimited => None,
        LinkRate::Constant(rate) => Some(rate.as_bps() as f64 * seconds),
        LinkRate::Trace(trace) => {
            let count = trace.first_at(window.to) - trace.first_at(window.from);
            Some(count as f64 * f64::from(RateTrace::OPPORTUNITY) * 8.0)
        }
    };
    let buckets = [config.policer, config.shaper];
    let buckets = buckets.map(|bucket| Some(bucket?.rate.as_bps() as f64 * seconds));
    let grants = config.grants.as_ref().and_then(|grants| {
        let grant = granted(grants, config)?;
        Some(grant * 8.0 * seconds / grants.every.as_secs_f64())
    });
    let limits = [line, buckets[0], buckets[1], grants].into_iter().flatten();
    let bits = limits.reduce(f64::min)?;
    Some(match config.mtu {
        Some(mtu) => bits * f64::from(mtu) / f64::from(mtu.saturating_add(config.framing).max(1)),
        None => bits,
    })
}

/// Most bytes of a grant, framing included, in packets of the link's MTU.
fn granted(grants: &Grants, config: &LinkConfig) -> Option<f64> {
    let packet = f64::from(config.mtu?.saturating_add(config.framing));
    let packets = grants.packets.map(|packets| f64::from(packets) * packet);
    // What does not fill a packet is gone, and a first packet goes in any case.
    let bytes = grants
        .bytes
        .map(|bytes| (bytes as f64 / packet).floor().max(1.0) * packet);
    packets.into_iter().chain(bytes).reduce(f64::min)
}

/// The part of an IP packet that is UDP payload.
fn payload_share(mtu: Option<u32>) -> f64 {
    mtu.map_or(1.0, |mtu| {
        f64::from(mtu.saturating_sub(HEADERS)) / f64::from(mtu.max(1))
    })
}

/// What a link is over time.
struct Life<'a> {
    seed: u64,
    /// In order of time; the first is from the beginning.
    stages: Vec<(Instant, &'a LinkConfig)>,
}

impl<'a> Life<'a> {
    fn of(scenario: &'a Scenario, link: LinkIndex) -> Self {
        let changes = scenario.changes.iter().filter(|change| change.link == link);
        let first = (Instant::ZERO, &scenario.links[link.0].config);
        let stages = changes.map(|change| (change.at, &change.config));
        let mut seed = scenario.run.seed.stream(&scenario.links[link.0].name);
        Self {
            seed: seed.next_u64(),
            stages: std::iter::once(first).chain(stages).collect(),
        }
    }

    /// By what outages multiply the rate in a piece of time that they begin and end, and which
    /// share of the packets they lose.
    fn outages(&self, piece: Window) -> (f64, f64) {
        let (mut factor, mut arrives) = (1.0, 1.0);
        for (index, outage) in self.at(piece.from).outages.iter().enumerate() {
            let windows = outage.between((index, self.seed), piece.from, piece.to);
            if !windows.is_empty() {
                factor *= outage.rate_factor;
                arrives *= 1.0 - outage.loss;
            }
        }
        (factor, 1.0 - arrives)
    }

    /// When the link changes within a window: by a scheduled change, or by an outage.
    fn cuts(&self, window: Window) -> Vec<Instant> {
        let mut cuts: Vec<Instant> = self.stages.iter().skip(1).map(|(at, _)| *at).collect();
        for (_, config) in &self.stages {
            for (index, outage) in config.outages.iter().enumerate() {
                let windows = outage.between((index, self.seed), window.from, window.to);
                cuts.extend(windows.into_iter().flat_map(|(begin, end)| [begin, end]));
            }
        }
        cuts
    }

    fn at(&self, time: Instant) -> &'a LinkConfig {
        let past = self.stages.partition_point(|(at, _)| *at <= time);
        self.stages[past.saturating_sub(1)].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A dumbbell of 100 Mbit/s whose bottleneck and changes are `rest`.
    fn limit(rest: &str, seconds: [u64; 2]) -> f64 {
        let text = format!(
            "schema = 1\n{rest}\n[topology]\nkind = \"dumbbell\"\nrtt = \"50 ms\"\n\
             [link.default]\nrate = \"unlimited\"\n[[flow]]\nprotocol = \"auto\"\n"
        );
        let mut document = crate::scenario::Document::parse(&text, "test").expect("it is TOML");
        let read = |_: &str| Ok("1\n2\n2\n10\n".to_owned());
        document.load_files(read).expect("there is a trace");
        let scenario = document.scenario().expect("it is a scenario");
        let [from, to] = seconds.map(|s| Instant::ZERO + Duration::from_secs(s));
        goodput_limit(&scenario, &scenario.flows[0], Window { from, to }).expect("it has a rate")
    }

    fn assert_near(found: f64, megabits: f64) {
        let right = megabits * 1e6 * 1472.0 / 1500.0;
        assert!((found / right - 1.0).abs() < 1e-9, "{found}, not {right}");
    }

    #[test]
    fn a_constant_rate_is_less_by_headers_and_loss() {
        assert_near(
            limit("link.bottleneck.rate = \"100 Mbit/s\"", [0, 1]),
            100.0,
        );
        let bottleneck = |rest: &str| {
            format!("[link.bottleneck]\nrate = \"100 Mbit/s\"\n{rest}\n[run]\nduration = \"60 s\"")
        };
        assert_near(limit(&bottleneck("loss = 0.2"), [0, 9]), 80.0);
        let entry = bottleneck("loss = 0.2\nloss_at = \"entry\"");
        assert_near(limit(&entry, [0, 9]), 100.0);
        let burst = "loss = { p_good_to_bad = 0.01, p_bad_to_good = 0.09 }";
        assert_near(limit(&bottleneck(burst), [0, 9]), 90.0);
        let framed = bottleneck("framing = \"ethernet\"");
        assert_near(limit(&framed, [0, 9]), 100.0 * 1500.0 / 1538.0);
    }

    #[test]
    fn loss_behind_the_tight_link_counts_and_loss_before_it_does_not() {
        let on =
            |link: &str| format!("link.bottleneck.rate = \"100 Mbit/s\"\nlink.{link}.loss = 0.5");
        assert_near(limit(&on("access-left-1"), [0, 1]), 100.0);
        assert_near(limit(&on("access-right-1"), [0, 1]), 50.0);
    }

    #[test]
    fn changes_count_by_the_time_that_they_last() {
        let change = |at: u64, rate: u64| {
            format!(
                "[[change]]\nat = \"{at} s\"\nlink = \"bottleneck\"\nrate = \"{rate} Mbit/s\"\n"
            )
        };
        let steps = format!(
            "[link.bottleneck]\nrate = \"100 Mbit/s\"\n{}{}",
            change(10, 20),
            change(20, 60)
        );
        assert_near(limit(&steps, [0, 10]), 100.0);
        assert_near(limit(&steps, [5, 15]), 60.0);
        assert_near(limit(&steps, [10, 40]), (20.0 * 10.0 + 60.0 * 20.0) / 30.0);
    }

    #[test]
    fn outages_cost_the_time_that_they_take() {
        let outage =
            |rest: &str| format!("[link.bottleneck]\nrate = \"100 Mbit/s\"\noutage = {{ {rest} }}");
        let half_second = "every = \"500 ms\", length = \"50 ms\"";
        for packets in ["lost", "held"] {
            let regular = outage(&format!("{half_second}, packets = \"{packets}\""));
            assert_near(limit(&regular, [0, 9]), 90.0);
        }
        // Where they are: the first of two seconds, not half of each.
        let late = outage("every = \"8 s\", length = \"1 s\", start = \"4 s\"");
        assert_near(limit(&late, [0, 4]), 100.0);
        assert_near(limit(&late, [4, 6]), 50.0);
        assert_near(limit(&late, [0, 8]), 87.5);
        // Slower and lossy by both.
        let half = format!("{half_second}, loss = 0.5, rate_factor = 0.5");
        assert_near(limit(&outage(&half), [0, 9]), 90.0 + 2.5);
        // At random: the mean in the long run, what it is in a short one. Of 1200 outages the sum
        // deviates by 0.4 % of the time.
        let random = outage(&format!("{half_second}, spread = \"exponential\""));
        let long = limit(&random, [0, 600]) / (1e6 * 1472.0 / 1500.0);
        assert!((long - 90.0).abs() < 1.6, "{long}");
        assert!((limit(&random, [0, 1]) / limit(&random, [1, 2]) - 1.0).abs() > 1e-3);
        let loss = outage(half_second) + "\nloss = 0.2";
        assert_near(limit(&loss, [0, 9]), 72.0);
    }

    #[test]
    fn the_least_of_rate_bucket_and_grant_is_the_limit() {
        let bottleneck = |rest: &str| format!("[link.bottleneck]\nrate = \"100 Mbit/s\"\n{rest}");
        for kind in ["policer", "shaper"] {
            let bucket =
                |rate| format!("{kind} = {{ rate = \"{rate} Mbit/s\", burst = \"64 kB\" }}");
            assert_near(limit(&bottleneck(&bucket(40)), [0, 9]), 40.0);
            assert_near(limit(&bottleneck(&bucket(400)), [0, 9]), 100.0);
        }
        // 16 packets of 1500 bytes each 4 ms are 48 Mbit/s, 64 are more than the rate.
        let grants = |rest: &str| bottleneck(&format!("grants = {{ every = \"4 ms\", {rest} }}"));
        assert_near(limit(&grants("packets = 16"), [0, 9]), 48.0);
        assert_near(limit(&grants("packets = 64"), [0, 9]), 100.0);
        assert_near(limit(&grants("bytes = \"13 kB\""), [0, 9]), 24.0);
    }

    #[test]
    fn a_recorded_link_offers_its_opportunities_and_no_others() {
        // Four of 1500 bytes in 10 ms; those of the window's end are the next window's.
        let trace = "[link.bottleneck]\nrate = { trace = \"t\" }";
        assert_near(limit(trace, [0, 1]), (100.0 * 4.0 - 1.0) * 12_000.0 / 1e6);
        assert_near(limit(trace, [3, 4]), 4.8);
    }
}
