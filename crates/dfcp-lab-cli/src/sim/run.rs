//! `dfcp sim run`, one run of a scenario, and `dfcp sim show`, the scenario with its defaults.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use dfcp_command::{Failure, Kind, print_json_or_end};
use dfcp_sim::report::RunReport;
use dfcp_sim::scenario::Scenario;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::capture::{Capture, Targets};
use super::columns::{self, Record};
use super::engine::{self, Overrides};
use super::store;
use super::table::{Column, Table};
use super::text;

/// Arguments of `dfcp sim run`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Scenario
    file: PathBuf,
    /// Print a line of JSON for each flow, then one for the run
    #[arg(long)]
    json: bool,
    /// Seed of everything random, instead of the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// A case of the scenario's sweep, by its name
    #[arg(long, value_name = "NAME")]
    case: Option<String>,
    /// Folder of traces that do not lie beside the scenario
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// A setting instead of the scenario's, such as run.duration="10 s"; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
    /// Directory for flows.csv, links.csv, series.csv, summary.json and scenario.toml
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    capture: Targets,
    /// Show how far simulated time has come
    #[arg(long)]
    progress: bool,
}

/// Arguments of `dfcp sim show`.
#[derive(Clone, Debug, clap::Args)]
pub struct ShowArgs {
    /// Scenario
    file: PathBuf,
    /// A case of the scenario's sweep, by its name
    #[arg(long, value_name = "NAME")]
    case: Option<String>,
    /// Folder of traces that do not lie beside the scenario
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// A setting instead of the scenario's; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
}

/// A setting on the command line: `key=value`.
pub fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err(format!("not KEY=VALUE: {text:?}")),
    }
}

/// Prints a scenario with every default.
pub fn show(args: ShowArgs) -> ExitCode {
    let overrides = Overrides {
        case: args.case,
        seed: None,
        set: args.set,
        traces: args.traces,
    };
    match engine::with_defaults(&args.file, &overrides) {
        Ok(scenario) => {
            text::print(&scenario);
            ExitCode::SUCCESS
        }
        Err(failure) => super::fail(&failure, &args.file),
    }
}

/// Runs a scenario once.
pub fn run(args: Args) -> ExitCode {
    let overrides = Overrides {
        case: args.case.clone(),
        seed: args.seed,
        set: args.set.clone(),
        traces: args.traces.clone(),
    };
    let run = || {
        let scenario = engine::open(&args.file, &overrides)?;
        let capture = Capture::create(&args.capture, &scenario)?;
        let bar = match args.progress {
            true => bar(&scenario),
            false => ProgressBar::hidden(),
        };
        let started = Instant::now();
        let report = engine::simulate(&scenario, capture.watch(), &mut |reached| {
            bar.set_position(milliseconds(
                reached.saturating_since(dfcp_proto::Instant::ZERO),
            ));
        });
        let wall = started.elapsed();
        bar.finish_and_clear();
        let report = report?;
        let captured = capture.finish();
        if let Some(directory) = &args.out {
            write(directory, &scenario, &report)?;
        }
        match args.json {
            true => print_lines(&report, wall),
            false => text::print(&text::report(&report, wall)),
        }
        // What was measured counts without the packets.
        captured
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err::<_, Failure>(failure) => {
            if args.json {
                print_json_or_end(&json!({ "error": failure }));
            }
            super::fail(&failure, &args.file)
        }
    }
}

/// A bar over simulated time.
fn bar(scenario: &Scenario) -> ProgressBar {
    let bar = ProgressBar::new(milliseconds(scenario.run.duration));
    let template = "{bar:24} {percent} % of simulated time, eta {eta}";
    // A wrong template would be a mistake of ours; the default one serves then.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn print_lines(report: &RunReport, wall: Duration) {
    for flow in &report.flows {
        print_json_or_end(&Record::flow(flow));
    }
    print_json_or_end(&Record::run(&report.summary).and("wall_s", wall.as_secs_f64()));
}

/// Writes everything that was measured; the same bytes for the same scenario and seed.
fn write(directory: &Path, scenario: &Scenario, report: &RunReport) -> Result<(), Failure> {
    let table = |columns: Vec<Column>, rows| {
        let mut table = Table::new(columns);
        for row in rows {
            table.push(row);
        }
        table
    };
    let flows = table(columns::flow_columns(), columns::flow_rows(report));
    let links = table(columns::link_columns(), columns::link_rows(report));
    store::write(&directory.join("flows.csv"), &flows, None)?;
    store::write(&directory.join("links.csv"), &links, None)?;
    if !report.series.is_empty() {
        let series = columns::series_table(report);
        store::write(&directory.join("series.csv"), &series, None)?;
    }
    let summary = serde_json::to_string_pretty(&Record::run(&report.summary))
        .map_err(|error| Failure::new(Kind::Failure, error.to_string()))?;
    let files = [
        ("summary.json", summary + "\n"),
        ("scenario.toml", scenario.to_toml_with_defaults().to_owned()),
    ];
    for (name, content) in files {
        store::write_atomically(&directory.join(name), |file| {
            Ok(file.write_all(content.as_bytes())?)
        })?;
    }
    Ok(())
}
