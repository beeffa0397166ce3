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
use rustix::fs::RenameFlags;
use rustix::io::Errno;

use crate::Error;
use crate::message::{Entry, Outcome, Problem, ProblemKind};
use crate::offer::{Held, Limits};
use crate::space::Claims;

/// Follows the name of a file that is not whole.
pub const PARTIAL: &str = ".dfcp-partial";
/// Bits of a mode that are taken over, but for those of the umask: no set-user-ID.
const MODE: u32 = 0o777;
/// Names tried for a file whose own is taken.
const MAX_NAMES: u32 = 10_000;

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
    pub(crate) offers: Held,
    /// Bits of modes that this process gives to nobody.
    umask: u32,
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
            offers: Held::default(),
            umask: umask(),
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
        let finish = || self.apply(&self.dir.open(&entry.path)?.into_std(), entry);
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
            // Another user could write to it later, or has linked a file of ours to this name.
            if metadata.uid() != nix::unistd::geteuid().as_raw() || metadata.nlink() > 1 {
                return Err(io::Error::other(
                    "it is there, and not of a transfer of yours",
                ));
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
        let outcome = self.place(partial, &entry.path, failed)?;
        if outcome == Outcome::Done {
            self.apply(&partial.file, entry).map_err(failed)?;
        }
        Ok(outcome)
    }

    fn place(
        &self,
        partial: &Partial,
        place: &str,
        failed: impl Fn(io::Error) -> Problem,
    ) -> Result<Outcome, Problem> {
        if self.on_conflict == OnConflict::Overwrite {
            let moved = self.dir.rename(&partial.name, &self.dir, place);
            return moved.map(|()| Outcome::Done).map_err(failed);
        }
        if self.move_to_free(partial, place).map_err(&failed)? {
            return Ok(Outcome::Done);
        }
        match self.on_conflict {
            OnConflict::Rename => {
                for n in 1..MAX_NAMES {
                    let name = format!("{place}.{n}");
                    if self.move_to_free(partial, &name).map_err(&failed)? {
                        return Ok(Outcome::Done);
                    }
                }
                Err(failed(io::Error::other("no free name")))
            }
            OnConflict::Error if !self.is_same(partial, place).unwrap_or(false) => {
                Err(conflict(place))
            }
            OnConflict::Error => {
                self.discard(partial);
                Ok(Outcome::Done)
            }
            _ => Ok(Outcome::Skipped),
        }
    }

    /// Gives the partial file the name `place`, which nobody can take in between; false if it is
    /// taken.
    fn move_to_free(&self, partial: &Partial, place: &str) -> io::Result<bool> {
        // Both are in one directory, which is opened as everything is: beneath ours.
        let (parent, name) = place.rsplit_once('/').unwrap_or((".", place));
        let (_, old) = partial
            .name
            .rsplit_once('/')
            .unwrap_or((".", &partial.name));
        let dir = self.dir.open_dir(parent)?;
        let moved = rustix::fs::renameat_with(&dir, old, &dir, name, RenameFlags::NOREPLACE);
        let moved = match moved {
            // Not every file system can.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => dir
                .hard_link(old, &dir, name)
                .and_then(|()| dir.remove_file(old)),
            moved => moved.map_err(io::Error::from),
        };
        match moved {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            moved => moved.map(|()| true),
        }
    }

    /// Removes a partial file that holds nothing, or nothing new.
    pub(crate) fn discard(&self, partial: &Partial) {
        // Left over, it does no harm.
        let _ = self.dir.remove_file(&partial.name);
    }

    /// Gives a file the mode and time that were offered.
    fn apply(&self, file: &std::fs::File, entry: &Entry) -> io::Result<()> {
        file.set_permissions(std::fs::Permissions::from_mode(
            entry.mode & MODE & !self.umask,
        ))?;
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

/// What the process gives to nobody. It can be read only by setting it: to everything, for a moment.
fn umask() -> u32 {
    use nix::sys::stat::{Mode, umask};
    let mask = umask(Mode::from_bits_truncate(0o777));
    umask(mask);
    #[allow(clippy::useless_conversion)] // modes have 16 bits on other platforms
    u32::from(mask.bits())
}

fn target(path: &str, error: io::Error) -> Problem {
    Problem::new(ProblemKind::Target, format!("receiver: {path}: {error}"))
}

fn conflict(path: &str) -> Problem {
    let message = format!("{path} exists with other content (see --on-conflict)");
    Problem::new(ProblemKind::Conflict, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::Barrier;

    fn entry(path: &str, size: u64, mode: u32) -> Entry {
        Entry {
            path: path.to_owned(),
            size,
            mode,
            mtime: 0,
            mtime_nanos: 0,
            directory: false,
        }
    }

    /// Receives a file with these bytes.
    fn receive(store: &Store, entry: &Entry, bytes: &[u8]) -> Result<Outcome, Problem> {
        let Begin::Receive(partial) = store.begin(entry)? else {
            panic!("it is to be received")
        };
        std::os::unix::fs::FileExt::write_all_at(&partial.file, bytes, 0).unwrap();
        store.finish(&partial, entry)
    }

    #[test]
    fn modes_are_within_the_umask_and_give_no_privileges() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path(), OnConflict::Error).unwrap();
        store.umask = 0o027;
        receive(&store, &entry("a", 1, 0o6777), b"x").unwrap();
        let mode = fs::metadata(dir.path().join("a")).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o750);
    }

    #[test]
    fn what_is_linked_to_the_name_of_a_partial_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), OnConflict::Error).unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        fs::hard_link(&victim, dir.path().join("a.dfcp-partial")).unwrap();
        assert!(receive(&store, &entry("a", 1, 0o644), b"x").is_err());
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
    }

    #[test]
    fn a_partial_file_of_another_user_is_not_continued() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), OnConflict::Error).unwrap();
        let partial = dir.path().join("a.dfcp-partial");
        fs::write(&partial, "theirs").unwrap();
        // Only the superuser can give files away; for others there is nothing to try.
        if std::os::unix::fs::chown(&partial, Some(65_534), None).is_ok() {
            assert!(receive(&store, &entry("a", 1, 0o644), b"x").is_err());
            assert_eq!(fs::read(&partial).unwrap(), b"theirs");
        }
    }

    #[test]
    fn a_name_that_is_taken_meanwhile_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        for (round, on_conflict) in [OnConflict::Error, OnConflict::Skip, OnConflict::Rename]
            .into_iter()
            .enumerate()
        {
            let store = Store::open(dir.path(), on_conflict).unwrap();
            let entry = entry(&format!("d/{round}"), 1, 0o644);
            let Begin::Receive(partial) = store.begin(&entry).unwrap() else {
                panic!("it is free")
            };
            let place = dir.path().join(&entry.path);
            fs::write(&place, "other").unwrap();
            let outcome = store.finish(&partial, &entry);
            assert_eq!(fs::read(&place).unwrap(), b"other", "{on_conflict:?}");
            match on_conflict {
                OnConflict::Error => assert!(outcome.is_err()),
                OnConflict::Skip => assert_eq!(outcome.unwrap(), Outcome::Skipped),
                _ => assert!(dir.path().join("d/2.1").exists()),
            }
        }
    }

    #[test]
    fn two_transfers_that_want_the_same_free_name_both_keep_their_files() {
        let dir = tempfile::tempdir().unwrap();
        let stores = [(); 2].map(|()| Store::open(dir.path(), OnConflict::Rename).unwrap());
        let barrier = Barrier::new(2);
        for round in 0..100 {
            let taken = format!("{round}");
            fs::write(dir.path().join(&taken), "").unwrap();
            // Both end up wanting `ROUND.1`.
            let entries = [
                entry(&taken, 1, 0o644),
                entry(&format!("{round}.1"), 1, 0o644),
            ];
            std::thread::scope(|scope| {
                for ((store, entry), bytes) in stores.iter().zip(&entries).zip([b"x", b"y"]) {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        let Begin::Receive(partial) = store.begin(entry).unwrap() else {
                            panic!("it is to be received")
                        };
                        std::os::unix::fs::FileExt::write_all_at(&partial.file, bytes, 0).unwrap();
                        barrier.wait();
                        store.finish(&partial, entry).unwrap();
                    });
                }
            });
            let files = fs::read_dir(dir.path()).unwrap().count();
            assert_eq!(files, 3 * (round + 1), "round {round}");
        }
    }
}
