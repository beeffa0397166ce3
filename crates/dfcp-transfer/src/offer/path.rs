//! Which paths and symbolic links a receiver may use: none leads out of its directory.

use crate::name::{self, MAX_COMPONENT};
use crate::partial::JOURNAL;
use crate::store::PARTIAL;

/// Longest path in bytes (`PATH_MAX` of Linux, less what we append).
const MAX_PATH: usize = 4000;
/// Most components of a path: each but the last is a directory to make, or to look for.
const MAX_DEPTH: usize = 100;

/// Whether a symbolic link at `path` may lead to `to`: to somewhere beneath the first component of its
/// own path. It may go up only at its beginning: what it goes up from is then a directory of the
/// offer, and no other link can make it lead further.
///
/// # Errors
/// Why it may not.
pub fn check_link(path: &str, to: &str) -> Result<(), &'static str> {
    const OUT: &str = "the symbolic link leads out of its tree";
    let target =
        name::decode(to).ok_or("where the symbolic link leads is not written as it must be")?;
    if to.is_empty() || target.len() > MAX_PATH || target.as_encoded_bytes().contains(&0) {
        return Err("the symbolic link leads nowhere");
    }
    if to.starts_with('/') {
        return Err(OUT);
    }
    let mut above = path.matches('/').count();
    let mut went_down = false;
    for component in to.split('/') {
        match component {
            "" | "." => {}
            ".." if went_down || above <= 1 => return Err(OUT),
            ".." => above -= 1,
            _ if above == 0 => return Err(OUT),
            _ => went_down = true,
        }
    }
    Ok(())
}

/// Whether a receiver may use `path`: relative, beneath its directory, and harmless to show.
///
/// # Errors
/// Why it may not.
pub fn check_path(path: &str) -> Result<(), &'static str> {
    let name = name::decode(path).ok_or("the name is not written as it must be")?;
    if path.is_empty() || name.len() > MAX_PATH {
        return Err("the path is empty or longer than 4000 bytes; copy it from further down");
    }
    if path.starts_with('/') {
        return Err("the path is absolute");
    }
    if name.as_encoded_bytes().contains(&0) {
        return Err("the name has a null character");
    }
    if path.ends_with(PARTIAL) || path.ends_with(JOURNAL) {
        return Err("names of partial files are reserved");
    }
    for (depth, component) in path.split('/').enumerate() {
        match component {
            _ if depth == MAX_DEPTH => {
                return Err("it is more than 100 directories deep; copy it from further down");
            }
            "" | "." | ".." => return Err("the path has an empty, . or .. component"),
            _ if component.len() > MAX_COMPONENT
                && name::decode(component).is_none_or(|name| name.len() > MAX_COMPONENT) =>
            {
                return Err("the name is longer than 255 bytes, which few file systems hold");
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
            r"\2e\2e/x",
            r"a\2fb",
            r"a\00b",
            r"\FF",
            &long,
            &["a"; MAX_DEPTH + 1].join("/"),
            &r"\ff".repeat(256),
        ] {
            assert!(check_path(bad).is_err(), "{bad:?}");
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
            r"caf\e9",
            r"a\0ab",
            r"a\5cb",
            &long[1..],
            // 255 bytes, whatever they are written as.
            &r"\ff".repeat(255),
        ] {
            assert!(check_path(good).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn paths_and_links_are_as_long_as_systems_take_them() {
        // Components of 255 bytes, and a last one that makes it `length`.
        let path = |length: usize| {
            let start = "x".repeat(255) + "/";
            start.repeat(15) + &"x".repeat(length - 15 * 256)
        };
        for (length, is_taken) in [(MAX_PATH, true), (MAX_PATH + 1, false)] {
            assert_eq!(path(length).len(), length);
            assert_eq!(check_path(&path(length)).is_ok(), is_taken);
            assert_eq!(check_link("tree/l", &path(length)).is_ok(), is_taken);
        }
        assert!(check_path(&["a"; MAX_DEPTH].join("/")).is_ok());
    }
}
