//! The sender's files.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::Error;
use crate::message::{Entry, Wishes};
use crate::offer::check_path;

/// A file or directory to send.
#[derive(Clone, Debug)]
pub struct Source {
    /// Where it is.
    pub path: PathBuf,
    /// How it is offered.
    pub entry: Entry,
}

/// What is to be sent, and what is left out.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// In the order of the offer.
    pub list: Vec<Source>,
    /// Sentences about what is left out.
    pub notes: Vec<String>,
    /// How the receiver is asked to take it.
    pub wishes: Wishes,
}

impl Sources {
    /// Lists `paths`, directories with all that is in them.
    ///
    /// # Errors
    /// When one of them cannot be read or has no name that can be sent. What is wrong with a file
    /// within a directory is a note.
    pub fn scan(paths: &[PathBuf]) -> Result<Self, Error> {
        let mut sources = Self::default();
        for path in paths {
            // What the user names is followed; what is found on the way is not.
            let metadata = fs::metadata(path).map_err(|error| Error::file(path, error))?;
            let name = name_of(path)?;
            if !metadata.is_file() && !metadata.is_dir() {
                return Err(Error::file(path, "not a file or directory"));
            }
            check_path(&name).map_err(|reason| Error::file(path, reason))?;
            if sources.list.iter().any(|source| source.entry.path == name) {
                return Err(Error::Name(format!("two of the paths are called {name}")));
            }
            sources.add(path.clone(), name, &metadata)?;
        }
        Ok(sources)
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.list.iter().map(|source| source.entry.size).sum()
    }

    /// The offer.
    pub fn entries(&self) -> Vec<Entry> {
        self.list
            .iter()
            .map(|source| source.entry.clone())
            .collect()
    }

    fn add(&mut self, path: PathBuf, name: String, metadata: &Metadata) -> Result<(), Error> {
        let directory = metadata.is_dir();
        let children = match directory {
            true => list(&path)?,
            false => Vec::new(),
        };
        self.list.push(Source {
            path,
            entry: Entry {
                path: name.clone(),
                directory,
                size: if directory { 0 } else { metadata.len() },
                mode: metadata.mode() & 0o7777,
                mtime: metadata.mtime(),
                mtime_nanos: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
            },
        });
        for child in children {
            self.add_child(child, &name)?;
        }
        Ok(())
    }

    fn add_child(&mut self, path: PathBuf, parent: &str) -> Result<(), Error> {
        let metadata = fs::symlink_metadata(&path).map_err(|error| Error::file(&path, error))?;
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.map(|name| format!("{parent}/{name}"));
        let obstacle = match &name {
            _ if metadata.is_symlink() => Some("a symbolic link"),
            _ if !metadata.is_file() && !metadata.is_dir() => Some("not a file or directory"),
            None => Some("the name is not UTF-8"),
            Some(name) => check_path(name).err(),
        };
        match (obstacle, name) {
            (None, Some(name)) => self.add(path, name, &metadata),
            (obstacle, _) => {
                let reason = obstacle.unwrap_or_default();
                self.notes.push(format!("left out {path:?}: {reason}"));
                Ok(())
            }
        }
    }
}

fn list(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let list = || -> std::io::Result<Vec<_>> {
        let paths = fs::read_dir(directory)?.map(|child| Ok(child?.path()));
        let mut paths: Vec<_> = paths.collect::<std::io::Result<_>>()?;
        paths.sort();
        Ok(paths)
    };
    list().map_err(|error| Error::file(directory, error))
}

/// The name that `path` is offered under: its last component, also where that is `.` or `..`.
fn name_of(path: &Path) -> Result<String, Error> {
    let name = match path.file_name() {
        Some(name) if !path.as_os_str().as_encoded_bytes().ends_with(b"/.") => name.to_owned(),
        _ => {
            let whole = path
                .canonicalize()
                .map_err(|error| Error::file(path, error))?;
            let name = whole.file_name().map(ToOwned::to_owned);
            name.ok_or_else(|| {
                Error::Name("the root directory has no name to send it under".to_owned())
            })?
        }
    };
    name.into_string()
        .map_err(|_| Error::file(path, "the name is not UTF-8"))
}

/// A source that is being read, to notice whether it changes meanwhile.
#[derive(Debug)]
pub(crate) struct Watched {
    file: File,
    size: u64,
    modified: SystemTime,
}

impl Source {
    /// Opens the file if it is still the one that was offered.
    pub(crate) fn open(&self) -> Result<(File, Watched), String> {
        let open = || {
            // Never waits for the other end of a pipe that took the file's place.
            let flags = nix::fcntl::OFlag::O_NONBLOCK.bits();
            let file = File::options()
                .read(true)
                .custom_flags(flags)
                .open(&self.path)?;
            let metadata = file.metadata()?;
            let watched = Watched {
                file: file.try_clone()?,
                size: self.entry.size,
                modified: metadata.modified()?,
            };
            Ok::<_, std::io::Error>((file, watched, metadata))
        };
        let (file, watched, metadata) = open().map_err(|error| error.to_string())?;
        if !metadata.is_file() {
            return Err("it is no file any more".into());
        }
        if (metadata.mtime(), metadata.len()) != (self.entry.mtime, self.entry.size) {
            return Err(CHANGED.into());
        }
        Ok((file, watched))
    }
}

pub(crate) const CHANGED: &str = "it changed while it was being sent";

impl Watched {
    /// Whether the file is still as it was when it was opened.
    pub(crate) fn check(&self) -> Result<(), String> {
        let now = self.file.metadata().map_err(|error| error.to_string())?;
        let modified = now.modified().map_err(|error| error.to_string())?;
        match now.len() == self.size && modified == self.modified {
            true => Ok(()),
            false => Err(CHANGED.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn trees_are_listed_in_order_without_links() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("b/c")).unwrap();
        fs::write(tree.join("b/x"), "12345").unwrap();
        fs::write(tree.join("a"), "").unwrap();
        fs::write(tree.join("back\\slash"), "").unwrap();
        symlink("/etc/passwd", tree.join("link")).unwrap();
        nix::unistd::mkfifo(&tree.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let sources = Sources::scan(&[tree.join("."), tree.join("b/x")]).unwrap();
        let paths: Vec<_> = sources.list.iter().map(|s| s.entry.path.as_str()).collect();
        assert_eq!(
            paths,
            ["tree", "tree/a", "tree/b", "tree/b/c", "tree/b/x", "x"]
        );
        assert_eq!((sources.bytes(), sources.notes.len()), (10, 3));
        assert!(Sources::scan(&[tree.join("pipe")]).is_err());
        assert!(Sources::scan(&[tree.join("a"), tree.join("b/../a")]).is_err());
        assert!(Sources::scan(&[tree.join("none")]).is_err());
    }

    #[test]
    fn changes_are_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        fs::write(&path, "12345").unwrap();
        let sources = Sources::scan(std::slice::from_ref(&path)).unwrap();
        let (_, watched) = sources.list[0].open().unwrap();
        watched.check().unwrap();
        fs::write(&path, "1234").unwrap();
        watched.check().unwrap_err();
        sources.list[0].open().unwrap_err();
    }
}
