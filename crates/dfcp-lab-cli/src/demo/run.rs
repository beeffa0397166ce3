//! `dfcp demo`: a real transfer over an emulated path, and the kernel's TCP over the same path.

use std::process::ExitCode;
use std::time::Duration;

use dfcp::Rate;
use dfcp_command::{
    Failure, Kind, Profile, beside, block_on, fail, interrupted, print_json_or_end, units,
};
use serde::Serialize;

use super::path::PathConfig;
use super::picture::{self, Line, Live};
use super::tcp::{self, Seen, TcpResult};
use super::transfer::{self, Load, Transfer};

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Print one JSON object on standard output
    #[arg(long)]
    json: bool,
    /// Rate of the path, each way, in bits per second
    #[arg(long, value_name = "BITS", default_value = "100M", value_parser = units::rate)]
    rate: Rate,
    /// Round-trip time of the idle path
    #[arg(long, value_name = "TIME", default_value = "60ms", value_parser = units::duration)]
    rtt: Duration,
    /// Share of the packets that is lost, each way
    #[arg(long, default_value = "5%", value_parser = units::share)]
    loss: f64,
    /// Bytes to send
    #[arg(long, value_name = "BYTES", default_value = "32M", value_parser = units::count)]
    size: u64,
    /// Packets that a queue of the path holds [default: one bandwidth-delay product]
    #[arg(long, value_name = "PACKETS")]
    queue: Option<usize>,
    /// Seed of the losses and of the bytes that are sent
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Transport; those of DFCP and RC-UDP send at the rate of the path
    #[arg(long, value_parser = dfcp_command::profile::parser(), default_value = "auto")]
    profile: Profile,
    /// Erasure code, as for `dfcp send`
    #[arg(long, default_value = "dense", conflicts_with = "profile")]
    code: String,
    /// With --json, run TCP too
    #[arg(long)]
    tcp: bool,
    /// Time that each TCP is given
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = units::duration)]
    tcp_time: Duration,
    /// Do not run TCP
    #[arg(long, conflicts_with = "tcp")]
    no_tcp: bool,
    /// More options for `dfcp send`
    #[arg(last = true, value_name = "OPTION")]
    options: Vec<String>,
}

impl Args {
    fn path(&self) -> PathConfig {
        let path = PathConfig::new(self.rate, self.rtt, self.loss, self.seed);
        PathConfig {
            queue_packets: self.queue.unwrap_or(path.queue_packets),
            ..path
        }
    }

    /// Share of a full packet that is payload: all but the headers of IP and UDP, and that of DFCP
    /// as published. (The others' own headers count as overhead of theirs.)
    fn payload_share(&self) -> f64 {
        match self.profile {
            Profile::Dfcp => (1472.0 - 24.0) / 1500.0,
            // One symbol of 1024 bytes a packet.
            Profile::RcUdp => 1024.0 / (1024.0 + 24.0 + 28.0),
            _ => UDP_SHARE,
        }
    }

    /// Payload that the path can carry at best: what is not lost, less headers.
    fn limit_bps(&self) -> f64 {
        (1.0 - self.loss) * self.rate.as_bps() as f64 * self.payload_share()
    }

    /// What `dfcp send` is told of the transport.
    fn send_options(&self) -> Vec<String> {
        let mut options = match self.profile {
            Profile::Auto => vec![format!("--code={}", self.code)],
            profile if profile.gives_way() => vec![format!("--profile={}", profile.name())],
            profile => {
                let rate = (self.rate.as_bps() as f64 * UDP_SHARE) as u64;
                let profile = profile.name();
                vec![
                    format!("--profile={profile}"),
                    format!("--fixed-rate={rate}"),
                ]
            }
        };
        options.extend_from_slice(&self.options);
        options
    }

