//! `dfcp lab parity`: scenarios in the simulator and on a real path, side by side.

use std::fs::File;
use std::io::Write;
use std::process::ExitCode;

use dfcp_command::{Failure, print_json_or_end, units};
use dfcp_lab::parity::{self, Cell, FlowParity, Pair, Tolerance};
use dfcp_sim::scenario::Scenario;
use serde_json::json;

use super::run::{fail, failure, isolate, validity_json};
use crate::sim::engine::{self, Overrides};
use crate::sim::{self, text};

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Scenarios; of one with a sweep every point is a cell
    #[arg(required = true)]
    files: Vec<std::path::PathBuf>,
    /// A setting instead of the scenarios', such as run.duration="10 s"; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = sim::run::setting)]
    set: Vec<(String, String)>,
    /// Seeds that each cell is run with, in both worlds; their medians are compared
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100))]
    repeat: u64,
    /// How far apart the goodputs may be
    #[arg(long, default_value = "5%", value_parser = units::share)]
    tolerance: f64,
    /// Run only cells whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Print a line of JSON for each cell, then one for all
    #[arg(long)]
    json: bool,
    /// Print a table in Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Write the lines of JSON to this file too
    #[arg(short, long, value_name = "FILE")]
    out: Option<std::path::PathBuf>,
}

/// Compares.
pub fn run(args: Args) -> ExitCode {
    let tolerance = Tolerance {
        rate: args.tolerance,
        ..Tolerance::default()
    };
    let compare = || -> Result<Tally, Failure> {
        let plans = plans(&args)?;
        isolate()?;
        let mut out = args.out.as_ref().map(File::create).transpose()?;
        let mut tally = Tally::default();
        for (number, plan) in plans.into_iter().enumerate() {
            let directory = match plan.directory.as_os_str().is_empty() {
                true => ".".into(),
                false => plan.directory,
            };
            let cell = parity::compare(&plan.name, &plan.scenarios, &directory, tolerance);
            let cell = cell.map_err(failure)?;
            tally.add(&cell);
            let json = cell_json(&cell);
            if let Some(out) = &mut out {
                writeln!(out, "{json}")?;
            }
            match (args.json, args.markdown) {
                (true, _) => print_json_or_end(&json),
                (_, true) => text::print(&markdown(&cell, number == 0)),
                _ => text::print(&show(&cell, number == 0)),
            }
        }
        Ok(tally)
    };
    match compare() {
        Ok(tally) => {
            let Tally { all, passed, .. } = tally;
            match args.json {
                true => print_json_or_end(&json!({ "cells": all, "within_tolerance": passed })),
                false => println!("\n{tally}"),
            }
            ExitCode::from(u8::from(passed < all))
        }
        Err(failure) => fail(&failure, &args.files[0], args.json),
    }
}

/// How many cells are what they should be.
#[derive(Clone, Copy, Default)]
struct Tally {
    all: usize,
    passed: usize,
    /// On a path that was not true.
    late: usize,
    /// Of these, those with goodputs within the tolerance all the same.
    late_and_near: usize,
}

impl Tally {
    fn add(&mut self, cell: &Cell) {
        let late = !cell.validity.is_valid();
        self.all += 1;
        self.passed += usize::from(cell.passed());
        self.late += usize::from(late);
        self.late_and_near += usize::from(late && cell.goodput_bps.near);
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            all,
            passed,
            late,
            late_and_near,
        } = self;
        write!(f, "{passed} of {all} cells are within the tolerance")?;
        match late {
            0 => Ok(()),
            _ => write!(
                f,
                "; the path of {late} was not true, of which {late_and_near} are within it by goodput"
            ),
        }
    }
}

/// A cell that is to be run.
struct CellPlan {
    name: String,
    /// One for each seed.
    scenarios: Vec<Scenario>,
    directory: std::path::PathBuf,
}

/// The cells of all files; whatever is wrong with one is known before the first is run.
fn plans(args: &Args) -> Result<Vec<CellPlan>, Failure> {
    let mut plans = Vec::new();
    for file in &args.files {
        let directory = file.parent().map(ToOwned::to_owned).unwrap_or_default();
        let mut with_seed = Vec::new();
        for seed in 1..=args.repeat {
            let overrides = Overrides {
                seed: Some(seed),
                set: args.set.clone(),
                ..Overrides::default()
            };
            with_seed.push(engine::points(file, &overrides)?);
        }
        let points = with_seed.first().map_or(0, Vec::len);
        for point in 0..points {
            let (name, _) = &with_seed[0][point];
            if name.contains(&args.only) {
                plans.push(CellPlan {
                    name: name.clone(),
                    scenarios: with_seed.iter().map(|all| all[point].1.clone()).collect(),
                    directory: directory.clone(),
                });
            }
        }
    }
    match plans.is_empty() {
        true => Err(Failure::usage("no cell has such a name")),
        false => Ok(plans),
    }
}

