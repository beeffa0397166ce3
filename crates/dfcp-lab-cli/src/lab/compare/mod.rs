//! `dfcp lab compare`: `dfcp` beside kernel TCP and its peers, on the same path in one run.
//!
//! Runs make lines of JSON; tables, the page and the [`plots`] are made from lines, new or old.

pub(super) mod bad;
mod plots;

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use dfcp::Rate;
use dfcp_command::{Failure, Kind, beside, units};
use dfcp_lab::compare::board::Board;
use dfcp_lab::compare::emulated::Emulated;
use dfcp_lab::compare::path::{Bottleneck, Queue};
use dfcp_lab::compare::record::{Context, Line, Run, read_lines};
use dfcp_lab::compare::summary::summarize;
use dfcp_lab::compare::table::{self, Style};
use dfcp_lab::compare::{self, Bench, fairness};
use dfcp_lab::peer::{Peer, Programs};

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Who is compared, by name; `all` are all but iperf3 [default: all]
    #[arg(long, value_name = "PEERS", value_delimiter = ',', value_parser = peers)]
    peers: Vec<Peers>,
    /// Rates of the bottleneck, IP bits a second
    #[arg(long, value_delimiter = ',', default_value = "100M", value_parser = units::rate)]
    rate: Vec<Rate>,
    /// Round-trip times without queueing
    #[arg(long, value_delimiter = ',', default_value = "50ms", value_parser = units::duration)]
    rtt: Vec<Duration>,
    /// Shares of packets lost at random, each way
    #[arg(long, value_delimiter = ',', default_value = "0", value_parser = units::share)]
    loss: Vec<f64>,
    /// Queues of the bottleneck: packets, or products of rate and RTT such as 0.5bdp
    #[arg(long, value_delimiter = ',', default_value = "1bdp", value_parser = queue)]
    queue: Vec<Queue>,
    /// Paths instead of a bottleneck: `bad` (all of scenarios/bad-paths.toml), names of such, or
    /// scenario files, with their cases
    #[arg(
        long,
        value_name = "PATHS",
        value_delimiter = ',',
        conflicts_with_all = ["rate", "rtt", "loss", "queue", "direct"]
    )]
    paths: Vec<String>,
    /// Folder of the traces that paths name; paths whose traces are missing are left out
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// A plain veth pair instead of a bottleneck
    #[arg(long, conflicts_with_all = ["rate", "rtt", "loss", "queue", "fairness"])]
    direct: bool,
    /// Runs of each peer on each path
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Size of the file [default: 100M; of --paths what their scenarios' time carries, up to 400M]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    size: Option<u64>,
    /// Size of the small objects
    #[arg(long, value_name = "BYTES", default_value = "150k", value_parser = size)]
    object_size: u64,
    /// Small objects of each run
    #[arg(long, value_name = "N", default_value_t = 5)]
    objects: u32,
    /// Time for the file of a run, and again for its small objects [default: 30s; of --paths their
    /// scenarios' time]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    limit: Option<Duration>,
    /// Let each peer join a TCP CUBIC flow instead, and see what it leaves
    #[arg(long)]
    fairness: bool,
    /// Print a JSON object for each run on standard output instead of tables
    #[arg(long)]
    json: bool,
    /// Add the runs' JSON objects to this file
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Run nothing: show what such files hold
    #[arg(
        long,
        value_name = "FILE",
        value_delimiter = ',',
        conflicts_with = "out"
    )]
    from: Vec<PathBuf>,
    /// Results of `dfcp sim sweep scenarios/bad-paths.toml`, to stand on a page of named paths
    #[arg(long, value_name = "FILE")]
    sweep: Option<PathBuf>,
    /// Write a page, and figures into the directory of its name beside it
    #[arg(long, value_name = "FILE.md")]
    page: Option<PathBuf>,
}

/// A peer, or all of them.
#[derive(Clone, Debug)]
enum Peers {
    All,
    One(Peer),
}

fn peers(name: &str) -> Result<Peers, String> {
    match name {
        "all" => Ok(Peers::All),
        name => name
            .parse()
            .map(Peers::One)
            .map_err(|error| format!("{error}")),
    }
}

pub(super) fn queue(text: &str) -> Result<Queue, String> {
    let number = |text: &str| {
        text.trim()
            .parse::<f64>()
            .ok()
            .filter(|value| *value >= 0.0)
    };
    match text.strip_suffix("bdp") {
        Some(share) => number(share)
            .filter(|share| *share <= 1000.0)
            .map(Queue::Bdp)
            .ok_or_else(|| format!("not a queue: {text:?}; write 10 or 0.5bdp")),
        None => units::count(text).map(Queue::Packets),
    }
}

fn size(text: &str) -> Result<u64, String> {
    match units::count(text)? {
        0 => Err("a size must be above zero".into()),
        bytes => Ok(bytes),
    }
}

/// Runs the command. Before the process has any other thread: it leaves the machine's network.
pub fn run(args: Args) -> ExitCode {
    match compare(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => dfcp_command::fail(&failure),
    }
}

