//! The few things of a lab that can outlive it, in one place: directories for files
//! ([`Scratch`]) and names of namespaces (`Named`).
//!
//! Each carries the number of the process that made it in its name, so that what a crash left is
//! known by its maker being gone. Both are removed when dropped.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::kill;
use nix::unistd::Pid;

/// What all names begin with.
const PREFIX: &str = "dfcp-lab-";

/// Where `ip netns` looks for names.
const NAMES: &str = "/run/netns";

/// Directories in memory first: files of a transfer are not to be about the disk.
const PLACES: [&str; 2] = ["/dev/shm", "/tmp"];

/// A directory for a run's files.
#[derive(Debug)]
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    /// An empty one, in memory where that is possible.
    ///
    /// # Errors
    /// When none can be made anywhere.
    pub fn create() -> io::Result<Self> {
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let make = |place: &Path| tempfile::Builder::new().prefix(&prefix).tempdir_in(place);
        PLACES
            .iter()
            .find_map(|place| make(Path::new(place)).ok())
            .map_or_else(|| make(&std::env::temp_dir()), Ok)
            .map(Self)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

/// A name by which `ip netns exec` finds a namespace.
#[derive(Debug)]
pub(crate) struct Named(PathBuf);

impl Named {
    /// Gives a namespace the name `PREFIX` and `host`.
    ///
    /// # Errors
    /// When there is such a name already, or this user may not.
    pub fn new(prefix: &str, host: &str, namespace: BorrowedFd<'_>) -> io::Result<Self> {
        fs::create_dir_all(NAMES)?;
        let maker = std::process::id();
        let path = Path::new(NAMES).join(format!("{prefix}{host}"));
        fs::File::create_new(&path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => io::Error::new(
                error.kind(),
                format!("there is a namespace named {prefix}{host} already"),
            ),
            _ => error,
        })?;
        // Beside the name, who made it.
        let record = Path::new(NAMES).join(format!(".{PREFIX}{maker}-{prefix}{host}"));
        let named = Self(path);
        fs::write(&record, "")?;
        let source = format!("/proc/self/fd/{}", namespace.as_raw_fd());
        mount(
            Some(source.as_str()),
            &named.0,
            None::<&str>,
            MsFlags::MS_BIND,
            None::<&str>,
        )?;
        Ok(named)
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let name = self.0.file_name().unwrap_or_default().to_string_lossy();
        let maker = std::process::id();
        let record = Path::new(NAMES).join(format!(".{PREFIX}{maker}-{name}"));
        let _ = remove_name(&self.0, &record);
    }
}

fn remove_name(path: &Path, record: &Path) -> io::Result<()> {
    // Not mounted if the lab ended between the two steps.
    let _ = umount2(path, MntFlags::MNT_DETACH);
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::remove_file(record)
}

/// Something that a lab left whose process is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// A directory.
    Directory(PathBuf),
    /// A name of a namespace.
    Name {
        /// The name's file.
        path: PathBuf,
        /// The file that says whose it is.
        record: PathBuf,
    },
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) | Self::Name { path, .. } => path.display().fmt(f),
        }
    }
}

impl Leftover {
    /// Removes it.
    ///
    /// # Errors
    /// When this user may not.
    pub fn remove(&self) -> io::Result<()> {
        match self {
            Self::Directory(path) => fs::remove_dir_all(path),
            Self::Name { path, record } => remove_name(path, record),
        }
    }
}

/// All that labs left whose processes are gone.
///
/// # Errors
/// When a directory cannot be read.
pub fn find() -> io::Result<Vec<Leftover>> {
    let mut found = Vec::new();
    let temporary = std::env::temp_dir();
    let mut places: Vec<&Path> = PLACES.iter().map(Path::new).collect();
    if !places.contains(&temporary.as_path()) {
        places.push(&temporary);
    }
    for place in places {
        for (path, name) in entries(place)? {
            if name
                .strip_prefix(PREFIX)
                .is_some_and(|rest| orphan(rest).is_some())
            {
                found.push(Leftover::Directory(path));
            }
        }
    }
    let hidden = format!(".{PREFIX}");
    for (record, name) in entries(Path::new(NAMES))? {
        if let Some(name) = name.strip_prefix(&hidden).and_then(orphan) {
            let path = Path::new(NAMES).join(name);
            found.push(Leftover::Name { path, record });
        }
    }
    Ok(found)
}

fn entries(place: &Path) -> io::Result<Vec<(PathBuf, String)>> {
    let entries = match fs::read_dir(place) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let named = |entry: io::Result<fs::DirEntry>| {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        Ok((entry.path(), name))
    };
    entries.map(named).collect()
}

/// What follows the maker's number in a name, if that process is gone.
fn orphan(rest: &str) -> Option<&str> {
    let (maker, rest) = rest.split_once('-')?;
    let maker: i32 = maker.parse().ok().filter(|pid| *pid > 0)?;
    let gone = kill(Pid::from_raw(maker), None) == Err(nix::errno::Errno::ESRCH);
    gone.then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_living_process_uses_is_left_alone() {
        let scratch = Scratch::create().unwrap();
        fs::write(scratch.path().join("file"), "content").unwrap();
        let ours = Leftover::Directory(scratch.path().to_owned());
        assert!(!find().unwrap().contains(&ours));
    }

    #[test]
    fn what_a_dead_process_left_is_found_and_removed() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = child.id();
        child.wait().unwrap();
        let path = std::env::temp_dir().join(format!("{PREFIX}{gone}-test"));
        fs::create_dir(&path).unwrap();
        fs::write(path.join("file"), "content").unwrap();
        let theirs = Leftover::Directory(path.clone());
        assert!(find().unwrap().contains(&theirs));
        theirs.remove().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn other_names_are_nobodys() {
        for name in ["", "x", "12", "-3-x", "0-x", "99999999999-x", "x-1"] {
            assert_eq!(orphan(name), None, "{name}");
        }
    }
}
