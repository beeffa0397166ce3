//! The sender's files.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::Error;
use crate::message::{Entry, Link, Wishes};
use crate::offer::{check_link, check_path};

/// A file or directory to send.
#[derive(Clone, Debug)]
pub struct Source {
    /// Where it is.
    pub path: PathBuf,
    /// How it is offered.
    pub entry: Entry,
}

/// Something that is not sent.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LeftOut {
    /// Where it is.
    pub path: String,
    /// Why, in words.
    pub why: String,
}

/// What becomes of symbolic links within directories. Those that the user names are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links {
    /// They are left out.
    #[default]
    LeaveOut,
    /// They are sent as links where they lead to somewhere in the tree that they are in.
    Keep,
    /// What they lead to is sent in their place.
    Follow,
}

/// What is to be sent, and what is left out.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// In the order of the offer.
    pub list: Vec<Source>,
    /// What is not sent, or not as it is.
    pub left_out: Vec<LeftOut>,
    /// How the receiver is asked to take it.
    pub wishes: Wishes,
}

impl Sources {
    /// Lists `paths`, directories with all that is in them.
    ///
    /// # Errors
    /// When one of them cannot be read or has no name that can be sent. What is wrong within a
    /// directory is left out.
    pub fn scan(paths: &[PathBuf]) -> Result<Self, Error> {
        Self::scan_with(paths, Links::default(), &|_, _| true)
    }

    /// [`Sources::scan`] with a say about symbolic links, and about names: only what `keep` agrees to is
    /// listed, by its path in the offer and whether it is a directory, and only that looked into.
    ///
    /// # Errors
    /// As there.
    pub fn scan_with(
        paths: &[PathBuf],
        links: Links,
        keep: &dyn Fn(&str, bool) -> bool,
    ) -> Result<Self, Error> {
        let mut scan = Scan {
            sources: Self::default(),
            links,
            keep,
            above: Vec::new(),
            several: BTreeMap::new(),
        };
        for path in paths {
            // What the user names is followed; what is found on the way is as `links` says.
            let metadata = fs::metadata(path).map_err(|error| Error::file(path, error))?;
            let name = name_of(path)?;
            if !metadata.is_file() && !metadata.is_dir() {
                return Err(Error::file(path, "not a file or directory"));
            }
            check_path(&name).map_err(|reason| Error::file(path, reason))?;
            let mut list = scan.sources.list.iter();
            if list.any(|source| source.entry.path == name) {
                return Err(Error::Name(format!("two of the paths are called {name}")));
            }
            if !keep(&name, metadata.is_dir()) {
                continue;
            }
            if metadata.is_dir() {
                list_directory(path)?;
            }
            scan.add(path.clone(), name, &metadata);
        }
        Ok(scan.sources)
    }

    /// What comes over a pipe, this process' standard input, to be called `name`.
    ///
    /// # Errors
    /// When no file may have that name.
    pub fn pipe(name: &str) -> Result<Self, Error> {
        check_path(name).map_err(|reason| Error::Name(format!("{name}: {reason}")))?;
        let now = fs::metadata("/dev/stdin").map(|pipe| (pipe.mtime(), pipe.mtime_nsec()));
        let (mtime, nanos) = now.unwrap_or_default();
        let entry = Entry {
            path: name.to_owned(),
            mode: 0o666,
            mtime,
            mtime_nanos: u32::try_from(nanos).unwrap_or(0),
            stream: true,
            ..Entry::default()
        };
        let path = PathBuf::from("-");
        Ok(Self {
            list: vec![Source { path, entry }],
            ..Self::default()
        })
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
}

/// Set-user-ID and set-group-ID, which no receiver takes over.
const PRIVILEGES: u32 = 0o6000;

struct Scan<'a> {
    sources: Sources,
    links: Links,
    keep: &'a dyn Fn(&str, bool) -> bool,
    /// Directories that are being listed: a link back to one of them would have no end.
    above: Vec<(u64, u64)>,
    /// Files with several names, by device and number: the place of the first.
    several: BTreeMap<(u64, u64), u64>,
}

