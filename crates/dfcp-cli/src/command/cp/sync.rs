//! The end of `dfcp sync --delete`: what the source has not is removed.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dfcp_command::{Failure, Kind};
use dfcp_transfer::{JOURNAL, Outcome, PARTIAL, Received, Store, name};

use super::Choice;
use super::choice::Removal;

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
        let whole = is_whole(received)
            // A list without the root says nothing of what is in it.
            && received.entries.iter().any(|entry| entry.directory && entry.path == self.name);
        let mut removed = self.store.swapped();
        // Where it would be made only now there is nothing to remove.
        if whole && (!self.choice.dry_run || self.root.is_dir()) {
            let entries = received.entries.iter();
            let offered = entries.map(|entry| (entry.path.as_str(), entry.directory));
            let offered = offered.collect();
            self.check_amount(&offered, &removed)?;
            self.tidy(&self.root, &self.name, &offered, &mut removed)?;
        }
        Ok(removed)
    }

    /// Fails where more would go than whoever asked for it has probably meant, beside what is `removed`.
    fn check_amount(
        &self,
        offered: &BTreeMap<&str, bool>,
        removed: &[String],
    ) -> Result<(), Failure> {
        let Removal {
            allow_empty,
            max_delete,
        } = self.choice.removal;
        // Of a disk that is not mounted, or a tree of such, there are directories at most.
        let empty = offered.values().all(|directory| *directory);
        if max_delete.is_none() && (allow_empty || !empty) {
            return Ok(());
        }
        let mut all = removed.to_vec();
        let mut look = self.clone();
        look.choice.dry_run = true;
        look.tidy(&self.root, &self.name, offered, &mut all)?;
        let count = match all.len() {
            1 => "the one file or directory that it has not".to_owned(),
            n => format!("{n} files and directories that it has not"),
        };
        let why = match max_delete {
            _ if all.is_empty() => return Ok(()),
            _ if empty && !allow_empty => format!(
                "the source has no file in it, and --delete would remove {count} from {}: is a disk \
                 not mounted? --allow-empty removes them",
                self.root.display()
            ),
            Some(most) if all.len() > most => format!(
                "--delete would remove {count} from {}, more than --max-delete {most}: \
                 nothing was removed",
                self.root.display()
            ),
            _ => return Ok(()),
        };
        Err(Failure::new(Kind::WouldRemove, why))
    }

    /// Goes through a directory and all beneath it. Of what was `offered` it says whether it is a directory.
    /// A path has room for two thousand directories, more than a thread's stack may have room for.
    fn tidy(
        &self,
        at: &Path,
        path: &str,
        offered: &BTreeMap<&str, bool>,
        removed: &mut Vec<String>,
    ) -> Result<(), Failure> {
        let mut levels = vec![Level::open(at.to_owned(), path.to_owned(), true)?];
        while let Some(level) = levels.last_mut() {
            let Some((place, directory)) = level.children.next() else {
                let done = levels.pop().expect("there is a last one");
                let Some(above) = levels.last_mut() else {
                    break;
                };
                if done.stays {
                    above.stays = true;
                    continue;
                }
                if !self.choice.dry_run {
                    let failed = |error| too_deep(&done.at, &above.path, error);
                    fs::remove_dir(&done.at).map_err(failed)?;
                }
                removed.push(done.path);
                continue;
            };
            let file_name = place.file_name().unwrap_or_default();
            let name = format!("{}/{}", level.path, name::encode(file_name));
            let part = name.ends_with(PARTIAL) || name.ends_with(JOURNAL);
            if part || !self.choice.keeps(&name, directory) {
                level.stays = true;
                continue;
            }
            let offered_as = offered.get(name.as_str());
            // Only a dry run finds another kind still there.
            let differs = self.choice.dry_run && offered_as.is_some_and(|is| *is != directory);
            let stays = offered_as.is_some() && !differs;
            if directory {
                levels.push(Level::open(place, name, stays)?);
            } else if stays {
                level.stays = true;
            } else {
                if !self.choice.dry_run {
                    let failed = |error| too_deep(&place, &level.path, error);
                    fs::remove_file(&place).map_err(failed)?;
                }
                removed.push(name);
            }
        }
        Ok(())
    }
}

/// A directory that is gone through.
struct Level {
    at: PathBuf,
    /// The same in offers.
    path: String,
    children: std::vec::IntoIter<(PathBuf, bool)>,
    /// Whether it, or something in it, stays.
    stays: bool,
}

impl Level {
    fn open(at: PathBuf, path: String, stays: bool) -> Result<Self, Failure> {
        let children = children(&at).map_err(|error| too_deep(&at, &path, error))?;
        Ok(Self {
            at,
            path,
            children: children.into_iter(),
            stays,
        })
    }
}

/// Whether all that was offered is there.
pub fn is_whole(received: &Received) -> bool {
    let mut outcomes = received.outcomes.values();
    received.failure.is_none() && !outcomes.any(|outcome| matches!(outcome, Outcome::Error(_)))
}

/// What is in a directory, by name, and which of it are directories. It is not held open: of as many as may
/// be above one another a process may not have so many open.
fn children(at: &Path) -> io::Result<Vec<(PathBuf, bool)>> {
    let child = |child: io::Result<fs::DirEntry>| {
        let child = child?;
        Ok((child.path(), child.file_type()?.is_dir()))
    };
    let mut children: Vec<_> = fs::read_dir(at)?.map(child).collect::<io::Result<_>>()?;
    children.sort();
    Ok(children)
}

/// A failure at a path, which is `path` in offers. Of one that is longer than the system takes only the
/// beginning tells anything.
fn too_deep(at: &Path, path: &str, error: io::Error) -> Failure {
    if error.kind() != io::ErrorKind::InvalidFilename {
        return Failure::io(at, error);
    }
    let mut beneath = path.splitn(3, '/');
    let top = [beneath.next(), beneath.next()].map(Option::unwrap_or_default);
    let message = format!(
        "{}: what is in it has longer paths than can be removed here; remove it there (`rm -r`), and \
         what else is to go goes next time",
        top.join("/")
    );
    Failure::new(Kind::LocalIo, message)
}
