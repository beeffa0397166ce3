//! `dfcp lab verify`: is the network of a scenario what it says?

use std::process::ExitCode;

use dfcp_command::print_json_or_end;
use dfcp_lab::verify::{Check, Verification};
use serde_json::json;

use super::run::{Choice, fail, failure, isolate, validity, validity_json};
use crate::sim::text;

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    choice: Choice,
    /// Print a line of JSON for each measurement, then one for the path
    #[arg(long)]
    json: bool,
}

/// Verifies it.
pub fn run(args: Args) -> ExitCode {
    let run = || {
        let scenario = args.choice.open()?;
        isolate()?;
        dfcp_lab::verify::verify(&scenario).map_err(failure)
    };
    let found = match run() {
        Ok(found) => found,
        Err(failure) => return fail(&failure, &args.choice.file, args.json),
    };
    match args.json {
        true => print_lines(&found),
        false => text::print(&show(&found)),
    }
    let passed = found.checks.iter().all(Check::passed) && found.notes.is_empty();
    ExitCode::from(u8::from(!(passed && found.validity.is_valid())))
}

fn print_lines(found: &Verification) {
    for check in &found.checks {
        print_json_or_end(&json!({
            "flow": check.flow,
            "what": check.what,
            "expected": check.expected,
            "measured": check.measured,
            "tolerance": check.tolerance,
            "passed": check.passed(),
        }));
    }
    print_json_or_end(&json!({ "notes": found.notes, "path": validity_json(&found.validity) }));
}

fn show(found: &Verification) -> String {
    let head = ["flow", "what", "expected", "measured", "tolerance", ""];
    let value = |what: &str, value: f64| match what {
        "rtt_s" | "delay_mean_s" | "delay_p95_s" => text::seconds(Some(value)),
        "loss_burst_packets" | "burst_packets" => format!("{value:.1}"),
        "rate_bps" => text::rate(value),
        _ => text::percent(Some(value)),
    };
    let row = |check: &Check| {
        let measured = check.measured.map(|measured| value(check.what, measured));
        vec![
            check.flow.clone(),
            check.what.to_owned(),
            value(check.what, check.expected),
            measured.unwrap_or_else(|| "–".into()),
            value(check.what, check.tolerance),
            if check.passed() { "ok" } else { "WRONG" }.into(),
        ]
    };
    let mut text = text::align(&head, found.checks.iter().map(row).collect(), 2);
    for note in &found.notes {
        text += &format!("{note}\n");
    }
    text + &format!("\n{}\n", validity(&found.validity))
}