    /// What the line of the transfer is called.
    fn name(&self) -> &'static str {
        match self.profile {
            Profile::Auto => "dfcp",
            Profile::Dfcp => "dfcp-2016",
            profile => profile.name(),
        }
    }

    /// Goodput after the first tenth of the bytes, unless those that were under way then are more than a
    /// twentieth of all: they seem to take no time, so that the whole transfer counts.
    fn steady_bps(&self, transfer: &Transfer) -> u64 {
        let under_way = self.rate.as_bps() as f64 / 8.0 * self.rtt.as_secs_f64();
        match self.size as f64 >= 20.0 * under_way {
            true => transfer.steady_bps,
            false => transfer.goodput_bps,
        }
    }

    /// Refuses paths and sizes that nothing can come of.
    fn check(&self) -> Result<(), Failure> {
        let why = match (self.loss, self.queue, self.size) {
            (1.0, ..) => "with --loss 100% nothing arrives: give less, such as --loss 20%",
            (_, Some(0), _) => {
                "with --queue 0 no packet waits for the path, and none passes: 1 or more"
            }
            (.., 0) => "--size 0 is nothing to send: give some bytes, such as --size 1M",
            _ => return Ok(()),
        };
        Err(Failure::usage(why))
    }

    /// What to expect of a transfer that takes longer than people wait for a demo.
    fn patience(&self) -> Option<String> {
        let minutes = self.size as f64 * 8.0 / self.limit_bps().max(1.0) / 60.0;
        let less = self.limit_bps() / 8.0 * DEMO.as_secs_f64();
        (minutes >= 1.0).then(|| {
            let size = units::bytes(less as u64);
            format!("this takes {minutes:.0} min at best; --size {less:.0} ({size}) takes {DEMO:?}")
        })
    }

    /// Long enough for everything but a transfer that stands still.
    fn time_limit(&self) -> Duration {
        let ideal = self.size as f64 * 8.0 / self.limit_bps().max(1.0);
        Duration::from_secs_f64((30.0 + 20.0 * ideal).min(86_400.0))
    }
}

/// What a demo may take, so that people see its end.
const DEMO: Duration = Duration::from_secs(20);

/// Share of a full packet that UDP carries.
const UDP_SHARE: f64 = 1472.0 / 1500.0;

/// What the demo prints as JSON.
#[derive(Debug, Serialize)]
struct Summary {
    rate_bps: u64,
    rtt_ms_path: f64,
    loss: f64,
    size: u64,
    queue_packets: usize,
    seed: u64,
    code: String,
    profile: &'static str,
    /// Goodput that the path allows at best.
    limit_bps: f64,
    /// Goodput after the first tenth of the bytes, of that limit.
    ratio: f64,
    /// Bytes sent, of those that the path would need at best.
    overhead: f64,
    #[serde(flatten)]
    transfer: Transfer,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp: Option<Tcp>,
}

/// What TCP did, or why it could not run.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Tcp {
    Results(Vec<TcpResult>),
    Unavailable { unavailable: String },
}

/// Runs the demo.
pub fn run(args: Args) -> ExitCode {
    if let Err(failure) = args.check() {
        return failed(&args, &failure);
    }
    let path = args.path();
    let load = Load {
        size: args.size,
        profile: args.profile,
        options: args.send_options(),
    };
    if !args.json {
        say(&heading(&args));
        args.patience().iter().for_each(|line| say(line));
        say(&picture::columns());
    }
    let mut live = Live::new(!args.json, args.limit_bps());
    let seen = |bytes| live.show(args.name(), bytes);
    let transfer = transfer::run(&path, &load, args.time_limit(), seen);
    let outcome = block_on(async {
        tokio::select! {
            transfer = transfer => transfer,
            failure = interrupted() => Err(failure),
        }
    });
    drop(live);
    let transfer = match outcome {
        Ok(transfer) => transfer,
        Err(failure) => return failed(&args, &failure),
    };
    if !args.json {
        say(&dfcp_line(&args, &transfer).text());
    }
    let tcp = match args.tcp || !(args.json || args.no_tcp) {
        true => match run_tcp(&args) {
            Ok(tcp) => Some(tcp),
            Err(failure) => return failed(&args, &failure),
        },
        false => None,
    };
    let ok = transfer.hash_ok;
    match args.json {
        true => print_json_or_end(&summary(&args, transfer, tcp)),
        false => conclude(&args, &transfer, tcp.as_ref()),
    }
    ExitCode::from(u8::from(!ok))
}

/// What it comes to, and what to do next.
fn conclude(args: &Args, transfer: &Transfer, tcp: Option<&Tcp>) {
    let mut lines = vec![dfcp_line(args, transfer)];
    if let Some(Tcp::Results(results)) = tcp {
        lines.extend(results.iter().map(|result| tcp_line(args, result)));
    }
    for line in picture::verdict(args.size, &lines) {
        say(&line);
    }
    busy(args.rtt, transfer.relay_p99_late_ms)
        .iter()
        .for_each(|line| say(line));
    let dfcp = beside::typed("dfcp");
    say(&format!("Your own files: {dfcp} cp FILE... HOST:"));
    say(&format!("A worse path:   {dfcp} demo --loss 20%"));
}

