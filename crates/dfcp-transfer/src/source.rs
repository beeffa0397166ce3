//! The sender's files.

mod maze;
mod opened;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::Error;
use crate::message::{Entry, Link, People, Wishes};
use crate::meta::{self, Keep, Owners};
use crate::name;
use crate::offer::{self, check_link, check_path};
use crate::sparse;
use maze::Maze;
pub(crate) use opened::{Still, Unread};

/// A file or directory to send.
#[derive(Clone, Debug)]
pub struct Source {
    /// Where it is.
    pub path: PathBuf,
    /// How it is offered.
    pub entry: Entry,
    /// Its device, and its number there: another file may take its name.
    identity: (u64, u64),
    /// The directory that it was listed in, by device and number, where links are not followed: a file that
    /// takes its place is looked for there and nowhere else.
    above: Option<Arc<(u64, u64)>>,
    /// Whether other names of it are offered as hard links.
    several: bool,
    /// Where it has data, if it has holes.
    pub(crate) data: Option<Arc<[Range<u64>]>>,
}

impl Source {
    fn new(path: PathBuf, entry: Entry) -> Self {
        Self {
            path,
            entry,
            identity: (0, 0),
            above: None,
            several: false,
            data: None,
        }
    }
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
    /// What may be there.
    pub expected: Expected,
}

/// What a sender thinks that a receiver has of its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expected {
    /// Nothing: files leave with their offer.
    #[default]
    Nothing,
    /// Some or all of them: files wait until the receiver has said what it has, a round trip after the
    /// offer, and none is sent that is there.
    Something,
}

impl Sources {
    /// Lists `paths`, directories with all that is in them.
    ///
    /// # Errors
    /// When none of them can be read, one has no name that can be sent, or all are more than an offer may
    /// have. What is wrong within a directory, or with one of several paths, is left out.
    pub fn scan(paths: &[PathBuf]) -> Result<Self, Error> {
        Self::scan_with(paths, Scan::default())
    }

    /// [`Sources::scan`] with a say about what is listed, and what of it.
    ///
    /// # Errors
    /// As there.
    pub fn scan_with(paths: &[PathBuf], how: Scan<'_>) -> Result<Self, Error> {
        Self::scan_at_most(paths, how, offer::MAX_ENTRIES)
    }

    /// [`Sources::scan_with`] of no more than `most` files and directories.
    fn scan_at_most(paths: &[PathBuf], how: Scan<'_>, most: usize) -> Result<Self, Error> {
        let mut walk = Walk {
            sources: Self {
                wishes: Wishes {
                    exact: meta::exact(how.keep),
                    ..Wishes::default()
                },
                ..Self::default()
            },
            how,
            above: Vec::new(),
            several: BTreeMap::new(),
            maze: Maze::default(),
            most,
            full: None,
        };
        let (mut names, mut failed) = (BTreeSet::new(), None);
        for path in paths {
            match named(path) {
                Ok((name, metadata)) => {
                    if !names.insert(name.clone()) {
                        return Err(Error::Name(format!(
                            "two of the paths are called {name}, and one would take the other's place: send \
                             them one after the other, each to a place of its own"
                        )));
                    }
                    if walk.keeps(&name, metadata.is_dir()) {
                        walk.add(path.clone(), name, &metadata);
                    }
                }
                Err(Error::File { path, reason }) => {
                    walk.leave_out(&path, &reason);
                    failed.get_or_insert(Error::File { path, reason });
                }
                Err(error) => return Err(error),
            }
            if let Some(error) = walk.full {
                return Err(error);
            }
        }
        match failed.filter(|_| names.is_empty()) {
            Some(first) => Err(with_others(first, &walk.sources.left_out)),
            None => Ok(walk.sources),
        }
    }

    /// What comes over a pipe, this process' standard input, to be called `name`; of this moment, or of when it was
    /// changed if it is a file.
    ///
    /// # Errors
    /// When no file may have that name.
    #[expect(
        clippy::disallowed_methods,
        reason = "a file's time is one of the wall clock"
    )]
    pub fn pipe(name: &str) -> Result<Self, Error> {
        check_path(name).map_err(|reason| Error::Name(format!("{name}: {reason}")))?;
        let input = std::io::stdin().as_fd().try_clone_to_owned();
        let file = input.and_then(|input| File::from(input).metadata()).ok();
        // Times of pipes, terminals and devices say when they were opened or made.
        let changed = file.filter(Metadata::is_file);
        let changed = changed.and_then(|file| file.modified().ok());
        let changed = changed.unwrap_or_else(SystemTime::now);
        let since = changed.duration_since(UNIX_EPOCH).unwrap_or_default();
        let entry = Entry {
            path: name.to_owned(),
            mode: 0o666,
            mtime: i64::try_from(since.as_secs()).unwrap_or(0),
            mtime_nanos: since.subsec_nanos(),
            stream: true,
            ..Entry::default()
        };
        let path = PathBuf::from("-");
        Ok(Self {
            list: vec![Source::new(path, entry)],
            ..Self::default()
        })
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        let each = self.list.iter().map(|source| source.entry.size);
        each.fold(0, u64::saturating_add)
    }

    /// Bytes of all files but for holes, which need not come.
    pub(crate) fn data_bytes(&self) -> u64 {
        let each = self.list.iter().map(|source| &source.entry);
        each.map(|entry| entry.data.unwrap_or(entry.size))
            .fold(0, u64::saturating_add)
    }

    /// The names of those whose files these are, as far as their numbers are sent.
    pub(crate) fn people(&self) -> People {
        meta::people(self.list.iter().map(|source| &source.entry))
    }

    /// The offer.
    pub fn entries(&self) -> Vec<Entry> {
        self.list
            .iter()
            .map(|source| source.entry.clone())
            .collect()
    }
}

