//! Runs a scenario: builds its network, lets time pass, reports what was measured.

use std::collections::BTreeMap;
use std::sync::Arc;

use dfcp_proto::{Duration, Instant, Profile, SchemeId, TransportConfig};

use crate::engine::{
    DfcpConfig, DfcpPayload, FlowConfig, Lengths, LinkId, Network, NetworkError, Observer,
    Simulation, Traffic, UdpConfig, UdpPattern,
};
use crate::link::{GilbertElliott, LinkConfig, LinkRate, LossModel, RateTrace};
use crate::queue::{
    CoDelConfig, Discipline, DropFrom, DrrConfig, FqCoDelConfig, Limit, QueueConfig, RedConfig,
    SfqConfig, WfqConfig,
};
use crate::report::RunReport;
use crate::scenario::{
    CodeSpec, ControlSpec, DfcpSpec, DisciplineSpec, DropSpec, EndSpec, FlowSpec, LimitSpec,
    LinkParams, LossSpec, OnOffDistribution, PayloadSpec, ProfileSpec, ProtocolSpec, QueueSpec,
    RateSpec, Scenario, UdpSpec,
};

mod measure;
mod tcp;

/// How often a run that ends when its flows are done looks whether they are.
const LOOK: Duration = Duration::from_millis(10);

/// Runs a scenario to its end.
///
/// # Errors
/// What the scenario asks for and the network cannot be.
pub fn run(scenario: &Scenario) -> Result<RunReport, NetworkError> {
    run_observed(scenario, None, &mut |_| ())
}

/// As [`run`]: `observer` sees every packet of the hosts, and `progress` hears of the time reached
/// about a hundred times.
///
/// # Errors
/// As [`run`].
pub fn run_observed(
    scenario: &Scenario,
    observer: Option<Observer>,
    progress: &mut dyn FnMut(Instant),
) -> Result<RunReport, NetworkError> {
    let mut simulation = build(scenario)?;
    if let Some(observer) = observer {
        simulation.observe(observer);
    }
    let end = Instant::ZERO + scenario.run.duration;
    let steps = (scenario.run.duration / 100).max(LOOK);
    let step = match scenario.run.end {
        EndSpec::Duration => steps,
        EndSpec::Finished => LOOK,
    };
    while simulation.now() < end {
        simulation.run_until((simulation.now() + step).min(end));
        progress(simulation.now());
        if scenario.run.end == EndSpec::Finished && simulation.all_finished() {
            break;
        }
    }
    Ok(measure::report(scenario, &simulation))
}

/// Builds the network of a scenario, at time zero.
///
/// # Errors
/// As [`run`].
pub fn build(scenario: &Scenario) -> Result<Simulation, NetworkError> {
    let mut network = Network::new(scenario.run.seed.0);
    let classes = Classes::of(scenario);
    let mut links = Vec::new();
    for link in &scenario.links {
        let config = link_config(&link.name, &link.params)?;
        let id = network.add_link(&link.name, config);
        network.set_weights(id, classes.weights_at(&link.params.queue));
        links.push(id);
    }
    let route = |indices: &[crate::scenario::LinkIndex]| -> Vec<LinkId> {
        indices.iter().map(|i| LinkId(i.0 as u32)).collect()
    };
    for flow in &scenario.flows {
        network.add_flow(FlowConfig {
            name: flow.name.clone(),
            class: classes.number(&flow.class),
            forward: route(&flow.forward),
            backward: route(&flow.backward),
            start: flow.start,
            stop: flow.stop,
            size: flow.size,
            traffic: traffic(flow),
        });
    }
    for change in &scenario.changes {
        let name = &scenario.links[change.link.0].name;
        let link = LinkId(change.link.0 as u32);
        network.change_link(change.at, link, link_config(name, &change.params)?);
    }
    if !scenario.run.warmup.is_zero() {
        network.warm_up_until(Instant::ZERO + scenario.run.warmup);
    }
    if let Some(interval) = scenario.run.sample {
        network.sample(interval, &links);
    }
    network.build()
}

/// The classes of a scenario, numbered by their names, and their weights as integers.
struct Classes {
    numbers: BTreeMap<String, u32>,
    weights: BTreeMap<String, f64>,
}

