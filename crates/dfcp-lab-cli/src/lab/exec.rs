//! `dfcp lab exec`: any program over an emulated path.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dfcp::Rate;
use dfcp_command::{Failure, Kind, units, watch_interrupts};
use dfcp_lab::compare::emulated::Emulated;
use dfcp_lab::compare::path::{Bottleneck, Queue};
use dfcp_lab::run::Validity;
use dfcp_lab::{Host, HostCommand, HostProcess, Lab, LabOptions, Output};

use super::compare::{bad, queue};
use super::run::{failure, isolate, validity};

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Rate of the bottleneck, IP bits a second
    #[arg(long, default_value = "100M", value_parser = units::rate)]
    rate: Rate,
    /// Round-trip time without queueing
    #[arg(long, default_value = "50ms", value_parser = units::duration)]
    rtt: Duration,
    /// Share of packets lost at random, each way
    #[arg(long, default_value = "0", value_parser = units::share)]
    loss: f64,
    /// Queue of the bottleneck: packets, or products of rate and RTT such as 0.5bdp
    #[arg(long, default_value = "1bdp", value_parser = queue)]
    queue: Queue,
    /// A path instead of the bottleneck: a name in scenarios/bad-paths.toml, or a scenario file
    #[arg(long, conflicts_with_all = ["rate", "rtt", "loss", "queue"])]
    path: Option<String>,
    /// Folder of the traces that a path may name
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Seed of what the path does by chance
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A shell command to run on the other host meanwhile, such as a server; may be repeated
    #[arg(long, value_name = "COMMAND")]
    there: Vec<String>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<String>,
}

/// Runs it; its exit code is the program's.
pub fn run(args: Args) -> ExitCode {
    match exec(&args) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => dfcp_command::fail(&failure),
    }
}

fn exec(args: &Args) -> Result<u8, Failure> {
    isolate()?;
    let path = match &args.path {
        Some(name) => {
            let named = bad::paths(std::slice::from_ref(name), args.traces.as_deref())?;
            named
                .into_iter()
                .next()
                .ok_or_else(|| Failure::usage("no path is left"))?
        }
        None => {
            let bottleneck = Bottleneck::new(args.rate.as_bps(), args.rtt, args.loss, args.queue);
            Emulated::bottleneck(bottleneck).map_err(Failure::usage)?
        }
    };
    let scenario = path.scenario(1, args.seed).map_err(Failure::usage)?;
    let scenario = scenario.ok_or_else(|| Failure::usage("the path has no network"))?;
    // Before anything runs that would outlive this process.
    let interrupted = watch_interrupts();
    let lab = Lab::start(&scenario, &LabOptions::default()).map_err(failure)?;
    let (here, there) = lab.flow_hosts(0);
    let mut beside = Vec::new();
    for command in &args.there {
        let shell = there.command("sh").args(["-c", command]);
        beside.push((command, start(told(shell, there, here), command)?));
    }
    let [program, arguments @ ..] = &args.program[..] else {
        return Err(Failure::usage("which program?"));
    };
    let command = here
        .command(program)
        .args(arguments)
        .stdin(duplicate(io::stdin())?);
    let mut process = start(told(command, here, there), program)?;
    // It takes as long as it takes.
    while !process.ends_by(Instant::now() + LOOK) {
        if interrupted.load(Ordering::Relaxed) {
            process.terminate();
            process.ends_by(Instant::now() + LAST_WORDS);
            // With what they started, as all these are in groups of their own.
            drop((process, beside));
            lab.stop().map_err(failure)?;
            return Err(Failure::interrupted());
        }
    }
    let finished = process.wait(Instant::now());
    for (command, process) in beside {
        // What still runs is stopped without a word: it was to run as long as the program.
        if process.is_over() {
            let status = process.wait(Instant::now()).status;
            let failed = status.filter(|status| !status.success());
            if let Some(status) = failed {
                dfcp_command::tell!("dfcp: {command}: ended by itself: {status}");
            }
        }
    }
    let stats = lab.stop().map_err(failure)?;
    let found = Validity::of(&scenario, &stats);
    if !found.is_valid() {
        eprintln!("{}", validity(&found));
    }
    let status = finished.status.and_then(|status| status.code());
    Ok(status.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// How often it is looked whether to go on.
const LOOK: Duration = Duration::from_millis(100);
/// What a program gets to end by itself when it is interrupted.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// With the streams of this process, and the addresses of both hosts in the environment.
fn told(command: HostCommand, own: &Host, other: &Host) -> HostCommand {
    let output = |stream: io::Result<File>| stream.map_or(Output::Discard, Output::File);
    command
        .stdout(output(duplicate(io::stdout())))
        .stderr(output(duplicate(io::stderr())))
        .env("DFCP_HERE", own.ipv4().to_string())
        .env("DFCP_THERE", other.ipv4().to_string())
        .env("DFCP_HERE6", own.ipv6().to_string())
        .env("DFCP_THERE6", other.ipv6().to_string())
}

fn duplicate(stream: impl AsFd) -> io::Result<File> {
    stream.as_fd().try_clone_to_owned().map(File::from)
}

fn start(command: HostCommand, name: &str) -> Result<HostProcess, Failure> {
    let process = command.spawn();
    process.map_err(|error| Failure::new(Kind::Failure, format!("{name}: {error}")))
}
