//! Lists of keys in files, with options before a key.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use dfcp::PublicKey;

use crate::allowed::KeyOptions;
use crate::config;

/// A list of keys in a file.
#[derive(Debug)]
pub struct ListFile {
    /// Where it is.
    pub path: PathBuf,
    /// What was in it when it was read last, and which file that was.
    last: Mutex<Option<(Version, Arc<List>)>>,
}

impl ListFile {
    /// One that was not read yet.
    pub fn new(path: PathBuf) -> Arc<Self> {
        let last = Mutex::default();
        Arc::new(Self { path, last })
    }

    /// What is in it now. That can be known without opening it, too, which a process at its limit of open
    /// files cannot: clients whose keys it cannot look up would be told that they are not allowed, and come
    /// no more.
    ///
    /// # Errors
    /// Why it allows nobody.
    pub fn read(&self) -> Result<Arc<List>, String> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match read_list(&self.path) {
            Ok((version, list)) => {
                let list = Arc::new(list);
                *last = Some((version, list.clone()));
                Ok(list)
            }
            Err(why) => {
                let version = fs::metadata(&self.path).ok().as_ref().map(Version::of);
                let same = last.as_ref().filter(|(read, _)| version == Some(*read));
                same.map(|(_, list)| list.clone()).ok_or(why)
            }
        }
    }
}

/// What differs where a file is another one, or has changed, its owner and mode included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version([u64; 5], [i64; 4]);

impl Version {
    fn of(file: &Metadata) -> Self {
        let (owner, mode) = (file.uid().into(), file.mode().into());
        let changed = [
            file.mtime(),
            file.mtime_nsec(),
            file.ctime(),
            file.ctime_nsec(),
        ];
        Self([file.dev(), file.ino(), file.len(), owner, mode], changed)
    }
}

/// What is in a file.
#[derive(Debug)]
pub struct List {
    /// Who is in it, and what is said of each.
    pub keys: Vec<(PublicKey, KeyOptions)>,
    /// Lines that allow nobody though they were meant to, and why.
    pub mistakes: Vec<String>,
}

/// The keys of a list: the first word of each line that is one, or the second after options; the rest is
/// comment. A line whose options are not understood allows nobody.
fn read_list(path: &Path) -> Result<(Version, List), String> {
    let (file, version) = open(path)?;
    let text = config::read_short(file).map_err(|error| format!("{}: {error}", path.display()))?;
    let (mut keys, mut mistakes) = (Vec::<(PublicKey, KeyOptions)>::new(), Vec::new());
    for (line, number) in text.lines().zip(1..) {
        let mut words = line.split_whitespace();
        let (first, second) = (words.next().unwrap_or("#"), words.next());
        if first.starts_with('#') {
            continue;
        }
        let entry = match (
            first.parse::<PublicKey>(),
            second.and_then(|second| second.parse().ok()),
        ) {
            (Ok(key), _) => Ok((key, KeyOptions::default())),
            (Err(_), Some(key)) => first.parse().map(|options| (key, options)),
            // A comment, unless it was to be a key.
            (Err(error), None) if first.starts_with("dfcp-pub-") => Err(error.to_string()),
            (Err(_), None) => continue,
        };
        let entry =
            entry.and_then(
                |(key, options)| match keys.iter().any(|(listed, _)| *listed == key) {
                    true => Err("the key is on a line above, which counts".to_owned()),
                    false => Ok((key, options)),
                },
            );
        match entry {
            Ok(entry) => keys.push(entry),
            Err(why) => mistakes.push(format!("{} line {number}: {why}", path.display())),
        }
    }
    match (keys.is_empty(), mistakes.first()) {
        (true, Some(mistake)) => Err(mistake.clone()),
        (true, None) => Err(format!("{} has no key in it", path.display())),
        (false, _) => Ok((version, List { keys, mistakes })),
    }
}

/// Whether nobody else can have written a list.
///
/// # Errors
/// Who may have, or why it cannot be read.
pub fn check_safe(path: &Path) -> Result<(), String> {
    open(path).map(|_| ())
}

/// Opens a list that nobody else can have written.
fn open(path: &Path) -> Result<(File, Version), String> {
    let name = path.display();
    // It is read whenever somebody comes, and a pipe would have all wait for whoever writes to it.
    if config::is_pipe(path) {
        return Err(format!("{name} is a pipe, which cannot be read again"));
    }
    let file = File::open(path).map_err(|error| match error.kind() {
        // Whoever writes a word without a directory may have meant a key.
        io::ErrorKind::NotFound if path.components().count() == 1 => {
            format!(
                "{name} is neither a key, which begins with dfcp-pub-, nor a file that is there"
            )
        }
        io::ErrorKind::NotFound => format!("{name} is not there"),
        _ => format!("{name}: {error}"),
    })?;
    let metadata = file
        .metadata()
        .map_err(|error| format!("{name}: {error}"))?;
    let owner = metadata.uid();
    if owner != 0 && owner != nix::unistd::geteuid().as_raw() {
        return Err(format!("{name} belongs to another user, who may change it"));
    }
    match metadata.mode() & 0o022 {
        0 => Ok((file, Version::of(&metadata))),
        _ => Err(format!(
            "others may write {name} (mode {:04o}), so it allows nobody; look at what is in it, \
             then chmod go-w {name}",
            metadata.mode() & 0o7777
        )),
    }
}
