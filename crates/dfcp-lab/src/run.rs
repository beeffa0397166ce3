//! Runs a scenario for real: its network on the real clock, real senders and receivers in its
//! hosts, and the report that a simulation of it would give.
//!
//! The figures have the simulator's definitions: what entered and left the network is counted by
//! the network itself, what was delivered by the receivers. A run that was not true to the
//! scenario's network says so ([`Validity`]).

use std::time::Instant as Wall;

use dfcp_proto::Duration;
use dfcp_sim::metrics;
use dfcp_sim::report::{FlowReport, RunReport};
use dfcp_sim::scenario::{EndSpec, FlowSpec, ProtocolSpec, Scenario};
use dfcp_sim::tcp::Congestion;

use crate::lab::{
    FlowPorts, Lab, LabError, LabOptions, LabStats, Tools, is_ordered, wants_controller,
};
use crate::net::process::HostProcess;
use crate::path::clock::monotonic_ns;
use crate::worker::{
    self, DfcpJob, FlowSource, Job, Load, Received, Report, Sent, Side, Sink, TcpSource, UdpLoad,
    UdpSource,
};

/// A scenario to be run.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// Where the files are that it refers to.
    pub directory: &'a std::path::Path,
    /// Which addresses the flows use.
    pub family: Family,
}

/// Which addresses flows use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// IPv4, whose headers the simulator counts.
    #[default]
    Ipv4,
    /// IPv6: 20 bytes more a packet.
    Ipv6,
}

/// What a run for real gave.
#[derive(Clone, Debug, Default)]
pub struct RealRun {
    /// The simulator's figures. Of a flow that did not run all are zero.
    pub report: RunReport,
    /// What went wrong with each flow, if something did.
    pub failures: Vec<Option<String>>,
    /// How true the network was.
    pub validity: Validity,
}

/// How true a run's network was to its scenario.
#[derive(Clone, Debug, Default)]
pub struct Validity {
    /// Why the run does not count; none if it does.
    pub reasons: Vec<String>,
    /// Lateness of packets: the median.
    pub late_p50: Duration,
    /// What 99 % did not exceed.
    pub late_p99: Duration,
    /// The latest.
    pub late_max: Duration,
    /// Packets that were lost between kernel and path.
    pub lost_at_ports: u64,
    /// Packets of no flow.
    pub strange: u64,
    /// Processor time of the path's thread for each second.
    pub cpu_share: f64,
    /// Share of the time that the sender or receiver which waited longest for a processor did so.
    pub waited_share: f64,
}

/// Time in which servers start, before the scenario's time zero.
const LEAD_IN: Duration = Duration::from_secs(1);
/// More of it for each flow.
const LEAD_IN_PER_FLOW: Duration = Duration::from_millis(50);

/// More of it for a controller, to learn the network: it sends frames over each link at once, and again
/// every quarter of a second.
const LEARNING: Duration = Duration::from_secs(4);

/// How long after the run's end workers may take to end.
const GRACE: Duration = Duration::from_secs(5);

/// How long the ends of a flow may take to end by themselves.
const FAREWELL: Duration = Duration::from_millis(1500);

/// Runs a scenario; takes as long as it says.
///
/// # Errors
/// What the machine does not allow. What goes wrong with a flow is in the result.
pub fn run(plan: Plan<'_>) -> Result<RealRun, LabError> {
    let scenario = plan.scenario;
    let options = |more| LabOptions {
        lead_in: lead_in(scenario, more),
        ..LabOptions::default()
    };
    let tools = wants_controller(scenario).then(Tools::find).transpose();
    let (lab, no_orders) = match tools {
        Ok(Some(tools)) => {
            let options = options(LEARNING);
            (Lab::start_switched(scenario, &options, &tools)?, None)
        }
        Ok(None) => (Lab::start(scenario, &options(Duration::ZERO))?, None),
        Err(missing) => (
            Lab::start(scenario, &options(Duration::ZERO))?,
            Some(missing),
        ),
    };
    let times = Times::of(&lab, scenario);
    let jobs = Jobs {
        plan,
        lab: &lab,
        times,
        no_orders,
    };
    let mut flows: Vec<_> = (0..scenario.flows.len())
        .map(|flow| jobs.start(flow))
        .collect();
    let mut failures: Vec<_> = flows.iter().map(|f| f.as_ref().err().cloned()).collect();
    if monotonic_ns() > times.epoch_ns {
        failures.fill(Some("this machine was too slow to start in time".into()));
    }
    let ended_ns = wait_for_end(scenario, times, &mut flows);
    let at_end = lab.measure();
    wind_up(&mut flows);
    let deadline = Wall::now() + GRACE;
    let reports: Vec<_> = flows
        .into_iter()
        .map(|flow| collect(flow, deadline))
        .collect();
    let stats = lab.stop()?;
    let mut report = at_end;
    for (flow, (spec, outcome)) in scenario.flows.iter().zip(&reports).enumerate() {
        match outcome {
            Ok((received, sent)) => {
                let moments = Moments::of(scenario, spec, times, ended_ns, received);
                fill_in(&mut report.flows[flow], spec, received, sent, moments);
                fill_series(&mut report, flow, received, times);
            }
            Err(reason) => {
                failures[flow].get_or_insert(reason.clone());
            }
        }
    }
    summarise(scenario, &mut report);
    let waited = reports.iter().flatten();
    let waited = waited.map(|(received, sent)| received.waited_ns.max(sent.waited_ns));
    let elapsed = ended_ns.saturating_sub(times.epoch_ns);
    let waited = seconds(0, waited.max().unwrap_or(0)) / seconds(0, elapsed).max(1e-9);
    Ok(RealRun {
        report,
        failures,
        validity: Validity::of(scenario, &stats).with_waiting(waited),
    })
}

