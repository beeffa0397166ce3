//! `dfcp lab run`: a scenario on a real path, with the figures of `dfcp sim run`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use dfcp_command::{Failure, Kind, print_json_or_end};
use dfcp_lab::run::{Family, Plan, RealRun, Validity};
use dfcp_sim::scenario::Scenario;
use serde_json::json;

use crate::sim::columns::Record;
use crate::sim::engine::{self, Overrides};
use crate::sim::{self, text};

/// What chooses a scenario.
#[derive(Clone, Debug, clap::Args)]
pub struct Choice {
    /// Scenario
    pub file: PathBuf,
    /// Seed of everything random, instead of the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// A setting instead of the scenario's, such as run.duration="10 s"; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = sim::run::setting)]
    set: Vec<(String, String)>,
    /// IPv6 instead of IPv4: 20 bytes more a packet
    #[arg(short = '6', long)]
    ipv6: bool,
}

impl Choice {
    /// The scenario.
    pub fn open(&self) -> Result<Scenario, Failure> {
        engine::open(&self.file, &self.overrides())
    }

    /// Settings that replace the scenario's.
    pub fn overrides(&self) -> Overrides {
        Overrides {
            seed: self.seed,
            set: self.set.clone(),
            ..Overrides::default()
        }
    }

    /// Where the files are that the scenario refers to.
    pub fn directory(&self) -> &Path {
        match self.file.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            _ => Path::new("."),
        }
    }

    /// Which addresses flows use.
    pub fn family(&self) -> Family {
        match self.ipv6 {
            true => Family::Ipv6,
            false => Family::Ipv4,
        }
    }
}

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    choice: Choice,
    /// Print a line of JSON for each flow, then one for the run
    #[arg(long)]
    json: bool,
}

/// Exit code of a run that happened but does not count.
const INVALID: u8 = 1;

/// Runs a scenario.
pub fn run(args: Args) -> ExitCode {
    let run = || {
        let scenario = args.choice.open()?;
        isolate()?;
        let plan = Plan {
            scenario: &scenario,
            directory: args.choice.directory(),
            family: args.choice.family(),
        };
        dfcp_lab::run::run(plan).map_err(failure)
    };
    match run() {
        Ok(run) => {
            match args.json {
                true => print_lines(&run),
                false => text::print(&show(&run)),
            }
            let failed = run.failures.iter().any(Option::is_some);
            match run.validity.is_valid() && !failed {
                true => ExitCode::SUCCESS,
                false => ExitCode::from(INVALID),
            }
        }
        Err(failure) => fail(&failure, &args.choice.file, args.json),
    }
}

/// Leaves the machine's network. Before the process has any other thread.
pub fn isolate() -> Result<(), Failure> {
    match dfcp_lab::isolate() {
        Ok(_) => Ok(()),
        Err(reason) => Err(Failure::new(Kind::Failure, reason.to_string())),
    }
}

/// What a lab says.
pub fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::new(Kind::Failure, error.to_string())
}

/// Prints a failure, about a scenario or not.
pub fn fail(failure: &Failure, file: &Path, json: bool) -> ExitCode {
    if json {
        print_json_or_end(&json!({ "error": failure }));
    }
    match failure.kind {
        Kind::Usage => sim::fail(failure, file),
        _ => dfcp_command::fail(failure),
    }
}

fn print_lines(run: &RealRun) {
    for (flow, failure) in run.report.flows.iter().zip(&run.failures) {
        let record = Record::flow(flow);
        print_json_or_end(&match failure {
            Some(reason) => record.and("failure", reason.as_str()),
            None => record,
        });
    }
    let mut record = serde_json::to_value(Record::run(&run.report.summary)).unwrap_or_default();
    record["path"] = validity_json(&run.validity);
    print_json_or_end(&record);
}

/// How true the network was, as JSON.
pub fn validity_json(validity: &Validity) -> serde_json::Value {
    json!({
        "valid": validity.is_valid(),
        "reasons": validity.reasons,
        "late_p50_s": validity.late_p50.as_secs_f64(),
        "late_p99_s": validity.late_p99.as_secs_f64(),
        "late_max_s": validity.late_max.as_secs_f64(),
        "lost_at_ports": validity.lost_at_ports,
        "strange": validity.strange,
        "cpu_share": validity.cpu_share,
        "waited_share": validity.waited_share,
    })
}

fn show(run: &RealRun) -> String {
    let mut text = text::tables(&run.report);
    for (flow, failure) in run.report.flows.iter().zip(&run.failures) {
        if let Some(reason) = failure {
            let _ = writeln!(text, "\n{} did not run: {reason}", flow.name);
        }
    }
    let _ = writeln!(text, "\n{}", validity(&run.validity));
    text
}

/// How true the network was, in a few lines.
pub fn validity(validity: &Validity) -> String {
    let time = |time: std::time::Duration| text::seconds(Some(time.as_secs_f64()));
    let mut text = format!(
        "path: packets late by {} (median), {} (99 %), {} (most); {} lost at its ends; \
         {} of a processor; its programs waited for one for {} of the time",
        time(validity.late_p50),
        time(validity.late_p99),
        time(validity.late_max),
        validity.lost_at_ports,
        text::percent(Some(validity.cpu_share)),
        text::percent(Some(validity.waited_share)),
    );
    for reason in &validity.reasons {
        let _ = write!(text, "\nINVALID: {reason}");
    }
    text
}