/// How trees are listed.
#[derive(Clone, Copy)]
pub struct Scan<'a> {
    /// What becomes of symbolic links.
    pub links: Links,
    /// What is sent along of each file.
    pub keep: Keep,
    /// Whether it is said that privileges of files are not, where modes are not kept.
    pub privileges: Privileges,
    /// Only what this agrees to is listed, by its path in the offer and whether it is a directory, and
    /// only that looked into.
    pub filter: Option<Filter<'a>>,
}

/// What becomes of set-user-ID and set-group-ID bits of files where modes are not kept: receivers give
/// them to nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Privileges {
    /// They are left out, which is said.
    #[default]
    LeftOut,
    /// Nobody expects them, as of `cp` and `scp` without an option that keeps modes.
    Dropped,
}

/// Says by its path in the offer, and whether it is a directory, if something is listed.
pub type Filter<'a> = &'a dyn Fn(&str, bool) -> bool;

impl Default for Scan<'_> {
    /// Files and directories alone, and where they have holes.
    fn default() -> Self {
        let keep = Keep {
            holes: true,
            ..Keep::default()
        };
        Self {
            links: Links::default(),
            keep,
            privileges: Privileges::default(),
            filter: None,
        }
    }
}

impl std::fmt::Debug for Scan<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scan")
            .field("links", &self.links)
            .field("keep", &self.keep)
            .field("privileges", &self.privileges)
            .finish_non_exhaustive()
    }
}

/// Set-user-ID and set-group-ID, which receivers take over only where modes are kept.
const PRIVILEGES: u32 = 0o6000;
/// What [`Metadata`] counts room in (POSIX).
const BLOCK: u64 = 512;

struct Walk<'a> {
    sources: Sources,
    how: Scan<'a>,
    /// Directories that are being listed: a link back to one of them would have no end.
    above: Vec<Arc<(u64, u64)>>,
    /// Files with several names, by device and number: the place of the first.
    several: BTreeMap<(u64, u64), u64>,
    maze: Maze,
    /// How many files and directories are listed or left out at most.
    most: usize,
    /// Why nothing more is listed.
    full: Option<Error>,
}

