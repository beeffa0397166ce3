//! What is there of files before anything of them comes: looked at by names, sizes and times, and read
//! where these do not tell.

use std::io::{self, Read};

use cap_std::fs::{Dir, MetadataExt as _, OpenOptions, OpenOptionsExt};
use nix::fcntl::OFlag;

use super::{Store, conflict};
use crate::message::{Change, Entry, OnConflict, Outcome, Wishes};
use crate::name;
use crate::partial::JOURNAL;
use crate::tree::check;
use crate::turns::Going;

/// Names that are looked up in one go: as long as a connection takes to begin, some milliseconds. Who offers no more
/// waits for nobody.
const LOOKED_UP: u64 = 512;

/// What is known of a file before anything of it has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Survey {
    /// Nothing of it is there.
    Absent,
    /// It is there: size and time of change say so. What of it would change, in a dry run.
    There(Vec<Change>),
    /// A file of its name, or a part of it, is there; what its sender is to be asked.
    Examine(Ask),
    /// It will not be received.
    Settled(Outcome),
}

/// What tells whether the file that is there is the one that is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// It is not, or there is only a part.
    Nothing,
    /// The hash.
    Hash,
    /// The values of its groups, which tell how much of it is the same as well.
    Groups,
}

impl Store {
    /// What is there of the files among `entries`, without reading any. Ends early when `go_on` says so.
    pub(crate) fn survey(
        &self,
        entries: &[Entry],
        wishes: Wishes,
        go_on: impl Fn() -> bool,
    ) -> Vec<(u64, Survey)> {
        let mut known = Vec::new();
        if self.absent {
            return known;
        }
        // Files of a directory follow each other: it is opened once, or found absent.
        let mut parent: Option<(&str, Option<Dir>)> = None;
        for (index, entry) in (0..).zip(entries) {
            if index % LOOKED_UP == LOOKED_UP - 1 && !go_on() {
                break;
            }
            if !entry.is_file() {
                continue;
            }
            if self.refused.contains(&index) {
                known.push((index, Survey::Settled(Outcome::Skipped)));
                continue;
            }
            let (path, name) = entry.path.rsplit_once('/').unwrap_or((".", &entry.path));
            if parent.as_ref().is_none_or(|(known, _)| *known != path) {
                let there = path == "." || self.has_dir(path);
                let open = || self.dir.open_dir(name::path(path)).ok();
                parent = Some((path, there.then(open).flatten()));
            }
            let dir = parent.as_ref().and_then(|(_, dir)| dir.as_ref());
            let survey = dir.map_or(Survey::Absent, |dir| {
                self.survey_one(dir, name, entry, wishes)
            });
            if survey != Survey::Absent {
                known.push((index, survey));
            }
        }
        known
    }

    fn survey_one(&self, dir: &Dir, name: &str, entry: &Entry, wishes: Wishes) -> Survey {
        if let Ok(there) = dir.symlink_metadata(name::path(name)) {
            if entry.stream {
                return match self.on_conflict {
                    OnConflict::Skip => Survey::Settled(Outcome::Skipped),
                    OnConflict::Error => Survey::Settled(Outcome::Error(conflict(&entry.path))),
                    _ => Survey::Absent,
                };
            }
            let alike = there.is_file() && there.len() == entry.size;
            // A dry run changes nothing: how exactly times are kept it knows of some kinds of file systems only.
            let step = || {
                let file = self.open_there(entry).ok()?;
                match wishes.dry_run {
                    true => super::times::known_of_kind(&file),
                    false => super::times::probe(&file, &there).ok(),
                }
            };
            let unchanged = alike && !wishes.checksum && self.steps.are_equal(&there, entry, step);
            return match self.on_conflict {
                OnConflict::Skip => Survey::Settled(Outcome::Skipped),
                _ if unchanged => {
                    let open = || self.open_there(entry);
                    let differences = self.differences(&there, entry, open);
                    if wishes.dry_run {
                        return Survey::There(differences.changes);
                    }
                    if !differences.are_none() {
                        match self.open_there(entry) {
                            Ok(file) => self.align(&file, entry),
                            Err(error) => {
                                let why = format!("what is to be kept beside its content: {error}");
                                self.notes.add(&entry.path, why);
                            }
                        }
                    }
                    Survey::There(Vec::new())
                }
                OnConflict::Newer if is_later(&there, entry) => Survey::Settled(Outcome::Skipped),
                _ if self.may_take_over(&there, entry, wishes) => Survey::Examine(Ask::Groups),
                _ if alike => Survey::Examine(Ask::Hash),
                OnConflict::Error => Survey::Settled(Outcome::Error(conflict(&entry.path))),
                OnConflict::Overwrite | OnConflict::Newer if !self.is_replaceable(&there) => {
                    Survey::Settled(Outcome::Error(self.conflict_of_kinds(&there, &entry.path)))
                }
                OnConflict::Overwrite | OnConflict::Rename | OnConflict::Newer => {
                    Survey::Examine(Ask::Nothing)
                }
            };
        }
        match !wishes.anew
            && !entry.stream
            && dir
                .symlink_metadata(name::path(&name::beside(name, JOURNAL)))
                .is_ok()
        {
            true => Survey::Examine(Ask::Nothing),
            false => Survey::Absent,
        }
    }

    /// The hash of the file that is there, if it has the size of `entry`. Ends early with its session.
    pub(crate) fn hash_there(&self, entry: &Entry, session: &Going) -> Option<blake3::Hash> {
        let file = self.open_there(entry).ok()?;
        let metadata = file.metadata().ok()?;
        if !metadata.is_file() || metadata.len() != entry.size {
            return None;
        }
        let reading = session.read();
        hash(&file, || reading.go_on()).ok()
    }

    /// The file that is there is the one that is offered, so it gets the time that was offered: the
    /// next offer of it need not be read.
    pub(crate) fn confirm(&self, entry: &Entry) -> Outcome {
        if let Ok(file) = self.open_there(entry) {
            self.apply_to_found(&file, entry);
        }
        Outcome::There
    }

    /// Opens what is there to be read, and not what a link leads to.
    pub(super) fn open_there(&self, entry: &Entry) -> io::Result<std::fs::File> {
        let mut options = OpenOptions::new();
        options.read(true);
        options.custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits());
        let file = self.dir.open_with(name::path(&entry.path), &options)?;
        Ok(file.into_std())
    }
}

/// The hash of a file, which is read from its beginning as long as `go_on` says so.
pub(super) fn hash(mut file: &std::fs::File, go_on: impl Fn() -> bool) -> io::Result<blake3::Hash> {
    io::Seek::rewind(&mut file)?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        check(&go_on)?;
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finalize()),
            n => hasher.update(&buffer[..n]),
        };
    }
}

/// Whether what is there was changed when what is offered was, or later.
pub(super) fn is_later(there: &cap_std::fs::Metadata, entry: &Entry) -> bool {
    (there.mtime(), there.mtime_nsec()) >= (entry.mtime, i64::from(entry.mtime_nanos))
}
