//! The list of files: cut into messages by the sender, checked as a whole by the receiver before
//! it touches its disk.

use std::collections::BTreeMap;

use crate::Error;
use crate::message::{Entry, FromSender, MAX_MESSAGE, VERSION};
use crate::store::PARTIAL;

/// Most entries of an offer.
const MAX_ENTRIES: usize = 1_000_000;
/// Most bytes of all paths of an offer.
const MAX_PATHS: usize = 64 << 20;
/// Longest path and component (`PATH_MAX` and `NAME_MAX` of Linux, less what we append).
const MAX_PATH: usize = 4000;
const MAX_COMPONENT: usize = 255 - PARTIAL.len();

/// Cuts an offer into messages.
pub fn split(entries: &[Entry]) -> Vec<FromSender> {
    // An entry without its path takes less than 200 bytes, and escapes at most double a path.
    let cost = |entry: &Entry| 200 + 2 * entry.path.len();
    let mut parts = vec![Vec::new()];
    let mut used = 0;
    for entry in entries {
        used += cost(entry);
        if used > MAX_MESSAGE - 200 {
            parts.push(Vec::new());
            used = cost(entry);
        }
        parts
            .last_mut()
            .expect("starts with one part")
            .push(entry.clone());
    }
    let last = parts.len() - 1;
    let message = |(i, entries)| FromSender::Offer {
        version: VERSION,
        entries,
        more: i < last,
    };
    parts.into_iter().enumerate().map(message).collect()
}

/// Why a receiver takes nothing of an offer: a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unacceptable(String);

fn unacceptable(reason: &str) -> Unacceptable {
    Unacceptable(reason.to_owned())
}

impl From<Unacceptable> for Error {
    fn from(reason: Unacceptable) -> Self {
        Self::protocol(reason.0)
    }
}

/// An offer that is being received.
#[derive(Debug, Default)]
pub struct Offer {
    entries: Vec<Entry>,
    path_bytes: usize,
}

impl Offer {
    /// Takes a part in.
    ///
    /// # Errors
    /// When the version is not known here, or the offer gets too long.
    pub fn add(&mut self, version: u32, entries: Vec<Entry>) -> Result<(), Unacceptable> {
        if version != VERSION {
            return Err(Unacceptable(format!(
                "version {version} of the protocol of files is not known here"
            )));
        }
        self.path_bytes += entries.iter().map(|entry| entry.path.len()).sum::<usize>();
        self.entries.extend(entries);
        match self.entries.len() > MAX_ENTRIES || self.path_bytes > MAX_PATHS {
            true => Err(unacceptable("too many files")),
            false => Ok(()),
        }
    }

    /// The whole list, checked.
    ///
    /// # Errors
    /// When a path could lead outside the receiver's directory, is there twice or through a file, or
    /// sizes are impossible.
    pub fn finish(self) -> Result<Vec<Entry>, Unacceptable> {
        let mut directories = BTreeMap::new();
        let mut total: u64 = 0;
        for entry in &self.entries {
            check_path(&entry.path)
                .map_err(|reason| format!("{}: {reason}", entry.path.escape_debug()))
                .map_err(Unacceptable)?;
            if directories
                .insert(entry.path.as_str(), entry.directory)
                .is_some()
            {
                return Err(Unacceptable(format!("{} is offered twice", entry.path)));
            }
            total = total
                .checked_add(entry.size)
                .ok_or_else(|| unacceptable("impossible sizes"))?;
            if i64::try_from(total).is_err() || (entry.directory && entry.size > 0) {
                return Err(unacceptable("impossible sizes"));
            }
        }
        for entry in &self.entries {
            let parents = entry
                .path
                .match_indices('/')
                .map(|(at, _)| &entry.path[..at]);
            for parent in parents {
                if directories.get(parent) == Some(&false) {
                    return Err(Unacceptable(format!("{} leads through a file", entry.path)));
                }
            }
        }
        Ok(self.entries)
    }
}

/// Whether a receiver may use `path`: relative, beneath its directory, and harmless to show.
///
/// # Errors
/// Why it may not.
pub fn check_path(path: &str) -> Result<(), &'static str> {
    if path.is_empty() || path.len() > MAX_PATH {
        return Err("the name is empty or too long");
    }
    if path.starts_with('/') {
        return Err("the path is absolute");
    }
    if path.contains('\\') || path.chars().any(char::is_control) {
        return Err("the name has a backslash or a control character");
    }
    if path.ends_with(PARTIAL) {
        return Err("names of partial files are reserved");
    }
    for component in path.split('/') {
        match component {
            "" | "." | ".." => return Err("the path has an empty, . or .. component"),
            _ if component.len() > MAX_COMPONENT => return Err("the name is too long"),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> Entry {
        Entry {
            path: path.into(),
            ..Entry::default()
        }
    }

    fn directory(path: &str) -> Entry {
        Entry {
            directory: true,
            ..file(path)
        }
    }

    fn check(entries: &[Entry]) -> Result<Vec<Entry>, Unacceptable> {
        let mut offer = Offer::default();
        for message in split(entries) {
            let message = serde_json::to_vec(&message).unwrap();
            assert!(message.len() <= MAX_MESSAGE);
            let FromSender::Offer {
                version, entries, ..
            } = serde_json::from_slice(&message).unwrap()
            else {
                panic!("not an offer")
            };
            offer.add(version, entries)?;
        }
        offer.finish()
    }

    #[test]
    fn hostile_paths_are_rejected() {
        let long = "x".repeat(256);
        for bad in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "../x",
            "a/../../x",
            "a/..",
            ".",
            "./a",
            "a/./b",
            "a//b",
            "a/",
            "a\0b",
            "a\\b",
            "..\\x",
            "a\nb",
            "\u{1b}[2J",
            "\u{9b}x",
            "a.dfcp-partial",
            &long,
        ] {
            assert!(check(&[file(bad)]).is_err(), "{bad:?}");
        }
        for good in [
            "a",
            "a/b",
            "...",
            "..a",
            ".hidden",
            "ä/日本",
            "a b",
            "C:x",
            "-rf",
        ] {
            assert!(check(&[file(good)]).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn hostile_lists_are_rejected() {
        assert!(check(&[file("a"), file("a")]).is_err());
        assert!(check(&[file("a/b"), file("a")]).is_err());
        assert!(check(&[file("a"), file("a-"), file("a/b/c")]).is_err());
        assert!(check(&[directory("a"), file("a/b")]).is_ok());
        let huge = |path| Entry {
            size: u64::MAX / 2,
            ..file(path)
        };
        assert!(check(&[huge("a"), huge("b"), huge("c")]).is_err());
        assert!(Offer::default().add(VERSION + 1, vec![]).is_err());
    }

    #[test]
    fn long_lists_are_split_and_joined() {
        let entries: Vec<_> = (0..5000)
            .map(|i| file(&format!("d/{i}\"{}", "n".repeat(99))))
            .collect();
        assert!(split(&entries).len() > 5);
        assert_eq!(check(&entries).unwrap(), entries);
        assert_eq!(split(&[]).len(), 1);
        let flood: Vec<_> = (0..=MAX_ENTRIES).map(|_| file("a")).collect();
        assert!(Offer::default().add(VERSION, flood).is_err());
    }
}
