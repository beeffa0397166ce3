//! What a copy would do (`-n`).

use std::collections::BTreeMap;

use dfcp_transfer::{Entry, Outcome};
use serde::Serialize;

/// What would be sent, and what removed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Plan {
    /// Files, links, and directories that are not there, in their order.
    pub send: Vec<Planned>,
    /// What `--delete` would remove.
    pub remove: Vec<String>,
    /// Bytes of all that would be sent; of files that are there in part fewer come.
    pub bytes: u64,
}

/// Something that would be sent.
#[derive(Clone, Debug, Serialize)]
pub struct Planned {
    /// Where to.
    path: String,
    /// `file`, `directory` or `link`.
    kind: &'static str,
    /// Bytes of a file.
    size: u64,
}

impl Plan {
    /// Of the `entries` of an offer those that have no outcome.
    pub fn new(entries: &[Entry], outcomes: &BTreeMap<u64, Outcome>) -> Self {
        let lacking = (0..)
            .zip(entries)
            .filter(|(index, _)| !outcomes.contains_key(index));
        let send: Vec<_> = lacking.map(|(_, entry)| Planned::of(entry)).collect();
        Self {
            bytes: send.iter().map(|planned| planned.size).sum(),
            send,
            remove: Vec::new(),
        }
    }

    /// For people: sizes and names, and what is removed.
    pub fn lines(&self) -> Vec<String> {
        let send = self.send.iter().map(|planned| match planned.kind {
            "directory" => format!("{:>14} {}/", "", planned.path),
            "link" => format!("{:>14} {}", "link", planned.path),
            _ => format!("{:>14} {}", planned.size, planned.path),
        });
        let remove = self
            .remove
            .iter()
            .map(|path| format!("{:>14} {path}", "remove"));
        send.chain(remove).collect()
    }
}

impl Planned {
    fn of(entry: &Entry) -> Self {
        Self {
            path: entry.path.clone(),
            kind: match (entry.directory, entry.link.is_some()) {
                (true, _) => "directory",
                (_, true) => "link",
                _ => "file",
            },
            size: entry.size,
        }
    }
}