fn lead_in(scenario: &Scenario, more: Duration) -> Duration {
    let needed = more + LEAD_IN + LEAD_IN_PER_FLOW * scenario.flows.len() as u32;
    match scenario.run.sample {
        // Whole samples, so that they can be left out.
        Some(sample) if !sample.is_zero() => {
            sample * needed.as_nanos().div_ceil(sample.as_nanos()) as u32
        }
        _ => needed,
    }
}

/// Times of a run, nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug)]
struct Times {
    epoch_ns: u64,
    end_ns: u64,
}

impl Times {
    fn of(lab: &Lab, scenario: &Scenario) -> Self {
        let epoch_ns = lab.epoch_ns();
        Self {
            epoch_ns,
            end_ns: epoch_ns + scenario.run.duration.as_nanos() as u64,
        }
    }
}

/// Starts what flows need.
struct Jobs<'a> {
    plan: Plan<'a>,
    lab: &'a Lab,
    times: Times,
    /// Why there is no controller for those who want one.
    no_orders: Option<String>,
}

/// The two ends of a flow.
struct Running {
    source: HostProcess,
    sink: HostProcess,
    sized: bool,
}

impl Jobs<'_> {
    fn start(&self, flow: usize) -> Result<Running, String> {
        let spec = &self.plan.scenario.flows[flow];
        check(self.plan.scenario, spec)?;
        let ordered = is_ordered(spec);
        if let (true, Some(missing)) = (ordered, &self.no_orders) {
            return Err(missing.clone());
        }
        let (source, sink) = self.lab.flow_hosts(flow);
        let address = |host: &crate::Host| match self.plan.family {
            Family::Ipv4 => host.ipv4().into(),
            Family::Ipv6 => host.ipv6().into(),
        };
        let server = (address(sink), FlowPorts::of(flow).server).into();
        let time = self.time(spec);
        let until_ns = self.times.end_ns + GRACE.as_nanos() as u64 / 2;
        let flow_source = FlowSource {
            scenario: self.plan.scenario.to_toml_with_defaults().to_owned(),
            directory: self.plan.directory.to_owned(),
            flow,
        };
        let our_end = |own, stop_ns| DfcpJob {
            server,
            own,
            flow: flow_source.clone(),
            time: Side { stop_ns, ..time },
            controller: ordered.then(|| self.lab.controller(source)).flatten(),
        };
        let listening = Sink {
            listen: server,
            until_ns,
            output: None,
        };
        let (takes, gives) = match &spec.protocol {
            ProtocolSpec::Tcp(tcp) => (
                Job::TcpSink(listening),
                Job::TcpSource(TcpSource {
                    connect: server,
                    congestion: Some(kernel_name(&tcp.sender.congestion).into()),
                    load: spec.size.map_or(Load::Endless, Load::Bytes),
                    time,
                }),
            ),
            ProtocolSpec::Udp(_) => (
                Job::UdpSink(listening),
                Job::UdpSource(UdpSource {
                    connect: server,
                    load: UdpLoad::Flow(flow_source),
                    time,
                }),
            ),
            _ => (
                Job::DfcpSink(our_end(address(sink), until_ns)),
                Job::DfcpSource(our_end(address(source), time.stop_ns)),
            ),
        };
        let spawn = |host, job: &Job| {
            let command = worker::command(host, job).map_err(|error| error.to_string())?;
            command.spawn().map_err(|error| error.to_string())
        };
        let mut sink = spawn(sink, &takes)?;
        worker::wait_ready(&mut sink, Wall::now() + GRACE)?;
        Ok(Running {
            source: spawn(source, &gives)?,
            sink,
            sized: spec.size.is_some(),
        })
    }

    fn time(&self, spec: &FlowSpec) -> Side {
        let at = |at: dfcp_proto::Instant| self.times.epoch_ns + at.as_nanos();
        let stop_ns = spec.stop.map_or(self.times.end_ns, at);
        Side {
            start_ns: at(spec.start),
            stop_ns: stop_ns.min(self.times.end_ns),
        }
    }
}

