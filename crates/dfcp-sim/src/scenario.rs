//! Scenario files: TOML in, validated plain data out.
//!
//! A file says what the network is (`[topology]`, `[link.…]`), who sends (`[[flow]]` with `[tcp]`,
//! `[dfcp]`, `[published]`, `[udp]`), what changes when (`[[change]]`), how long and with which seed (`[run]`),
//! and what is varied (`[sweep]`). The examples in `scenarios/` show every part. Quantities are
//! strings with units; a link's `framing` states at which layer its rate counts bytes.
//!
//! [`Document`] is the parsed text, in which values can still be set; [`Scenario`] is what it
//! means; [`Sweep`] is many scenarios, each made when it is asked for.
//!
//! Invariants: nothing here panics, whatever the text; a file with an unknown key, a wrong unit or
//! a route that does not exist is refused as a whole, with the line and what would be right; what
//! [`Scenario::to_toml_with_defaults`] writes reads back as the same scenario.

mod build;
mod cases;
mod changes;
mod control;
mod document;
mod ends;
mod fields;
mod flows;
mod model;
mod network;
mod parts;
mod route;
mod settings;
mod settle;
mod sweep;
#[cfg(test)]
mod tests;
mod tree;
mod units;

pub use control::{ControlLaw, ControlSpec};
pub use document::{Document, LeftOut};
pub use model::*;
pub use parts::SchedulerLaw;
pub use sweep::{Parameter, Point, Sweep};

/// The version of the schema that files state as `schema = 1`.
const SCHEMA: i64 = 1;

/// A validated scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// What the scenario is about.
    pub title: String,
    /// Settings of the whole run.
    pub run: RunSpec,
    /// Hosts and routers.
    pub nodes: Vec<NodeSpec>,
    /// One-way links; a duplex link is two in a row, forward and back.
    pub links: Vec<LinkSpec>,
    /// Flows in the order of the file.
    pub flows: Vec<FlowSpec>,
    /// What orders rates to flows that listen.
    pub controller: Option<ControllerSpec>,
    /// Scheduled changes in order of time.
    pub changes: Vec<ChangeSpec>,
    canonical: String,
    hash: String,
}

impl Scenario {
    /// Reads a scenario that refers to no other files (else see [`Document::load_files`]).
    /// `file` is the name that errors show. A `[sweep]` has no effect here.
    ///
    /// # Errors
    /// The first thing that is wrong, its line, and what would be right.
    pub fn from_toml(text: &str, file: &str) -> Result<Self, ScenarioError> {
        Document::parse(text, file)?.scenario()
    }

    /// The scenario with every default written out.
    pub fn to_toml_with_defaults(&self) -> &str {
        &self.canonical
    }

    /// BLAKE3 of [`Scenario::to_toml_with_defaults`] and of the files it refers to, in hexadecimal.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Round-trip propagation delay of a flow.
    pub fn rtt(&self, flow: &FlowSpec) -> dfcp_proto::Duration {
        let links = flow.forward.iter().chain(&flow.backward);
        links.map(|link| self.links[link.0].config.delay).sum()
    }
}

/// What is wrong with a scenario file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", place(.file, *.line))]
pub struct ScenarioError {
    /// The file, as its reader named it; `path=value` for a value set from outside.
    pub file: String,
    /// The line, from one.
    pub line: Option<usize>,
    /// What is wrong and what would be right.
    pub message: String,
}

fn place(file: &str, line: Option<usize>) -> String {
    match line {
        Some(line) => format!("{file}:{line}: "),
        None => format!("{file}: "),
    }
}
