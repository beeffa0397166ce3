//! What a target means, as cp and scp have it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use dfcp_command::Failure;
use dfcp_transfer::{Entry, Expected, Link, Sources, name};

use super::{Choice, pattern};

/// A directory, and the text of the name in it that the one thing copied gets, if not its own.
pub type Target = (PathBuf, Option<String>);

/// Where what is copied to `path` goes: into it if it is a directory; else the one thing that is
/// copied gets this name. A `/` at the end makes a directory that is missing.
pub fn resolve(path: &Path, several: bool) -> Result<Target, Failure> {
    let shown = path.display();
    if path.is_dir() {
        return Ok((path.into(), None));
    }
    let directory = path.as_os_str().as_encoded_bytes().ends_with(b"/");
    if directory && in_the_way(path).is_none() {
        return Ok((path.into(), None));
    }
    if several || directory {
        return Err(no_directory(path, format_args!("{shown}/ makes it")));
    }
    by_name(path, "file")
}

/// The name that something of this kind is to get, in a directory that is there.
fn by_name(path: &Path, kind: &str) -> Result<Target, Failure> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let Some(name) = path.file_name().map(name::encode) else {
        let message = format!("{}: not a name for a {kind}", path.display());
        return Err(Failure::usage(message));
    };
    if !parent.is_dir() {
        return Err(no_directory(parent, "make it first"));
    }
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::InvalidFilename => {
            Err(Failure::io(path, error))
        }
        _ => Ok((parent.into(), Some(name))),
    }
}

/// What is at `path` or above it and is no directory.
fn in_the_way(path: &Path) -> Option<&Path> {
    // Without a slash at the end, at which a file of the name would not be found.
    let mut above = path.ancestors().map(|path| path.components().as_path());
    let there = above.find(|path| path.symlink_metadata().is_ok())?;
    (!there.is_dir()).then_some(there)
}

/// The failure where `path` should be a directory and is none, with advice where nothing is there.
fn no_directory(path: &Path, advice: impl fmt::Display) -> Failure {
    Failure::usage(match in_the_way(path) {
        Some(there) => format!("{}: not a directory", there.display()),
        None => format!("{}: no such directory; {advice}", path.display()),
    })
}

/// A target that is itself to become the copy, whether it is there or not.
pub fn exactly(path: &Path) -> Result<Target, Failure> {
    let whole = match path.canonicalize() {
        Ok(whole) => whole,
        Err(_) => path.to_owned(),
    };
    if whole.exists() && !whole.is_dir() {
        return Err(no_directory(path, ""));
    }
    by_name(&whole, "directory")
}

/// Whether a source means what is in a directory instead of the directory, as cp reads it: `dir/.`,
/// `.` and `..`.
pub fn is_content(path: &str) -> bool {
    let name = path.trim_end_matches('/').rsplit('/').next();
    matches!(name, Some("." | ".."))
}

/// A path of an agent's: relative to the home directory, which may be written `~`, or to another user's, `~user`.
pub fn at_home(path: &str) -> PathBuf {
    let home = std::env::var_os("HOME").map_or_else(|| ".".into(), PathBuf::from);
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    let rest = rest.trim_start_matches('/');
    let of_user = match first.strip_prefix('~') {
        Some("") => Some(home.clone()),
        Some(user) => home_of(user),
        None => None,
    };
    match of_user {
        Some(whose) if rest.is_empty() => whose,
        Some(whose) => whose.join(rest),
        None if path.is_empty() => home,
        None => home.join(path),
    }
}

fn home_of(user: &str) -> Option<PathBuf> {
    let known = nix::unistd::User::from_name(user).ok().flatten();
    known.map(|user| user.dir)
}

/// How patterns of names are read: as shells do, names that begin with a dot only where it is written.
pub const PATTERNS: glob::MatchOptions = glob::MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// Tells what whoever copies `paths` may be offered: under the name that the other side was told, or
/// else those of the paths; trees and links only if these are copied. The rest was not asked for.
pub fn wanted(
    paths: &[String],
    name: Option<&str>,
    choice: &Choice,
) -> impl Fn(&Entry) -> bool + use<> {
    let patterns: Option<Vec<_>> = match name {
        Some(name) => Some(vec![(name.to_owned(), None)]),
        None => paths.iter().map(|path| last(path)).collect(),
    };
    let (trees, links) = (choice.copies_trees(), choice.keeps_links());
    move |entry| {
        let (first, beneath) = match entry.path.split_once('/') {
            Some((first, _)) => (first, true),
            None => (entry.path.as_str(), false),
        };
        // Patterns are of what a shell there would see.
        let shown = name::decode(first).unwrap_or_default();
        let shown = shown.to_string_lossy();
        let named = patterns.as_ref().is_none_or(|patterns| {
            patterns.iter().any(|(name, pattern)| {
                name == first
                    || pattern
                        .as_ref()
                        .is_some_and(|pattern| pattern.matches_with(&shown, PATTERNS))
            })
        });
        let tree = beneath || entry.directory;
        let link = matches!(entry.link, Some(Link::Symbolic(_)));
        named && (trees || !tree) && (links || !link)
    }
}

