//! What a receiver takes at most of one offer.

use crate::message::{Entry, Rejection, RejectionKind};
use crate::name;

/// What a receiver takes at most of one offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all files.
    pub bytes: u64,
    /// Files and directories, with those directories that are only parts of paths.
    pub files: u64,
    /// Whether names that begin with a dot are taken: programs look for their settings under such
    /// names, so a file of that kind can be more than data.
    pub hidden: bool,
    /// Whether names with control characters, backslashes or bytes that are not UTF-8 are taken: what
    /// lists files can stumble over them.
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

impl Limits {
    /// Holds a whole offer of `total` bytes against them.
    pub(super) fn check(&self, entries: &[Entry], total: u64) -> Result<(), Rejection> {
        self.check_bytes(total)?;
        self.check_hidden(entries)?;
        self.check_any_names(entries)
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

    fn check_any_names(&self, entries: &[Entry]) -> Result<(), Rejection> {
        let is_odd = |entry: &&Entry| !name::is_plain(&entry.path);
        let found = entries.iter().find(is_odd).filter(|_| !self.any_names);
        found.map_or(Ok(()), |entry| {
            let message = format!(
                "{} has a name with a control character, a backslash or bytes that are not UTF-8; \
                 the receiver takes such names with --any-names",
                entry.path
            );
            Err(Rejection::new(RejectionKind::Limit, message))
        })
    }

    fn check_hidden(&self, entries: &[Entry]) -> Result<(), Rejection> {
        let is_hidden = |entry: &&Entry| entry.path.split('/').any(|name| name.starts_with('.'));
        let found = entries.iter().find(is_hidden).filter(|_| !self.hidden);
        found.map_or(Ok(()), |entry| {
            let message = format!(
                "{} has a name that begins with a dot; the receiver takes such names with --hidden",
                entry.path
            );
            Err(Rejection::new(RejectionKind::Limit, message))
        })
    }
}

/// Bytes that the offers of all sessions take, for each file that one may have: four times what an
/// entry with a path of 60 bytes takes.
const HELD_FOR_FILE: u64 = 640;