/// The kernel's name of a congestion control.
pub fn kernel_name(congestion: &Congestion) -> &'static str {
    match congestion {
        Congestion::Reno => "reno",
        Congestion::Cubic(_) => "cubic",
        Congestion::HighSpeed => "highspeed",
        Congestion::HTcp => "htcp",
        Congestion::Bbr => "bbr",
    }
}

/// Waits until the run is over; says when that was.
fn wait_for_end(scenario: &Scenario, times: Times, flows: &mut [Result<Running, String>]) -> u64 {
    let over = |flow: &Result<Running, String>| match flow {
        Ok(flow) => !flow.sized || flow.source.is_over(),
        Err(_) => true,
    };
    // Nothing can come any more of flows whose both ends are gone.
    let dead = |flow: &Result<Running, String>| match flow {
        Ok(flow) => flow.source.is_over() && flow.sink.is_over(),
        Err(_) => true,
    };
    loop {
        let now = monotonic_ns();
        let early = scenario.run.end == EndSpec::Finished && flows.iter().all(over);
        if now >= times.end_ns || early || flows.iter().all(dead) {
            return now.min(times.end_ns);
        }
        worker::sleep_until((now + 10_000_000).min(times.end_ns));
    }
}

/// Lets all ends of flows come to their ends: senders first, then receivers, which can know that
/// nothing more comes.
fn wind_up(flows: &mut [Result<Running, String>]) {
    let ends: [fn(&mut Running) -> &mut HostProcess; 2] = [|f| &mut f.source, |f| &mut f.sink];
    for end in ends {
        let deadline = Wall::now() + FAREWELL;
        for flow in flows.iter_mut().flatten() {
            let process = end(flow);
            if !process.ends_by(deadline) {
                process.terminate();
            }
        }
    }
}

/// What the two ends of a flow report.
fn collect(flow: Result<Running, String>, deadline: Wall) -> Result<(Received, Sent), String> {
    let flow = flow?;
    let sent = flow.source.wait(deadline);
    let received = flow.sink.wait(deadline);
    let sent = match worker::report(&sent) {
        Ok(Report::Sent(sent)) => sent,
        Ok(_) => return Err("the sender reports something else".into()),
        Err(error) => return Err(format!("the sender: {error}")),
    };
    match worker::report(&received) {
        Ok(Report::Received(received)) => Ok((received, sent)),
        Ok(_) => Err("the receiver reports something else".into()),
        Err(error) => Err(format!("the receiver: {error}")),
    }
}

/// When a flow's figures begin and end, nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug)]
struct Moments {
    start: u64,
    begin: u64,
    end: u64,
    finished: Option<u64>,
}

impl Moments {
    fn of(
        scenario: &Scenario,
        spec: &FlowSpec,
        times: Times,
        ended_ns: u64,
        received: &Received,
    ) -> Self {
        let at = |at: dfcp_proto::Instant| times.epoch_ns + at.as_nanos();
        let warm = times.epoch_ns + scenario.run.warmup.as_nanos() as u64;
        let finished = spec
            .size
            .filter(|size| received.bytes >= *size)
            .map(|_| received.last_ns);
        let ends = [spec.stop.map(at), finished, Some(ended_ns)];
        Self {
            start: at(spec.start),
            begin: at(spec.start).max(warm),
            end: ends.into_iter().flatten().min().unwrap_or(ended_ns),
            finished,
        }
    }
}

fn seconds(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1e9
}

/// Fills in what only the hosts know.
fn fill_in(
    report: &mut FlowReport,
    spec: &FlowSpec,
    received: &Received,
    sent: &Sent,
    moments: Moments,
) {
    let counted = received
        .bytes_at(moments.end)
        .saturating_sub(received.bytes_at(moments.begin.saturating_sub(1)));
    let time = seconds(moments.begin, moments.end);
    if time > 0.0 {
        report.goodput_bps = counted as f64 * 8.0 / time;
    }
    report.bytes = received.bytes_at(moments.finished.unwrap_or(moments.end));
    report.fct_s = moments.finished.map(|at| seconds(moments.start, at));
    report.finished = moments.finished.is_some();
    report.overhead = metrics::overhead(report.bytes_sent, report.bytes);
    report.rtt_mean_s = sent.rtt_ns.map(|ns| ns as f64 / 1e9);
    report.packets_retransmitted = sent.repairs;
    report.start_s = spec.start.as_nanos() as f64 / 1e9;
    report.excess = None;
    report.block_time_s = None;
}

