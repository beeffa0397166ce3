//! Names as shells match them, whatever bytes they are of.

use std::io;
use std::path::{Component, Path, PathBuf};

use glob::{Pattern, PatternError};

use super::target::PATTERNS;

/// The paths that match, in order; those in directories that cannot be listed do not.
///
/// # Errors
/// For a pattern that makes no sense.
pub fn matching(pattern: &Path) -> Result<Vec<PathBuf>, PatternError> {
    let mut found = vec![PathBuf::new()];
    for component in pattern.components() {
        let name = component.as_os_str().to_string_lossy();
        let plain = !name.contains(['*', '?', '[']);
        if plain || !matches!(component, Component::Normal(_)) {
            for path in &mut found {
                path.push(component);
            }
            found.retain(|path| path.symlink_metadata().is_ok());
            continue;
        }
        let pattern = of_name(&name)?;
        let lists = found.iter().map(|place| list(place, &pattern));
        found = lists.flat_map(Result::unwrap_or_default).collect();
    }
    Ok(found)
}

/// What matches in a directory, in order.
fn list(place: &Path, pattern: &Pattern) -> io::Result<Vec<PathBuf>> {
    let directory = match place.as_os_str().is_empty() {
        true => Path::new("."),
        false => place,
    };
    let mut found = Vec::new();
    for entry in directory.read_dir()? {
        let name = entry?.file_name();
        if pattern.matches_with(&name.to_string_lossy(), PATTERNS) {
            found.push(place.join(name));
        }
    }
    found.sort();
    Ok(found)
}

/// What a shell would read a pattern of one name as.
///
/// # Errors
/// For one that makes no sense.
pub fn of_name(name: &str) -> Result<Pattern, PatternError> {
    Pattern::new(&as_glob(name))
}

/// A shell's pattern of one name: `**` is `*`, and what follows a backslash is itself.
fn as_glob(name: &str) -> String {
    let mut glob = String::new();
    let mut letters = name.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '*' if glob.ends_with('*') => {}
            '\\' => glob.extend(
                letters
                    .next()
                    .map(|letter| Pattern::escape(&letter.to_string())),
            ),
            letter => glob.push(letter),
        }
    }
    glob
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn names_of_any_bytes_are_matched() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            &b"a.csv"[..],
            b"b.csv",
            b"\xff",
            b"*x",
            b".hidden",
            b"c\xff.csv",
        ] {
            std::fs::write(folder.path().join(OsStr::from_bytes(name)), "").unwrap();
        }
        let names = |pattern: &str| -> Vec<Vec<u8>> {
            let found = matching(&folder.path().join(pattern)).unwrap();
            let name = |path: &PathBuf| path.file_name().unwrap().as_bytes().to_vec();
            found.iter().map(name).collect()
        };
        assert_eq!(names("*.csv"), [&b"a.csv"[..], b"b.csv", b"c\xff.csv"]);
        assert_eq!(names("[ab].csv").len(), 2);
        assert_eq!(names("**").len(), 5, "all but the hidden one");
        assert_eq!(names(r"\**"), [b"*x"]);
        assert_eq!(names("nothing*"), [b""; 0]);
        assert!(matching(Path::new("/no/such/*")).unwrap().is_empty());
        assert!(matching(Path::new("[")).is_err());
    }
}
