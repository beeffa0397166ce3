//! One sender alone on each of the bad paths of `scenarios/bad-paths.toml`, judged by what a
//! perfect sender would get there.
//!
//! `cargo run --release -p dfcp-sim --example bad_paths -- [--protocol auto] [--seeds 1..3]
//! [--path NAME,…] [--duration SECONDS] [--traces FOLDER] [--file FILE]`
//!
//! For each path: the limit; goodput ÷ limit, the least and the median of the seeds and then each;
//! bytes on the wire ÷ the least that would have done (the most of the seeds); queueing delay at the bottleneck, mean and
//! 95th percentile (median and worst of the seeds); packets dropped at full queues; repairs that
//! nobody needed, as a share of the packets sent (the connection's spurious losses).

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use dfcp_proto::Duration;
use dfcp_sim::report::{FlowReport, RunReport};
use dfcp_sim::scenario::{Document, Point, Sweep};

struct Args {
    protocol: String,
    seeds: String,
    paths: Vec<String>,
    duration: Option<f64>,
    traces: Option<PathBuf>,
    file: PathBuf,
}

/// What one run came to.
#[derive(Clone, Debug, Default)]
struct Figures {
    limit: f64,
    share: f64,
    wire: f64,
    queue_mean: f64,
    queue_p95: f64,
    drops: u64,
    spurious: Option<f64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::read()?;
    let sweep = open(&args)?;
    for left in sweep.left_out() {
        eprintln!("left out: {}: {}", left.case, left.why);
    }
    let seeds = sweep.seeds().len();
    let chosen: Vec<usize> = (0..sweep.len())
        .filter(|index| {
            let point = sweep.point(*index);
            let name = point.as_ref().map(name).unwrap_or_default();
            args.paths.is_empty() || args.paths.contains(&name)
        })
        .collect();
    if chosen.is_empty() {
        return Err("no such path".into());
    }
    println!(
        "| path | limit Mbit/s | min | median | each | wire | queue ms mean/p95 | drops | spurious |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let results: Vec<Mutex<Option<Result<Figures, String>>>> =
        chosen.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let printed = Mutex::new(0);
    let cores = std::thread::available_parallelism().map_or(1, Into::into);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(index) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let slot = chosen.partition_point(|other| other < index);
                    let figures = figures(&sweep, *index, args.duration);
                    *results[slot].lock().expect("nobody panics with it") =
                        Some(figures.map_err(|why| why.to_string()));
                    let mut printed = printed.lock().expect("nobody panics with it");
                    // Rows in the order of the file, as soon as all their seeds are there.
                    while *printed < chosen.len() {
                        let row = &results[*printed..*printed + seeds];
                        let row: Vec<_> = row
                            .iter()
                            .map(|slot| slot.lock().unwrap().clone())
                            .collect();
                        let Some(row) = row.into_iter().collect::<Option<Vec<_>>>() else {
                            break;
                        };
                        let point = sweep.point(chosen[*printed]);
                        let path = point.as_ref().map(name).unwrap_or_default();
                        println!("{}", line(&path, row));
                        *printed += seeds;
                    }
                }
            });
        }
    });
    Ok(())
}

impl Args {
    fn read() -> Result<Self, Box<dyn Error>> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut args = Self {
            protocol: "auto".into(),
            seeds: "1..3".into(),
            paths: Vec::new(),
            duration: None,
            traces: None,
            file: root.join("scenarios/bad-paths.toml"),
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let value = words
                .next()
                .ok_or_else(|| format!("{word} needs a value"))?;
            match word.as_str() {
                "--protocol" => args.protocol = value,
                "--seeds" => args.seeds = value,
                "--path" => args.paths.extend(value.split(',').map(str::to_owned)),
                "--duration" => args.duration = Some(value.parse()?),
                "--traces" => args.traces = Some(value.into()),
                "--file" => args.file = value.into(),
                _ => return Err(format!("unknown option {word}").into()),
            }
        }
        Ok(args)
    }
}

