//! What a target means, as cp and scp have it.

use std::path::{Path, PathBuf};

use dfcp_command::Failure;
use dfcp_transfer::Sources;

/// A directory, and the name in it that the one thing copied gets, if not its own.
pub type Target = (PathBuf, Option<String>);

/// Where what is copied to `path` goes: into it if it is a directory; else the one thing that is
/// copied gets this name. A `/` at the end makes a directory that is missing.
pub fn resolve(path: &Path, several: bool) -> Result<Target, Failure> {
    let shown = path.display();
    if path.is_dir() {
        return Ok((path.into(), None));
    }
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.ends_with(b"/") && !path.exists() {
        return Ok((path.into(), None));
    }
    if several || bytes.ends_with(b"/") {
        return Err(Failure::usage(format!("{shown}: not a directory")));
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let name = path.file_name().and_then(|name| name.to_str());
    match name {
        Some(name) if parent.is_dir() => Ok((parent.into(), Some(name.to_owned()))),
        Some(_) => Err(Failure::usage(format!(
            "{}: no such directory",
            parent.display()
        ))),
        None => Err(Failure::usage(format!("{shown}: not a name for a file"))),
    }
}

/// A path of an agent's: relative to the home directory, which may be written `~`.
pub fn at_home(path: &str) -> PathBuf {
    let home = std::env::var_os("HOME").map_or_else(|| ".".into(), PathBuf::from);
    match path.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None if path == "~" || path.is_empty() => home,
        None => home.join(path),
    }
}

/// Offers the one thing that is sent as `name`.
pub fn rename(sources: &mut Sources, name: &str) {
    for source in &mut sources.list {
        let path = &mut source.entry.path;
        let end = path.find('/').unwrap_or(path.len());
        path.replace_range(..end, name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_what_cp_makes_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "").unwrap();
        let named = |name: &str| (dir.path().to_owned(), Some(name.to_owned()));
        assert_eq!(
            resolve(dir.path(), true).unwrap(),
            (dir.path().into(), None)
        );
        assert_eq!(resolve(&at("file"), false).unwrap(), named("file"));
        assert_eq!(resolve(&at("new"), false).unwrap(), named("new"));
        assert_eq!(resolve(&at("new/"), true).unwrap(), (at("new/"), None));
        for (path, several) in [
            (at("new"), true),
            (at("file"), true),
            (at("file/"), false),
            (at("no/new"), false),
        ] {
            assert!(resolve(&path, several).is_err(), "{path:?}");
        }
    }
}
