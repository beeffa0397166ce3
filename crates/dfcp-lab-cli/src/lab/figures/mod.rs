//! `dfcp lab figures`: the testbed figures of papers between real kernels, beside the simulator.
//!
//! - [`plan`]: which figures, and what a machine of a few processors changes of their scenarios;
//! - [`real`]: points of a sweep on a real path, each with how true its path was;
//! - [`points`]: both worlds side by side, point by point;
//! - [`page`]: data, pictures, summary and page.
//!
//! What an item is, its curves and axes, is that of `dfcp sim figures`; so are sweeps and journals,
//! so that an interrupted command goes on when it is run again, and points whose path was not true
//! are run anew.
//!
//! Invariant: both worlds run the same points with the same seeds. Points on a path that was not true
//! stand with the others, marked.

mod page;
mod plan;
mod points;
mod real;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicUsize;

use dfcp_command::Failure;

use self::page::{About, Figure};
use self::plan::{Plan, Scaled, Wanted};
use self::points::Worlds;
use self::real::Real;
use super::run::isolate;
use crate::sim::engine::ScenarioStudy;
use crate::sim::figures::Size;
use crate::sim::figures::catalogue::{Catalogue, Entry};
use crate::sim::figures::papers::Paper;
use crate::sim::figures::runs::Runner;
use crate::sim::sweep::Study;

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Whose figures
    #[arg(value_enum)]
    paper: Paper,
    /// Only these items; may be repeated
    #[arg(long, value_name = "ID", num_args = 1..)]
    only: Vec<String>,
    /// A few points of the most important figures: some minutes, the default
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// All figures: up to an hour, on a machine at rest
    #[arg(long)]
    full: bool,
    /// Run a point whose path was not true so often at the most
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=10))]
    attempts: u32,
    /// Points at once, instead of what the figures' rates allow
    #[arg(short, long, value_name = "N")]
    jobs: Option<std::num::NonZeroUsize>,
    /// Run nothing: say which points there are and how long they may take
    #[arg(long)]
    plan: bool,
    /// Directory for data, figures, summary.json and README.md [default: lab-figures-PAPER]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs the command. Before the process has any other thread.
pub fn run(args: Args) -> ExitCode {
    match figures(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => dfcp_command::fail(&failure),
    }
}

/// A scenario of one or more figures.
struct Wave<'a> {
    scenario: &'a Scaled,
    entry: Entry,
    study: ScenarioStudy,
}

fn figures(args: &Args) -> Result<(), Failure> {
    let book = args.paper.book();
    let plan = Plan::of(args.paper)?;
    let catalogue = Catalogue::read(book.catalogue)?;
    let size = if args.full { Size::Full } else { Size::Quick };
    let wanted = plan.wanted(&catalogue, &args.only, size)?;
    let directory = args.out.clone();
    let directory = directory.unwrap_or_else(|| format!("lab-figures-{}", book.name).into());
    if !args.plan {
        // Before the first thread.
        isolate()?;
    }
    let cores = || std::thread::available_parallelism().map_or(1, Into::into);
    let runner = Runner {
        scenarios: book.scenarios,
        // The entries have all that is changed.
        size: Size::Quick,
        seeds: None,
        directory: directory.join("sweeps").join(size.name()),
        jobs: cores(),
        interrupted: dfcp_command::watch_interrupts(),
    };
    let waves = waves(&plan, &wanted, size, &runner)?;
    announce(&waves, args)?;
    if args.plan {
        return Ok(());
    }
    let mut worlds = BTreeMap::new();
    for wave in waves {
        let name = wave.scenario.name.as_str();
        worlds.insert(name, both(wave, &runner, args)?);
    }
    let mut figures = Vec::new();
    for wanted in wanted {
        let Some(worlds) = worlds.get(wanted.scenario.name.as_str()) else {
            continue;
        };
        let compared = points::compare(wanted.item, worlds, wanted.mean_from)?;
        figures.push(Figure { wanted, compared });
    }
    let about = About {
        book: &book,
        plan: &plan,
        size,
    };
    page::write(&directory, &about, &figures)?;
    let readme = directory.join("README.md");
    eprintln!("dfcp: {}: {}", readme.display(), page::total(&figures));
    Ok(())
}

/// The scenarios of figures, each once; whatever is wrong with one is known before the first is run.
fn waves<'a>(
    plan: &Plan,
    wanted: &[Wanted<'a>],
    size: Size,
    runner: &Runner<'_>,
) -> Result<Vec<Wave<'a>>, Failure> {
    let mut waves: Vec<Wave<'a>> = Vec::new();
    for Wanted { scenario, .. } in wanted {
        if waves.iter().any(|wave| wave.scenario.name == scenario.name) {
            continue;
        }
        let entry = plan.entry(scenario, size);
        let study = runner.study(&entry)?;
        waves.push(Wave {
            scenario,
            entry,
            study,
        });
    }
    Ok(waves)
}

/// What each point takes besides its scenario's time: servers start, ends say farewell.
const BESIDES_S: f64 = 2.5;

impl Wave<'_> {
    fn points(&self) -> usize {
        self.study.provenance().points
    }

    fn at_once(&self, args: &Args) -> usize {
        args.jobs.map_or(self.scenario.at_once, Into::into)
    }

    /// How long its points take for real at the most, seconds, if none is run again.
    fn longest_s(&self, args: &Args) -> Result<f64, Failure> {
        let mut sum = 0.0;
        for point in 0..self.points() {
            let scenario = self.study.point(point)?.scenario;
            sum += scenario.run.duration.as_secs_f64() + BESIDES_S;
        }
        Ok(sum / self.at_once(args) as f64)
    }
}

/// Says how much there is to do.
fn announce(waves: &[Wave<'_>], args: &Args) -> Result<(), Failure> {
    let mut all = 0.0;
    for wave in waves {
        let longest = wave.longest_s(args)?;
        all += longest;
        eprintln!(
            "dfcp: {}: {} points, {} at once, at most {longest:.0} s for real",
            wave.scenario.name,
            wave.points(),
            wave.at_once(args)
        );
    }
    eprintln!(
        "dfcp: at most {:.0} min for real, less where transfers end before; what is done already on a \
         true path is not done again",
        all / 60.0
    );
    Ok(())
}

/// Runs what is not done of a scenario in both worlds.
fn both(wave: Wave<'_>, runner: &Runner<'_>, args: &Args) -> Result<Worlds, Failure> {
    let points = wave.points();
    let in_world = |world: &str, jobs: usize| Runner {
        directory: runner.directory.join(world),
        jobs,
        ..runner.clone()
    };
    let simulator = in_world("simulated", runner.jobs);
    let simulated = simulator.sweep(&wave.entry, simulator.study(&wave.entry)?)?;
    let path = in_world("real", wave.at_once(args));
    let truths: PathBuf = Path::join(&path.directory, &wave.entry.name).with_extension("truth");
    let study = Real {
        name: wave.scenario.name.clone(),
        directory: truths.clone(),
        attempts: args.attempts,
        run: AtomicUsize::new(0),
        study: wave.study,
    };
    let real = path.sweep(&wave.entry, study)?;
    Ok(Worlds {
        simulated,
        real,
        truths: real::truths(&truths, points)?,
    })
}
