//! The receiver's directory. Everything is opened relative to it, and nothing outside it can be
//! reached, whatever names and symbolic links say (`cap-std`).
//!
//! A file is received as `NAME.dfcp-partial`, which is locked against other transfers of the same
//! name, and renamed when it is whole and verified. Partial files stay when a transfer fails.

use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};

use crate::Error;
use crate::message::{Entry, Outcome, Problem, ProblemKind};
use crate::offer::Limits;
use crate::space::Claims;

/// Follows the name of a file that is not whole.
pub const PARTIAL: &str = ".dfcp-partial";
/// Bits of a mode that are taken over: no set-user-ID.
const MODE: u32 = 0o777;

/// What to do with a file whose name is taken by one with other content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    /// Report it as failed and keep what is there.
    Error,
    /// Keep what is there.
    Skip,
    /// Give the new file a free name: `NAME.1` and so on.
    Rename,
    /// Put the new file in its place.
    Overwrite,
}

/// A directory that files are received in.
#[derive(Debug)]
pub struct Store {
    pub(crate) dir: Dir,
    pub(crate) on_conflict: OnConflict,
    pub(crate) limits: Limits,
    pub(crate) claims: Claims,
}

/// How the reception of a file begins.
#[derive(Debug)]
pub(crate) enum Begin {
    /// Here.
    Receive(Partial),
    /// Not at all: the outcome is known.
    Settled(Outcome),
}

/// A file that is being received.
#[derive(Debug)]
pub(crate) struct Partial {
    /// The open file, locked.
    pub file: std::fs::File,
    /// Its name.
    pub name: String,
}

impl Store {
    /// Receives in `path`, which is made if it does not exist.
    ///
    /// # Errors
    /// When it cannot be made or opened.
    pub fn open(path: &Path, on_conflict: OnConflict) -> Result<Self, Error> {
        let authority = cap_std::ambient_authority();
        let open = || {
            Dir::create_ambient_dir_all(path, authority)?;
            Dir::open_ambient_dir(path, authority)
        };
        let dir = open().map_err(|error| Error::file(path, error))?;
        Ok(Self {
            dir,
            on_conflict,
            limits: Limits::default(),
            claims: Claims::default(),
        })
    }

    /// Takes no more of an offer than `limits`.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Whether `path` is a directory that is there.
    pub(crate) fn has_dir(&self, path: &str) -> bool {
        self.dir.is_dir(path)
    }

    /// Makes the directory `path` with its parents, unless it is there.
    pub(crate) fn create_dir(&self, path: &str) -> Result<(), Problem> {
        match self.has_dir(path) {
            true => Ok(()),
            false => self.dir.create_dir_all(path),
        }
        .map_err(|error| target(path, error))
    }

    /// Gives a directory the mode and time that were offered.
    pub(crate) fn finish_dir(&self, entry: &Entry) -> Result<(), Problem> {
        let finish = || apply(&self.dir.open(&entry.path)?.into_std(), entry);
        finish().map_err(|error| target(&entry.path, error))
    }

    /// Begins to receive `entry`.
    pub(crate) fn begin(&self, entry: &Entry) -> Result<Begin, Problem> {
        if let Ok(there) = self.dir.symlink_metadata(&entry.path) {
            // A file of the same size may be the same file.
            let differs = !there.is_file() || there.len() != entry.size;
            match self.on_conflict {
                OnConflict::Skip => return Ok(Begin::Settled(Outcome::Skipped)),
                OnConflict::Error if differs => return Err(conflict(&entry.path)),
                _ if there.is_dir() && self.on_conflict != OnConflict::Rename => {
                    return Err(conflict(&entry.path));
                }
                _ => {}
            }
        }
        if let Some((parent, _)) = entry.path.rsplit_once('/') {
            self.create_dir(parent)?;
        }
        let name = format!("{}{PARTIAL}", entry.path);
        let file = self
            .open_partial(&name)
            .map_err(|error| target(&name, error))?;
        Ok(Begin::Receive(Partial { file, name }))
    }