impl Scan<'_> {
    fn leave_out(&mut self, path: &Path, why: impl ToString) {
        self.sources.left_out.push(LeftOut {
            path: path.to_string_lossy().into_owned(),
            why: why.to_string(),
        });
    }

    fn add(&mut self, path: PathBuf, name: String, metadata: &Metadata) {
        let identity = (metadata.dev(), metadata.ino());
        let mut entry = Entry {
            path: name.clone(),
            directory: metadata.is_dir(),
            size: 0,
            mode: metadata.mode() & 0o7777,
            mtime: metadata.mtime(),
            mtime_nanos: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
            link: None,
            stream: false,
        };
        if entry.directory {
            if self.above.contains(&identity) {
                return self.leave_out(&path, "a symbolic link back to a directory that it is in");
            }
            let children = match list_directory(&path) {
                Ok(children) => children,
                Err(error) => return self.leave_out(&path, error),
            };
            self.sources.list.push(Source { path, entry });
            self.above.push(identity);
            for child in children {
                self.add_child(child, &name);
            }
            self.above.pop();
            return;
        }
        if metadata.mode() & PRIVILEGES != 0 {
            self.leave_out(
                &path,
                "its set-user-ID or set-group-ID bit; the file is sent",
            );
        }
        let place = self.sources.list.len() as u64;
        if metadata.nlink() > 1 {
            let first = *self.several.entry(identity).or_insert(place);
            entry.link = (first != place).then_some(Link::Hard(first));
        }
        if entry.link.is_none() {
            entry.size = metadata.len();
        }
        self.sources.list.push(Source { path, entry });
    }

    fn add_child(&mut self, path: PathBuf, parent: &str) {
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(name) = name.map(|name| format!("{parent}/{name}")) else {
            return self.leave_out(&path, "the name is not UTF-8");
        };
        let metadata = match self.links {
            Links::Follow => fs::metadata(&path),
            Links::LeaveOut | Links::Keep => fs::symlink_metadata(&path),
        };
        if !(self.keep)(&name, metadata.as_ref().is_ok_and(Metadata::is_dir)) {
            return;
        }
        let metadata = match metadata {
            Ok(metadata) => metadata,
            Err(error) => return self.leave_out(&path, error),
        };
        if let Err(reason) = check_path(&name) {
            return self.leave_out(&path, reason);
        }
        if metadata.is_symlink() {
            return self.add_link(path, name, &metadata);
        }
        match metadata.is_file() || metadata.is_dir() {
            true => self.add(path, name, &metadata),
            false => self.leave_out(&path, "not a file, directory or link"),
        }
    }

    fn add_link(&mut self, path: PathBuf, name: String, metadata: &Metadata) {
        if self.links == Links::LeaveOut {
            return self.leave_out(&path, "a symbolic link (-l keeps links, -L follows them)");
        }
        let to = match fs::read_link(&path).map(|to| to.into_os_string().into_string()) {
            Ok(Ok(to)) => to,
            Ok(Err(_)) => {
                return self.leave_out(&path, "where the symbolic link leads is not UTF-8");
            }
            Err(error) => return self.leave_out(&path, error),
        };
        if let Err(reason) = check_link(&name, &to) {
            return self.leave_out(&path, reason);
        }
        self.sources.list.push(Source {
            path,
            entry: Entry {
                path: name,
                mode: 0o777,
                mtime: metadata.mtime(),
                link: Some(Link::Symbolic(to)),
                ..Entry::default()
            },
        });
    }
}

fn list_directory(directory: &Path) -> Result<Vec<PathBuf>, Error> {
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
        assert_eq!((sources.bytes(), sources.left_out.len()), (10, 3));
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