fn cell_json(cell: &Cell) -> serde_json::Value {
    let pair =
        |pair: &Pair| json!({ "simulated": pair.simulated, "real": pair.real, "near": pair.near });
    let flow = |flow: &FlowParity| {
        json!({
            "flow": flow.flow,
            "protocol": flow.protocol,
            "goodput_bps": pair(&flow.goodput_bps),
            "fct_s": pair(&flow.fct_s),
            "loss": pair(&flow.loss),
            "rtt_s": pair(&flow.rtt_s),
            "overhead": pair(&flow.overhead),
            "failure": flow.failure,
        })
    };
    json!({
        "cell": cell.name,
        "passed": cell.passed(),
        "goodput_bps": pair(&cell.goodput_bps),
        "flows": cell.flows.iter().map(flow).collect::<Vec<_>>(),
        "runs": cell.runs,
        "path": validity_json(&cell.validity),
    })
}

/// More flows of a protocol than this are a row together.
const ROWS: usize = 4;

/// A row of a table for each flow, or for all of a protocol where they are many.
fn markdown(cell: &Cell, first: bool) -> String {
    let mut text = String::new();
    if first {
        text += "| cell | flow | goodput | real ÷ simulated | completion | loss | RTT | overhead | late (99 %) |\n";
        text += "|---|---|---|---|---|---|---|---|---|\n";
    }
    let late = text::seconds(Some(cell.validity.late_p99.as_secs_f64()));
    let verdict = match (cell.passed(), cell.validity.is_valid()) {
        (true, _) => "",
        (false, true) => " ✗",
        (false, false) => " ✗ (path not true)",
    };
    let mut protocols: Vec<(&str, Vec<&FlowParity>)> = Vec::new();
    for flow in &cell.flows {
        match protocols
            .iter_mut()
            .find(|(name, _)| *name == flow.protocol)
        {
            Some((_, flows)) => flows.push(flow),
            None => protocols.push((&flow.protocol, vec![flow])),
        }
    }
    let rows = protocols
        .into_iter()
        .flat_map(|(_, flows)| match flows.len() {
            0..=ROWS => flows.into_iter().map(one_flow).collect(),
            _ => vec![many_flows(&flows)],
        });
    for cells in rows {
        text += &format!(
            "| {}{verdict} | {} | {late} |\n",
            cell.name,
            cells.join(" | ")
        );
    }
    text
}

/// The cells of a row of a flow.
fn one_flow(flow: &FlowParity) -> Vec<String> {
    vec![
        flow.protocol.clone(),
        both(&flow.goodput_bps, text::rate),
        share(&flow.goodput_bps),
        both(&flow.fct_s, |s| text::seconds(Some(s))),
        both(&flow.loss, |share| text::percent(Some(share))),
        both(&flow.rtt_s, |s| text::seconds(Some(s))),
        both(&flow.overhead, |share| text::percent(Some(share))),
    ]
}

/// The cells of a row of many flows: their goodputs together, and from the least to the most of them;
/// of the others their means.
fn many_flows(flows: &[&FlowParity]) -> Vec<String> {
    let world = |of: fn(&FlowParity) -> Pair, real: bool| {
        let one = move |flow: &&FlowParity| match real {
            true => of(flow).real,
            false => of(flow).simulated,
        };
        flows.iter().filter_map(one).collect::<Vec<f64>>()
    };
    let combined = |of: fn(&FlowParity) -> Pair, by: fn(&[f64]) -> f64| {
        let one = |real| Some(world(of, real)).filter(|all| !all.is_empty());
        Pair {
            simulated: one(false).map(|all| by(&all)),
            real: one(true).map(|all| by(&all)),
            near: flows.iter().all(|flow| of(flow).near),
        }
    };
    let sum = |all: &[f64]| all.iter().sum::<f64>();
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    let total = combined(|flow| flow.goodput_bps, sum);
    let ends = |real| {
        let all = world(|flow| flow.goodput_bps, real);
        let least = all.iter().copied().fold(f64::INFINITY, f64::min);
        let most = all.iter().copied().fold(0.0, f64::max);
        format!("{} to {}", text::rate(least), text::rate(most))
    };
    vec![
        format!(
            "{} × {}, {} → {}",
            flows.len(),
            flows[0].protocol,
            ends(false),
            ends(true)
        ),
        both(&total, text::rate),
        share(&total),
        both(&combined(|flow| flow.fct_s, mean), |s| {
            text::seconds(Some(s))
        }),
        both(&combined(|flow| flow.loss, mean), |share| {
            text::percent(Some(share))
        }),
        both(&combined(|flow| flow.rtt_s, mean), |s| {
            text::seconds(Some(s))
        }),
        both(&combined(|flow| flow.overhead, mean), |share| {
            text::percent(Some(share))
        }),
    ]
}

