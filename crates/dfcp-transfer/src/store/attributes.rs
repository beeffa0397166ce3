//! Modes, times, owners and attributes of what is received.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use cap_std::fs::MetadataExt;
use nix::unistd::{Gid, Uid};
use rustix::fs::{Mode, Timespec};

use super::{Store, target};
use crate::message::{Change, Entry, Meta, Problem};
use crate::meta::{self, Owners, Taking};
use crate::name;

/// Bits of a mode that are taken over, whatever is kept.
pub(super) const MODE: u32 = 0o777;
/// What the group of a file may do.
const GROUP: u32 = 0o070;
/// Only its owner may remove a file from such a directory.
const STICKY: u32 = 0o1000;
/// What is made in such a directory has its group: it stays as it is there.
const SET_GROUP: u32 = 0o2000;
/// Such a program runs as its owner.
const SET_USER: u32 = 0o4000;

/// The user and group of a file here.
type Owner = (u32, u32);

/// How a file or directory that is there differs from what is offered, beside its content.
#[derive(Debug, Default)]
pub(super) struct Differences {
    /// What would change.
    pub changes: Vec<Change>,
    /// Whether something is offered that will not be kept, which is to be said.
    pub refused: bool,
}

impl Differences {
    /// Whether there is nothing to do.
    pub fn are_none(&self) -> bool {
        self.changes.is_empty() && !self.refused
    }
}

impl Store {
    /// The mode that what is offered gets, but for what makes programs run as somebody else.
    pub(super) fn mode_of(&self, entry: &Entry) -> u32 {
        let mode = meta::mode_before_list(entry);
        match self.keep.modes {
            true if entry.directory => mode & (MODE | STICKY),
            true => mode & MODE,
            false => mode & MODE & !self.umask,
        }
    }

    /// Set-user-ID and set-group-ID of what is offered that a file of `here` may have: those of the
    /// same owner or group, as with `cp -a`; and those that it may not.
    fn privileges(&self, entry: &Entry, here: Owner) -> (u32, u32) {
        if !self.keep.modes {
            return (0, 0);
        }
        let offered = match entry.directory {
            true => entry.mode & SET_GROUP,
            false => entry.mode & (SET_USER | SET_GROUP),
        };
        let owners = match self.keep.owners {
            Owners::Numbers => Owners::Numbers,
            _ => Owners::Names,
        };
        let owner = entry.meta.as_ref().and_then(|meta| meta.owner);
        let owner = owner.and_then(|owner| self.known.owner(owner, owners));
        let may = owner.map_or(0, |(user, group)| {
            (SET_USER * u32::from(user == here.0)) | (SET_GROUP * u32::from(group == here.1))
        });
        (offered & may, offered & !may)
    }

    /// The whole mode of what has `mode` and is `here`'s, and what is lost of it.
    fn whole_mode(&self, entry: &Entry, (mode, here): (u32, Owner)) -> (u32, u32) {
        let stays = match entry.directory {
            true => mode & SET_GROUP,
            false => 0,
        };
        let (kept, lost) = self.privileges(entry, here);
        (self.mode_of(entry) | stays | kept, lost & !stays)
    }

    /// Gives a file or directory what was offered with it: its owner first, since that takes
    /// privileges away; its time last, since all else changes that. What the file system here does not keep
    /// is noted: the content is there all the same.
    pub(super) fn apply(&self, file: &File, entry: &Entry) {
        self.change_owner(file, entry);
        let changed = self.change_mode(file, entry);
        self.note_mode(entry, changed);
        self.apply_rest(file, entry);
    }

    /// Gives a file that was found to have the content that is offered what was offered with it. One of somebody
    /// else keeps its time, and its mode where nobody asked for that.
    pub(super) fn apply_to_found(&self, file: &File, entry: &Entry) {
        self.change_owner(file, entry);
        match self.change_mode(file, entry) {
            Err(_) if !self.keep.modes => {}
            changed => self.note_mode(entry, changed),
        }
        self.change_attributes(file, entry);
        let _ = change_time(file, entry);
    }

    /// Gives what is there with the content that is offered what is to be kept beside that.
    pub(super) fn align(&self, file: &File, entry: &Entry) {
        self.change_owner(file, entry);
        if self.keep.modes {
            let changed = self.change_mode(file, entry);
            self.note_mode(entry, changed);
        }
        self.change_attributes(file, entry);
        if self.keep.modes {
            self.note_time(entry, change_time(file, entry));
        }
    }

