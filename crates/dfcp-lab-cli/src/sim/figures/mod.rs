//! `dfcp sim figures`: the figures and tables of papers, made again and checked.
//!
//! - `papers`: whose figures, and where their texts are;
//! - [`catalogue`]: what is reproduced, as data, in `PAPER/*.toml`;
//! - [`runs`]: the sweeps behind it, from `scenarios/figures/PAPER/*.toml`;
//! - [`select`]: results become curves; [`playback`]: a viewer behind them; [`theory`]: formulas
//!   beside them;
//! - [`statement`]: what must hold of the curves, and on whose word; [`check`]: whether it does;
//! - [`stored`]: the curves of former runs; [`page`]: data, figures, summary and page.
//!
//! Invariants: no number that a paper states is changed to make a check pass; what fails has a
//! reason, or the command fails; what the page says follows from the data beside it.

pub mod catalogue;
mod check;
mod page;
pub mod papers;
mod playback;
pub mod runs;
pub mod select;
mod statement;
mod stored;
#[cfg(test)]
mod tests;
mod theory;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use dfcp_command::{Failure, Kind};
use serde::{Deserialize, Serialize};

use self::catalogue::{Catalogue, Item};
use self::page::Done;
use self::papers::Paper;
use self::runs::{Results, Runner};
use self::select::Curves;
use self::stored::Origin;

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Whose figures
    #[arg(value_enum)]
    paper: Paper,
    /// Only these items; may be repeated
    #[arg(long, value_name = "ID", num_args = 1..)]
    only: Vec<String>,
    /// A reduced grid and shorter runs: a few minutes, the default
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// The papers' parameters: about an hour on two cores
    #[arg(long)]
    full: bool,
    /// Seeds 1 to N for each point, instead of the scenarios' own
    #[arg(long, value_name = "N")]
    seeds: Option<std::num::NonZeroU32>,
    /// Run nothing: say anew what the data in the directory show
    #[arg(long, conflicts_with_all = ["quick", "full", "only", "jobs", "seeds"])]
    stored: bool,
    /// Directory for data, figures, summary.json and README.md [default: figures-PAPER]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Runs at once [default: the number of cores]
    #[arg(short, long, value_name = "N")]
    jobs: Option<std::num::NonZeroUsize>,
}

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Size {
    /// A reduced grid and shorter runs.
    Quick,
    /// The papers' parameters.
    Full,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    match figures(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => dfcp_command::fail(&failure),
    }
}

fn figures(args: &Args) -> Result<(), Failure> {
    let book = args.paper.book();
    let catalogue = Catalogue::read(book.catalogue)?;
    let items = match args.stored {
        true => Vec::new(),
        false => chosen(&catalogue, &args.only)?,
    };
    let directory = args.out.clone();
    let directory = directory.unwrap_or_else(|| format!("figures-{}", book.name).into());
    let size = if args.full { Size::Full } else { Size::Quick };
    let cores = || std::thread::available_parallelism().map_or(1, Into::into);
    let runner = Runner {
        scenarios: book.scenarios,
        size,
        seeds: args.seeds,
        directory: directory.join("sweeps").join(match args.seeds {
            None => size.name().to_owned(),
            Some(seeds) => format!("{}-{seeds}-seeds", size.name()),
        }),
        jobs: args.jobs.map_or_else(cores, Into::into),
        interrupted: dfcp_command::watch_interrupts(),
    };
    let made = make(&catalogue, &items, &runner)?;
    let done = with_stored(made, &catalogue, &runner, &directory)?;
    if done.is_empty() {
        let message = format!("{}: no data of a former run", directory.display());
        return Err(Failure::usage(message));
    }
    for done in &done {
        done.write(&directory)?;
    }
    page::write(&directory, &book, &done)?;
    conclude(&done)
}

/// What was made now, and what else the directory has of former runs, in the catalogue's order.
fn with_stored<'a>(
    made: Vec<Done<'a>>,
    catalogue: &'a Catalogue,
    runner: &Runner<'_>,
    directory: &Path,
) -> Result<Vec<Done<'a>>, Failure> {
    let mut origins = stored::origins(directory)?;
    let mut made: BTreeMap<&str, Done<'a>> = made
        .into_iter()
        .map(|done| (done.item.id.as_str(), done))
        .collect();
    let mut all = Vec::new();
    for item in &catalogue.items {
        let id = item.id.as_str();
        match (made.remove(id), origins.remove(id)) {
            (Some(done), _) => all.push(done),
            (None, Some(origin)) => all.push(read(item, origin, catalogue, runner, directory)?),
            (None, None) => {}
        }
    }
    Ok(all)
}

