//! Between the command line and `dfcp_transfer`: its settings as options, its errors as exit codes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dfcp::ConnectionError;
use dfcp_command::{Failure, Kind, units};
use dfcp_transfer::{
    Error, Keep, Limits, Owners, ProblemKind, RejectionKind, Scan, Senders, Sources, Store,
};
use serde::{Deserialize, Serialize};

use crate::ask;
use crate::command::Output;

/// What to do with a file whose name is taken by one with other content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub enum OnConflict {
    /// Report it as failed and keep what is there.
    #[default]
    Error,
    /// Keep what is there.
    Skip,
    /// Give the new file a free name: `NAME.1` and so on.
    Rename,
    /// Put the new file in its place.
    Overwrite,
    /// Put the new file in its place if it was changed later, and else keep what is there.
    Newer,
}

impl From<OnConflict> for dfcp_transfer::OnConflict {
    fn from(chosen: OnConflict) -> Self {
        match chosen {
            OnConflict::Error => Self::Error,
            OnConflict::Skip => Self::Skip,
            OnConflict::Rename => Self::Rename,
            OnConflict::Overwrite => Self::Overwrite,
            OnConflict::Newer => Self::Newer,
        }
    }
}

/// What is wrong with a path of no letters: clap would say that there is none.
pub const EMPTY_NAME: &str = "an empty name is no file; a variable without a value?";

/// Lists what is to be sent.
pub fn scan(paths: &[PathBuf], how: Scan<'_>) -> Result<Sources, Failure> {
    Sources::scan_with(paths, how).map_err(failure)
}

/// What is kept of files beside content, mode and time, as options.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct Kept {
    /// Keep extended attributes: those of the namespace user, and between superusers trusted
    #[arg(short = 'X', long)]
    pub xattrs: bool,
    /// Keep access control lists, users and groups by their names
    #[arg(short = 'A', long)]
    pub acls: bool,
    /// Keep owners and groups, by their names; the receiver must be the superuser
    #[arg(long)]
    pub owner: bool,
    /// Keep owners and groups, also those of access control lists, by their numbers
    #[arg(long)]
    pub numeric_owner: bool,
}

impl Kept {
    /// As what a sender sends along, or a receiver takes.
    pub fn keep(&self) -> Keep {
        Keep {
            owners: match (self.owner, self.numeric_owner) {
                (_, true) => Owners::Numbers,
                (true, false) => Owners::Names,
                (false, false) => Owners::Receiver,
            },
            attributes: self.xattrs,
            acls: self.acls,
            ..Keep::default()
        }
    }
}

/// Where a receiver puts files, and what it takes.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct Target {
    /// Directory to receive into; - writes the one file of one session to standard output
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    output_dir: PathBuf,
    /// What to do with a file whose name is taken by one with other content; senders have no say then
    /// [default: error, and senders may say skip or rename]
    #[arg(long, value_enum)]
    on_conflict: Option<OnConflict>,
    /// Let senders say overwrite and newer too: those who may send may replace what is in the directory
    #[arg(long, conflicts_with = "on_conflict")]
    allow_overwrite: bool,
    /// Most bytes that a session may bring, such as 20G; what the disk has free, less a reserve,
    /// bounds it in any case
    #[arg(long, value_name = "SIZE", default_value = "1T", value_parser = units::count)]
    max_bytes: u64,
    /// Most files and directories that a session may bring [default: 100000, with a code 2000000]
    #[arg(long, value_name = "N")]
    max_files: Option<u64>,
    /// Take names that begin with a dot, which are left out else
    #[arg(long)]
    hidden: bool,
    /// Take names with control characters, backslashes or bytes that are not UTF-8, which are left out
    /// else; with a code they are taken in any case
    #[arg(long)]
    any_names: bool,
    /// Take holes of files as such, with a code in any case: they take no room, and what the disk has free
    /// bounds data alone
    #[arg(short = 'S', long)]
    sparse: bool,
    #[command(flatten)]
    kept: Kept,
    /// Receive straight into the home directory, or one that it lies in; at a terminal, without
    /// asking
    #[arg(long)]
    allow_home: bool,
    /// Remove partial files in the directory that nobody has written to for so long
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = units::age)]
    keep_partial: Duration,
}

impl Target {
    /// Whether the file goes to standard output.
    pub fn is_pipe(&self) -> bool {
        self.output_dir.as_os_str() == "-"
    }

    /// The same for one who was told a code, and so is no stranger: what might be more than the disk has, or
    /// than lists of files show well, is taken.
    pub fn by_code(&self) -> Self {
        Self {
            sparse: true,
            any_names: true,
            max_files: self.max_files.or(Some(Limits::MOST_FILES)),
            ..self.clone()
        }
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.output_dir
    }

