//! How a file comes into its place. It is received as `NAME.dfcp-partial`, which is locked against other
//! transfers of the same name, and renamed when it is whole and verified. Partial files stay when a transfer
//! fails, with the journal of what is there of them.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use nix::fcntl::OFlag;
use rustix::fs::RenameFlags;
use rustix::io::Errno;

use super::links::has_none;
use super::survey::hash;
use super::{BUSY, Older, PARTIAL, Store, cap_identity, conflict, target};
use crate::message::{Entry, OnConflict, Outcome, Problem};
use crate::name;
use crate::partial::{JOURNAL, Partial};
use crate::tenants::Tenant;
use crate::tree::Value;
use crate::turns::Going;

/// Names tried for a file whose own is taken.
const MAX_NAMES: u32 = 10_000;
/// How long a process may outlive its sender: that of a copy takes 5 s to notice.
const OUTLIVING: Duration = Duration::from_secs(8);

/// How much of a file is there when it begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How<'a> {
    /// Nothing, and there will be no time at which a part of it is.
    Small,
    /// Nothing that is wanted.
    Anew,
    /// Perhaps a part, which is read as long as this session lasts.
    Resume(&'a Going),
    /// Perhaps a part, and an older version that has these groups.
    Over(&'a Older, &'a [(usize, Value)]),
}

/// How the reception of a file begins.
#[derive(Debug)]
pub(crate) enum Begin {
    /// Here.
    Receive(Partial),
    /// Not at all: the outcome is known.
    Settled(Outcome),
}

impl Store {
    /// Begins to receive `entry`, with what is there of it from the same sender unless it is to begin
    /// `anew`.
    pub(crate) fn begin(
        &self,
        entry: &Entry,
        tenant: &Arc<Tenant>,
        how: How<'_>,
    ) -> Result<Begin, Problem> {
        if let Ok(there) = self.dir.symlink_metadata(name::path(&entry.path)) {
            // A file of the same size may be the same file.
            let differs = !there.is_file() || there.len() != entry.size;
            match self.on_conflict {
                OnConflict::Skip => return Ok(Begin::Settled(Outcome::Skipped)),
                OnConflict::Error if differs => return Err(conflict(&entry.path)),
                _ if !self.is_replaceable(&there) && self.on_conflict != OnConflict::Rename => {
                    return Err(self.conflict_of_kinds(&there, &entry.path));
                }
                _ => {}
            }
        }
        if let Some((parent, _)) = entry.path.rsplit_once('/') {
            self.create_dir(parent)?;
        }
        let name = name::beside(&entry.path, PARTIAL);
        let failed = |error| target(&name, error);
        let hold = self.tenants.take(&name, tenant);
        let hold = hold.ok_or_else(|| failed(io::Error::other(BUSY)))?;
        let file = self.open_own(&name, true).map_err(failed)?;
        let mut partial = Partial::new(file, name.clone(), entry.size, None, hold);
        match how {
            // What is there is of no use, and neither is what is said of it.
            How::Small => partial.file.set_len(0).map_err(failed)?,
            How::Anew | How::Resume(_) | How::Over(..) => self
                .prepare(&mut partial, entry, tenant, how)
                .map_err(failed)?,
        }
        Ok(Begin::Receive(partial))
    }

    /// Finds what is there of a file, and has a journal kept of what comes.
    fn prepare(
        &self,
        partial: &mut Partial,
        entry: &Entry,
        tenant: &Tenant,
        how: How<'_>,
    ) -> io::Result<()> {
        let name = name::beside(&entry.path, JOURNAL);
        let journal = match self.open_own(&name, false) {
            Ok(journal) => journal,
            // Without one a transfer works as well; it only cannot be resumed.
            Err(_) => return partial.file.set_len(0),
        };
        let session = match how {
            How::Resume(session) => Some(session),
            How::Over(older, _) => Some(&older.session),
            How::Small | How::Anew => None,
        };
        if let Some(session) = session {
            partial.file.set_len(entry.size)?;
            let reading = session.read();
            partial.recover(&journal, &tenant.owner, || reading.go_on())?;
        }
        if let How::Over(older, wanted) = how {
            older.give(partial, wanted);
        }
        if partial.have().is_empty() {
            partial.file.set_len(0)?;
        }
        partial.start_journal(journal, &tenant.owner)
    }

