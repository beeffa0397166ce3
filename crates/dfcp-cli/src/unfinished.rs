//! Notes of what was begun, which are gone once it is whole.
//!
//! `cp -r DIR NEW` makes NEW, and copies into NEW where that is there: a command that was interrupted would
//! mean another place when it is repeated. So the side that writes notes what it begins, and forgets it at
//! the end; the same command then goes on with it. Where no note can be made, `cp` is what it is elsewhere.
//!
//! `dfcp send` has files leave with their offer. After one that broke off the receiver has some of them, and
//! they wait until it has said which. Where no note can be made, the first few come again.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dfcp::PublicKey;

use crate::keys;

/// As long as partial files are kept.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// What may break off.
#[derive(Clone, Debug)]
pub struct Unfinished {
    /// The file that says so while it is not whole.
    note: PathBuf,
    /// What is in it: of a directory that gets a new name what it is called at the source.
    source: String,
}

impl Unfinished {
    /// Of `source`, which is to be called `target`; `None` where nothing can be noted.
    pub fn new(target: &Path, source: &str) -> Option<Self> {
        Some(Self {
            note: folder()?.join(name_of_copy(target)?),
            source: source.to_owned(),
        })
    }

    /// Of `paths`, which are sent to `receiver`.
    pub fn sent(paths: &[PathBuf], receiver: &PublicKey) -> Option<Self> {
        Some(Self {
            note: folder()?.join(name_of_sending(paths, receiver)?),
            source: String::new(),
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

fn folder() -> Option<PathBuf> {
    Some(keys::state_directory()?.join("unfinished"))
}

/// A name that no other target has.
fn name_of_copy(target: &Path) -> Option<String> {
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

/// A name that the same files to the same receiver have again.
fn name_of_sending(paths: &[PathBuf], receiver: &PublicKey) -> Option<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(receiver.to_string().as_bytes());
    for path in paths {
        // No name has this byte.
        hasher.update(&[0]);
        hasher.update(path.canonicalize().ok()?.as_os_str().as_bytes());
    }
    Some(format!("send-{}", hasher.finalize().to_hex()))
}

fn is_recent(note: &Path) -> bool {
    let written = note.metadata().and_then(|metadata| metadata.modified());
    // A clock that was set back makes nothing old.
    written.is_ok_and(|written| written.elapsed().map_or(true, |age| age < KEPT))
}
