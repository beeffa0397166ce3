//! Small files, whose bytes are here and verified before anything of them is on the disk. Many of
//! them follow each other in a directory, so it is opened once for all of these, and a file costs
//! seven system calls: open, lock, write, times, a look at what is there, rename, close.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use cap_std::fs::Dir;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::attributes::MODE;
use super::incoming::rename_to_free;
use super::{Begin, How, PARTIAL, Store, target};
use crate::message::{Entry, Outcome, Problem};
use crate::name;
use crate::tenants::Tenant;

/// The directory that the last file was put in.
#[derive(Debug, Default)]
pub(crate) struct Folder(Option<(String, Dir)>);

impl Store {
    /// Receives a small file whose bytes are known and verified.
    pub(crate) fn put(
        &self,
        entry: &Entry,
        bytes: &[u8],
        tenant: &Arc<Tenant>,
        folder: &mut Folder,
    ) -> Result<Outcome, Problem> {
        match self.put_new(entry, bytes, tenant, folder) {
            Some(put) => put,
            // What is in the way needs a closer look.
            None => self.put_anyhow(entry, bytes, tenant),
        }
    }

    /// Puts a file whose partial file is new in its place; `None` where it is not that simple.
    fn put_new(
        &self,
        entry: &Entry,
        bytes: &[u8],
        tenant: &Arc<Tenant>,
        folder: &mut Folder,
    ) -> Option<Result<Outcome, Problem>> {
        let (parent, last) = entry.path.rsplit_once('/').unwrap_or((".", &entry.path));
        let dir = match self.enter((parent, last), folder) {
            Ok(dir) => dir,
            Err(problem) => return Some(Err(problem)),
        };
        let partial = name::beside(&entry.path, PARTIAL);
        let _hold = self.tenants.take(&partial, tenant)?;
        let old = name::beside(last, PARTIAL);
        let (old, new) = (name::path(&old), name::path(last));
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        #[allow(clippy::useless_conversion)] // modes have 16 bits on other platforms
        let mode = Mode::from_bits_truncate((self.mode_of(entry) & MODE).try_into().unwrap_or(0));
        // What nobody may read until it is verified is verified.
        let file = match rustix::fs::openat(dir, &*old, flags, mode) {
            Ok(file) => std::fs::File::from(file),
            Err(Errno::EXIST | Errno::NOENT) => {
                folder.0 = None;
                return None;
            }
            Err(error) => return Some(Err(target(&entry.path, error.into()))),
        };
        let put = || {
            // Another process that finds the file takes it for what is left of another transfer.
            if let Err(std::fs::TryLockError::WouldBlock) = file.try_lock() {
                return Err(io::Error::other(super::BUSY));
            }
            match entry.data.is_some() && self.keep.holes {
                true => crate::sparse::write_sparsely(&file, bytes)?,
                false => file.write_all_at(bytes, 0)?,
            }
            match entry.meta.is_some() || self.keep.modes {
                true => self.apply(&file, entry),
                false => self.apply_rest(&file, entry),
            }
            self.place_new(dir, (&old, &new))
        };
        match put() {
            Ok(true) => Some(Ok(Outcome::Done)),
            placed => {
                // Left over, it does no harm.
                let _ = dir.remove_file(&*old);
                placed.err().map(|error| Err(target(&entry.path, error)))
            }
        }
    }

    /// Gives a file its name; false if something is there that it may not simply replace.
    fn place_new(&self, dir: &Dir, (old, new): (&Path, &Path)) -> io::Result<bool> {
        if !self.on_conflict.replaces() {
            return rename_to_free(dir, old, new);
        }
        match dir.symlink_metadata(new) {
            Ok(there) if !(there.is_file() || there.is_symlink()) => return Ok(false),
            _ => {}
        }
        dir.rename(old, dir, new).map(|()| true)
    }

    fn put_anyhow(
        &self,
        entry: &Entry,
        bytes: &[u8],
        tenant: &Arc<Tenant>,
    ) -> Result<Outcome, Problem> {
        let partial = match self.begin(entry, tenant, How::Small)? {
            Begin::Settled(outcome) => return Ok(outcome),
            Begin::Receive(partial) => partial,
        };
        let written = partial.file.write_all_at(bytes, 0);
        let done = written
            .map_err(|error| target(&entry.path, error))
            .and_then(|()| self.finish(&partial, entry));
        if done.is_err() || matches!(done, Ok(Outcome::Skipped)) {
            self.discard(&partial);
        }
        done
    }

    /// The directory `path`, made if it is missing, for a file of the name `last`.
    fn enter<'a>(
        &self,
        (path, last): (&str, &str),
        folder: &'a mut Folder,
    ) -> Result<&'a Dir, Problem> {
        if folder.0.as_ref().is_none_or(|(known, _)| known != path) {
            if path != "." {
                self.create_dir(path)?;
            }
            let dir = self.dir.open_dir(name::path(path));
            let dir = dir.map_err(|error| match path {
                // The directory itself has no name here; the file's says more than a dot.
                "." => target(last, error),
                _ => target(path, error),
            })?;
            folder.0 = Some((path.to_owned(), dir));
        }
        match &folder.0 {
            Some((_, dir)) => Ok(dir),
            None => Err(target(path, io::ErrorKind::NotFound.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::OnConflict;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_that_cannot_be_entered_is_told_by_the_file_that_was_to_be_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), OnConflict::Overwrite).unwrap();
        let set = |mode| std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(mode));
        set(0).unwrap();
        // On Linux this thread alone has no more rights to files than anybody, also the superuser's.
        #[cfg(target_os = "linux")]
        nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65534));
        let entry = Entry {
            path: "name".to_owned(),
            size: 1,
            ..Entry::default()
        };
        let put = store.put(&entry, b"x", &Tenant::new([1; 32]), &mut Folder::default());
        #[cfg(target_os = "linux")]
        nix::unistd::setfsuid(nix::unistd::geteuid());
        set(0o700).unwrap();
        if nix::unistd::geteuid().is_root() && put.is_ok() {
            return; // no such rights to give up on this system
        }
        let message = put.unwrap_err().message;
        assert!(message.starts_with("receiver: name: "), "{message}");
    }
}