    /// Whether it differs from `other` in more than its [limits](Self::limits).
    pub fn differs_beyond_limits(&self, other: &Self) -> bool {
        let with_these = Self {
            max_bytes: self.max_bytes,
            max_files: self.max_files,
            hidden: self.hidden,
            any_names: self.any_names,
            ..other.clone()
        };
        with_these != *self
    }

    /// What is taken of an offer.
    pub fn limits(&self) -> Limits {
        Limits {
            bytes: self.max_bytes,
            files: self.max_files.unwrap_or(Limits::default().files),
            hidden: self.hidden,
            any_names: self.any_names,
        }
    }

    /// Opens the directory that files are received in, and begins to remove what is left of
    /// transfers long ago.
    pub fn open(&self, output: &Output) -> Result<Arc<Store>, Failure> {
        self.check_home()?;
        let on_conflict = self.on_conflict.unwrap_or(OnConflict::Error);
        let store = Store::open(&self.output_dir, on_conflict.into()).map_err(failure)?;
        store.check_writable(&self.output_dir).map_err(failure)?;
        let store = store.with_senders_deciding(match (self.on_conflict, self.allow_overwrite) {
            (_, true) => Senders::Everything,
            (None, _) => Senders::Additions,
            (Some(_), _) => Senders::Nothing,
        });
        let keep = Keep {
            holes: self.sparse,
            ..self.kept.keep()
        };
        let store = Arc::new(store.with_limits(self.limits()).keeping(keep));
        let (stale, output, age) = (store.clone(), output.clone(), self.keep_partial);
        // A large tree takes time, which nobody needs to wait for; not even the process' end.
        std::thread::spawn(move || {
            for name in stale.remove_stale(age) {
                output.say(format_args!("removed {name:?}, left over (--keep-partial)"));
            }
        });
        Ok(store)
    }

    /// Programs look for much in a home directory: what is put there may be more than a file.
    fn check_home(&self) -> Result<(), Failure> {
        let Some(home) = home_in(&self.output_dir).filter(|_| !self.allow_home) else {
            return Ok(());
        };
        let what = format!(
            "files would go straight into your home directory, {}, or around it",
            home.display()
        );
        if ask::is_possible() && ask::agrees(&format!("{what}. Go on")) {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "{what}: name a folder for them, dfcp recv -o FOLDER, or say --allow-home"
        )))
    }
}

/// The home directory, if it is `directory` or lies in it.
pub fn home_in(directory: &Path) -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let own = || {
        nix::unistd::User::from_uid(nix::unistd::geteuid())
            .ok()??
            .dir
            .into()
    };
    home.or_else(own).filter(|home| contains(directory, home))
}

/// Whether `inner` is `outer` or lies in it. What is not there contains nothing.
fn contains(outer: &Path, inner: &Path) -> bool {
    let whole = |path: &Path| path.canonicalize().ok();
    whole(outer)
        .zip(whole(inner))
        .is_some_and(|(outer, inner)| inner.starts_with(outer))
}

/// What ends a session, with its class.
pub fn failure(error: Error) -> Failure {
    let kind = match error {
        Error::Transport(error) => return broken(error),
        Error::File { .. } | Error::Io(_) => Kind::LocalIo,
        Error::Name(_) => Kind::Usage,
        Error::Rejected(ref rejection) | Error::Refused(ref rejection) => match rejection.kind {
            RejectionKind::Key => Kind::Authentication,
            RejectionKind::Space => Kind::LocalIo,
            RejectionKind::Limit | RejectionKind::Offer => Kind::Failure,
        },
        _ => Kind::Failure,
    };
    Failure::new(kind, error.to_string())
}

/// What broke the connection of a session, and what to do where that is known.
pub fn broken(error: dfcp::Error) -> Failure {
    let silent = matches!(
        error,
        dfcp::Error::Connection(ConnectionError::TimedOut | ConnectionError::Reset)
    );
    let failure = Failure::from(error);
    match silent {
        true => Failure::new(
            failure.kind,
            format!("{failure}: send or copy again, and it goes on where it was"),
        ),
        false => failure,
    }
}

/// The class of what is wrong with a file.
pub fn kind(problem: ProblemKind) -> Kind {
    match problem {
        ProblemKind::Integrity => Kind::Integrity,
        ProblemKind::Connection => Kind::Failure,
        ProblemKind::Source | ProblemKind::Target | ProblemKind::Conflict => Kind::LocalIo,
    }
}
