//! `dfcp sim`: transports compared in simulated time.
//!
//! - [`mod@run`]: one run of a scenario, and the scenario with its defaults;
//! - [`sweep`]: a grid of runs on all cores, and its parts merged;
//! - [`plot`]: figures of results; [`figures`]: those of papers, checked;
//! - [`engine`]: the simulator behind them;
//! - [`capture`]: its packets in files that other tools read;
//! - [`columns`]: what is measured, by name; [`table`], [`store`]: how it is kept;
//! - [`text`]: how people see it.

mod capture;
pub mod columns;
pub mod engine;
pub mod figures;
pub mod plot;
pub mod run;
pub mod store;
pub mod sweep;
pub mod table;
pub mod text;

use std::path::Path;
use std::process::ExitCode;

use dfcp_command::Failure;

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Runs a scenario once
    Run(run::Args),
    /// Prints a scenario with every default written out
    Show(run::ShowArgs),
    /// Runs every point of a scenario's sweep on all cores; goes on where it was interrupted
    Sweep(sweep::Args),
    /// Puts parts of a sweep together
    Merge(sweep::merge::Args),
    /// Draws results as SVG or PNG
    Plot(Box<plot::Args>),
    /// Makes figures and tables of papers again and checks them
    Figures(figures::Args),
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    match args.command {
        Command::Run(args) => run::run(args),
        Command::Show(args) => run::show(args),
        Command::Sweep(args) => sweep::run(args),
        Command::Merge(args) => sweep::merge::run(args),
        Command::Plot(args) => plot::run(*args),
        Command::Figures(args) => figures::run(args),
    }
}

/// Prints a failure. One that begins with its place in the scenario stands alone, `file:line: …`,
/// as editors expect it.
pub fn fail(failure: &Failure, scenario: &Path) -> ExitCode {
    match failure.message.strip_prefix(&*scenario.to_string_lossy()) {
        Some(rest) if rest.starts_with(':') => {
            eprintln!("{failure}");
            failure.exit_code()
        }
        _ => dfcp_command::fail(failure),
    }
}
