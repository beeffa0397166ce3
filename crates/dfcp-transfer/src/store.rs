//! The receiver's directory. Everything is opened relative to it, and nothing outside it can be
//! reached, whatever names and symbolic links say (`cap-std`).
//!
//! A file is received as `NAME.dfcp-partial`, which is locked against other transfers of the same
//! name, and renamed when it is whole and verified. Partial files stay when a transfer fails, with
//! the journal of what is there of them.

mod attributes;
mod case;
mod links;
mod older;
mod small;
mod survey;
mod swap;
mod times;

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use nix::fcntl::OFlag;
use rustix::fs::{Access, AtFlags, RenameFlags};
use rustix::io::Errno;

use crate::Error;
use crate::error::advice;
use crate::memory::Memory;
use crate::message::{
    Entry, Exact, OnConflict, Outcome, People, Problem, ProblemKind, Rejection, RejectionKind,
    Wishes,
};
use crate::meta::{Keep, Known, Notes};
use crate::name;
use crate::offer::Limits;
use crate::partial::{JOURNAL, Partial};
use crate::receive::silence::{Crowd, QUIET};
use crate::space::Claims;
use crate::tenants::{Tenant, Tenants};
use crate::tree::Value;
pub(crate) use older::Older;
pub(crate) use small::Folder;
use survey::hash;
pub(crate) use survey::{Ask, Survey};
use swap::Swap;

/// Follows the name of a file that is not whole.
pub const PARTIAL: &str = ".dfcp-partial";
/// Names tried for a file whose own is taken.
const MAX_NAMES: u32 = 10_000;

/// What senders may decide where names are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Senders {
    /// Nothing.
    Nothing,
    /// What replaces no file that is there.
    Additions,
    /// Everything.
    Everything,
}

/// How much of a file is there when it begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How<'a> {
    /// Nothing, and there will be no time at which a part of it is.
    Small,
    /// Nothing that is wanted.
    Anew,
    /// Perhaps a part, which is read as long as this session lasts.
    Resume(&'a Weak<()>),
    /// Perhaps a part, and an older version that has these groups.
    Over(&'a Older, &'a [(usize, Value)]),
}

/// Somebody else has a partial file.
pub const BUSY: &str = "another transfer is writing it";

/// A directory that files are received in.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) dir: Arc<Dir>,
    pub(crate) on_conflict: OnConflict,
    senders: Senders,
    pub(crate) limits: Limits,
    pub(crate) claims: Arc<Claims>,
    /// What lists of files take of memory.
    pub(crate) offers: Memory,
    /// What values of groups take that are compared.
    pub(crate) values: Memory,
    /// Who writes which file.
    tenants: Tenants,
    /// Which sessions may have to give way to others, and after how long.
    pub(crate) crowd: Crowd,
    pub(crate) quiet: Duration,
    /// Whose partial files these are, if not the sender's of the session.
    pub(crate) owner: Option<Value>,
    /// What was asked for.
    pub(crate) wanted: Option<Wanted>,
    /// Bits of modes that this process gives to nobody.
    umask: u32,
    /// What is kept of files beside their content.
    pub(crate) keep: Keep,
    /// Whose the owners are that the sender of this session names.
    known: Arc<Known>,
    /// How exactly the file systems here keep times.
    steps: times::Steps,
    /// What attributes its files have no others of.
    exact: Exact,
    /// What could not be kept in this session.
    pub(crate) notes: Arc<Notes>,
    /// What may go so that something of another kind takes its name.
    swap: Option<Swap>,
    /// Whether the directory is not there, and `dir` one above it: nothing is received then.
    absent: bool,
}

/// Says what was asked for.
#[derive(Clone)]
pub(crate) struct Wanted(Arc<dyn Fn(&Entry) -> bool + Send + Sync>);

impl std::fmt::Debug for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wanted")
    }
}

/// How the reception of a file begins.
#[derive(Debug)]
pub(crate) enum Begin {
    /// Here.
    Receive(Partial),
    /// Not at all: the outcome is known.
    Settled(Outcome),
}