    fn open_partial(&self, name: &str) -> io::Result<std::fs::File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o600);
        options.custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits());
        loop {
            let file = self.dir.open_with(name, &options)?.into_std();
            let metadata = file.metadata()?;
            if !metadata.is_file() {
                return Err(io::Error::other("it is there and no file"));
            }
            match file.try_lock() {
                Ok(()) => {}
                Err(std::fs::TryLockError::WouldBlock) => {
                    return Err(io::Error::other("another transfer is writing it"));
                }
                // File systems without locks have to do without.
                Err(std::fs::TryLockError::Error(_)) => {}
            }
            // Until the lock was ours, another transfer may have renamed what we opened.
            let named = self.dir.symlink_metadata(name).map(|m| cap_identity(&m));
            if named.is_ok_and(|named| named == (metadata.dev(), metadata.ino())) {
                file.set_len(0)?;
                return Ok(file);
            }
        }
    }

    /// Puts a verified file in its place.
    pub(crate) fn finish(&self, partial: &Partial, entry: &Entry) -> Result<Outcome, Problem> {
        let failed = |error| target(&entry.path, error);
        let mut place = entry.path.clone();
        if self.dir.symlink_metadata(&place).is_ok() {
            match self.on_conflict {
                OnConflict::Overwrite => {}
                OnConflict::Rename => place = self.free_name(&place).map_err(failed)?,
                OnConflict::Skip => return Ok(Outcome::Skipped),
                OnConflict::Error => {
                    if !self.is_same(partial, &place).unwrap_or(false) {
                        return Err(conflict(&place));
                    }
                    self.discard(partial);
                    return Ok(Outcome::Done);
                }
            }
        }
        apply(&partial.file, entry)
            .and_then(|()| self.dir.rename(&partial.name, &self.dir, &place))
            .map_err(failed)?;
        Ok(Outcome::Done)
    }

    /// Removes a partial file that holds nothing, or nothing new.
    pub(crate) fn discard(&self, partial: &Partial) {
        // Left over, it does no harm.
        let _ = self.dir.remove_file(&partial.name);
    }

    fn free_name(&self, path: &str) -> io::Result<String> {
        (1..10_000)
            .map(|n| format!("{path}.{n}"))
            .find(|name| self.dir.symlink_metadata(name).is_err())
            .ok_or_else(|| io::Error::other("no free name"))
    }

    /// Whether the file at `path` holds the same bytes.
    fn is_same(&self, partial: &Partial, path: &str) -> io::Result<bool> {
        let there = self.dir.open(path)?.into_std();
        let size = partial.file.metadata()?.len();
        if !there.metadata()?.is_file() || there.metadata()?.len() != size {
            return Ok(false);
        }
        Ok(hash(&there)? == hash(&partial.file)?)
    }
}

fn hash(mut file: &std::fs::File) -> io::Result<blake3::Hash> {
    io::Seek::rewind(&mut file)?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finalize()),
            n => hasher.update(&buffer[..n]),
        };
    }
}

pub(crate) fn cap_identity(metadata: &cap_std::fs::Metadata) -> (u64, u64) {
    use cap_std::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

/// Gives a file the mode and time that were offered.
fn apply(file: &std::fs::File, entry: &Entry) -> io::Result<()> {
    file.set_permissions(std::fs::Permissions::from_mode(entry.mode & MODE))?;
    let seconds = Duration::from_secs(entry.mtime.unsigned_abs());
    let time = match entry.mtime >= 0 {
        true => SystemTime::UNIX_EPOCH.checked_add(seconds),
        false => SystemTime::UNIX_EPOCH.checked_sub(seconds),
    };
    let nanos = Duration::from_nanos(u64::from(entry.mtime_nanos.min(999_999_999)));
    if let Some(time) = time.and_then(|time| time.checked_add(nanos)) {
        // Not every file system keeps every time.
        let _ = file.set_modified(time);
    }
    Ok(())
}

fn target(path: &str, error: io::Error) -> Problem {
    Problem::new(ProblemKind::Target, format!("receiver: {path}: {error}"))
}

fn conflict(path: &str) -> Problem {
    let message = format!("{path} exists with other content (see --on-conflict)");
    Problem::new(ProblemKind::Conflict, message)
}