fn open(args: &Args) -> Result<Sweep, Box<dyn Error>> {
    let text = std::fs::read_to_string(&args.file)?;
    let mut document = Document::parse(&text, &args.file.to_string_lossy())?;
    let protocol = format!("[\"{}\"]", args.protocol);
    document.set("sweep.grid.flow.transfer.protocol", &protocol)?;
    let seeds = match args.seeds.contains("..") {
        true => format!("\"{}\"", args.seeds),
        false => format!("[{}]", args.seeds),
    };
    document.set("sweep.seeds", &seeds)?;
    let beside = args.file.parent().unwrap_or(Path::new("."));
    document.load_files(|name| {
        let there = std::fs::read_to_string(beside.join(name));
        match (there, &args.traces) {
            (Err(_), Some(folder)) => std::fs::read_to_string(folder.join(name)),
            (there, _) => there,
        }
        .map_err(|why| why.to_string())
    })?;
    Ok(document.sweep()?)
}

/// The name of the path.
fn name(point: &Point) -> String {
    let path = point
        .parameters
        .iter()
        .find(|parameter| parameter.name == "path");
    path.map_or_else(String::new, |path| path.text.clone())
}

fn figures(sweep: &Sweep, index: usize, seconds: Option<f64>) -> Result<Figures, Box<dyn Error>> {
    let mut scenario = sweep.point(index)?.scenario;
    if let Some(seconds) = seconds {
        let before = scenario.run.duration.as_secs_f64();
        scenario.run.duration = Duration::from_secs_f64(seconds);
        scenario.run.warmup = scenario.run.warmup.mul_f64(seconds / before);
    }
    let report: RunReport = dfcp_sim::run(&scenario)?;
    let flow = &report.flows[0];
    let bottleneck = report.links.iter().find(|link| link.name == "bottleneck");
    let bottleneck = bottleneck.ok_or("the path has no link called bottleneck")?;
    let limit = flow.limit_bps.unwrap_or(f64::NAN);
    let least = flow.bytes as f64 * 1500.0 / 1472.0 / (1.0 - own_loss(flow));
    let milliseconds = |time: Option<f64>| time.unwrap_or(0.0) * 1e3;
    Ok(Figures {
        limit,
        share: flow.goodput_bps / limit,
        wire: flow.bytes_sent as f64 / least,
        queue_mean: milliseconds(bottleneck.queue.sojourn_mean_s),
        queue_p95: milliseconds(bottleneck.queue.sojourn_p95_s),
        drops: bottleneck.drops.full,
        spurious: flow
            .spurious_losses
            .map(|spurious| spurious as f64 / flow.packets_sent.max(1) as f64),
    })
}

/// The share of the packets sent that the path lost by itself.
fn own_loss(flow: &FlowReport) -> f64 {
    match flow.drops.total() {
        0 => 0.0,
        all => flow.loss * flow.drops.loss as f64 / all as f64,
    }
}

fn line(path: &str, row: Vec<Result<Figures, String>>) -> String {
    let runs: Vec<Figures> = match row.into_iter().collect() {
        Ok(runs) => runs,
        Err(why) => return format!("| {path} | {why} |"),
    };
    let sorted = |of: &dyn Fn(&Figures) -> f64| {
        let mut all: Vec<f64> = runs.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all
    };
    let median = |of: &dyn Fn(&Figures) -> f64| sorted(of)[(runs.len() - 1) / 2];
    let most = |of: &dyn Fn(&Figures) -> f64| sorted(of)[runs.len() - 1];
    let each: Vec<String> = runs.iter().map(|run| format!("{:.2}", run.share)).collect();
    let drops: Vec<String> = runs.iter().map(|run| run.drops.to_string()).collect();
    let spurious = runs.iter().filter_map(|run| run.spurious);
    let spurious = spurious.reduce(f64::max);
    format!(
        "| {path} | {:.2} | {:.3} | {:.3} | {} | {:.3} | {:.1}/{:.1} | {} | {} |",
        median(&|run| run.limit) / 1e6,
        sorted(&|run| run.share)[0],
        median(&|run| run.share),
        each.join(" "),
        most(&|run| run.wire),
        median(&|run| run.queue_mean),
        most(&|run| run.queue_p95),
        drops.join(" "),
        spurious.map_or("".into(), |share| format!("{:.2} %", share * 100.0)),
    )
}
