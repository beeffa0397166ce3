//! What a receiver takes at most of one offer.

use std::collections::BTreeSet;

use super::MAX_ENTRIES;
use crate::message::{Entry, Link, Rejection, RejectionKind};
use crate::meta::Notes;
use crate::name;

/// What a receiver takes at most of one offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all files.
    pub bytes: u64,
    /// Files and directories, with those directories that are only parts of paths.
    pub files: u64,
    /// Whether names that begin with a dot are taken, and not left out: programs look for their
    /// settings under such names, so a file of that kind can be more than data.
    pub hidden: bool,
    /// Whether names with control characters, backslashes or bytes that are not UTF-8 are taken, and
    /// not left out: what lists files can stumble over them.
    pub any_names: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 1_000_000_000_000,
            files: 100_000,
            hidden: false,
            any_names: false,
        }
    }
}

/// What of an offer a receiver does not take because of its names.
#[derive(Debug, Default)]
pub struct Refused {
    /// Places in the offer.
    pub(crate) places: BTreeSet<u64>,
    /// Which names, and why.
    pub(crate) notes: Notes,
    /// What is said where the offer is rejected for that.
    why: Option<Rejection>,
}

impl Refused {
    /// Rejects the offer for what is not taken of it.
    pub(crate) fn reject(&self) -> Result<(), Rejection> {
        self.why.clone().map_or(Ok(()), Err)
    }
}

const HIDDEN: &str =
    "the name begins with a dot; the receiver takes such names with dfcp recv --hidden";
const ODD: &str = "the name has a control character, a backslash or bytes that are not UTF-8; the \
                   receiver takes such names with dfcp recv --any-names";

const OTHER: &str = "it is another name of a file that is left out";

impl Limits {
    /// Files and directories of the longest offer that there is.
    pub const MOST_FILES: u64 = MAX_ENTRIES as u64;

    /// What is not taken because of its names.
    ///
    /// # Errors
    /// When it leaves no file and no link.
    pub(super) fn refused(&self, entries: &[Entry]) -> Result<Refused, Rejection> {
        let mut refused = Refused::default();
        let (mut is_left, mut last) = (false, "");
        for (index, entry) in (0..).zip(entries) {
            let leads_there =
                |to: &Link| matches!(to, Link::Hard(to) if refused.places.contains(to));
            let (name, why) = match self.refuses(&entry.path) {
                Some(found) => found,
                None if entry.link.as_ref().is_some_and(leads_there) => (&*entry.path, OTHER),
                None => {
                    is_left |= !entry.directory;
                    continue;
                }
            };
            refused.places.insert(index);
            // What is in a directory follows it.
            if name != last {
                refused.notes.add(name, why.to_owned());
                last = name;
            }
            refused.why.get_or_insert_with(|| {
                Rejection::new(RejectionKind::Limit, format!("{name}: {why}"))
            });
        }
        match is_left {
            true => {}
            false => refused.reject()?,
        }
        Ok(refused)
    }

    /// The part of `path` that ends in a name which is not taken, and why.
    fn refuses<'a>(&self, path: &'a str) -> Option<(&'a str, &'static str)> {
        let mut end = 0;
        path.split('/').find_map(|name| {
            end += name.len() + 1;
            let why = match name {
                _ if name.starts_with('.') && !self.hidden => HIDDEN,
                _ if !name::is_plain(name) && !self.any_names => ODD,
                _ => return None,
            };
            Some((&path[..end - 1], why))
        })
    }

    /// Holds the number of files and directories against them.
    pub(super) fn check_count(&self, files: usize) -> Result<(), Rejection> {
        match files as u64 > self.files {
            true => Err(self.too_many()),
            false => Ok(()),
        }
    }

    /// Bytes of memory that the lists of all sessions may take.
    pub fn held(&self) -> u64 {
        self.files.saturating_mul(HELD_FOR_FILE)
    }

    fn too_many(&self) -> Rejection {
        let message = format!(
            "more than {} files and directories are offered; the receiver may raise --max-files",
            self.files
        );
        Rejection::new(RejectionKind::Limit, message)
    }

    pub(super) fn check_bytes(&self, total: u64) -> Result<(), Rejection> {
        if total <= self.bytes {
            return Ok(());
        }
        let message = format!(
            "{total} bytes are offered and {} are taken; the receiver may raise --max-bytes",
            self.bytes
        );
        Err(Rejection::new(RejectionKind::Limit, message))
    }
}

/// Bytes that the offers of all sessions take, for each file that one may have: four times what an
/// entry with a path of 60 bytes takes.
const HELD_FOR_FILE: u64 = 640;
