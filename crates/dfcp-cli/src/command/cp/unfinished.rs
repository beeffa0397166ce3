//! Copies of directories under new names that broke off.
//!
//! `cp -r DIR NEW` makes NEW, and copies into NEW where that is there: a command that was interrupted would
//! mean another place when it is repeated. So the side that writes notes what it begins, and forgets it at
//! the end; the same command then goes on with it. Where no note can be made, `cp` is what it is elsewhere.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::keys;

/// As long as partial files are kept.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// A directory that gets a new name.
#[derive(Clone, Debug)]
pub struct Unfinished {
    /// The file that says so while it is not whole.
    note: PathBuf,
    /// What it is called at the source.
    source: String,
}

impl Unfinished {
    /// Of `source`, which is to be called `target`; `None` where nothing can be noted.
    pub fn new(target: &Path, source: &str) -> Option<Self> {
        let folder = keys::state_directory()?.join("unfinished");
        Some(Self {
            note: folder.join(note_name(target)?),
            source: source.to_owned(),
        })
    }

    /// Whether such a copy was begun and not ended.
    pub fn broke_off(&self) -> bool {
        is_recent(&self.note)
            && fs::read(&self.note).is_ok_and(|text| text == self.source.as_bytes())
    }

    /// Notes that it begins. What cannot be noted is no failure of the copy.
    pub fn begin(&self) {
        let Some(folder) = self.note.parent() else {
            return;
        };
        for old in fs::read_dir(folder).into_iter().flatten().flatten() {
            if !is_recent(&old.path()) {
                let _ = fs::remove_file(old.path());
            }
        }
        let _ = fs::create_dir_all(folder);
        let _ = fs::write(&self.note, &self.source);
    }

    /// It is whole.
    pub fn end(&self) {
        let _ = fs::remove_file(&self.note);
    }
}

/// A name that no other target has.
fn note_name(target: &Path) -> Option<String> {
    let parent = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let whole = parent.canonicalize().ok()?.join(target.file_name()?);
    Some(
        blake3::hash(whole.as_os_str().as_bytes())
            .to_hex()
            .to_string(),
    )
}

fn is_recent(note: &Path) -> bool {
    let written = note.metadata().and_then(|metadata| metadata.modified());
    // A clock that was set back makes nothing old.
    written.is_ok_and(|written| written.elapsed().map_or(true, |age| age < KEPT))
}