impl Walk<'_> {
    fn keeps(&self, name: &str, directory: bool) -> bool {
        self.how.filter.is_none_or(|filter| filter(name, directory))
    }

    fn leave_out(&mut self, path: &Path, why: impl ToString) {
        self.sources.left_out.push(LeftOut {
            path: name::encode(path.as_os_str()),
            why: why.to_string(),
        });
    }

    fn add(&mut self, path: PathBuf, name: String, metadata: &Metadata) {
        if self.sources.list.len() + self.sources.left_out.len() >= self.most {
            let why = "with it there are more than the 2,000,000 files and directories that can be sent \
                       at a time: send them in parts";
            self.full = Some(Error::file(&path, why));
            return;
        }
        let identity = (metadata.dev(), metadata.ino());
        let mut source = Source::new(path, entry_of(name, metadata));
        source.entry.directory = metadata.is_dir();
        if source.entry.directory {
            if self.above.iter().any(|above| **above == identity) {
                let why = "a symbolic link back to a directory that it is in";
                return self.leave_out(&source.path, why);
            }
            if let Err(why) = self.maze.list(identity) {
                self.full = Some(Error::file(&source.path, why));
                return;
            }
            let children = match list_directory(&source.path) {
                Ok(children) => children,
                Err(error) => return self.leave_out(&source.path, error),
            };
            let name = source.entry.path.clone();
            self.push(source, metadata);
            self.above.push(Arc::new(identity));
            for child in children {
                if self.full.is_none() {
                    self.add_child(child, &name);
                }
            }
            self.above.pop();
            return;
        }
        let told = !self.how.keep.modes && self.how.privileges == Privileges::LeftOut;
        if told && metadata.mode() & PRIVILEGES != 0 {
            self.leave_out(
                &source.path,
                "its set-user-ID or set-group-ID bit, which `cp -a` keeps; the file is sent",
            );
        }
        let place = self.sources.list.len() as u64;
        if metadata.nlink() > 1 {
            let first = *self.several.entry(identity).or_insert(place);
            if first != place {
                self.sources.list[first as usize].several = true;
                source.entry.link = Some(Link::Hard(first));
                self.sources.list.push(source);
                return;
            }
        }
        source.entry.size = metadata.len();
        source.identity = identity;
        source.above = match self.how.links {
            Links::Follow => None,
            Links::LeaveOut | Links::Keep => self.above.last().cloned(),
        };
        if self.how.keep.holes && metadata.blocks().saturating_mul(BLOCK) < metadata.len() {
            source.find_holes();
        }
        self.push(source, metadata);
    }

    /// Lists it with what is to be kept of it.
    fn push(&mut self, mut source: Source, metadata: &Metadata) {
        let keep = self.how.keep;
        if keep.attributes || keep.acls || keep.owners != Owners::Receiver {
            let mut left_out = Vec::new();
            source.entry.meta = meta::read(&source.path, metadata, keep, |why| left_out.push(why));
            if !offer::fits(&source.entry) {
                left_out.push("its extended attributes: they are longer than 32 kB".to_owned());
                if let Some(meta) = &mut source.entry.meta {
                    meta.attributes.clear();
                    meta.incomplete = true;
                }
            }
            for why in left_out {
                self.leave_out(&source.path, why);
            }
        }
        let entry = &mut source.entry;
        if entry.meta.as_ref().is_none_or(|meta| meta.acl().is_none()) && !metadata.is_symlink() {
            entry.mode = meta::mode_without_list(&source.path, entry.mode);
        }
        self.sources.list.push(source);
    }

    fn add_child(&mut self, path: PathBuf, parent: &str) {
        let name = name::encode(path.file_name().unwrap_or_default());
        let name = format!("{parent}/{name}");
        let metadata = match self.how.links {
            Links::Follow => fs::metadata(&path),
            Links::LeaveOut | Links::Keep => fs::symlink_metadata(&path),
        };
        if !self.keeps(&name, metadata.as_ref().is_ok_and(Metadata::is_dir)) {
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
        if self.how.links == Links::Follow
            && metadata.is_dir()
            && let Ok(link) = fs::symlink_metadata(&path)
            && link.is_symlink()
        {
            self.maze.link((link.dev(), link.ino()));
        }
        match metadata.is_file() || metadata.is_dir() {
            true => self.add(path, name, &metadata),
            false => self.leave_out(&path, "not a file, directory or link"),
        }
    }

    fn add_link(&mut self, path: PathBuf, name: String, metadata: &Metadata) {
        if self.how.links == Links::LeaveOut {
            return self.leave_out(&path, "a symbolic link (-l keeps links, -L follows them)");
        }
        let to = match fs::read_link(&path) {
            Ok(to) => name::encode(to.as_os_str()),
            Err(error) => return self.leave_out(&path, error),
        };
        if let Err(reason) = check_link(&name, &to) {
            return self.leave_out(&path, reason);
        }
        let mut entry = entry_of(name, metadata);
        entry.link = Some(Link::Symbolic(to));
        self.push(Source::new(path, entry), metadata);
    }
}

/// What is offered of anything.
fn entry_of(path: String, metadata: &Metadata) -> Entry {
    Entry {
        path,
        mode: metadata.mode() & 0o7777,
        mtime: metadata.mtime(),
        mtime_nanos: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
        ..Entry::default()
    }
}

/// Of paths that all failed: the first one's error, and which others there are.
fn with_others(first: Error, failed: &[LeftOut]) -> Error {
    match first {
        Error::File { path, reason } if failed.len() > 1 => {
            let others = failed.iter().skip(1).take(MAX_OTHERS);
            let mut others: Vec<_> = others.map(|other| other.path.as_str()).collect();
            if failed.len() > 1 + MAX_OTHERS {
                others.push("others");
            }
            let reason = format!("{reason}; nor can these be read: {}", others.join(", "));
            Error::File { path, reason }
        }
        first => first,
    }
}

/// Paths beside the first that an error names: a screen has room for so many.
const MAX_OTHERS: usize = 10;

/// What the user names, which is followed if it is a link, and the name that it is offered under.
fn named(path: &Path) -> Result<(String, Metadata), Error> {
    let metadata = fs::metadata(path).map_err(|error| Error::file(path, error))?;
    let name = name_of(path)?;
    if !metadata.is_file() && !metadata.is_dir() {
        return Err(Error::file(
            path,
            "a pipe, socket or device, not a file or directory; `dfcp send - HOST --name NAME` sends what can \
             be read of it",
        ));
    }
    check_path(&name).map_err(|reason| Error::file(path, reason))?;
    if metadata.is_dir() {
        fs::read_dir(path).map_err(|error| Error::file(path, error))?;
    }
    Ok((name, metadata))
}

fn list_directory(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(directory)?.map(|child| Ok(child?.path()));
    let mut paths: Vec<_> = paths.collect::<std::io::Result<_>>()?;
    paths.sort();
    Ok(paths)
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
    Ok(name::encode(&name))
}

impl Source {
    /// Looks where the file has data. What cannot be found out is data.
    fn find_holes(&mut self) {
        let Ok(file) = self.open() else {
            return;
        };
        if let Some(data) = sparse::data_of(&file, self.entry.size) {
            self.entry.data = Some(data.iter().map(|range| range.end - range.start).sum());
            self.data = Some(data.into());
        }
    }
}

#[cfg(test)]
mod tests;