fn compare(args: &Args) -> Result<(), Failure> {
    if let Some(page) = &args.page
        && page.extension().is_none_or(|extension| extension != "md")
    {
        return Err(Failure::usage("a page's name must end in .md"));
    }
    let mut lines = Vec::new();
    for path in &args.from {
        let text = fs::read_to_string(path).map_err(|error| Failure::io(path, error))?;
        let read = read_lines(&text);
        lines.extend(read.map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?);
    }
    if args.from.is_empty() && args.sweep.is_none() {
        lines = measure(args)?;
    }
    let real = Board::of_lines(&lines);
    let simulated = match &args.sweep {
        Some(file) => Board::of_shares(&bad::shares(file)?),
        None => Board::default(),
    };
    if !args.json {
        print_tables(&lines);
        bad::print(&[&real, &simulated]);
    }
    let named = [&real, &simulated]
        .iter()
        .any(|board| !board.paths.is_empty());
    match &args.page {
        Some(page) if named => bad::write_page(&real, &simulated, &table::of_runs(&lines), page),
        Some(page) => plots::write_page(&lines, page),
        None => Ok(()),
    }
}

/// Makes the runs; they are kept as they come.
fn measure(args: &Args) -> Result<Vec<Line>, Failure> {
    let mut file = match &args.out {
        Some(path) => Some((path, open(path)?)),
        None => None,
    };
    let programs = Programs::within(std::env::current_exe()?, beside::directories());
    let context = context(&programs);
    dfcp_lab::isolate().map_err(|error| Failure::new(Kind::Failure, error.to_string()))?;
    let bench = Bench::new(programs)?;
    let mut lines = Vec::new();
    let mut failed = None;
    let mut keep = |line: Line| {
        let text = serde_json::to_string(&line).unwrap_or_default();
        if let Some((path, file)) = &mut file
            && let Err(error) = writeln!(file, "{text}")
        {
            failed.get_or_insert(Failure::io(path, error));
        }
        if args.json {
            dfcp_command::print_json_or_end(&line);
        }
        lines.push(line);
    };
    keep(Line::Context(context));
    let paths = paths(args)?;
    let (most, longest) = match args.paths.is_empty() {
        true => (FILE, TIME),
        false => (LARGEST_FILE, LONGEST),
    };
    let peers = chosen(&args.peers);
    match args.fairness {
        false => {
            let plan = compare::Plan {
                peers,
                paths,
                repetitions: args.repeat,
                file_size: args.size.unwrap_or(most),
                object_size: args.object_size,
                objects: args.objects,
                limit: args.limit.unwrap_or(longest),
            };
            compare::compare(&plan, &bench, &mut |run| {
                eprintln!("dfcp: {}", told(&run));
                keep(Line::Run(Box::new(run)));
            })?;
        }
        true => {
            let plan = fairness::Plan {
                peers,
                paths,
                repetitions: args.repeat,
                settle: SETTLE,
                window: WINDOW,
            };
            fairness::compare(&plan, &bench, &mut |meeting| {
                eprintln!("dfcp: {} beside CUBIC: {}", meeting.peer, meeting.path);
                keep(Line::Fairness(meeting));
            })?;
        }
    }
    match failed {
        Some(failure) => Err(failure),
        None => Ok(lines),
    }
}

/// What a run over a bottleneck moves, and how long it may take.
const FILE: u64 = 100_000_000;
const TIME: Duration = Duration::from_secs(30);
/// The same at most of a named path, which says itself how long a run is: files lie in memory.
const LARGEST_FILE: u64 = 400_000_000;
const LONGEST: Duration = Duration::from_secs(600);

/// How long flows have before they are measured, and how long they are.
const SETTLE: Duration = Duration::from_secs(3);
const WINDOW: Duration = Duration::from_secs(7);

fn open(path: &PathBuf) -> Result<File, Failure> {
    let file = File::options().append(true).create(true).open(path);
    file.map_err(|error| Failure::io(path, error))
}

fn chosen(named: &[Peers]) -> Vec<Peer> {
    let mut chosen = Vec::new();
    let all = [Peers::All];
    for peers in if named.is_empty() { &all } else { named } {
        let more = match peers {
            Peers::All => Peer::all(),
            Peers::One(peer) => vec![peer.clone()],
        };
        for peer in more {
            if !chosen.contains(&peer) {
                chosen.push(peer);
            }
        }
    }
    chosen
}

fn paths(args: &Args) -> Result<Vec<Emulated>, Failure> {
    if args.direct {
        return Ok(vec![Emulated::direct()]);
    }
    if !args.paths.is_empty() {
        return bad::paths(&args.paths, args.traces.as_deref());
    }
    let mut paths = Vec::new();
    for rate in &args.rate {
        for rtt in &args.rtt {
            for loss in &args.loss {
                for queue in &args.queue {
                    let path = Bottleneck::new(rate.as_bps(), *rtt, *loss, *queue);
                    paths.push(Emulated::bottleneck(path).map_err(Failure::usage)?);
                }
            }
        }
    }
    Ok(paths)
}

