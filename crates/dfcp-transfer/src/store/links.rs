//! Links that are received.

use std::io;
use std::path::Path;

use cap_std::fs::Dir;
use rustix::fs::{AtFlags, Timestamps};
use rustix::io::Errno;

use super::survey::is_later;
use super::{PARTIAL, Store, cap_identity, conflict, conflict_with, target};
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
        let failed = |error: io::Error| match no_links(entry, &error) {
            Some(why) => target(&entry.path, io::Error::other(why)),
            None => target(&entry.path, error),
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
        match make(name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| Outcome::Done).map_err(failed),
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
                    make(new)?;
                    self.make_way_for_file(&entry.path)?;
                    dir.rename(new, &dir, name)
                };
                replace().map(|()| Outcome::Done).map_err(failed)
            }
            OnConflict::Overwrite | OnConflict::Newer => Err(conflict_with(&there, &entry.path)),
            OnConflict::Error | OnConflict::Rename => Err(conflict(&entry.path)),
        }
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

/// What to do where the file system has no such links, as FAT and exFAT have none: symlink(2) and link(2) say EPERM
/// then, and those in user space what they like.
fn no_links(entry: &Entry, error: &io::Error) -> Option<&'static str> {
    let said = [Errno::PERM, Errno::NOSYS, Errno::OPNOTSUPP].map(|e| Some(e.raw_os_error()));
    match &entry.link {
        Some(link) if said.contains(&error.raw_os_error()) => Some(match link {
            Link::Symbolic(_) => {
                "the file system there has no symbolic links: -L copies what they lead to"
            }
            Link::Hard(_) => "the file system there has no hard links: copy this name by itself",
        }),
        _ => None,
    }
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
        std::fs::write(dir.path().join("first"), "").unwrap();
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
        for (link, advice) in [
            (Link::Symbolic("x".into()), "-L copies"),
            (Link::Hard(0), "copy this name by itself"),
        ] {
            let link = named("dfcp-test-link", Some(link));
            let made = store.make_link(&link, &[first.clone(), link.clone()], |_| true);
            let problem = made.unwrap_err();
            assert_eq!(problem.kind, ProblemKind::Target);
            assert!(problem.message.contains(advice), "{}", problem.message);
        }
    }

    #[test]
    fn a_file_system_without_links_is_told_from_one_where_this_user_may_not() {
        let advice = |link, error: Errno| {
            let entry = Entry {
                link: Some(link),
                ..Entry::default()
            };
            no_links(&entry, &error.into())
        };
        for error in [Errno::PERM, Errno::NOSYS, Errno::OPNOTSUPP] {
            let symbolic = advice(Link::Symbolic("x".into()), error);
            assert!(symbolic.is_some_and(|why| why.contains("-L")));
            let hard = advice(Link::Hard(0), error);
            assert!(hard.is_some_and(|why| why.contains("hard links")));
        }
        assert_eq!(advice(Link::Hard(0), Errno::ACCESS), None);
    }
}
