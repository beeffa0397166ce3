//! The end of `dfcp sync --delete`: what the source has not is removed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use dfcp_command::Failure;
use dfcp_transfer::{JOURNAL, Outcome, PARTIAL, Received};

use super::Choice;

/// What is removed where.
#[derive(Clone, Debug)]
pub struct Tidy {
    /// The copy.
    pub root: PathBuf,
    /// How it is called in offers.
    pub name: String,
    /// What its patterns leave out stays.
    pub choice: Choice,
}

impl Tidy {
    /// Removes what is beneath the root and was not offered; nothing if not everything arrived. Parts of
    /// files stay. The paths that are gone.
    pub fn after(&self, received: &Received) -> Result<Vec<String>, Failure> {
        let whole = received.failure.is_none()
            && !received.outcomes.values().any(|outcome| matches!(outcome, Outcome::Error(_)))
            // A list without the root says nothing of what is in it.
            && received.entries.iter().any(|entry| entry.directory && entry.path == self.name);
        let mut removed = Vec::new();
        if whole {
            let paths = received.entries.iter().map(|entry| entry.path.as_str());
            self.tidy(&self.root, &self.name, &paths.collect(), &mut removed)?;
        }
        Ok(removed)
    }

    /// Goes through a directory; whether it is empty at the end.
    fn tidy(
        &self,
        at: &Path,
        path: &str,
        offered: &BTreeSet<&str>,
        removed: &mut Vec<String>,
    ) -> Result<bool, Failure> {
        let mut empty = true;
        let children = fs::read_dir(at).map_err(|error| Failure::io(at, error))?;
        for child in children {
            let child = child.map_err(|error| Failure::io(at, error))?;
            let (place, file_name) = (child.path(), child.file_name());
            let failed = |error| Failure::io(&place, error);
            let name = format!("{path}/{}", file_name.to_string_lossy());
            let directory = child.file_type().map_err(failed)?.is_dir();
            let part = name.ends_with(PARTIAL) || name.ends_with(JOURNAL);
            if part || !self.choice.keeps(&name, directory) {
                empty = false;
                continue;
            }
            let stays = file_name.to_str().is_some() && offered.contains(name.as_str());
            if directory {
                let emptied = self.tidy(&place, &name, offered, removed)?;
                if stays || !emptied {
                    empty = false;
                    continue;
                }
                fs::remove_dir(&place).map_err(failed)?;
            } else if stays {
                empty = false;
                continue;
            } else {
                fs::remove_file(&place).map_err(failed)?;
            }
            removed.push(name);
        }
        Ok(empty)
    }
}
