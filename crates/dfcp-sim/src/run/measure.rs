//! From the counters of a simulation to the figures of a report.

use dfcp_proto::{Duration, Instant};

use crate::engine::{FlowInfo, Progress, Simulation};
use crate::limit::{Window, goodput_limit};
use crate::link::{Link, LinkStats};
use crate::metrics;
use crate::packet::Packet;
use crate::report::{FlowReport, LinkReport, QueueReport, RunReport, RunSummary, Series};
use crate::scenario::{FlowSpec, ProtocolSpec, Scenario};

/// What a simulation of `scenario` has measured so far.
pub(super) fn report(scenario: &Scenario, simulation: &Simulation) -> RunReport {
    let mut flows: Vec<_> = scenario
        .flows
        .iter()
        .zip(simulation.flows())
        .map(|(spec, info)| flow_report(scenario, spec, info, simulation))
        .collect();
    let links: Vec<_> = scenario
        .links
        .iter()
        .zip(simulation.links())
        .map(|(spec, link)| link_report(&spec.name, link, simulation.now()))
        .collect();
    let series = series(scenario, simulation);
    find_convergence(scenario, &mut flows, &series);
    let summary = summary(scenario, simulation, &flows, &links);
    RunReport {
        flows,
        links,
        summary,
        series,
    }
}

fn seconds(from: Instant, to: Instant) -> f64 {
    to.saturating_since(from).as_secs_f64()
}

/// `amount` a second, or zero of no time at all.
fn per(amount: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { amount / seconds } else { 0.0 }
}

fn share(part: u64, whole: u64) -> f64 {
    per(part as f64, whole as f64)
}

fn flow_report(
    scenario: &Scenario,
    spec: &FlowSpec,
    info: &FlowInfo,
    simulation: &Simulation,
) -> FlowReport {
    let (sent, got) = (
        simulation.source(info.id).progress(),
        simulation.sink(info.id).progress(),
    );
    let total = simulation.counters(info.id);
    let counted = simulation.counters_since_warm_up(info.id);
    let begin = info.start.max(simulation.warm_since());
    let end = simulation.now();
    let end = [info.stop, got.finished]
        .into_iter()
        .flatten()
        .fold(end, Instant::min);
    let time = seconds(begin, end);
    FlowReport {
        name: spec.name.clone(),
        class: spec.class.clone(),
        protocol: spec.protocol.name().to_owned(),
        start_s: seconds(Instant::ZERO, info.start),
        goodput_bps: per(counted.delivered as f64 * 8.0, time),
        limit_bps: goodput_limit(
            scenario,
            spec,
            Window {
                from: begin,
                to: end,
            },
        ),
        throughput_bps: per(counted.bytes_arrived as f64 * 8.0, time),
        fct_s: got.finished.map(|at| seconds(info.start, at)),
        bytes: total.delivered,
        bytes_missing: got.missing,
        bytes_sent: total.bytes_sent,
        packets_sent: total.packets_sent,
        packets_retransmitted: sent.repairs,
        spurious_losses: sent.spurious_losses,
        receiver_drops: got.receiver_drops,
        loss: share(counted.drops.total(), counted.packets_sent),
        drops: counted.drops,
        overhead: metrics::overhead(total.bytes_sent, total.delivered),
        excess: sent
            .blocks
            .and_then(|b| metrics::overhead(b.packets, b.needed_packets)),
        block_time_s: block_time(&sent, &got),
        rtt_mean_s: sent.srtt.map(|rtt| rtt.as_secs_f64()),
        convergence_s: None,
        finished: got.finished.is_some(),
    }
}

/// Mean time from the start of a block until it was there, once all are.
fn block_time(sent: &Progress, got: &Progress) -> Option<f64> {
    let (begun, there) = (sent.blocks?, got.blocks?);
    let all = got.finished.is_some() && begun.count == there.count && begun.count > 0;
    let sum = there.at.saturating_sub(begun.at).as_secs_f64();
    all.then(|| sum / begun.count as f64)
}

/// Samples that the moving average of the convergence time spans, and how near to the fair share
/// counts as there.
const CONVERGENCE: (usize, f64) = (10, 0.1);

/// Fills in when each flow without an end of its own came to its fair share.
fn find_convergence(scenario: &Scenario, flows: &mut [FlowReport], series: &[Series]) {
    let lasting = |spec: &FlowSpec| responds(spec) && spec.size.is_none() && spec.stop.is_none();
    let of_flows = || scenario.flows.iter().zip(series);
    let ends: Vec<f64> = of_flows()
        .filter(|(spec, _)| lasting(spec))
        .map(|(_, s)| s.values[s.values.len() * 3 / 4..].iter().sum::<f64>())
        .collect();
    let Some(samples) = series.first().map(|s| s.values.len().div_ceil(4)) else {
        return;
    };
    let fair = per(ends.iter().sum::<f64>(), (samples * ends.len()) as f64);
    for (flow, (spec, series)) in flows.iter_mut().zip(of_flows()) {
        if lasting(spec) {
            let skipped = (flow.start_s / series.interval_s) as usize;
            let since_start = series.values.get(skipped..).unwrap_or_default();
            let (window, tolerance) = CONVERGENCE;
            let reached = metrics::convergence(
                since_start,
                metrics::Convergence {
                    interval: Duration::from_secs_f64(series.interval_s),
                    window,
                    fair,
                    tolerance,
                },
            );
            flow.convergence_s = reached.map(|at| seconds(Instant::ZERO, at));
        }
    }
}