    fn note_mode(&self, entry: &Entry, changed: io::Result<()>) {
        if let Err(error) = changed {
            self.notes.add(&entry.path, not_kept("its mode", &error));
        }
    }

    fn note_time(&self, entry: &Entry, changed: io::Result<()>) {
        if let Err(error) = changed {
            self.notes.add(&entry.path, not_kept("its time", &error));
        }
    }

    fn change_mode(&self, file: &File, entry: &Entry) -> io::Result<()> {
        let stat = rustix::fs::fstat(file)?;
        #[allow(clippy::useless_conversion)] // modes have 16 bits on other platforms
        let there = (u32::from(stat.st_mode), (stat.st_uid, stat.st_gid));
        let (mode, lost) = self.whole_mode(entry, there);
        #[allow(clippy::useless_conversion)]
        let bits = Mode::from_bits_truncate(mode.try_into().unwrap_or(0));
        rustix::fs::fchmod(file, bits)?;
        if lost != 0 {
            let why = "its set-user-ID or set-group-ID bit, since it is another owner's here";
            self.notes.add(&entry.path, why.to_owned());
        }
        if self.keep.modes || mode & (SET_USER | SET_GROUP) != 0 {
            #[allow(clippy::useless_conversion)]
            let has = u32::from(rustix::fs::fstat(file)?.st_mode);
            if let Some(why) = not_given(mode, has, self.keep.modes) {
                self.notes.add(&entry.path, why.to_owned());
            }
        }
        Ok(())
    }

    /// Gives a file that has its mode what else was offered with it.
    pub(super) fn apply_rest(&self, file: &File, entry: &Entry) {
        self.change_attributes(file, entry);
        self.note_time(entry, change_time(file, entry));
    }

    fn change_attributes(&self, file: &File, entry: &Entry) {
        let leave_out = |why| self.notes.add(&entry.path, why);
        self.taking().write(file, entry.meta.as_deref(), leave_out);
    }

    pub(super) fn change_owner(&self, file: &File, entry: &Entry) {
        if let Some((user, group)) = self.owner_of(entry) {
            let changed = nix::unistd::fchown(file.as_fd(), Some(user), Some(group));
            self.note_owner(entry, changed.map_err(io::Error::from));
        }
    }

    /// Whose it is to be.
    pub(super) fn owner_of(&self, entry: &Entry) -> Option<(Uid, Gid)> {
        let owner = entry.meta.as_ref()?.owner?;
        if self.keep.owners == Owners::Receiver {
            let why = "its owner and group, which the receiver takes with --owner";
            self.notes.add(&entry.path, why.to_owned());
        }
        let (user, group) = self.known.owner(owner, self.keep.owners)?;
        Some((Uid::from_raw(user), Gid::from_raw(group)))
    }

    pub(super) fn note_owner(&self, entry: &Entry, changed: io::Result<()>) {
        if let Err(error) = changed {
            let why = not_kept("its owner and group", &error);
            self.notes.add(&entry.path, why);
        }
    }

    /// What would change of a directory that is there, beside what is in it.
    pub(crate) fn changes_of_dir(&self, entry: &Entry) -> Vec<Change> {
        self.look_at_dir(entry)
            .map_or(Vec::new(), |found| found.changes)
    }

    /// Gives a directory that was there before what is to be kept of the one that was offered.
    pub(crate) fn align_dir(&self, entry: &Entry) -> Result<(), Problem> {
        let align = || {
            if !self.look_at_dir(entry)?.are_none() {
                self.align(&self.dir.open(name::path(&entry.path))?.into_std(), entry);
            }
            Ok(())
        };
        align().map_err(|error| target(&entry.path, error))
    }

    fn look_at_dir(&self, entry: &Entry) -> io::Result<Differences> {
        let path = name::path(&entry.path);
        let open = || Ok(self.dir.open(&path)?.into_std());
        Ok(self.differences(&self.dir.metadata(&path)?, entry, open))
    }

