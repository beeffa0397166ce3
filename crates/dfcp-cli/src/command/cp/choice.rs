//! What is copied, how what is there is treated, and what a target means.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use dfcp_command::Failure;
use dfcp_transfer::{
    Keep, LeftOut, Limits, Links, Owners, Privileges, Scan, Sources, Store, Wishes,
};
use serde::{Deserialize, Serialize};

use super::{filter, target};
use crate::files::{self, OnConflict};
use crate::unfinished::Unfinished;

/// What is copied, and how what is there is treated.
#[derive(Clone, Debug, Default, clap::Args, Serialize, Deserialize)]
pub struct Choice {
    /// Copy directories with all that is in them
    #[arg(short, long)]
    pub(super) recursive: bool,
    /// As -r -l, with modes whatever the umask says, also of directories that are there, set-user-ID and
    /// set-group-ID where owner and group stay the same, and as the superuser with owners and groups;
    /// times are kept in any case
    #[arg(short, long)]
    pub(super) archive: bool,
    /// Copy symbolic links as links, where they lead to somewhere in the tree that they are in
    #[arg(short, long)]
    pub(super) links: bool,
    /// Copy what symbolic links lead to
    #[arg(short = 'L', long, conflicts_with = "links")]
    pub(super) copy_links: bool,
    #[command(flatten)]
    pub(super) kept: files::Kept,
    /// List what would be sent, with sizes, what else of the files there would change (mode, owner, time,
    /// xattrs, acls), and what --delete would remove, and change nothing; files are compared by size and
    /// time alone, and what the file system there cannot hold shows only when it is copied
    #[arg(short = 'n', long)]
    pub(super) dry_run: bool,
    /// What to do with a file whose name is taken by one with other content
    #[arg(long, value_enum, default_value_t = OnConflict::Overwrite)]
    pub(super) on_conflict: OnConflict,
    /// Compare what is there by content, also where size and time are the same
    #[arg(short, long)]
    pub(super) checksum: bool,
    /// Copy from the beginning what is there in part
    #[arg(long)]
    pub(super) no_resume: bool,
    /// Copy all of a large file that is there in another version, instead of comparing both and copying
    /// the parts (of 64 KiB, or a 4096th of the file) that differ
    #[arg(short = 'W', long)]
    #[serde(default)]
    pub(super) whole_file: bool,
    #[command(flatten)]
    pub(super) filter: filter::Filter,
    /// Whether the target is to be like the source, as `dfcp sync` has it.
    #[arg(skip)]
    pub(super) sync: bool,
    /// Whether it is what is in a directory that is copied, as `dir/.` means.
    #[arg(skip)]
    pub(super) contents: bool,
    /// Whether what the source has not may be removed from a home directory.
    #[arg(skip)]
    #[serde(default)]
    pub(super) allow_home: bool,
    /// How much of the target that the source has not may be removed.
    #[arg(skip)]
    #[serde(default)]
    pub(super) removal: Removal,
}

/// How much `dfcp sync --delete` may remove.
#[derive(Clone, Debug, Default, clap::Args, Serialize, Deserialize)]
pub struct Removal {
    /// Let --delete clear DST also where SRC has no file in it, as the mount point of a disk that is not
    /// mounted has none
    #[arg(long, requires = "delete")]
    pub(super) allow_empty: bool,
    /// Remove nothing, with exit code 8, where --delete would remove more files and directories than so
    /// many; a file does not take the place of a directory then, nor the reverse
    #[arg(long, value_name = "N", requires = "delete")]
    pub(super) max_delete: Option<usize>,
}

/// What becomes of what only the target has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// It stays.
    NotAskedFor,
    /// It was to be removed, and stays, since not everything of the source could be read.
    Withheld,
    /// It is removed.
    Done,
}

impl Deletion {
    pub fn new(asked_for: bool, done: bool) -> Self {
        match (asked_for, done) {
            (_, true) => Self::Done,
            (true, false) => Self::Withheld,
            (false, false) => Self::NotAskedFor,
        }
    }
}

impl Choice {
    /// What a target means for what has these names at the source, `None` where there may be several: of
    /// `sync`, the copy itself.
    pub fn resolve(&self, target: &Path, names: Option<&[String]>) -> Result<Aim, Failure> {
        let aim = |(directory, name)| Aim {
            directory,
            name,
            unfinished: None,
            goes_on: false,
        };
        if self.sync || self.contents {
            return Ok(aim(target::exactly(target)?));
        }
        let into = target.as_os_str().as_bytes().ends_with(b"/");
        let unfinished = match names {
            Some([name]) if self.copies_trees() && !into => Unfinished::new(target, name),
            _ => None,
        };
        if unfinished.as_ref().is_some_and(Unfinished::broke_off) && target.is_dir() {
            return Ok(Aim {
                unfinished,
                goes_on: true,
                ..aim(target::exactly(target)?)
            });
        }
        let aim = aim(target::resolve(target, names.is_none())?);
        Ok(Aim {
            unfinished: unfinished.filter(|_| aim.name.is_some()),
            ..aim
        })
    }

    /// Whether directories are copied.
    pub fn copies_trees(&self) -> bool {
        self.recursive || self.archive
    }

    /// Whether symbolic links are copied as such.
    pub fn keeps_links(&self) -> bool {
        (self.links || self.archive) && !self.copy_links
    }

