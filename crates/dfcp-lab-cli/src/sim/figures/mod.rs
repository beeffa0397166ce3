//! `dfcp sim figures`: the figures and tables of papers, made again and checked.
//!
//! - `papers`: whose figures, and where their texts are;
//! - [`catalogue`]: what is reproduced, as data, in `PAPER/*.toml`;
//! - [`runs`]: the sweeps behind it, from `scenarios/figures/PAPER/*.toml`;
//! - [`select`]: results become curves; [`playback`]: a viewer behind them; [`theory`]: formulas
//!   beside them;
//! - [`check`]: what must hold of the curves;
//! - [`page`]: data, figures, summary and page.
//!
//! Invariant: no number that a paper states is changed to make a check pass; what fails has a
//! reason, or the command fails.

mod catalogue;
mod check;
mod page;
mod papers;
mod playback;
mod runs;
mod select;
#[cfg(test)]
mod tests;
mod theory;

use std::path::PathBuf;
use std::process::ExitCode;

use dfcp_command::{Failure, Kind};
use serde::{Deserialize, Serialize};

use self::catalogue::{Catalogue, Item};
use self::page::Done;
use self::papers::Paper;
use self::runs::{Results, Runner};

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
    let items = chosen(&catalogue, &args.only)?;
    let directory = args.out.clone();
    let directory = directory.unwrap_or_else(|| format!("figures-{}", book.name).into());
    let size = if args.full { Size::Full } else { Size::Quick };
    let cores = || std::thread::available_parallelism().map_or(1, Into::into);
    let runner = Runner {
        scenarios: book.scenarios,
        size,
        directory: directory.join("sweeps").join(size.name()),
        jobs: args.jobs.map_or_else(cores, Into::into),
        interrupted: dfcp_command::watch_interrupts(),
    };
    let done = make(&catalogue, &items, &runner)?;
    for done in &done {
        done.write(&directory)?;
    }
    page::write(&directory, &book, size, &done)?;
    conclude(&done)
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
    catalogue: &Catalogue,
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
        finish(item, results, catalogue, runner.size)
    };
    items.iter().map(done).collect()
}

fn finish<'a>(
    item: &'a Item,
    results: &Results,
    catalogue: &Catalogue,
    size: Size,
) -> Result<Done<'a>, Failure> {
    let curves = select::select(item, results, &item.y.column)?;
    let mut verdicts = check::verdicts(item, &curves, results)?;
    for verdict in verdicts.iter_mut().filter(|verdict| !verdict.pass) {
        let reason = catalogue.reason(&item.id, &verdict.what, size);
        verdict.reason = reason.map(ToOwned::to_owned);
    }
    let entry = catalogue.scenario(&item.scenario);
    Ok(Done {
        item,
        changed: entry.map_or_else(Vec::new, |entry| entry.settings(size)),
        curves,
        verdicts,
    })
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
                "dfcp: {}: {}: {measured} at {}, expected {}{}",
                done.item.id,
                verdict.what,
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
    let passing = done.iter().filter(|done| done.passes()).count();
    eprintln!("dfcp: {passing} of {} items pass", done.len());
    match unexplained {
        0 => Ok(()),
        count => Err(Failure::new(
            Kind::Failure,
            format!("{count} checks fail without a reason"),
        )),
    }
}

impl Size {
    fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }
}
