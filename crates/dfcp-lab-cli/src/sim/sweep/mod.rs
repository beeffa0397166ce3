//! `dfcp sim sweep`: every point of a scenario's grid, for every seed, on all cores.
//!
//! - [`outputs`]: the files, and their manifest;
//! - [`journal`]: the points that are done, whatever ends the program;
//! - [`pool`]: the threads;
//! - [`merge`]: parts of a sweep put together.
//!
//! Invariant: what the files hold follows from the scenario, the version and the set of points
//! done; neither the number of threads nor interruptions can be told from them.

pub mod journal;
pub mod merge;
pub mod outputs;
pub mod pool;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use dfcp_command::{Failure, Kind};
use dfcp_sim::report::RunReport;
use indicatif::{ProgressBar, ProgressStyle};

use self::journal::{Entry, Journal};
use self::outputs::Outputs;
use super::columns;
use super::engine::Overrides;
use super::store::Provenance;
use super::table::Cell;

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Scenario with a [sweep] section
    file: PathBuf,
    /// Results: OUT.parquet, OUT.csv or a directory; CSV, Parquet, manifest and journal are all
    /// written [default: the scenario's name]
    #[arg(short, long, value_name = "OUT")]
    out: Option<PathBuf>,
    /// Only these points, from A up to but without B; merge the parts with `dfcp sim merge`
    #[arg(long, value_name = "A..B", value_parser = range)]
    points: Option<Range<usize>>,
    /// Points to run at once [default: the number of cores]
    #[arg(short, long, value_name = "N")]
    jobs: Option<std::num::NonZeroUsize>,
    /// A setting instead of the scenario's, such as sweep.seeds="1..10"; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = super::run::setting)]
    set: Vec<(String, String)>,
    /// Folder of traces that do not lie beside the scenario
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

/// `A..B`, where either may be left out.
fn range(text: &str) -> Result<Range<usize>, String> {
    let wrong = || format!("not a range: {text:?}; write 0..100");
    let (start, end) = text.split_once("..").ok_or_else(wrong)?;
    let parse = |text: &str, default| match text {
        "" => Ok(default),
        _ => text.parse().map_err(|_| wrong()),
    };
    Ok(parse(start, 0)?..parse(end, usize::MAX)?)
}

/// A grid of runs.
pub trait Study: Send + Sync + 'static {
    /// Which grid this is.
    fn provenance(&self) -> &Provenance;

    /// Runs a point.
    fn run(&self, index: usize) -> Result<PointResult, Failure>;

    /// Points that are run again although they are done, because what they measured does not count.
    /// Until a point is run again, its former results stand.
    fn again(&self) -> BTreeSet<usize> {
        BTreeSet::new()
    }
}

/// A point that was run.
#[derive(Clone, Debug)]
pub struct PointResult {
    /// Its parameters, in the order of [`Provenance::parameters`].
    pub parameters: Vec<Cell>,
    /// Its seed.
    pub seed: u64,
    /// What it measured.
    pub report: RunReport,
}

/// What of a grid to run, and how.
#[derive(Clone, Debug)]
pub struct Request {
    /// Where results go.
    pub outputs: Outputs,
    /// Which points.
    pub points: Range<usize>,
    /// How many at once.
    pub jobs: usize,
    /// Becomes true when the user has had enough.
    pub interrupted: Arc<AtomicBool>,
}

/// How a sweep ended that could be written down.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Points that were done before.
    pub before: usize,
    /// Points run now.
    pub run: usize,
    /// Points that are still to be run.
    pub left: usize,
    /// Points that failed, with the reason.
    pub failed: Vec<(usize, Failure)>,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    match sweep(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => super::fail(&failure, &args.file),
    }
}

