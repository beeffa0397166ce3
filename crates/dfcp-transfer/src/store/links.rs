//! Links that are received.

use std::io;
use std::path::Path;

use cap_std::fs::{Dir, Metadata, MetadataExt};
use rustix::fs::{AtFlags, Timestamps};
use rustix::io::Errno;

use super::incoming::rename_to_free;
use super::survey::{hash, is_later};
use super::{PARTIAL, Store, cap_identity, conflict, target};
use crate::message::{Entry, Link, OnConflict, Outcome, Problem};
use crate::name;

impl Store {
    /// Makes a link, whose entry was checked; `placed` says of other files of the offer whether they
    /// are in their places.
    pub(crate) fn make_link(
        &self,
        entry: &Entry,
        entries: &[Entry],
        placed: impl Fn(u64) -> bool,
    ) -> Result<Outcome, Problem> {
        let failed = |error: io::Error| match entry.link {
            Some(Link::Symbolic(_)) if has_none(&error) => {
                let why =
                    "the file system there has no symbolic links: -L copies what they lead to";
                target(&entry.path, io::Error::other(why))
            }
            _ => target(&entry.path, error),
        };
        let (parent, name) = match entry.path.rsplit_once('/') {
            Some((parent, name)) => (Some(parent), name),
            None => (None, entry.path.as_str()),
        };
        let dir = self.real_directory(parent).map_err(failed)?;
        let make = |name: &Path| match &entry.link {
            Some(Link::Symbolic(to)) => {
                rustix::fs::symlinkat(&*name::path(to), &dir, name)?;
                self.apply_to_link(&dir, name, entry);
                Ok(())
            }
            Some(Link::Hard(to)) => {
                let first = name::path(&entries[*to as usize].path);
                self.dir.hard_link(first, &dir, name)
            }
            None => Ok(()),
        };
        let new = name::beside(name, PARTIAL);
        let (name, new) = (&*name::path(name), &*name::path(&new));
        if let Some(Link::Hard(to)) = entry.link
            && (!placed(to) || self.on_conflict == OnConflict::Rename)
        {
            // The first name may have been skipped as well.
            let skips = matches!(self.on_conflict, OnConflict::Skip | OnConflict::Newer);
            if skips && dir.symlink_metadata(name).is_ok() {
                return Ok(Outcome::Skipped);
            }
            let why = "the file that it is another name of is not in its place";
            return Err(failed(io::Error::other(why)));
        }
        // Names of one file that there cannot be become files of their own.
        let first = match entry.link {
            Some(Link::Hard(to)) => Some(&entries[to as usize]),
            _ => None,
        };
        match (make(name), first) {
            (Err(error), _) if error.kind() == io::ErrorKind::AlreadyExists => {}
            (Err(error), Some(first)) if is_one_too_many(&error) => {
                return match self.copy_instead(entry, first).map_err(failed)? {
                    true => Ok(Outcome::Done),
                    false => Err(conflict(&entry.path)),
                };
            }
            (made, _) => return made.map(|()| Outcome::Done).map_err(failed),
        }
        if self.is_link_there(entry, entries, &dir, name) {
            return Ok(Outcome::There);
        }
        let there = dir.symlink_metadata(name).map_err(failed)?;
        match self.on_conflict {
            OnConflict::Skip => Ok(Outcome::Skipped),
            OnConflict::Newer if is_later(&there, entry) => Ok(Outcome::Skipped),
            OnConflict::Overwrite | OnConflict::Newer if self.is_replaceable(&there) => {
                let replace = || {
                    match (make(new), first) {
                        (Err(error), Some(first)) if is_one_too_many(&error) => {
                            if self.is_alike(&there, first) {
                                self.note_copy(entry, first);
                                return Ok(Outcome::There);
                            }
                            self.copy_to_partial(entry, first)?;
                        }
                        (made, _) => made?,
                    }
                    self.make_way_for_file(&entry.path)?;
                    dir.rename(new, &dir, name)?;
                    Ok(Outcome::Done)
                };
                replace().map_err(failed)
            }
            OnConflict::Overwrite | OnConflict::Newer => {
                Err(self.conflict_of_kinds(&there, &entry.path))
            }
            // As after a copy to where there are no hard links.
            OnConflict::Error
                if first.is_some_and(|first| {
                    self.is_alike(&there, first) && self.have_same_content(entry, first)
                }) =>
            {
                Ok(Outcome::There)
            }
            OnConflict::Error | OnConflict::Rename => Err(conflict(&entry.path)),
        }
    }