/// A run in a line, for who waits.
fn told(run: &Run) -> String {
    let figures = run.file.as_ref().map(|file| {
        let cpu = file.cpu_per_gb().map(|cpu| format!(", {cpu:.2} CPU s/GB"));
        format!(
            "{:.1} Mbit/s{}",
            file.whole_bps() / 1e6,
            cpu.unwrap_or_default()
        )
    });
    let mut parts = vec![format!("{} over {}", run.peer, run.path)];
    parts.extend(figures);
    parts.extend(run.reason.clone());
    parts.join(": ")
}

fn print_tables(lines: &[Line]) {
    let mut text = String::new();
    for cell in summarize(lines)
        .iter()
        .filter(|cell| cell.path.named().is_none())
    {
        text += &format!(
            "{}\n{}\n",
            table::heading(cell),
            table::cell(cell, Style::Terminal)
        );
    }
    for (path, meetings) in table::by_path(lines) {
        let table = table::fairness(&meetings, Style::Terminal);
        text += &format!("Beside a CUBIC flow, Mbit/s: {path}\n{table}\n");
    }
    // A reader that went away is no reason to panic.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn context(programs: &Programs) -> Context {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model
        .and_then(|rest| rest.split_once(':'))
        .map(|(_, model)| model.trim());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let load = read("/proc/loadavg");
    // Of the program, its name only: where it lies says nothing.
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    Context {
        command: format!("dfcp {}", arguments.join(" ")),
        date: date(),
        machine: format!(
            "Linux {}, {cores} cores of {}",
            read("/proc/sys/kernel/osrelease").trim(),
            model.unwrap_or("an unknown processor")
        ),
        load: load
            .split(' ')
            .next()
            .and_then(|load| load.parse().ok())
            .unwrap_or(0.0),
        versions: programs.versions(),
    }
}

/// Today in UTC.
fn date() -> String {
    #[expect(
        clippy::disallowed_methods,
        reason = "a date is wanted, not a duration"
    )]
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    civil(since.map_or(0, |since| since.as_secs() / 86_400))
}

/// Days since 1970 as `2026-01-31`, by eras of 400 years that begin in March.
fn civil(days: u64) -> String {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, (month + 2) % 12 + 1);
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use dfcp_lab::compare::path::Path;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Args, clap::Error> {
        let words = std::iter::once("compare").chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.args)
    }

    #[test]
    fn lists_make_a_grid() {
        let args = parse("--rate 20M,100M --loss 0,10% --queue 10,0.5bdp --rtt 200ms").unwrap();
        let paths = paths(&args).unwrap();
        assert_eq!(paths.len(), 8);
        let last = paths[7].path.bottleneck().unwrap();
        assert_eq!(
            (last.rate_bps, last.loss, last.queue_packets),
            (100_000_000, 0.1, 833)
        );
        assert_eq!(paths[0].path.bottleneck().unwrap().queue_packets, 10);
        let direct = super::paths(&parse("--direct").unwrap()).unwrap();
        assert_eq!(direct[0].path, Path::DIRECT);
    }

    #[test]
    fn bad_paths_have_names_and_limits_and_go_without_traces() {
        let all = super::paths(&parse("--paths bad").unwrap()).unwrap();
        assert!(all.len() > 40, "{}", all.len());
        assert!(all.iter().all(|path| path.path.limit_bps().unwrap() > 1e5));
        let few = super::paths(&parse("--paths queue4,burst50,queue4").unwrap()).unwrap();
        let names: Vec<_> = few.iter().filter_map(|path| path.path.named()).collect();
        assert_eq!(
            names.iter().map(|path| &*path.name).collect::<Vec<_>>(),
            ["queue4", "burst50"]
        );
        assert!((names[1].limit_bps / (91e6 * 1472.0 / 1500.0) - 1.0).abs() < 1e-9);
        let unknown = super::paths(&parse("--paths queue5").unwrap()).unwrap_err();
        assert!(unknown.message.contains("queue5"), "{unknown}");
        let untraced = super::paths(&parse("--paths lte-att").unwrap()).unwrap_err();
        assert!(untraced.message.contains("no path"), "{untraced}");
    }

    #[test]
    fn peers_are_named_once() {
        let args = parse("--peers srt,all,dfcp").unwrap();
        let chosen = chosen(&args.peers);
        assert_eq!(chosen[0], Peer::Srt);
        assert_eq!(chosen.len(), Peer::all().len());
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            "--peers quic",
            "--queue -1bdp",
            "--queue nanbdp",
            "--loss 101%",
            "--repeat 0",
            "--size 0",
            "--direct --loss 1%",
            "--direct --fairness",
            "--from a --out b",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (days, date) in [
            (0, "1970-01-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (19_723, "2024-01-01"),
            (20_453, "2025-12-31"),
        ] {
            assert_eq!(civil(days), date);
        }
    }
}