fn link_report<P: Packet + Clone>(name: &str, link: &Link<P>, now: Instant) -> LinkReport {
    let stats = link.stats();
    let time = now.saturating_since(stats.since);
    LinkReport {
        name: name.to_owned(),
        utilisation: link
            .rate()
            .and_then(|rate| metrics::utilisation(stats.transmitted_bytes, rate, time))
            .unwrap_or(0.0),
        packets: stats.packets_in,
        drops: stats.drops,
        drop_rate: metrics::drop_rate(stats.drops.total(), stats.packets_in).unwrap_or(0.0),
        marked: stats.marked,
        queue: queue_report(stats, now),
    }
}

fn queue_report(stats: &LinkStats, now: Instant) -> QueueReport {
    let lengths = stats.occupancy.until(now);
    let any = stats.transmitted > 0;
    QueueReport {
        mean_packets: lengths.mean_packets(),
        mean_bytes: lengths.mean_bytes(),
        p50_packets: lengths.quantile_packets(0.5) as f64,
        p95_packets: lengths.quantile_packets(0.95) as f64,
        p99_packets: lengths.quantile_packets(0.99) as f64,
        max_packets: stats.queue_peak_packets,
        sojourn_mean_s: any.then(|| stats.sojourn_mean().as_secs_f64()),
        sojourn_p95_s: any.then(|| stats.sojourn_quantile(0.95).as_secs_f64()),
        sojourn_max_s: any.then(|| stats.sojourn_max().as_secs_f64()),
    }
}

/// Bits a second in each interval, of bytes counted up to its end.
fn rates(totals: &[u64], interval_s: f64) -> Vec<f64> {
    let before = std::iter::once(0).chain(totals.iter().copied());
    let rate = |(now, before): (&u64, u64)| per((now - before) as f64 * 8.0, interval_s);
    totals.iter().zip(before).map(rate).collect()
}

fn series(scenario: &Scenario, simulation: &Simulation) -> Vec<Series> {
    let samples = simulation.samples();
    let interval_s = samples.interval.as_secs_f64();
    let mut series = Vec::new();
    for (flow, delivered) in scenario.flows.iter().zip(&samples.delivered) {
        series.push(Series {
            name: flow.name.clone(),
            quantity: "goodput_bps".into(),
            interval_s,
            values: rates(delivered, interval_s),
        });
    }
    for (id, samples) in &samples.links {
        let name = &scenario.links[id.0 as usize].name;
        let queued = samples.iter().map(|s| s.queued as f64);
        series.push(Series {
            name: name.clone(),
            quantity: "queue_packets".into(),
            interval_s,
            values: queued.collect(),
        });
        let rates = samples
            .iter()
            .map(|sample| share(sample.dropped, sample.packets_in));
        series.push(Series {
            name: name.clone(),
            quantity: "drop_rate".into(),
            interval_s,
            values: rates.collect(),
        });
    }
    series
}

/// UDP sends what it was told to, whatever the network does: fairness is not asked of it.
fn responds(spec: &FlowSpec) -> bool {
    !matches!(spec.protocol, ProtocolSpec::Udp(_))
}

fn summary(
    scenario: &Scenario,
    simulation: &Simulation,
    flows: &[FlowReport],
    links: &[LinkReport],
) -> RunSummary {
    let responsive = || {
        scenario
            .flows
            .iter()
            .zip(flows)
            .filter(|(s, _)| responds(s))
    };
    let goodputs: Vec<f64> = responsive().map(|(_, f)| f.goodput_bps).collect();
    // Of each flow the throughput after the warm-up and its own start: what arrives, as in (3) and (4)
    // of the Chameleon paper. An application that reads slowly smooths what it is given.
    let samples = simulation.samples();
    let interval_s = samples.interval.as_secs_f64();
    let running = |spec: &FlowSpec, arrived: &[u64]| {
        let begin = seconds(Instant::ZERO, spec.start.max(simulation.warm_since()));
        let skip = (begin / interval_s).ceil() as usize;
        rates(arrived, interval_s).split_off(skip.min(arrived.len()))
    };
    let running: Vec<Vec<f64>> = scenario
        .flows
        .iter()
        .zip(&samples.arrived)
        .filter(|(spec, _)| responds(spec))
        .map(|(spec, arrived)| running(spec, arrived))
        .collect();
    RunSummary {
        jain: metrics::jain(&goodputs),
        utilisation: links.iter().map(|l| l.utilisation).fold(0.0, f64::max),
        events: simulation.events(),
        packets: flows.iter().map(|f| f.packets_sent).sum(),
        simulated_s: seconds(Instant::ZERO, simulation.now()),
        stability: metrics::stability(&running),
        friendliness: friendliness(scenario, flows),
    }
}

/// Mean throughput of the flows that are not TCP against that of those that are.
fn friendliness(scenario: &Scenario, flows: &[FlowReport]) -> Option<f64> {
    let rates = |tcp: bool| -> Vec<f64> {
        scenario
            .flows
            .iter()
            .zip(flows)
            .filter(|(spec, _)| responds(spec))
            .filter(|(spec, _)| matches!(spec.protocol, ProtocolSpec::Tcp(_)) == tcp)
            .map(|(_, flow)| flow.throughput_bps)
            .collect()
    };
    metrics::friendliness(&rates(false), &rates(true))
}