    /// Makes a file of its own of what should be another name of `first`, unless its name is taken: false then.
    fn copy_instead(&self, entry: &Entry, first: &Entry) -> io::Result<bool> {
        self.copy_to_partial(entry, first)?;
        let (parent, name) = entry.path.rsplit_once('/').unwrap_or((".", &entry.path));
        let dir = self.dir.open_dir(name::path(parent))?;
        let new = name::beside(name, PARTIAL);
        let moved = rename_to_free(&dir, &name::path(&new), &name::path(name));
        if !matches!(moved, Ok(true)) {
            let _ = dir.remove_file(name::path(&new));
        }
        moved
    }

    /// Copies `first` to the partial file of `entry`.
    fn copy_to_partial(&self, entry: &Entry, first: &Entry) -> io::Result<()> {
        let name = name::beside(&entry.path, PARTIAL);
        let from = self.open_there(first)?;
        let to = self.open_own(&name, true)?;
        let copied = to
            .set_len(0)
            .and_then(|()| io::copy(&mut &from, &mut &to))
            .inspect_err(|_| _ = self.dir.remove_file(name::path(&name)));
        copied?;
        self.apply(&to, first);
        self.note_copy(entry, first);
        Ok(())
    }

    /// Whether a file that is there has the size and time of another one.
    fn is_alike(&self, there: &Metadata, other: &Entry) -> bool {
        let of = |metadata: &Metadata| (metadata.len(), metadata.mtime(), metadata.mtime_nsec());
        let other = self.dir.symlink_metadata(name::path(&other.path));
        there.is_file() && other.is_ok_and(|other| other.is_file() && of(there) == of(&other))
    }

    fn have_same_content(&self, one: &Entry, other: &Entry) -> bool {
        let read = |entry| hash(&self.open_there(entry)?, || true);
        let both: io::Result<(_, _)> = read(one).and_then(|one| Ok((one, read(other)?)));
        both.is_ok_and(|(one, other)| one == other)
    }

    fn note_copy(&self, entry: &Entry, first: &Entry) {
        let why = format!(
            "that it is another name of {}: the file system there has no hard links, or not as many, and it is a file \
             of its own",
            first.path
        );
        self.notes.add(&entry.path, why);
    }

    /// Gives a symbolic link the time and owner that were offered; it has no mode.
    fn apply_to_link(&self, dir: &Dir, name: &Path, entry: &Entry) {
        let time = rustix::fs::Timespec {
            tv_sec: entry.mtime,
            tv_nsec: entry.mtime_nanos.min(999_999_999).into(),
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        // Not every file system keeps times of links.
        let _ = rustix::fs::utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW);
        if let Some(owner) = self.owner_of(entry) {
            let (user, group) = owner;
            let flags = nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW;
            let changed = nix::unistd::fchownat(dir, name, Some(user), Some(group), flags);
            self.note_owner(entry, changed.map_err(io::Error::from));
        }
    }

    /// Whether a link that is offered is there.
    pub(crate) fn has_link(&self, entry: &Entry, entries: &[Entry]) -> bool {
        let (parent, name) = entry.path.rsplit_once('/').unwrap_or((".", &entry.path));
        let dir = self.dir.open_dir(name::path(parent));
        dir.is_ok_and(|dir| {
            !self.absent && self.is_link_there(entry, entries, &dir, &name::path(name))
        })
    }