/// The flow's time series, which the network does not know.
fn fill_series(report: &mut RunReport, flow: usize, received: &Received, times: Times) {
    let Some(series) = report.series.get_mut(flow) else {
        return;
    };
    let step = (series.interval_s * 1e9) as u64;
    let until = |sample: usize| received.bytes_at(times.epoch_ns + (sample as u64 + 1) * step);
    let mut before = 0;
    for (sample, value) in series.values.iter_mut().enumerate() {
        let bytes = until(sample);
        *value = (bytes - before) as f64 * 8.0 / series.interval_s;
        before = bytes;
    }
}

/// Figures of the whole run that hang on what was delivered.
fn summarise(scenario: &Scenario, report: &mut RunReport) {
    let responds = |spec: &FlowSpec| !matches!(spec.protocol, ProtocolSpec::Udp(_));
    let flows = scenario.flows.iter().zip(&report.flows);
    let goodputs: Vec<_> = flows
        .filter(|(spec, _)| responds(spec))
        .map(|(_, flow)| flow.goodput_bps)
        .collect();
    report.summary.jain = metrics::jain(&goodputs);
    report.summary.stability = None;
    report.summary.simulated_s = scenario.run.duration.as_secs_f64();
}

/// A path whose packets are late by more than this share of the shortest round trip, and by more
/// than [`ALWAYS_IN_TIME`], is another path.
const LATE_SHARE: f64 = 0.05;
/// Lateness that no transport notices.
const ALWAYS_IN_TIME: Duration = Duration::from_micros(500);
/// Share of the time that programs may wait for a processor.
const WAITED_SHARE: f64 = 0.2;
/// Share of the packets that may be lost between kernel and path.
const LOST_SHARE: f64 = 1e-4;

impl Validity {
    /// Of what a lab measured.
    pub fn of(scenario: &Scenario, stats: &LabStats) -> Self {
        let Some(path) = &stats.path else {
            return Self::default();
        };
        let sum = |of: fn(&crate::path::PortStats) -> u64| path.ports.iter().map(of).sum::<u64>();
        let lost = sum(|port| port.overflowed + port.refused);
        let packets = sum(|port| port.received);
        let shortest = scenario.flows.iter().map(|flow| scenario.rtt(flow)).min();
        let bound = shortest.unwrap_or_default().mul_f64(LATE_SHARE);
        let bound = bound.max(ALWAYS_IN_TIME);
        let mut validity = Self {
            reasons: Vec::new(),
            late_p50: path.lateness.quantile(0.5),
            late_p99: path.lateness.quantile(0.99),
            late_max: path.lateness.max(),
            lost_at_ports: lost,
            strange: sum(|port| port.strange),
            waited_share: 0.0,
            cpu_share: path.cpu.as_secs_f64() / path.elapsed.as_secs_f64().max(1e-9),
        };
        if validity.late_p99 > bound {
            validity.reasons.push(format!(
                "one packet in a hundred was more than {:?} late; {bound:?} is allowed",
                validity.late_p99
            ));
        }
        if lost as f64 > packets as f64 * LOST_SHARE {
            validity.reasons.push(format!(
                "{lost} of {packets} packets were lost between the kernel and the path"
            ));
        }
        validity
    }

    /// The same of programs that waited for a processor for this share of the time.
    fn with_waiting(mut self, share: f64) -> Self {
        self.waited_share = share;
        if share > WAITED_SHARE {
            self.reasons.push(format!(
                "a sender or receiver waited for a processor for {:.0} % of the time",
                share * 100.0
            ));
        }
        self
    }

    /// Whether the run counts.
    pub fn is_valid(&self) -> bool {
        self.reasons.is_empty()
    }
}

/// The congestion controls that this kernel offers.
pub fn congestion_controls() -> Vec<String> {
    let offered = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let offered = std::fs::read_to_string(offered).unwrap_or_default();
    offered.split_whitespace().map(ToOwned::to_owned).collect()
}

/// Whether a flow can run for real here.
///
/// # Errors
/// Why it cannot: a sentence.
pub(crate) fn check(scenario: &Scenario, flow: &FlowSpec) -> Result<(), String> {
    worker::on_a_real_path(scenario, flow)?;
    if let ProtocolSpec::Tcp(tcp) = &flow.protocol {
        let name = kernel_name(&tcp.sender.congestion);
        let offered = congestion_controls();
        // Where the list cannot be read, the attempt will tell.
        if !offered.is_empty() && !offered.iter().any(|other| other == name) {
            return Err(format!(
                "this kernel has no congestion control {name:?}: it offers {}",
                offered.join(", ")
            ));
        }
    }
    Ok(())
}
