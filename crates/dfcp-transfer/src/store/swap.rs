//! A file where a directory was, or a directory where a file was: what is there goes first, where the
//! receiver wants that (`sync --delete`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use cap_std::fs::Metadata;

use super::Store;
use crate::name;

/// Whether what is at a path, which may be a directory, may go.
type MayGo = Arc<dyn Fn(&str, bool) -> bool + Send + Sync>;

/// See [`Store::swapping`].
#[derive(Clone)]
pub(super) struct Swap {
    may_go: MayGo,
    removed: Arc<Mutex<Vec<String>>>,
}

impl std::fmt::Debug for Swap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Swap")
    }
}

impl Store {
    /// Removes a file or link that is where a directory is to be, and a directory with all that is in it
    /// that is where something else is to be. What `may_go` does not agree to, by its path and whether
    /// it is a directory, stays, and so does what it is in.
    #[must_use]
    pub fn swapping(mut self, may_go: impl Fn(&str, bool) -> bool + Send + Sync + 'static) -> Self {
        self.swap = Some(Swap {
            may_go: Arc::new(may_go),
            removed: Arc::default(),
        });
        self
    }

    /// What is said to do where something of another kind has a name and nothing may go: `sync --delete`, unless
    /// this is set.
    #[must_use]
    pub fn not_swapping(mut self, advice: &'static str) -> Self {
        self.advice = advice;
        self
    }

    /// What was removed for that, since this was last asked.
    pub fn swapped(&self) -> Vec<String> {
        let removed = self.swap.as_ref().map(|swap| {
            let mut removed = swap.removed.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *removed)
        });
        removed.unwrap_or_default()
    }

    /// Whether something else may take its name: a device, a pipe or a socket is there for a purpose,
    /// and a directory has content of its own.
    pub(super) fn is_replaceable(&self, there: &Metadata) -> bool {
        there.is_file() || there.is_symlink() || (there.is_dir() && self.swap.is_some())
    }

    /// Removes a directory that is at `path`.
    pub(super) fn make_way_for_file(&self, path: &str) -> io::Result<()> {
        let Some(swap) = &self.swap else {
            return Ok(());
        };
        let place = name::path(path);
        match self.dir.symlink_metadata(&place) {
            Ok(there) if there.is_dir() => {}
            _ => return Ok(()),
        }
        // All of it or nothing.
        let mut all = Vec::new();
        self.list(&place, &mut all)?;
        for (path, directory) in &all {
            if !(swap.may_go)(&name::encode(path.as_os_str()), *directory) {
                let what = format!("{} stays there, which is excluded", path.display());
                return Err(io::Error::other(what));
            }
        }
        for (path, directory) in all.iter().rev() {
            match directory {
                true => self.dir.remove_dir(path)?,
                false => self.dir.remove_file(path)?,
            }
            swap.note(path);
        }
        Ok(())
    }

    /// `path` and all that is beneath it, what is in a directory after it.
    fn list(&self, path: &Path, all: &mut Vec<(PathBuf, bool)>) -> io::Result<()> {
        all.push((path.to_owned(), true));
        let mut next = all.len() - 1;
        while let Some((path, directory)) = all.get(next).cloned() {
            next += 1;
            if directory {
                for child in self.dir.read_dir(&path)? {
                    let child = child?;
                    all.push((path.join(child.file_name()), child.file_type()?.is_dir()));
                }
            }
        }
        Ok(())
    }

    /// Removes a file that is at `path` or above it.
    pub(super) fn make_way_for_directories(&self, path: &str) -> io::Result<()> {
        let Some((swap, (there, file))) = self.swap.as_ref().zip(self.in_the_way(path)) else {
            return Ok(());
        };
        if !self.is_replaceable(&there) {
            return Ok(());
        }
        if !(swap.may_go)(&file, false) {
            return Err(io::Error::other(format!(
                "{file} stays there, which is excluded"
            )));
        }
        let file = name::path(&file);
        self.dir.remove_file(&file)?;
        swap.note(&file);
        Ok(())
    }

    /// What keeps the directory `path` from being made, and where.
    pub(super) fn in_the_way(&self, path: &str) -> Option<(Metadata, String)> {
        super::way_to(path).find_map(|path| {
            let there = self.dir.symlink_metadata(name::path(path)).ok()?;
            (!there.is_dir()).then(|| (there, path.to_owned()))
        })
    }
}

impl Swap {
    fn note(&self, path: &Path) {
        let mut removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
        removed.push(name::encode(path.as_os_str()));
    }
}