    fn is_link_there(&self, entry: &Entry, entries: &[Entry], dir: &Dir, name: &Path) -> bool {
        match &entry.link {
            Some(Link::Symbolic(to)) => dir
                .read_link_contents(name)
                .is_ok_and(|is| is == *name::path(to)),
            Some(Link::Hard(to)) => {
                let identity = |metadata: io::Result<_>| metadata.ok().map(|m| cap_identity(&m));
                let first = identity(
                    self.dir
                        .symlink_metadata(name::path(&entries[*to as usize].path)),
                );
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
            let name = &*name::path(name);
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

/// Whether the file system has no such links, as FAT and exFAT have none: symlink(2) and link(2) say EPERM then, and
/// those in user space what they like.
pub(super) fn has_none(error: &io::Error) -> bool {
    let said = [Errno::PERM, Errno::NOSYS, Errno::OPNOTSUPP].map(|e| Some(e.raw_os_error()));
    said.contains(&error.raw_os_error())
}

/// Whether a file can have no further name.
fn is_one_too_many(error: &io::Error) -> bool {
    has_none(error) || error.raw_os_error() == Some(Errno::MLINK.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::ProblemKind;

    /// The file of the first name is not in its place, so that there is nothing to give a second name.
    #[test]
    fn a_second_name_of_what_did_not_come_is_skipped_only_where_it_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("taken"), "").unwrap();
        let first = Entry {
            path: "first".into(),
            ..Entry::default()
        };
        let make = |on_conflict, name: &str, placed| {
            let second = Entry {
                path: name.into(),
                link: Some(Link::Hard(0)),
                ..Entry::default()
            };
            let store = Store::open(dir.path(), on_conflict).unwrap();
            let entries = [first.clone(), second.clone()];
            store.make_link(&second, &entries, |_| placed)
        };
        let kind = |made: Result<Outcome, Problem>| made.unwrap_err().kind;
        use OnConflict::{Error, Skip};
        assert_eq!(make(Skip, "taken", false).unwrap(), Outcome::Skipped);
        assert_eq!(kind(make(Skip, "free", false)), ProblemKind::Target);
        assert_eq!(kind(make(Error, "taken", false)), ProblemKind::Target);
        // Somebody removed the first one meanwhile: that is no conflict, and nothing to skip.
        for on_conflict in [Skip, Error] {
            assert_eq!(kind(make(on_conflict, "free", true)), ProblemKind::Target);
        }
        std::fs::write(dir.path().join("first"), "x").unwrap();
        assert_eq!(kind(make(Error, "taken", true)), ProblemKind::Conflict);
    }

    /// Devices of terminals are on a file system that has no links, and says so as FAT does.
    #[cfg(target_os = "linux")]
    #[test]
    fn where_there_are_no_links_it_is_said_what_to_do_without() {
        let there = Path::new("/dev/pts");
        let authority = cap_std::ambient_authority();
        let without_links = Dir::open_ambient_dir(there, authority).is_ok_and(|dir| {
            let made = rustix::fs::symlinkat("x", &dir, "dfcp-test-link");
            made.is_err_and(|error| error == Errno::PERM) && dir.exists("ptmx")
        });
        if !without_links {
            eprintln!("skipped: there is no such /dev/pts, or this user may not try");
            return;
        }
        let store = Store::open(there, OnConflict::Overwrite).unwrap();
        let named = |path: &str, link| Entry {
            path: path.into(),
            link,
            ..Entry::default()
        };
        let first = named("ptmx", None);
        let link = named("dfcp-test-link", Some(Link::Symbolic("x".into())));
        let made = store.make_link(&link, &[first.clone(), link.clone()], |_| true);
        let problem = made.unwrap_err();
        assert_eq!(problem.kind, ProblemKind::Target);
        assert!(problem.message.contains("-L copies"), "{}", problem.message);
    }

    /// An immutable file can have no further name, as none can on FAT.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_name_that_a_file_cannot_have_becomes_a_file_of_its_own() {
        use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("first"), "content").unwrap();
        let first = std::fs::File::open(at("first")).unwrap();
        let flags = ioctl_getflags(&first).unwrap_or(IFlags::empty());
        if ioctl_setflags(&first, flags | IFlags::IMMUTABLE).is_err() {
            eprintln!("skipped: this user or file system makes no immutable files");
            return;
        }
        let entry = |path: &str, link| Entry {
            path: path.into(),
            link,
            mode: 0o640,
            mtime: 1000,
            ..Entry::default()
        };
        let entries = [entry("first", None), entry("d/second", Some(Link::Hard(0)))];
        let make = |on_conflict| {
            let store = Store::open(dir.path(), on_conflict).unwrap();
            let made = store.make_link(&entries[1], &entries, |_| true);
            (made.map_err(|problem| problem.kind), store.notes.take())
        };
        let is_second = || std::fs::read(at("d/second")).unwrap() == b"content";
        use OnConflict::{Error, Overwrite};
        for on_conflict in [Error, Overwrite] {
            let (made, told) = make(on_conflict);
            assert_eq!(made, Ok(Outcome::Done));
            assert!(
                is_second() && told[0].why.contains("another name of first"),
                "{told:?}"
            );
            std::fs::remove_file(at("d/second")).unwrap();
        }
        // What is there is kept or replaced as files are.
        std::fs::write(at("d/second"), "other").unwrap();
        assert_eq!(make(Error).0, Err(ProblemKind::Conflict));
        assert!(!is_second());
        assert_eq!(make(Overwrite).0, Ok(Outcome::Done));
        assert!(is_second());
        let is = std::fs::metadata(at("d/second")).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::mtime(&is), 1000);
        // It need not be copied again, and is told of again.
        ioctl_setflags(&first, flags).unwrap();
        first.set_modified(is.modified().unwrap()).unwrap();
        ioctl_setflags(&first, flags | IFlags::IMMUTABLE).unwrap();
        let (made, told) = make(Overwrite);
        assert_eq!((made, told.len()), (Ok(Outcome::There), 1));
        assert_eq!(make(Error).0, Ok(Outcome::There));
        ioctl_setflags(&first, flags).unwrap();
        assert_eq!(std::fs::read_dir(at("d")).unwrap().count(), 1);
        // A name as it should be takes its place.
        assert_eq!(make(Overwrite), (Ok(Outcome::Done), vec![]));
        assert_eq!(
            std::os::unix::fs::MetadataExt::nlink(&first.metadata().unwrap()),
            2
        );
    }
}
