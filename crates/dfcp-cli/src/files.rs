//! Between the command line and `dfcp_transfer`: its settings as options, its errors as exit codes.

use std::path::{Path, PathBuf};

use dfcp_command::{Failure, Kind};
use dfcp_transfer::{Error, ProblemKind, Sources, Store};

/// What to do with a file whose name is taken by one with other content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum OnConflict {
    /// Report it as failed and keep what is there.
    Error,
    /// Keep what is there.
    Skip,
    /// Give the new file a free name: `NAME.1` and so on.
    Rename,
    /// Put the new file in its place.
    Overwrite,
}

impl From<OnConflict> for dfcp_transfer::OnConflict {
    fn from(chosen: OnConflict) -> Self {
        match chosen {
            OnConflict::Error => Self::Error,
            OnConflict::Skip => Self::Skip,
            OnConflict::Rename => Self::Rename,
            OnConflict::Overwrite => Self::Overwrite,
        }
    }
}

/// Lists what is to be sent.
pub fn scan(paths: &[PathBuf]) -> Result<Sources, Failure> {
    Sources::scan(paths).map_err(failure)
}

/// Opens the directory that files are received in.
pub fn open_store(path: &Path, on_conflict: OnConflict) -> Result<Store, Failure> {
    Store::open(path, on_conflict.into()).map_err(failure)
}

/// What ends a session, with its class.
pub fn failure(error: Error) -> Failure {
    let kind = match error {
        Error::Transport(error) => return error.into(),
        Error::File { .. } | Error::Io(_) => Kind::LocalIo,
        Error::Name(_) => Kind::Usage,
        _ => Kind::Failure,
    };
    Failure::new(kind, error.to_string())
}

/// The class of what is wrong with a file.
pub fn kind(problem: ProblemKind) -> Kind {
    match problem {
        ProblemKind::Integrity => Kind::Integrity,
        ProblemKind::Connection => Kind::Failure,
        ProblemKind::Source | ProblemKind::Target | ProblemKind::Conflict => Kind::LocalIo,
    }
}