impl Classes {
    fn of(scenario: &Scenario) -> Self {
        let weights: BTreeMap<_, _> = scenario
            .flows
            .iter()
            .map(|flow| (flow.class.clone(), flow.weight))
            .collect();
        let numbers = weights.keys().cloned().zip(0..).collect();
        Self { numbers, weights }
    }

    fn number(&self, class: &str) -> u32 {
        self.numbers.get(class).copied().unwrap_or(0)
    }

    /// The weight of every class at a queue, in order of their numbers, as small integers in
    /// their proportion.
    fn weights_at(&self, queue: &QueueSpec) -> Vec<u32> {
        let weights: Vec<f64> = self
            .weights
            .iter()
            .map(|(class, own)| queue.weights.get(class).copied().unwrap_or(*own))
            .collect();
        integer_weights(&weights)
    }
}

/// Integers in the proportion of `weights`, within 1 %, the smallest that are: DRR's quantum is
/// multiplied by them, and a long turn is a burst.
fn integer_weights(weights: &[f64]) -> Vec<u32> {
    let least = weights.iter().copied().fold(f64::INFINITY, f64::min);
    let scaled = |n: f64| weights.iter().map(move |w| w / least * n);
    let fits = |n: &u32| scaled(f64::from(*n)).all(|w| (w - w.round()).abs() <= 0.01 * w);
    let n = (1..100).find(fits).unwrap_or(100);
    scaled(f64::from(n)).map(|w| w.round() as u32).collect()
}

fn link_config(name: &str, params: &LinkParams) -> Result<LinkConfig, NetworkError> {
    let rate = match &params.rate {
        RateSpec::Unlimited => LinkRate::Unlimited,
        RateSpec::Constant(rate) => LinkRate::Constant(*rate),
        RateSpec::Trace(trace) => {
            let parsed = RateTrace::parse(&trace.text).map_err(|error| NetworkError::Link {
                name: name.to_owned(),
                error: error.into(),
            })?;
            LinkRate::Trace(Arc::new(parsed))
        }
    };
    Ok(LinkConfig {
        rate,
        delay: params.delay,
        queue: queue_config(&params.queue),
        mtu: Some(params.mtu),
        framing: params.framing,
        loss: match &params.loss {
            LossSpec::None => LossModel::None,
            LossSpec::Bernoulli(p) => LossModel::Bernoulli(*p),
            &LossSpec::GilbertElliott {
                p_good_to_bad,
                p_bad_to_good,
                loss_good,
                loss_bad,
            } => LossModel::GilbertElliott(GilbertElliott {
                good_to_bad: p_good_to_bad,
                bad_to_good: p_bad_to_good,
                loss_good,
                loss_bad,
            }),
            LossSpec::Trace(marks) => LossModel::Trace(marks.clone()),
            LossSpec::Mask(marks) => LossModel::Mask(marks.clone()),
        },
        jitter: params.jitter,
        reorder: params.reorder,
        reorder_delay: params.reorder_delay,
        duplicate: params.duplicate,
        corrupt: params.corrupt,
        ecn_threshold: params.ecn_threshold,
    })
}

