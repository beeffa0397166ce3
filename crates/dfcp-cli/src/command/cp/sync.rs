//! The end of `dfcp sync --delete`: what the source has not is removed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dfcp_command::Failure;
use dfcp_transfer::{JOURNAL, Outcome, PARTIAL, Received, Store, name};

use super::Choice;

/// What is removed where.
#[derive(Clone, Debug)]
pub struct Tidy {
    /// The copy.
    pub root: PathBuf,
    /// How it is called in offers.
    pub name: String,
    /// What its patterns leave out stays; in a dry run everything does.
    pub choice: Choice,
    /// What it was received in, which may have removed something already.
    pub store: Arc<Store>,
}

impl Tidy {
    /// Removes what is beneath the root and was not offered; nothing if not everything arrived. Parts of
    /// files stay. The paths that are gone.
    pub fn after(&self, received: &Received) -> Result<Vec<String>, Failure> {
        let whole = received.failure.is_none()
            && !received.outcomes.values().any(|outcome| matches!(outcome, Outcome::Error(_)))
            // A list without the root says nothing of what is in it.
            && received.entries.iter().any(|entry| entry.directory && entry.path == self.name);
        let mut removed = self.store.swapped();
        // Where it would be made only now there is nothing to remove.
        if whole && (!self.choice.dry_run || self.root.is_dir()) {
            let entries = received.entries.iter();
            let offered = entries.map(|entry| (entry.path.as_str(), entry.directory));
            self.tidy(&self.root, &self.name, &offered.collect(), &mut removed)?;
        }
        Ok(removed)
    }

    /// Goes through a directory; whether it is empty at the end. Of what was `offered` it says whether
    /// it is a directory.
    fn tidy(
        &self,
        at: &Path,
        path: &str,
        offered: &BTreeMap<&str, bool>,
        removed: &mut Vec<String>,
    ) -> Result<bool, Failure> {
        let mut empty = true;
        let children = fs::read_dir(at).map_err(|error| Failure::io(at, error))?;
        for child in children {
            let child = child.map_err(|error| Failure::io(at, error))?;
            let (place, file_name) = (child.path(), child.file_name());
            let failed = |error| Failure::io(&place, error);
            let name = format!("{path}/{}", name::encode(&file_name));
            let directory = child.file_type().map_err(failed)?.is_dir();
            let part = name.ends_with(PARTIAL) || name.ends_with(JOURNAL);
            if part || !self.choice.keeps(&name, directory) {
                empty = false;
                continue;
            }
            let offered_as = offered.get(name.as_str());
            // Only a dry run finds another kind still there.
            let differs = self.choice.dry_run && offered_as.is_some_and(|is| *is != directory);
            let stays = offered_as.is_some() && !differs;
            if directory {
                let emptied = self.tidy(&place, &name, offered, removed)?;
                if stays || !emptied {
                    empty = false;
                    continue;
                }
                if !self.choice.dry_run {
                    fs::remove_dir(&place).map_err(failed)?;
                }
            } else if stays {
                empty = false;
                continue;
            } else if !self.choice.dry_run {
                fs::remove_file(&place).map_err(failed)?;
            }
            removed.push(name);
        }
        Ok(empty)
    }
}
