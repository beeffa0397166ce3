//! Links that are received.

use std::io;

use cap_std::fs::Dir;
use rustix::io::Errno;

use super::{PARTIAL, Store, cap_identity, conflict, is_replaceable, target};
use crate::message::{Entry, Link, OnConflict, Outcome, Problem};

impl Store {
    /// Makes a link, whose entry was checked; `placed` says of other files of the offer whether they
    /// are in their places.
    pub(crate) fn make_link(
        &self,
        entry: &Entry,
        entries: &[Entry],
        placed: impl Fn(u64) -> bool,
    ) -> Result<Outcome, Problem> {
        let failed = |error: io::Error| target(&entry.path, error);
        let (parent, name) = match entry.path.rsplit_once('/') {
            Some((parent, name)) => (Some(parent), name),
            None => (None, entry.path.as_str()),
        };
        let dir = self.real_directory(parent).map_err(failed)?;
        let make = |name: &str| match &entry.link {
            Some(Link::Symbolic(to)) => Ok(rustix::fs::symlinkat(to, &dir, name)?),
            Some(Link::Hard(to)) => self.dir.hard_link(&entries[*to as usize].path, &dir, name),
            None => Ok(()),
        };
        if let Some(Link::Hard(to)) = entry.link
            && (!placed(to) || self.on_conflict == OnConflict::Rename)
        {
            let why = "the file that it is another name of is not in its place";
            return Err(failed(io::Error::other(why)));
        }
        match make(name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| Outcome::Done).map_err(failed),
        }
        if self.is_link_there(entry, entries, &dir, name) {
            return Ok(Outcome::There);
        }
        match self.on_conflict {
            OnConflict::Skip => Ok(Outcome::Skipped),
            OnConflict::Overwrite
                if dir
                    .symlink_metadata(name)
                    .is_ok_and(|there| is_replaceable(&there)) =>
            {
                let new = format!("{name}{PARTIAL}");
                let replace = || {
                    make(&new)?;
                    dir.rename(&new, &dir, name)
                };
                replace().map(|()| Outcome::Done).map_err(failed)
            }
            _ => Err(conflict(&entry.path)),
        }
    }

    fn is_link_there(&self, entry: &Entry, entries: &[Entry], dir: &Dir, name: &str) -> bool {
        match &entry.link {
            Some(Link::Symbolic(to)) => dir
                .read_link_contents(name)
                .is_ok_and(|is| is.as_os_str() == to.as_str()),
            Some(Link::Hard(to)) => {
                let identity = |metadata: io::Result<_>| metadata.ok().map(|m| cap_identity(&m));
                let first = identity(self.dir.symlink_metadata(&entries[*to as usize].path));
                first.is_some() && first == identity(dir.symlink_metadata(name))
            }
            None => false,
        }
    }

    /// Opens a directory, made if it is missing, on a way without symbolic links: below one that is
    /// there, as many `..` as the path has components would lead out of it.
    fn real_directory(&self, path: Option<&str>) -> io::Result<Dir> {
        let mut at = self.dir.try_clone()?;
        for name in path.into_iter().flat_map(|path| path.split('/')) {
            match at.create_dir(name) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            let flags = rustix::fs::OFlags::DIRECTORY
                | rustix::fs::OFlags::NOFOLLOW
                | rustix::fs::OFlags::CLOEXEC;
            let opened = rustix::fs::openat(&at, name, flags, rustix::fs::Mode::empty());
            let opened = opened.map_err(|error| match error {
                Errno::LOOP | Errno::NOTDIR => {
                    io::Error::other("it would be below a symbolic link that is there")
                }
                error => error.into(),
            })?;
            at = Dir::from_std_file(opened.into());
        }
        Ok(at)
    }
}
