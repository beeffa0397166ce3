//! Directories that their owner may not write into, as those of read-only trees: they are opened for what comes into
//! them, and have their modes again when the session ends.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use cap_std::fs::Dir;
use rustix::fs::{Access, AtFlags, Mode};

use super::{Store, Survey};
use crate::message::Entry;
use crate::name;

/// Those of a session, with their modes; given back when this is dropped.
#[derive(Debug)]
pub(super) struct Opened {
    dir: Arc<Dir>,
    modes: Mutex<Vec<(String, Mode)>>,
}

impl Opened {
    pub fn new(dir: Arc<Dir>) -> Self {
        Self {
            dir,
            modes: Mutex::default(),
        }
    }

    /// They have the modes that they are to have.
    pub fn settle(&self) {
        self.take();
    }

    fn take(&self) -> Vec<(String, Mode)> {
        std::mem::take(&mut *self.modes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets the owner into a directory, if it is this user's.
    fn open(&self, path: &str) -> io::Result<()> {
        let directory = self.dir.open(name::path(path))?;
        let mode = Mode::from_raw_mode(rustix::fs::fstat(&directory)?.st_mode);
        rustix::fs::fchmod(&directory, mode | Mode::RWXU)?;
        let mut modes = self.modes.lock().unwrap_or_else(PoisonError::into_inner);
        modes.push((path.to_owned(), mode));
        Ok(())
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        for (path, mode) in self.take().into_iter().rev() {
            // One that is gone meanwhile needs none.
            if let Ok(directory) = self.dir.open(name::path(&path)) {
                let _ = rustix::fs::fchmod(&directory, mode);
            }
        }
    }
}

impl Store {
    /// Writes into directories of this user's that are read-only, as `rsync` does: for senders who may as well change
    /// their modes.
    #[must_use]
    pub fn opening_directories(mut self) -> Self {
        self.opens_directories = true;
        self
    }

    /// Opens the directories that something of `entries` is to come into, where it is not there already.
    pub(crate) fn open_directories(&self, entries: &[Entry], known: &[(u64, Survey)]) {
        if !self.opens_directories {
            return;
        }
        let comes = |(index, entry): (u64, &Entry)| {
            if entry.directory {
                return !self.has_dir(&entry.path);
            }
            let found = known.binary_search_by_key(&index, |(index, _)| *index);
            !found.is_ok_and(|at| matches!(known[at].1, Survey::There(_) | Survey::Settled(_)))
        };
        let entries = (0..).zip(entries);
        let coming = entries.filter(|of| comes(*of)).map(|(_, entry)| entry);
        let into: BTreeSet<_> = coming
            .filter_map(|entry| Some(entry.path.rsplit_once('/')?.0))
            .collect();
        for path in into {
            let access = Access::WRITE_OK | Access::EXEC_OK;
            let denied =
                rustix::fs::accessat(&*self.dir, &*name::path(path), access, AtFlags::EACCESS);
            if denied == Err(rustix::io::Errno::ACCESS) {
                // Where that cannot be, what comes says so.
                let _ = self.opened.open(path);
            }
        }
    }

    /// Directories have the modes that they were offered with.
    pub(crate) fn settle_directories(&self) {
        if self.keep.modes {
            self.opened.settle();
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;
    use crate::message::{OnConflict, People, Wishes};
    use crate::offer::Refused;

    /// Runs something as a user who is not above permissions.
    fn as_somebody(dir: &tempfile::TempDir, what: impl FnOnce()) {
        if !nix::unistd::geteuid().is_root() {
            return what();
        }
        let somebody = nix::unistd::Uid::from_raw(65_534);
        let own = |path: &std::path::Path| {
            std::os::unix::fs::chown(path, Some(somebody.as_raw()), None).unwrap();
        };
        own(dir.path());
        for name in ["a", "b", "c"] {
            own(&dir.path().join(name));
        }
        let superuser = nix::unistd::setfsuid(somebody);
        what();
        nix::unistd::setfsuid(superuser);
    }

    #[test]
    fn read_only_directories_take_what_comes_and_are_read_only_again() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for (name, mode) in [("a", 0o555), ("b", 0o500), ("c", 0o755)] {
            std::fs::create_dir(at(name)).unwrap();
            std::fs::set_permissions(at(name), PermissionsExt::from_mode(mode)).unwrap();
        }
        let mode = |name: &str| std::fs::metadata(at(name)).unwrap().mode() & 0o7777;
        let modes = || ["a", "b", "c"].map(mode);
        let entry = |path: &str, directory| Entry {
            path: path.to_owned(),
            directory,
            ..Entry::default()
        };
        let entries = [
            entry("a", true),
            entry("a/x", false),
            entry("b", true),
            entry("b/there", false),
            entry("c", true),
            entry("c/x", false),
        ];
        let known = [(3, Survey::There(Vec::new()))];
        as_somebody(&dir, || {
            let store = Store::open(dir.path(), OnConflict::Overwrite).unwrap();
            // Not for any sender.
            store.open_directories(&entries, &known);
            assert_eq!(modes(), [0o555, 0o500, 0o755]);
            let store = store.opening_directories();
            let session = || {
                let (wishes, people) = (Wishes::default(), People::default());
                let session = store.for_session(wishes, &people, Refused::default());
                session.unwrap()
            };
            let first = session();
            first.open_directories(&entries, &known);
            assert_eq!(modes(), [0o755, 0o500, 0o755]);
            first.create_dir("a/new").unwrap();
            first.settle_directories();
            drop(first);
            assert_eq!(modes(), [0o555, 0o500, 0o755]);
            // Where modes are kept they are given at the end of a session that comes to it.
            let mut second = Arc::unwrap_or_clone(session());
            second.keep.modes = true;
            second.open_directories(&entries, &known);
            second.settle_directories();
            drop(second);
            assert_eq!(mode("a"), 0o755);
        });
    }
}