    /// Opens or makes a partial file or a journal, for nobody else.
    pub(super) fn open_own(&self, name: &str, lock: bool) -> io::Result<std::fs::File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o600);
        options.custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits());
        loop {
            let file = self.dir.open_with(name::path(name), &options)?.into_std();
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
            if !lock {
                return Ok(file);
            }
            match self.lock(&file) {
                Ok(()) => {}
                Err(std::fs::TryLockError::WouldBlock) => return Err(io::Error::other(BUSY)),
                // File systems without locks have to do without.
                Err(std::fs::TryLockError::Error(_)) => {}
            }
            // Until the lock was ours, another transfer may have renamed what we opened.
            let named = self.dir.symlink_metadata(name::path(name));
            let named = named.map(|metadata| cap_identity(&metadata));
            if named.is_ok_and(|named| named == (metadata.dev(), metadata.ino())) {
                return Ok(file);
            }
        }
    }

    /// Locks a partial file. Where another process of the same owner may have it, it is given time to
    /// notice that its sender is gone.
    #[expect(
        clippy::disallowed_methods,
        reason = "called on threads that may block"
    )]
    fn lock(&self, file: &std::fs::File) -> Result<(), std::fs::TryLockError> {
        let patience = self.owner.map_or(Duration::ZERO, |_| OUTLIVING);
        let begun = std::time::Instant::now();
        loop {
            match file.try_lock() {
                Err(std::fs::TryLockError::WouldBlock) if begun.elapsed() < patience => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                locked => return locked,
            }
        }
    }

    /// Puts a verified file in its place.
    pub(crate) fn finish(&self, partial: &Partial, entry: &Entry) -> Result<Outcome, Problem> {
        let failed = |error| target(&entry.path, error);
        let outcome = self.place(partial, &entry.path, failed)?;
        self.discard_journal(partial);
        if outcome == Outcome::Done {
            self.apply(&partial.file, entry);
        }
        Ok(outcome)
    }

    fn place(
        &self,
        partial: &Partial,
        place: &str,
        failed: impl Fn(io::Error) -> Problem,
    ) -> Result<Outcome, Problem> {
        if self.on_conflict.replaces() {
            let moved = self.make_way_for_file(place).and_then(|()| {
                let (from, to) = (name::path(&partial.name), name::path(place));
                self.dir.rename(from, &self.dir, to)
            });
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
        let dir = self.dir.open_dir(name::path(parent))?;
        rename_to_free(&dir, &name::path(old), &name::path(name))
    }

    /// Removes a partial file that holds nothing, or nothing new.
    pub(crate) fn discard(&self, partial: &Partial) {
        // Left over, it does no harm.
        let _ = self.dir.remove_file(name::path(&partial.name));
        self.discard_journal(partial);
    }

    /// Removes what is noted of a partial file.
    pub(crate) fn discard_journal(&self, partial: &Partial) {
        if let Some(name) = partial.name.strip_suffix(PARTIAL) {
            let _ = self
                .dir
                .remove_file(name::path(&format!("{name}{JOURNAL}")));
        }
    }

    /// Whether the file at `path` holds the same bytes.
    fn is_same(&self, partial: &Partial, path: &str) -> io::Result<bool> {
        let there = self.dir.open(name::path(path))?.into_std();
        let size = partial.file.metadata()?.len();
        if !there.metadata()?.is_file() || there.metadata()?.len() != size {
            return Ok(false);
        }
        Ok(hash(&there, || true)? == hash(&partial.file, || true)?)
    }
}

/// Renames within a directory, unless the name is taken: false then.
pub(super) fn rename_to_free(dir: &Dir, old: &Path, name: &Path) -> io::Result<bool> {
    let moved = rustix::fs::renameat_with(dir, old, dir, name, RenameFlags::NOREPLACE);
    let moved = match moved {
        // Not every file system can.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => match dir.hard_link(old, dir, name) {
            Err(error) if has_none(&error) => claim(dir, old, name),
            linked => linked.and_then(|()| dir.remove_file(old)),
        },
        moved => moved.map_err(io::Error::from),
    };
    match moved {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        moved => moved.map(|()| true),
    }
}

/// Renames where there is neither a rename that replaces nothing nor a link, as on FAT in user space: the name is
/// taken by an empty file first. A process that is killed between the two leaves that.
fn claim(dir: &Dir, old: &Path, name: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    dir.open_with(name, &options)?;
    dir.rename(old, dir, name)
        .inspect_err(|_| _ = dir.remove_file(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_claimed_once_and_never_taken_from_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let authority = cap_std::ambient_authority();
        let dir = Dir::open_ambient_dir(folder.path(), authority).unwrap();
        let claim = |old: &str, name: &str| claim(&dir, Path::new(old), Path::new(name));
        std::fs::write(path("taken"), "other").unwrap();
        std::os::unix::fs::symlink("nowhere", path("link")).unwrap();
        for round in 0..50 {
            let (olds, name) = (
                [format!("{round}a"), format!("{round}b")],
                format!("{round}"),
            );
            for old in &olds {
                std::fs::write(path(old), old).unwrap();
            }
            let claims = std::thread::scope(|scope| {
                let both = olds.each_ref().map(|old| scope.spawn(|| claim(old, &name)));
                both.map(|one| one.join().unwrap().map_err(|error| error.kind()))
            });
            let winner = claims.iter().position(Result::is_ok).unwrap();
            assert_eq!(claims[1 - winner], Err(io::ErrorKind::AlreadyExists));
            assert_eq!(std::fs::read_to_string(path(&name)).unwrap(), olds[winner]);
            let loser = &olds[1 - winner];
            assert_eq!(std::fs::read_to_string(path(loser)).unwrap(), *loser);
        }
        for taken in ["taken", "link"] {
            let refused = claim("1", taken).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        }
        assert_eq!(std::fs::read(path("taken")).unwrap(), b"other");
        // What cannot be renamed leaves nothing under the name.
        assert!(claim("none", "new").is_err() && !path("new").exists());
    }
}