    fn taking(&self) -> Taking<'_> {
        Taking {
            keep: self.keep,
            exact: self.exact,
            known: &self.known,
        }
    }

    /// What of that which is there is to change, beside its content; `open` is asked for the file where
    /// its metadata do not tell.
    pub(super) fn differences(
        &self,
        there: &cap_std::fs::Metadata,
        entry: &Entry,
        open: impl FnOnce() -> io::Result<File>,
    ) -> Differences {
        let mut found = Differences::default();
        let (meta, here) = (entry.meta.as_deref(), (there.uid(), there.gid()));
        let owner = meta.and_then(|meta| meta.owner);
        found.refused |= owner.is_some() && self.keep.owners == Owners::Receiver;
        let owner = owner.and_then(|owner| self.known.owner(owner, self.keep.owners));
        let owner = owner.unwrap_or(here);
        if owner != here {
            found.changes.push(Change::Owner);
        }
        if self.keep.modes {
            let (mode, lost) = self.whole_mode(entry, (there.mode(), owner));
            found.refused |= lost != 0;
            // They are the mask of a list, which is compared below.
            let by_list = match meta.and_then(Meta::acl) {
                Some(_) if self.keep.acls => GROUP,
                _ => 0,
            };
            if (mode ^ there.mode()) & 0o7777 & !by_list != 0 {
                found.changes.push(Change::Mode);
            }
            if !self.steps.are_equal(there, entry, || None) {
                found.changes.push(Change::Time);
            }
        }
        let taking = self.taking();
        found.refused |= taking.refuses(meta);
        if !taking.says_nothing(meta)
            && let Ok(file) = open()
        {
            found.changes.extend(taking.changes(&file, meta));
        }
        found
    }
}

/// What a file that `has` this mode lacks of the one that it was given, where the system reported no error; all of
/// it counts where modes are kept.
fn not_given(mode: u32, has: u32, kept: bool) -> Option<&'static str> {
    if kept && (has ^ mode) & (MODE | STICKY) != 0 {
        // Some file systems take any mode and keep none.
        return Some("its mode, which the file system there does not keep");
    }
    // The system takes it away without a word from who is not in the file's group.
    let taken_away = mode & (SET_USER | SET_GROUP) & !has != 0;
    taken_away.then_some("its set-user-ID or set-group-ID bit, which the system does not give")
}

/// Why something beside the content is not there, in words. File systems that have no place for it say so by
/// several errors, one of which is said of immutable files, too.
fn not_kept(what: &str, error: &io::Error) -> String {
    let forbidden = error.raw_os_error() == Some(rustix::io::Errno::PERM.raw_os_error());
    if error.kind() == io::ErrorKind::Unsupported {
        return format!("{what}, which the file system there does not keep");
    }
    match forbidden && nix::unistd::geteuid().is_root() {
        true => format!(
            "{what}, which the superuser may not set either: the file system there does not keep it, or the file is \
             immutable (lsattr), or from outside this container"
        ),
        false => format!("{what}: {error}"),
    }
}