/// An item from the data of a former run.
fn read<'a>(
    item: &'a Item,
    origin: Origin,
    catalogue: &'a Catalogue,
    runner: &Runner<'_>,
    directory: &Path,
) -> Result<Done<'a>, Failure> {
    let entry = catalogue.scenario(&item.scenario);
    let unit = match entry {
        Some(entry) => runner.unit(entry, &item.x.column)?,
        None => None,
    };
    let curves = |column: Option<&str>| {
        let file = stored::file(directory, item, column);
        stored::read(&file, item, column.unwrap_or(&item.y.column), unit)
    };
    let own = curves(None)?;
    let others = item.other_columns().into_iter();
    let others: Result<_, Failure> = others
        .map(|column| Ok((column.to_owned(), curves(Some(column))?)))
        .collect();
    judged(item, origin, own, others?, catalogue)
}

/// An item with what its curves say of it.
fn judged<'a>(
    item: &'a Item,
    origin: Origin,
    curves: Curves,
    columns: BTreeMap<String, Curves>,
    catalogue: &'a Catalogue,
) -> Result<Done<'a>, Failure> {
    let mut verdicts = check::verdicts(item, &curves, &columns)?;
    for verdict in verdicts.iter_mut().filter(|verdict| !verdict.pass) {
        let reason = catalogue.reason(&item.id, &verdict.what, origin.size);
        verdict.reason = reason.map(ToOwned::to_owned);
    }
    let same_runs = catalogue.same_runs(item);
    Ok(Done {
        item,
        same_runs: same_runs.map(|other| other.of.as_str()).collect(),
        origin,
        curves,
        columns,
        verdicts,
    })
}

/// The items to make, in the catalogue's order.
fn chosen<'a>(catalogue: &'a Catalogue, only: &[String]) -> Result<Vec<&'a Item>, Failure> {
    let known = |id: &&String| catalogue.items.iter().any(|item| item.id == **id);
    if let Some(unknown) = only.iter().find(|id| !known(id)) {
        let ids: Vec<_> = catalogue
            .items
            .iter()
            .map(|item| item.id.as_str())
            .collect();
        let message = format!("no item {unknown}; there are {}", ids.join(", "));
        return Err(Failure::usage(message));
    }
    let wanted = |item: &&Item| only.is_empty() || only.contains(&item.id);
    Ok(catalogue.items.iter().filter(wanted).collect())
}

/// Runs and checks items.
fn make<'a>(
    catalogue: &'a Catalogue,
    items: &[&'a Item],
    runner: &Runner<'_>,
) -> Result<Vec<Done<'a>>, Failure> {
    let mut names: Vec<&str> = Vec::new();
    for item in items {
        if !names.contains(&item.scenario.as_str()) {
            names.push(&item.scenario);
        }
    }
    let results = runner.run(catalogue, &names)?;
    let done = |item: &&'a Item| {
        let Some(results) = results.get(&item.scenario) else {
            return Err(Failure::usage(format!("{}: no results", item.id)));
        };
        finish(item, results, catalogue, runner)
    };
    items.iter().map(done).collect()
}

fn finish<'a>(
    item: &'a Item,
    results: &Results,
    catalogue: &'a Catalogue,
    runner: &Runner<'_>,
) -> Result<Done<'a>, Failure> {
    let curves = |column: &str| select::select(item, results, column);
    let others = item.other_columns().into_iter();
    let others: Result<_, Failure> = others
        .map(|column| Ok((column.to_owned(), curves(column)?)))
        .collect();
    let entry = catalogue.scenario(&item.scenario);
    let origin = Origin {
        size: runner.size,
        settings_changed: entry.map_or_else(BTreeMap::new, |entry| runner.settings(entry)),
        made_by: concat!("dfcp ", env!("CARGO_PKG_VERSION")).to_owned(),
    };
    judged(item, origin, curves(&item.y.column)?, others?, catalogue)
}

/// Says how it went; a check that fails without a reason fails the command.
fn conclude(done: &[Done<'_>]) -> Result<(), Failure> {
    let mut unexplained = 0;
    for done in done {
        for verdict in done.verdicts.iter().filter(|verdict| !verdict.pass) {
            let measured = verdict
                .measured
                .map_or_else(|| "–".to_owned(), check::short);
            eprintln!(
                "dfcp: {}: {} ({}): {measured} at {}, expected {}{}",
                done.item.id,
                verdict.what,
                verdict.word(),
                verdict.at,
                verdict.tolerance,
                verdict.reason.as_ref().map_or("", |_| " (explained)")
            );
            unexplained += usize::from(verdict.reason.is_none());
        }
        for warning in &done.curves.data.warnings {
            eprintln!("dfcp: {}: {warning}", done.item.id);
        }
    }
    eprintln!("dfcp: {}", page::Tally::of(done));
    match unexplained {
        0 => Ok(()),
        count => Err(Failure::new(
            Kind::Failure,
            format!("{count} checks fail without a reason"),
        )),
    }
}

impl Size {
    /// Its name in arguments and of folders.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }
}
