//! Scenario files: TOML in, validated plain data out.

mod model;

pub use model::*;

/// A validated scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// What the scenario is about.
    pub title: String,
    /// Settings of the whole run.
    pub run: RunSpec,
    /// Hosts and routers.
    pub nodes: Vec<NodeSpec>,
    /// One-way links.
    pub links: Vec<LinkSpec>,
    /// Flows in the order of the file.
    pub flows: Vec<FlowSpec>,
    /// Scheduled changes in order of time.
    pub changes: Vec<ChangeSpec>,
    canonical: String,
}

/// What is wrong with a scenario file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", place(.file, *.line))]
pub struct ScenarioError {
    /// The file, as its reader named it.
    pub file: String,
    /// The line, from one, where it is one line's fault.
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