/// Share of the round trip that packets may be late by, as in `dfcp lab`: more is another path.
const LATE_SHARE: f64 = 0.05;

/// What is to be thought of figures of a machine that had no time for the path.
fn busy(rtt: Duration, late_ms: f64) -> Option<String> {
    (late_ms > rtt.as_secs_f64() * 1e3 * LATE_SHARE).then(|| {
        format!(
            "This machine was busy: one packet in a hundred left the path more than {late_ms:.0} ms late. On a \
             free one the figures are higher."
        )
    })
}

/// Prints a line. A reader that went away has what it wanted; where it cannot be written the demo ends, as
/// nobody would see it.
fn say(line: &str) {
    if let Err(failure) = dfcp_command::print(line) {
        fail(&failure);
        std::process::exit(failure.kind as i32);
    }
}

fn failed(args: &Args, failure: &Failure) -> ExitCode {
    if args.json {
        print_json_or_end(&serde_json::json!({ "error": failure }));
    }
    fail(failure);
    match failure.kind {
        Kind::Usage => failure.exit_code(),
        kind if kind.is_interruption() => failure.exit_code(),
        _ => ExitCode::FAILURE,
    }
}

fn summary(args: &Args, transfer: Transfer, tcp: Option<Tcp>) -> Summary {
    let path = args.path();
    let ideal = transfer.useful_bytes as f64 / args.payload_share() / (1.0 - args.loss);
    Summary {
        rate_bps: args.rate.as_bps(),
        rtt_ms_path: args.rtt.as_secs_f64() * 1e3,
        loss: args.loss,
        size: args.size,
        queue_packets: path.queue_packets,
        seed: args.seed,
        code: args.code.clone(),
        profile: args.profile.name(),
        limit_bps: args.limit_bps(),
        ratio: args.steady_bps(&transfer) as f64 / args.limit_bps(),
        overhead: transfer.wire_bytes as f64 / ideal,
        transfer,
        tcp,
    }
}

/// Runs TCP, bounded: on bad paths it would take hours.
fn run_tcp(args: &Args) -> Result<Tcp, Failure> {
    let mut live = Live::new(!args.json, args.limit_bps());
    let show = |seen: Seen<'_>| match seen {
        Seen::Progress(progress) => live.show(&progress.protocol, progress.arrived),
        Seen::Result(result) => {
            live.clear();
            if !args.json {
                say(&tcp_line(args, result).text());
            }
        }
    };
    let path = args.path();
    let results = block_on(async {
        tokio::select! {
            results = tcp::run_tcp(&path, args.size, args.tcp_time, show) => Ok(results),
            failure = interrupted() => Err(failure),
        }
    })?;
    Ok(match results {
        Ok(results) => Tcp::Results(results),
        Err(reason) => {
            if !args.json {
                say(&format!("TCP: {reason}"));
            }
            Tcp::Unavailable {
                unavailable: reason.to_string(),
            }
        }
    })
}

fn heading(args: &Args) -> String {
    format!(
        "{} bytes over {}, {:.0} ms round trip, {} % lost each way, queue of {} packets",
        args.size,
        args.rate,
        args.rtt.as_secs_f64() * 1e3,
        args.loss * 100.0,
        args.path().queue_packets
    )
}

fn dfcp_line<'a>(args: &'a Args, transfer: &Transfer) -> Line<'a> {
    Line {
        name: match transfer.hash_ok {
            true => args.name(),
            false => "CORRUPT",
        },
        goodput_bps: transfer.goodput_bps,
        steady_bps: args.steady_bps(transfer),
        limit_bps: args.limit_bps(),
        time: Duration::from_secs_f64(transfer.seconds.max(0.0)),
        complete: true,
        wire: Some(transfer.wire_bytes as f64 / transfer.useful_bytes.max(1) as f64),
    }
}

fn tcp_line<'a>(args: &Args, result: &'a TcpResult) -> Line<'a> {
    Line {
        name: &result.protocol,
        goodput_bps: result.goodput_bps,
        steady_bps: result.steady_bps,
        limit_bps: args.limit_bps(),
        time: Duration::from_secs_f64(result.seconds.max(0.0)),
        complete: result.complete,
        wire: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_busy_machine_say_so() {
        let rtt = Duration::from_millis(60);
        assert_eq!(busy(rtt, 2.9), None);
        let said = busy(rtt, 4.2).unwrap();
        assert!(
            said.contains("busy") && said.contains("4 ms late"),
            "{said}"
        );
    }
}