    /// Whether a path of an offer is copied, as far as the patterns say: they see those of `sync` from
    /// the root of the tree, which is called otherwise there than here.
    pub fn keeps(&self, path: &str, directory: bool) -> bool {
        match (self.sync || self.contents, path.split_once('/')) {
            (false, _) => self.filter.keeps(path, directory),
            (true, Some((_, beneath))) => self.filter.keeps(beneath, directory),
            (true, None) => true,
        }
    }

    /// Opens the directory that files are received in; where it deletes, directories and files take each
    /// other's places. Whoever may run commands there needs no limits.
    pub fn store(&self, directory: &Path, deletion: Deletion) -> Result<Store, Failure> {
        let on_conflict = self.on_conflict.into();
        let store = match self.dry_run {
            true => Store::open_to_look(directory, on_conflict),
            false => Store::open(directory, on_conflict),
        };
        let store = store.map_err(files::failure)?;
        let choice = self.clone();
        let store = match deletion {
            Deletion::NotAskedFor => store,
            Deletion::Withheld => store
                .not_swapping("it stays: nothing is removed, since not everything could be sent"),
            // What takes the place of another goes before all of it can be counted.
            Deletion::Done if self.removal.max_delete.is_some() => {
                store.not_swapping("--delete replaces it where there is no --max-delete")
            }
            Deletion::Done => store.swapping(move |path, directory| choice.keeps(path, directory)),
        };
        let limits = Limits {
            bytes: u64::MAX,
            files: u64::MAX,
            hidden: true,
            any_names: true,
        };
        let store = store.kept_for(OWNER).with_limits(limits);
        let store = store.opening_directories();
        Ok(store.keeping(self.received()))
    }

    /// Fails where removing from `root` what the source has not would clear a home directory: that is what a
    /// target without a path means.
    pub fn check_home(&self, root: &Path) -> Result<(), Failure> {
        match files::home_in(root).filter(|_| !self.allow_home) {
            None => Ok(()),
            Some(home) => Err(Failure::usage(format!(
                "--delete would remove all that SRC has not from {}, which is, or has in it, the home \
                 directory {}: name a directory for the copy, or say --allow-home",
                root.display(),
                home.display()
            ))),
        }
    }

    /// Lists what is to be sent.
    pub fn scan(&self, paths: &[PathBuf]) -> Result<Sources, Failure> {
        let is_left_out = |path: &&PathBuf| !self.copies_trees() && path.is_dir();
        let (directories, paths): (Vec<_>, Vec<_>) = paths.iter().partition(is_left_out);
        let paths: Vec<PathBuf> = paths.into_iter().cloned().collect();
        if let Some(directory) = directories.first().filter(|_| paths.is_empty()) {
            let shown = directory.display();
            return Err(Failure::usage(format!(
                "{shown}: a directory (-r copies it)"
            )));
        }
        if self.sync
            && let Some(other) = paths.iter().find(|path| !path.is_dir())
        {
            return Err(match std::fs::metadata(other) {
                Ok(_) => Failure::usage(format!(
                    "{}: not a directory; `dfcp cp` copies files, and of what is there only what differs",
                    other.display()
                )),
                Err(error) => Failure::io(other, error),
            });
        }
        let links = match (self.keeps_links(), self.copy_links) {
            (_, true) => Links::Follow,
            (true, false) => Links::Keep,
            (false, false) => Links::LeaveOut,
        };
        let filter = |path: &str, directory| self.keeps(path, directory);
        let how = Scan {
            links,
            keep: self.sent(),
            privileges: Privileges::Dropped,
            filter: Some(&filter),
        };
        let scanned = Sources::scan_with(&paths, how);
        let mut sources = scanned.map_err(files::failure)?;
        let left_out = directories.into_iter().map(|directory| LeftOut {
            path: directory.display().to_string(),
            why: "a directory (-r copies it)".to_owned(),
        });
        sources.left_out.extend(left_out);
        sources.wishes = Wishes {
            dry_run: self.dry_run,
            checksum: self.checksum,
            anew: self.no_resume,
            whole: self.whole_file,
            ..sources.wishes
        };
        Ok(sources)
    }

    /// What is sent along with files.
    pub fn sent(&self) -> Keep {
        let keep = self.kept.keep();
        Keep {
            holes: true,
            modes: self.archive,
            owners: match (self.archive, keep.owners) {
                (true, Owners::Receiver) => Owners::Names,
                (_, owners) => owners,
            },
            ..keep
        }
    }

    /// What is taken of that: owners that nobody asked for in so many words only where that works.
    pub fn received(&self) -> Keep {
        let asked = self.kept.owner || self.kept.numeric_owner;
        let sent = self.sent();
        Keep {
            owners: match asked || nix::unistd::geteuid().is_root() {
                true => sent.owners,
                false => Owners::Ignored,
            },
            ..sent
        }
    }
}

/// What a target means.
pub struct Aim {
    /// Where to.
    pub directory: PathBuf,
    /// The text of the name there that the one thing copied gets, if not its own.
    pub name: Option<String>,
    /// To be noted while it is being copied.
    pub unfinished: Option<Unfinished>,
    /// Whether this was begun before.
    pub goes_on: bool,
}

/// What is said where a target is not taken for a directory to copy into.
pub fn goes_on(target: &str) -> String {
    format!("goes on with the copy to {target} that broke off; {target}/ would be one within it")
}

/// Whose partial files are those of copies: ssh has proved who writes here, and what a part is of is
/// checked against the hashes of the whole.
const OWNER: [u8; 32] = [0; 32];
