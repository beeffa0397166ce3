//! The journal of a sweep: points that are done, in the order they were done.
//!
//! Append-only lines of JSON: a head that says of which sweep, then a line for each point. A line
//! is written at once and counts only if it is whole, so that a journal survives any end of the
//! program; what follows the first line that is not whole is dropped and run again. A lock keeps a
//! second process out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dfcp_command::{Failure, Kind};
use serde::{Deserialize, Serialize};

use super::outputs::Results;
use crate::sim::columns;
use crate::sim::store::Provenance;
use crate::sim::table::{Cell, Column};

/// Longest time for which a power failure may undo what was done.
const SYNC_EVERY: Duration = Duration::from_secs(5);

/// How a head begins.
const BEGINNING: &[u8] = b"{\"dfcp_journal\":";

/// A point that is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its index in the sweep.
    pub point: usize,
    /// Its seed.
    pub seed: u64,
    /// Its parameters, in the order of their names in the head.
    pub parameters: Vec<Cell>,
    /// Figures of the flows.
    pub flows: Vec<Vec<Cell>>,
    /// Figures of the links.
    pub links: Vec<Vec<Cell>>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Head {
    dfcp_journal: u32,
    provenance: Provenance,
    flow_columns: Vec<String>,
    link_columns: Vec<String>,
}

impl Head {
    fn new(provenance: &Provenance) -> Self {
        let names = |columns: Vec<Column>| columns.into_iter().map(|column| column.name).collect();
        Self {
            dfcp_journal: 1,
            provenance: provenance.clone(),
            flow_columns: names(columns::flow_columns()),
            link_columns: names(columns::link_columns()),
        }
    }

    /// Why results of `found` cannot stand beside ours.
    fn difference(&self, found: &Self) -> Option<&'static str> {
        let (ours, theirs) = (&self.provenance, &found.provenance);
        if ours.scenario_hash != theirs.scenario_hash {
            Some("another scenario")
        } else if ours.dfcp_version != theirs.dfcp_version {
            Some("another version of dfcp")
        } else {
            (self != found).then_some("a program with other columns")
        }
    }
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// Bytes that are whole lines.
    length: u64,
    synced: Instant,
}

impl Journal {
    /// Opens or makes the journal of a sweep, and tells the points in it.
    pub fn open(path: &Path, provenance: &Provenance) -> Result<(Self, BTreeSet<usize>), Failure> {
        let io = |error| Failure::io(path, error);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(io)?;
        }
        let mut options = OpenOptions::new();
        let options = options.read(true).append(true).create(true);
        let file = options.open(path).map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::new(
                    Kind::LocalIo,
                    format!("{}: another sweep is writing here", path.display()),
                ));
            }
            Err(TryLockError::Error(error)) => return Err(io(error)),
        }
        let mut journal = Self {
            path: path.to_owned(),
            file,
            length: 0,
            synced: Instant::now(),
        };
        let mut points = BTreeSet::new();
        let found = journal.scan(|entry| {
            points.insert(entry.point);
        })?;
        let head = Head::new(provenance);
        match found {
            Some(found) => {
                if let Some(difference) = head.difference(&found) {
                    return Err(Failure::usage(format!(
                        "{}: holds results of {difference}; remove it, or name another output \
                         with -o",
                        path.display()
                    )));
                }
                journal.file.set_len(journal.length).map_err(io)?;
            }
            None => {
                journal.file.set_len(0).map_err(io)?;
                journal.append_line(&head)?;
            }
        }
        Ok((journal, points))
    }

    /// Appends a point.
    pub fn append(&mut self, entry: &Entry) -> Result<(), Failure> {
        self.append_line(entry)?;
        if self.synced.elapsed() >= SYNC_EVERY {
            self.sync()?;
        }
        Ok(())
    }

    /// Waits until all that was appended is on the disk.
    pub fn sync(&mut self) -> Result<(), Failure> {
        self.synced = Instant::now();
        let synced = self.file.sync_data();
        synced.map_err(|error| Failure::io(&self.path, error))
    }

    fn append_line(&mut self, line: &impl Serialize) -> Result<(), Failure> {
        let mut bytes = serde_json::to_vec(line)
            .map_err(|error| Failure::new(Kind::Failure, error.to_string()))?;
        bytes.push(b'\n');
        if let Err(error) = self.file.write_all(&bytes) {
            // Half a line would be dropped on reading; without it, the space is free again.
            let _ = self.file.set_len(self.length);
            return Err(Failure::io(
                &self.path,
                format!("{error}; the points done so far are kept"),
            ));
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Everything in it as tables, ordered by point; of a point that was run again what it measured
    /// last.
    pub fn results(&mut self, parameters: &[String]) -> Result<Results, Failure> {
        let mut last = BTreeMap::new();
        self.scan(|entry| {
            last.insert(entry.point, entry);
        })?;
        let mut results = Results::new(parameters);
        for entry in last.into_values() {
            entry.rows(&mut results);
        }
        Ok(results)
    }

    /// Reads as far as lines are whole, and leaves `length` there; the head, if there is one.
    fn scan(&mut self, mut each: impl FnMut(Entry)) -> Result<Option<Head>, Failure> {
        let io = |error| Failure::io(&self.path, error);
        self.file.seek(SeekFrom::Start(0)).map_err(io)?;
        let mut reader = BufReader::new(&self.file);
        let mut line = Vec::new();
        self.length = 0;
        let Some(head) = next(&mut reader, &mut line).map_err(io)? else {
            // A head cut short is a journal without points; any other text is somebody's file.
            let cut = !line.ends_with(b"\n");
            return match cut && (line.starts_with(BEGINNING) || BEGINNING.starts_with(&line)) {
                true => Ok(None),
                false => Err(Failure::usage(format!(
                    "{}: not a journal of this version of dfcp; name another output with -o",
                    self.path.display()
                ))),
            };
        };
        self.length += line.len() as u64;
        while let Some(entry) = next(&mut reader, &mut line).map_err(io)? {
            self.length += line.len() as u64;
            each(entry);
        }
        Ok(Some(head))
    }
}

/// The next line, if it is whole.
fn next<T: for<'a> Deserialize<'a>>(
    reader: &mut impl BufRead,
    line: &mut Vec<u8>,
) -> io::Result<Option<T>> {
    line.clear();
    reader.read_until(b'\n', line)?;
    match line.ends_with(b"\n") {
        true => Ok(serde_json::from_slice(line).ok()),
        false => Ok(None),
    }
}

impl Entry {
    /// Appends the rows of this point.
    fn rows(self, results: &mut Results) {
        let mut lead = vec![Cell::from(self.point as u64)];
        lead.extend(self.parameters);
        lead.push(self.seed.into());
        let row = |figures: Vec<Cell>| lead.iter().cloned().chain(figures).collect();
        for flow in self.flows {
            results.flows.push(row(flow));
        }
        if let Some(links) = &mut results.links {
            for link in self.links {
                links.push(row(link));
            }
        }
    }
}