fn queue_config(queue: &QueueSpec) -> QueueConfig {
    let drop_from = |drop: DropSpec| match drop {
        DropSpec::Head => DropFrom::Head,
        DropSpec::Tail => DropFrom::Tail,
    };
    let discipline = match queue.discipline {
        DisciplineSpec::Fifo => Discipline::Fifo,
        DisciplineSpec::Drr { quantum, drop } => Discipline::Drr(DrrConfig {
            quantum,
            drop_from: drop_from(drop),
        }),
        DisciplineSpec::Wfq { drop } => Discipline::Wfq(WfqConfig {
            drop_from: drop_from(drop),
        }),
        DisciplineSpec::Sfq {
            buckets,
            quantum,
            perturb,
            drop,
        } => Discipline::Sfq(SfqConfig {
            buckets,
            quantum,
            perturb,
            drop_from: drop_from(drop),
        }),
        DisciplineSpec::Red {
            min_threshold,
            max_threshold,
            max_probability,
            weight,
            gentle,
            ecn,
        } => Discipline::Red(RedConfig {
            min_threshold,
            max_threshold,
            max_probability,
            weight,
            gentle,
            ecn,
            ..RedConfig::default()
        }),
        DisciplineSpec::CoDel {
            target,
            interval,
            ecn,
        } => Discipline::CoDel(CoDelConfig {
            target,
            interval,
            ecn,
        }),
        DisciplineSpec::FqCoDel {
            buckets,
            quantum,
            target,
            interval,
            ecn,
        } => Discipline::FqCoDel(FqCoDelConfig {
            codel: CoDelConfig {
                target,
                interval,
                ecn,
            },
            buckets,
            quantum,
        }),
    };
    QueueConfig {
        discipline,
        limit: match queue.limit {
            LimitSpec::Packets(n) => Limit::Packets(usize::try_from(n).unwrap_or(usize::MAX)),
            LimitSpec::Bytes(n) => Limit::Bytes(n),
            LimitSpec::Unlimited => Limit::Unlimited,
        },
    }
}

fn traffic(flow: &FlowSpec) -> Traffic {
    match &flow.protocol {
        ProtocolSpec::Tcp(spec) => Traffic::Tcp(tcp::config(spec)),
        ProtocolSpec::Udp(spec) => Traffic::Udp(udp(spec)),
        ProtocolSpec::Dfcp(spec) => Traffic::Dfcp(Box::new(dfcp(spec))),
    }
}

fn udp(spec: &UdpSpec) -> UdpConfig {
    let pattern = match spec.on_off {
        None => UdpPattern::Constant,
        Some(s) => UdpPattern::OnOff {
            on: s.on,
            off: s.off,
            lengths: match s.distribution {
                OnOffDistribution::Constant => Lengths::Constant,
                OnOffDistribution::Exponential => Lengths::Exponential,
                OnOffDistribution::Pareto(shape) => Lengths::Pareto(shape),
            },
        },
    };
    UdpConfig {
        rate: spec.rate,
        packet: spec.packet,
        pattern,
    }
}

fn dfcp(spec: &DfcpSpec) -> DfcpConfig {
    let mut profile = match spec.profile {
        ProfileSpec::Auto => Profile::auto(),
    };
    let scheme = match spec.code {
        CodeSpec::Profile => profile.scheme,
        CodeSpec::Arq => SchemeId::Arq,
        CodeSpec::Dense => SchemeId::Dense,
        CodeSpec::RaptorQ => SchemeId::RaptorQ,
    };
    profile = profile.with_scheme(scheme, spec.block_symbols.unwrap_or(0));
    profile = match spec.control {
        ControlSpec::Profile => profile,
        ControlSpec::Fixed(rate) => profile.with_fixed_rate(rate),
        ControlSpec::LineRate => profile.with_max_rate(),
    };
    let block_symbols = profile.block_symbols;
    let transport = TransportConfig::default()
        .profile(profile)
        .mtu(spec.mtu)
        .receive_budget(spec.receive_budget)
        .send_buffer(spec.send_buffer);
    DfcpConfig {
        client: transport.clone(),
        server: transport,
        block_symbols,
        payload: match spec.payload {
            PayloadSpec::Virtual => DfcpPayload::Virtual,
            PayloadSpec::Real => DfcpPayload::Real,
        },
        coding_rate: spec.coding_rate,
    }
}

#[cfg(test)]
mod tests {
    use super::integer_weights;

    #[test]
    fn weights_become_the_smallest_integers_in_proportion() {
        assert_eq!(integer_weights(&[0.3, 0.7]), [3, 7]);
        assert_eq!(integer_weights(&[1.0, 1.0, 1.0]), [1, 1, 1]);
        assert_eq!(integer_weights(&[2.0, 8.0]), [1, 4]);
        let irrational = integer_weights(&[1.0, std::f64::consts::PI]);
        let ratio = f64::from(irrational[1]) / f64::from(irrational[0]);
        assert!((ratio / std::f64::consts::PI - 1.0).abs() < 0.01);
        assert!(integer_weights(&[]).is_empty());
    }
}