/// How long a process may outlive its sender: that of a copy takes 5 s to notice.
const OUTLIVING: Duration = Duration::from_secs(8);

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
        let failed = |error| match path.metadata() {
            Ok(there) if !there.is_dir() => Error::file(
                path,
                "a file, not a directory; name a directory to receive into",
            ),
            _ => Error::file(path, format_args!("{error}{}", advice(&error))),
        };
        let dir = open().map_err(failed)?;
        Ok(Self {
            dir: Arc::new(dir),
            on_conflict,
            senders: Senders::Nothing,
            limits: Limits::default(),
            claims: Arc::default(),
            offers: Memory::default(),
            values: Memory::default(),
            tenants: Tenants::default(),
            crowd: Crowd::default(),
            quiet: QUIET,
            owner: None,
            wanted: None,
            umask: umask(),
            keep: Keep::default(),
            known: Arc::default(),
            steps: times::Steps::default(),
            exact: Exact::default(),
            notes: Arc::default(),
            swap: None,
            absent: false,
        })
    }

    /// Opens what is to be looked at and not changed; the directory need not be there.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open_to_look(path: &Path, on_conflict: OnConflict) -> Result<Self, Error> {
        let there = path.ancestors().find(|path| path.is_dir());
        let mut store = Self::open(there.unwrap_or(Path::new(".")), on_conflict)?;
        store.absent = there != Some(path);
        Ok(store)
    }

    /// Whether something can be made in the directory, which is at `path`: who waits for senders hears of it
    /// before they come.
    ///
    /// # Errors
    /// Why nothing can.
    pub fn check_writable(&self, path: &Path) -> Result<(), Error> {
        let access = Access::WRITE_OK | Access::EXEC_OK;
        let may = rustix::fs::accessat(&*self.dir, ".", access, AtFlags::empty());
        may.map_err(|error| {
            let error = io::Error::from(error);
            Error::file(path, format_args!("{error}{}", advice(&error)))
        })
    }

    /// Takes no more of an offer than `limits`.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Has a sender that brings nothing for so long give way to who finds no place: five minutes unless set.
    #[must_use]
    pub fn patient_for(mut self, quiet: Duration) -> Self {
        self.quiet = quiet;
        self
    }

    /// Keeps this of files beside their content.
    #[must_use]
    pub fn keeping(mut self, keep: Keep) -> Self {
        self.keep = keep;
        self
    }

    /// Keeps partial files for whoever comes with this instead of for the sender's key, where keys are
    /// made for one session and somebody else proves who sends.
    #[must_use]
    pub fn kept_for(mut self, owner: [u8; 32]) -> Self {
        self.owner = Some(owner);
        self
    }

    /// Takes an offer only if `wanted` agrees to each entry of it: for who asked a sender for something,
    /// and wants nothing else.
    #[must_use]
    pub fn wanting(mut self, wanted: impl Fn(&Entry) -> bool + Send + Sync + 'static) -> Self {
        self.wanted = Some(Wanted(Arc::new(wanted)));
        self
    }

    /// Whether everything in an offer was asked for.
    pub(crate) fn check_wanted(&self, entries: &[Entry]) -> Result<(), Rejection> {
        let Some(Wanted(wanted)) = &self.wanted else {
            return Ok(());
        };
        match entries.iter().find(|entry| !wanted(entry)) {
            None => Ok(()),
            Some(entry) => Err(Rejection::offer(format!(
                "{:?} is offered and was not asked for",
                entry.path
            ))),
        }
    }

    /// Lets senders say what to do where names are taken, as far as `what`.
    #[must_use]
    pub fn with_senders_deciding(mut self, what: Senders) -> Self {
        self.senders = what;
        self
    }

    /// The store for a session of a sender with these wishes.
    pub(crate) fn for_session(
        &self,
        wishes: Wishes,
        people: &People,
    ) -> Result<Arc<Self>, Rejection> {
        let mut store = self.clone();
        store.known = Arc::new(Known::new(people));
        store.exact = wishes.exact;
        store.notes = Arc::default();
        match (wishes.on_conflict, self.senders) {
            (None, _) => {}
            (Some(wish), _) if wish == self.on_conflict => {}
            (Some(wish), Senders::Everything) => store.on_conflict = wish,
            (Some(wish), Senders::Additions) if !wish.replaces() => store.on_conflict = wish,
            (Some(_), Senders::Nothing) => {
                return Err(Rejection::new(
                    RejectionKind::Limit,
                    "the receiver decides what to do where names are taken: dfcp recv --on-conflict",
                ));
            }
            (Some(_), Senders::Additions) => {
                return Err(Rejection::new(
                    RejectionKind::Limit,
                    "the receiver lets senders add files and not replace any; there: dfcp recv \
                     --allow-overwrite",
                ));
            }
        }
        Ok(Arc::new(store))
    }

    /// Whether `path` is a directory that is there.
    pub(crate) fn has_dir(&self, path: &str) -> bool {
        !self.absent && self.dir.is_dir(name::path(path))
    }

    /// Makes the directory `path` with its parents, unless it is there.
    pub(crate) fn create_dir(&self, path: &str) -> Result<(), Problem> {
        if self.has_dir(path) {
            return Ok(());
        }
        let created = || {
            self.make_way_for_directories(path)?;
            self.dir.create_dir_all(name::path(path))
        };
        created().map_err(|error| match self.in_the_way(path) {
            Some((there, at)) => conflict_with(&there, &at),
            None => target(path, error),
        })
    }

    /// Gives a directory the mode and time that were offered.
    pub(crate) fn finish_dir(&self, entry: &Entry) -> Result<(), Problem> {
        let directory = self.dir.open(name::path(&entry.path));
        let directory = directory.map_err(|error| target(&entry.path, error))?;
        self.apply(&directory.into_std(), entry);
        Ok(())
    }

    /// What becomes of `entry` if the file of its name is another one; `None` if it is to come.
    pub(crate) fn conflict_with(&self, entry: &Entry) -> Option<Result<Outcome, Problem>> {
        match self.on_conflict {
            OnConflict::Error => Some(Err(conflict(&entry.path))),
            OnConflict::Skip => Some(Ok(Outcome::Skipped)),
            OnConflict::Rename | OnConflict::Overwrite | OnConflict::Newer => None,
        }
    }

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
                    return Err(conflict_with(&there, &entry.path));
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
            partial.recover(&journal, &tenant.owner, || session.strong_count() > 0)?;
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
    fn open_own(&self, name: &str, lock: bool) -> io::Result<std::fs::File> {
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

/// Renames within a directory, unless the name is taken: false then.
fn rename_to_free(dir: &Dir, old: &Path, name: &Path) -> io::Result<bool> {
    let moved = rustix::fs::renameat_with(dir, old, dir, name, RenameFlags::NOREPLACE);
    let moved = match moved {
        // Not every file system can.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => dir
            .hard_link(old, dir, name)
            .and_then(|()| dir.remove_file(old)),
        moved => moved.map_err(io::Error::from),
    };
    match moved {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        moved => moved.map(|()| true),
    }
}

/// A file or directory of this side fails; says what to do where that is known.
pub(crate) fn target(path: &str, error: io::Error) -> Problem {
    let advice = match error.kind() {
        io::ErrorKind::NotFound => {
            ": the directory was removed while files came into it, or the file system there cannot hold this name"
        }
        _ => advice(&error),
    };
    Problem::new(
        ProblemKind::Target,
        format!("receiver: {path}: {error}{advice}"),
    )
}

fn conflict(path: &str) -> Problem {
    let message = format!("{path} exists with other content (see --on-conflict)");
    Problem::new(ProblemKind::Conflict, message)
}

/// The conflict with something that is not replaced in any case, or not by a directory.
fn conflict_with(there: &cap_std::fs::Metadata, path: &str) -> Problem {
    if there.is_dir() || there.is_file() || there.is_symlink() {
        return conflict_of_kinds(path);
    }
    let message =
        format!("{path} is a device, a pipe or a socket, which stays; name another target");
    Problem::new(ProblemKind::Conflict, message)
}

/// A file is where a directory is to be, or the reverse.
fn conflict_of_kinds(path: &str) -> Problem {
    let message = format!(
        "{path} is a file on one side and a directory on the other (sync --delete removes what is \
         at the receiver)"
    );
    Problem::new(ProblemKind::Conflict, message)
}

#[cfg(test)]
mod tests;