/// The last component of a path, and as a pattern if it may be one; `None` where only the other side
/// knows it, as of `.`.
fn last(path: &str) -> Option<(String, Option<glob::Pattern>)> {
    let whole = path.trim_end_matches('/');
    let name = whole.rsplit('/').next()?;
    match name {
        "" | "." | ".." => None,
        // A home, perhaps of another name.
        _ if whole.starts_with('~') && whole == name => None,
        name => Some((name::encode(name.as_ref()), pattern::of_name(name).ok())),
    }
}

/// Most names that are looked for before a copy: as many take a few milliseconds.
const LOOKED_FOR: usize = 1000;

/// The names that `sources` get in the directory that they go to.
pub fn names(sources: &Sources) -> Vec<String> {
    let paths = sources.list.iter().map(|source| &source.entry.path);
    let names = paths.filter(|path| !path.contains('/')).take(LOOKED_FOR);
    names.cloned().collect()
}

/// Those names that `paths` of another machine end with; none of patterns and of what only that machine
/// knows the name of.
pub fn last_names(paths: &[String]) -> Vec<String> {
    let names = paths.iter().filter_map(|path| last(path));
    names.map(|(name, _)| name).take(LOOKED_FOR).collect()
}

/// Whether something in `directory` has one of these names.
pub fn has_any(directory: &Path, names: &[String]) -> bool {
    let mut names = names
        .iter()
        .take(LOOKED_FOR)
        .filter_map(|name| name::decode(name));
    names.any(|name| directory.join(name).symlink_metadata().is_ok())
}

/// What a sender expects of a receiver where something has the names that it sends, or nothing.
pub fn expected(there: bool) -> Expected {
    match there {
        true => Expected::Something,
        false => Expected::Nothing,
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
    fn only_what_was_asked_for_is_wanted() {
        let wanted = |paths: &[&str], name, offered: &str| {
            let paths: Vec<_> = paths.iter().map(|path| (*path).to_owned()).collect();
            let choice = Choice {
                recursive: true,
                ..Choice::default()
            };
            let entry = |path: &str| Entry {
                path: path.to_owned(),
                ..Entry::default()
            };
            let whole = super::wanted(&paths, name, &choice)(&entry(&format!("{offered}/x")));
            let alone = super::wanted(&paths, name, &Choice::default());
            assert_eq!(alone(&entry(offered)), whole, "{offered}");
            assert!(!alone(&entry(&format!("{offered}/x"))));
            whole
        };
        assert!(wanted(&["a/b", "c/"], None, "b"));
        assert!(wanted(&["a/b", "c/"], None, "c"));
        assert!(!wanted(&["a/b", "c/"], None, "a"));
        assert!(wanted(&["logs/*.log"], None, "x.log"));
        assert!(!wanted(&["logs/*.log"], None, ".bashrc"));
        assert!(!wanted(&["*"], None, ".bashrc"));
        // As the other side reads them.
        assert!(wanted(&[r"logs/\*"], None, "*") && !wanted(&[r"logs/\*"], None, "x"));
        assert!(wanted(&["a**b"], None, "a-b"));
        assert!(wanted(&["a"], Some("new"), "new"));
        assert!(!wanted(&["a"], Some("new"), "a"));
        assert!(wanted(&["dir/."], None, "anything"));
        assert!(wanted(&["~user"], None, "home-of-user") && !wanted(&["~user/x"], None, "y"));
    }

    #[test]
    fn homes_are_written_as_shells_read_them() {
        let home = PathBuf::from(std::env::var_os("HOME").unwrap());
        for (path, expected) in [
            ("", home.clone()),
            ("~", home.clone()),
            ("~/", home.clone()),
            ("~//x", home.join("x")),
            ("x/~", home.join("x/~")),
            ("~/a/b", home.join("a/b")),
            ("/~/x", "/~/x".into()),
            // Who is nobody's name is a file's.
            ("~no-such-user/x", home.join("~no-such-user/x")),
        ] {
            assert_eq!(at_home(path), expected, "{path}");
        }
        let root = home_of("root").expect("every system has this user");
        assert_eq!(at_home("~root"), root);
        assert_eq!(at_home("~root/a/b"), root.join("a/b"));
    }

    #[test]
    fn what_has_the_names_of_sources_is_found() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("b"), "").unwrap();
        let there = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            has_any(dir.path(), &names)
        };
        assert!(there(&["a", "b"]) && !there(&["a"]) && !there(&[]));
        assert!(!has_any(&dir.path().join("no"), &["b".to_owned()]));
        let names = |path: &str| last_names(&[path.to_owned()]);
        assert_eq!(names("x/b/"), ["b"]);
        assert!(names("x/.").is_empty());
    }

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