fn share(pair: &Pair) -> String {
    pair.ratio()
        .map_or("–".into(), |ratio| format!("{ratio:.3}"))
}

/// A line for each flow, the two worlds side by side.
fn show(cell: &Cell, first: bool) -> String {
    let mut text = String::new();
    if first {
        text += "simulated → real; * outside the tolerance\n";
    }
    let verdict = if cell.passed() { "ok" } else { "DIFFERS" };
    text += &format!(
        "\n{}: {verdict}, goodput {}\n",
        cell.name,
        ratio(&cell.goodput_bps)
    );
    let head = [
        "flow", "protocol", "goodput", "time", "loss", "RTT", "overhead",
    ];
    let row = |flow: &FlowParity| {
        vec![
            flow.flow.clone(),
            flow.protocol.clone(),
            both(&flow.goodput_bps, text::rate),
            both(&flow.fct_s, |s| text::seconds(Some(s))),
            both(&flow.loss, |share| text::percent(Some(share))),
            both(&flow.rtt_s, |s| text::seconds(Some(s))),
            both(&flow.overhead, |share| text::percent(Some(share))),
        ]
    };
    text += &text::align(&head, cell.flows.iter().map(row).collect(), 2);
    for flow in &cell.flows {
        if let Some(reason) = &flow.failure {
            text += &format!("{} did not run: {reason}\n", flow.flow);
        }
    }
    for reason in &cell.validity.reasons {
        text += &format!("INVALID: {reason}\n");
    }
    text
}

fn ratio(pair: &Pair) -> String {
    match pair.ratio() {
        Some(ratio) => format!("{:+.1} %", (ratio - 1.0) * 100.0),
        None => "–".into(),
    }
}

fn both(pair: &Pair, show: impl Fn(f64) -> String) -> String {
    let one = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), &show);
    match (pair.simulated, pair.real) {
        (None, None) => "–".into(),
        _ => {
            let mark = if pair.near { "" } else { " *" };
            format!("{} → {}{mark}", one(pair.simulated), one(pair.real))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_flows_of_a_protocol_are_a_row_together() {
        let flow = |goodput: f64| FlowParity {
            protocol: "dfcp".into(),
            goodput_bps: Pair {
                simulated: Some(10e6),
                real: Some(goodput),
                near: true,
            },
            ..FlowParity::default()
        };
        let cell = |flows: usize| Cell {
            name: "drr".into(),
            flows: (0..flows)
                .map(|number| flow(9e6 + number as f64 * 1e6))
                .collect(),
            ..Cell::default()
        };
        let lines = |flows| markdown(&cell(flows), false).lines().count();
        assert_eq!((lines(2), lines(5)), (2, 1));
        let together = markdown(&cell(5), false);
        assert!(together.contains("5 × dfcp"), "{together}");
        assert!(
            together.contains("9.00 Mbit/s to 13.00 Mbit/s"),
            "{together}"
        );
        assert!(
            together.contains("50.00 Mbit/s → 55.00 Mbit/s | 1.100"),
            "{together}"
        );
    }
    #[test]
    fn cells_on_a_late_path_are_told_apart_from_those_that_differ() {
        let cell = |near, reasons: &[&str]| Cell {
            goodput_bps: Pair {
                near,
                ..Pair::default()
            },
            validity: dfcp_lab::run::Validity {
                reasons: reasons.iter().map(ToString::to_string).collect(),
                ..Default::default()
            },
            ..Cell::default()
        };
        let told = |cells: &[Cell]| {
            let mut tally = Tally::default();
            cells.iter().for_each(|cell| tally.add(cell));
            tally.to_string()
        };
        let near = cell(true, &[]);
        assert_eq!(
            told(&[near.clone(), cell(false, &[])]),
            "1 of 2 cells are within the tolerance"
        );
        assert_eq!(
            told(&[near, cell(true, &["late"]), cell(false, &["late"])]),
            "1 of 3 cells are within the tolerance; the path of 2 was not true, of which 1 are within it \
             by goodput"
        );
    }
}