fn change_time(file: &File, entry: &Entry) -> io::Result<()> {
    let time = Timespec {
        tv_sec: entry.mtime,
        tv_nsec: entry.mtime_nanos.min(999_999_999).into(),
    };
    super::times::set(file, time)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;
    use crate::message::OnConflict;
    use crate::meta::Keep;

    #[test]
    fn what_a_file_system_has_no_place_for_is_said_in_words() {
        let said = |error: rustix::io::Errno| not_kept("its mode", &error.into());
        for error in [rustix::io::Errno::NOSYS, rustix::io::Errno::OPNOTSUPP] {
            assert!(said(error).contains("does not keep"), "{}", said(error));
        }
        assert!(said(rustix::io::Errno::IO).contains("os error"));
    }

    /// Such as FAT, whose files have the mode of the mount whatever they are given.
    #[test]
    fn a_mode_that_is_ignored_without_a_word_is_told_where_modes_are_kept() {
        for (given, has, kept, told) in [
            (0o644, 0o100_644, true, None),
            (0o644, 0o100_755, true, Some("its mode")),
            (0o755, 0o100_655, true, Some("its mode")),
            (0o1777, 0o040_777, true, Some("its mode")),
            (0o4755, 0o100_777, true, Some("its mode")),
            (0o4755, 0o100_755, true, Some("its set-user-ID")),
            (0o2755, 0o102_755, true, None),
            // Who did not ask for modes is told of privileges alone.
            (0o644, 0o100_755, false, None),
            (0o4755, 0o100_777, false, Some("its set-user-ID")),
        ] {
            let why = not_given(given, has, kept);
            let as_told = match (why, told) {
                (Some(why), Some(told)) => why.starts_with(told),
                (why, told) => why == told,
            };
            assert!(as_told, "{given:o} {has:o} {kept}: {why:?}");
        }
    }

    /// A store that keeps modes, or only what it is offered beside them.
    fn store_in(dir: &tempfile::TempDir, modes: bool) -> Store {
        let store = Store::open(dir.path(), OnConflict::Overwrite).unwrap();
        store.keeping(Keep {
            modes,
            ..Keep::default()
        })
    }

    /// The superuser is forbidden to change a file that `chattr +i` was said of, as somebody in a container is to
    /// change one of the host's: neither is the file system's lack.
    #[test]
    fn what_even_the_superuser_may_not_is_told_with_what_it_may_be() {
        use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "x").unwrap();
        let file = File::open(&path).unwrap();
        let flags = ioctl_getflags(&file).unwrap_or(IFlags::empty());
        if ioctl_setflags(&file, flags | IFlags::IMMUTABLE).is_err() {
            eprintln!("skipped: this user or file system makes no immutable files");
            return;
        }
        let store = store_in(&dir, true);
        let offered = Entry {
            path: "a".to_owned(),
            mode: 0o600,
            mtime: 1,
            ..Entry::default()
        };
        store.align(&file, &offered);
        let told = store.notes.take();
        ioctl_setflags(&file, flags).unwrap();
        let whys: Vec<_> = told.iter().map(|left| &*left.why).collect();
        let [mode, time] = &whys[..] else {
            panic!("{whys:?}")
        };
        assert!(
            mode.starts_with("its mode") && mode.contains("lsattr"),
            "{mode}"
        );
        assert!(
            time.starts_with("its time") && time.contains("lsattr"),
            "{time}"
        );
        store.align(&file, &offered);
        assert!(store.notes.take().is_empty());
    }

    /// Its content was compared, so that the next offer of it need not be.
    #[test]
    fn what_is_found_to_be_the_same_gets_mode_and_time_as_far_as_its_owner_lets() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "x").unwrap();
        let file = File::open(&path).unwrap();
        let offered = |mode, mtime| Entry {
            path: "a".to_owned(),
            size: 1,
            mode,
            mtime,
            ..Entry::default()
        };
        let has = || {
            let is = file.metadata().unwrap();
            (is.mode() & 0o7777, is.mtime())
        };
        for (modes, mode, time) in [(false, 0o640, 1000), (true, 0o604, 2000)] {
            let store = store_in(&dir, modes);
            let outcome = store.confirm(&offered(mode, time));
            assert_eq!(outcome, crate::Outcome::There);
            assert_eq!(has(), (mode & !(if modes { 0 } else { store.umask }), time));
            assert!(store.notes.take().is_empty());
        }
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: only a superuser gives files away");
            return;
        }
        // Somebody else's: it stays, and who asked for modes is told.
        let before = has();
        for (modes, told) in [(false, 0), (true, 1)] {
            let store = store_in(&dir, modes);
            let superuser = nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65_534));
            store.apply_to_found(&file, &offered(0o666, 3000));
            nix::unistd::setfsuid(superuser);
            let notes = store.notes.take();
            assert_eq!((has(), notes.len()), (before, told), "{notes:?}");
            assert!(notes.iter().all(|left| left.why.starts_with("its mode")));
        }
    }

    /// Who is not in a file's group gets no such bit for it, and no error either.
    #[test]
    fn a_bit_that_the_system_takes_away_without_a_word_is_told() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: only a superuser gives files away");
            return;
        }
        let (somebody, others) = (65_534, 12_345);
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), OnConflict::Error).unwrap();
        let store = store.keeping(Keep {
            modes: true,
            owners: crate::meta::Owners::Ignored,
            ..Keep::default()
        });
        let file = File::create(dir.path().join("a")).unwrap();
        std::os::unix::fs::fchown(&file, Some(somebody), Some(others)).unwrap();
        let a = Entry {
            path: "a".to_owned(),
            mode: 0o2755,
            meta: Some(Box::new(Meta {
                owner: Some((somebody, others)),
                ..Meta::default()
            })),
            ..Entry::default()
        };
        let mode = || file.metadata().unwrap().mode() & 0o7777;
        // As the superuser, and as its owner, of this thread.
        store.apply(&file, &a);
        assert!(store.notes.take().is_empty() && mode() == 0o2755);
        let before = nix::unistd::setfsuid(nix::unistd::Uid::from_raw(somebody));
        store.apply(&file, &a);
        nix::unistd::setfsuid(before);
        assert_eq!(mode(), 0o755);
        let [told] = &store.notes.take()[..] else {
            panic!("one thing is told")
        };
        assert!(
            told.why.contains("which the system does not give"),
            "{told:?}"
        );
    }
}
