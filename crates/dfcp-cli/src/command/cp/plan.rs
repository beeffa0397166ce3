//! What a copy would do (`-n`).

use std::collections::BTreeMap;

use dfcp_command::units;
use dfcp_transfer::{Change, Entry, Outcome};
use serde::Serialize;

/// What would be sent, changed and removed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Plan {
    /// Files, links, and directories that are not there, in their order.
    pub send: Vec<Planned>,
    /// What is there with the content that it has here, and would change otherwise.
    pub change: Vec<Changing>,
    /// What `--delete` would remove.
    pub remove: Vec<String>,
    /// Bytes of all that would be sent; of files that are there in part fewer come.
    pub bytes: u64,
    /// How many files and links are there already, with the content that they have here.
    pub there: u64,
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

/// Something of which not the content would change.
#[derive(Clone, Debug, Serialize)]
pub struct Changing {
    /// Where it is.
    path: String,
    /// `file` or `directory`.
    kind: &'static str,
    /// What would change.
    what: Vec<Change>,
}

impl Changing {
    /// For people: what would change, and of what.
    fn line(&self) -> String {
        let word = |change: &Change| match change {
            Change::Mode => "mode",
            Change::Owner => "owner",
            Change::Time => "time",
            Change::Xattrs => "xattrs",
            Change::Acls => "acls",
            Change::Other => "other",
        };
        let what = self.what.iter().map(word).collect::<Vec<_>>().join(",");
        let slash = match self.kind {
            "directory" => "/",
            _ => "",
        };
        format!("{what:>14} {}{slash}", self.path)
    }
}

impl Plan {
    /// Of the `entries` of an offer those that have no outcome, and what would change of others.
    pub fn new(
        entries: &[Entry],
        outcomes: &BTreeMap<u64, Outcome>,
        changes: &BTreeMap<u64, Vec<Change>>,
    ) -> Self {
        let lacking = (0..)
            .zip(entries)
            .filter(|(index, _)| !outcomes.contains_key(index));
        let send: Vec<_> = lacking.map(|(_, entry)| Planned::of(entry)).collect();
        let change = (0..).zip(entries).filter_map(|(index, entry)| {
            Some(Changing {
                what: changes.get(&index)?.clone(),
                path: entry.path.clone(),
                kind: kind_of(entry),
            })
        });
        let there = (0..).zip(entries).filter(|(index, entry)| {
            !entry.directory && matches!(outcomes.get(index), Some(Outcome::There))
        });
        Self {
            there: there.count() as u64,
            bytes: (send.iter()).fold(0, |sum: u64, planned| sum.saturating_add(planned.size)),
            send,
            change: change.collect(),
            remove: Vec::new(),
        }
    }

    /// For people: all of it in a line, also where it is nothing.
    pub fn summary(&self) -> String {
        let directories = self
            .send
            .iter()
            .filter(|planned| planned.kind == "directory");
        let directories = directories.count() as u64;
        let files = self.send.len() as u64 - directories;
        let bytes = units::bytes(self.bytes);
        let parts = [
            (files, format!("{} to send ({bytes})", units::files(files))),
            (directories, format!("{directories} to make (directories)")),
            (
                self.change.len() as u64,
                format!("{} to change", self.change.len()),
            ),
            (
                self.remove.len() as u64,
                format!("{} to remove", self.remove.len()),
            ),
        ];
        let mut parts: Vec<_> = (parts.into_iter())
            .filter_map(|(count, part)| (count > 0).then_some(part))
            .collect();
        if parts.is_empty() {
            parts.push("nothing to do".to_owned());
        }
        if self.there > 0 {
            parts.push(format!("{} there already", self.there));
        }
        format!("dry run: {}", parts.join(", "))
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
        let change = self.change.iter().map(Changing::line);
        send.chain(change).chain(remove).collect()
    }
}

impl Planned {
    fn of(entry: &Entry) -> Self {
        Self {
            path: entry.path.clone(),
            kind: kind_of(entry),
            size: entry.size,
        }
    }
}

fn kind_of(entry: &Entry) -> &'static str {
    match (entry.directory, entry.link.is_some()) {
        (true, _) => "directory",
        (_, true) => "link",
        _ => "file",
    }
}
