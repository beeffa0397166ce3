//! The receiver's directory. Everything is opened relative to it, and nothing outside it can be
//! reached, whatever names and symbolic links say (`cap-std`).

mod attributes;
mod case;
mod incoming;
mod links;
mod older;
mod opened;
mod small;
mod survey;
mod swap;
mod times;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cap_std::fs::Dir;
use rustix::fs::{Access, AtFlags};

use crate::Error;
use crate::error::advice;
use crate::memory::Memory;
use crate::message::{
    Entry, Exact, OnConflict, Outcome, People, Problem, ProblemKind, Rejection, RejectionKind,
    Wishes,
};
use crate::meta::{Keep, Known, Notes};
use crate::name;
use crate::offer::{Limits, Refused};
use crate::receive::MAX_ACTIVE;
use crate::receive::silence::{Crowd, QUIET};
use crate::space::Claims;
use crate::tenants::Tenants;
use crate::tree::Value;
use crate::turns::Sessions;
use crate::writers::Writers;
pub(crate) use incoming::{Begin, How};
pub(crate) use older::Older;
use opened::Opened;
pub(crate) use small::Folder;
pub(crate) use survey::{Ask, Survey};
use swap::Swap;

/// Follows the name of a file that is not whole.
pub const PARTIAL: &str = ".dfcp-partial";

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
    /// Sessions that there are.
    pub(crate) sessions: Sessions,
    /// How many of them write small files at a time.
    pub(crate) writers: Writers,
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
    /// Places in the offer of what is not taken.
    pub(crate) refused: Arc<BTreeSet<u64>>,
    /// What may go so that something of another kind takes its name.
    swap: Option<Swap>,
    /// What is said to do where nothing may.
    advice: &'static str,
    /// Whether read-only directories are written into.
    opens_directories: bool,
    /// Those that this session writes into.
    opened: Arc<Opened>,
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
        let dir = Arc::new(open().map_err(failed)?);
        Ok(Self {
            opens_directories: false,
            opened: Arc::new(Opened::new(dir.clone())),
            dir,
            on_conflict,
            senders: Senders::Nothing,
            limits: Limits::default(),
            claims: Arc::default(),
            offers: Memory::default(),
            values: Memory::default(),
            tenants: Tenants::default(),
            crowd: Crowd::default(),
            sessions: Sessions::default(),
            writers: Writers::for_sessions_of(MAX_ACTIVE),
            quiet: QUIET,
            owner: None,
            wanted: None,
            umask: umask(),
            keep: Keep::default(),
            known: Arc::default(),
            steps: times::Steps::default(),
            exact: Exact::default(),
            notes: Arc::default(),
            refused: Arc::default(),
            swap: None,
            advice: "sync --delete replaces it",
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
        refused: Refused,
    ) -> Result<Arc<Self>, Rejection> {
        let mut store = self.clone();
        store.known = Arc::new(Known::new(people));
        store.exact = wishes.exact;
        store.notes = Arc::new(refused.notes);
        store.refused = Arc::new(refused.places);
        store.opened = Arc::new(Opened::new(self.dir.clone()));
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

    /// Whether `path` is a directory that is there. A symbolic link to one is none, nor is what is beneath it: it may
    /// lead out of the copy, to what nobody meant to write, or into another part of it.
    pub(crate) fn has_dir(&self, path: &str) -> bool {
        let is_dir = |path| {
            self.dir
                .symlink_metadata(name::path(path))
                .is_ok_and(|at| at.is_dir())
        };
        !self.absent && way_to(path).all(is_dir)
    }

    /// Makes the directory `path` with its parents, unless it is there.
    pub(crate) fn create_dir(&self, path: &str) -> Result<(), Problem> {
        if self.has_dir(path) {
            return Ok(());
        }
        let created = || {
            self.make_way_for_directories(path)?;
            // A link to a directory would do for what is made below it.
            match self.in_the_way(path) {
                Some(_) => Err(io::ErrorKind::NotADirectory.into()),
                None => self.dir.create_dir_all(name::path(path)),
            }
        };
        created().map_err(|error| match self.in_the_way(path) {
            Some((there, at)) => self.conflict_of_kinds(&there, &at),
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

    /// The conflict with something that is not replaced in any case, or not by something of another kind.
    pub(crate) fn conflict_of_kinds(&self, there: &cap_std::fs::Metadata, path: &str) -> Problem {
        let advice = self.advice;
        let message = if there.is_symlink() {
            format!(
                "{path} is a symbolic link at the receiver and a directory at the sender ({advice})"
            )
        } else if there.is_dir() || there.is_file() {
            format!("{path} is a file on one side and a directory on the other ({advice})")
        } else {
            format!("{path} is a device, a pipe or a socket, which stays; name another target")
        };
        Problem::new(ProblemKind::Conflict, message)
    }
}

/// The directories above `path` from the first one on, and itself.
fn way_to(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').map(|(at, _)| at);
    ends.chain([path.len()]).map(|end| &path[..end])
}

pub(crate) fn cap_identity(metadata: &cap_std::fs::Metadata) -> (u64, u64) {
    use cap_std::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

/// What the process gives to nobody.
///
/// Linux says it. Elsewhere it is read by setting it, for a moment in which other threads may create
/// files: theirs are private then, but of use to their owner.
fn umask() -> u32 {
    umask_said().unwrap_or_else(|| {
        use nix::sys::stat::{Mode, umask};
        let mask = umask(Mode::from_bits_truncate(0o077));
        umask(mask);
        #[allow(clippy::useless_conversion)] // modes have 16 bits on other platforms
        u32::from(mask.bits())
    })
}

/// The umask as `/proc` has it since Linux 4.7.
fn umask_said() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(mask.trim(), 8).ok()
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

#[cfg(test)]
mod tests;