fn sweep(args: &Args) -> Result<(), Failure> {
    let overrides = Overrides {
        set: args.set.clone(),
        traces: args.traces.clone(),
        ..Overrides::default()
    };
    let study = super::engine::open_study(&args.file, &overrides)?;
    for left in study.left_out().iter().filter(|_| !args.quiet) {
        eprintln!("dfcp: left out: {}: {}", left.case, left.why);
    }
    let total = study.provenance().points;
    let named = args.out.clone().unwrap_or_else(|| {
        PathBuf::from(args.file.file_stem().unwrap_or(args.file.as_os_str()))
            .with_extension("parquet")
    });
    let wanted = args.points.clone().unwrap_or(0..total);
    let points = wanted.start..wanted.end.min(total);
    if points.is_empty() {
        return Err(Failure::usage(format!(
            "no point to run: the sweep has points 0..{total}"
        )));
    }
    study.check(points.clone())?;
    let cores = || std::thread::available_parallelism().map_or(1, Into::into);
    let request = Request {
        outputs: Outputs::new(&named)?,
        points,
        jobs: args.jobs.map_or_else(cores, Into::into),
        interrupted: dfcp_command::watch_interrupts(),
    };
    let bar = match args.quiet || !std::io::stderr().is_terminal() {
        true => ProgressBar::hidden(),
        false => bar(),
    };
    let outcome = execute(Arc::new(study), &request, &bar)?;
    bar.finish_and_clear();
    conclude(&outcome, &request, args.quiet)
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::no_length();
    let template = "{bar:24} {pos}/{len} points {per_sec} eta {eta}";
    // A wrong template would be a mistake of ours; the default one serves then.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Runs the points that are not done, and writes the files.
pub fn execute<S: Study>(
    study: Arc<S>,
    request: &Request,
    bar: &ProgressBar,
) -> Result<Outcome, Failure> {
    let provenance = study.provenance().clone();
    let (mut journal, done) = Journal::open(&request.outputs.journal(), &provenance)?;
    let again = study.again();
    let todo: Vec<_> = request
        .points
        .clone()
        .filter(|p| !done.contains(p) || again.contains(p))
        .collect();
    let mut outcome = Outcome {
        before: request.points.len() - todo.len(),
        left: todo.len(),
        ..Outcome::default()
    };
    bar.set_length(request.points.len() as u64);
    bar.set_position(outcome.before as u64);
    bar.reset_eta();
    let results = pool::start(study, todo, request.jobs);
    while !request.interrupted.load(Ordering::Relaxed) {
        match results.recv_timeout(Duration::from_millis(100)) {
            Ok((point, Ok(result))) => {
                journal.append(&Entry {
                    point,
                    seed: result.seed,
                    parameters: result.parameters,
                    flows: columns::flow_rows(&result.report),
                    links: columns::link_rows(&result.report),
                })?;
                outcome.run += 1;
                outcome.left -= 1;
                bar.inc(1);
            }
            Ok((point, Err(failure))) => outcome.failed.push((point, failure)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    outcome.failed.sort_by_key(|(point, _)| *point);
    journal.sync()?;
    let results = journal.results(&provenance.parameters)?;
    request.outputs.write(&results, &provenance)?;
    Ok(outcome)
}

/// Says how it went.
fn conclude(outcome: &Outcome, request: &Request, quiet: bool) -> Result<(), Failure> {
    let table = request.outputs.flows("parquet");
    if let Some((point, failure)) = outcome.failed.first() {
        let (kind, others) = match outcome.before + outcome.run {
            0 => (Kind::Failure, String::new()),
            _ => (
                Kind::Partial,
                format!("; the others are in {}", table.display()),
            ),
        };
        let message = format!(
            "{} of {} points failed; point {point}: {failure}{others}",
            outcome.failed.len(),
            request.points.len(),
        );
        return Err(Failure::new(kind, message));
    }
    if outcome.left > 0 {
        return Err(Failure::new(
            Kind::Interrupted,
            format!(
                "interrupted: {} of {} points are done and in {}; run the same command again to \
                 do the others",
                request.points.len() - outcome.left,
                request.points.len(),
                table.display()
            ),
        ));
    }
    if !quiet {
        let before = match outcome.before {
            0 => String::new(),
            before => format!(", {before} of them before"),
        };
        let points = request.points.len();
        eprintln!("dfcp: {points} points done{before}: {}", table.display());
    }
    Ok(())
}
