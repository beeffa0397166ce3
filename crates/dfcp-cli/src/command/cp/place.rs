//! Where to copy from and to: a local path, or `[user@]host:path` as scp reads it.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;

/// A path here or on another machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A path of this machine.
    Here(PathBuf),
    /// A path of a machine that ssh reaches.
    There {
        /// `host` or `user@host`, as ssh takes it.
        host: String,
        /// Relative to the home directory there; empty for that itself.
        path: String,
    },
}

impl Place {
    /// Reads an argument: the first `:` before any `/` ends a host. `./a:b` is a local path.
    pub fn read(argument: &OsStr) -> Result<Self, String> {
        let bytes = argument.as_bytes();
        let Some(colon) = host_end(bytes) else {
            return Ok(Self::Here(argument.into()));
        };
        if bytes[colon + 1..].starts_with(b"//") && SCHEMES.contains(&&bytes[..colon]) {
            return Err(format!(
                "{argument:?}: places are written [USER@]HOST:PATH; ssh's port is -e 'ssh -p PORT'"
            ));
        }
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| not_text(argument));
        let host = text(&bytes[..colon])?;
        let path = text(&bytes[colon + 1..])?;
        let host = host.replace(['[', ']'], "");
        let machine = host.rsplit('@').next().unwrap_or_default();
        // ssh would take it for an option.
        if host.starts_with('-') || machine.starts_with('-') || machine.is_empty() {
            return Err(format!("{argument:?}: not a host"));
        }
        if host.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(format!("{argument:?}: not a host"));
        }
        Ok(Self::There { host, path })
    }
}

/// What addresses begin with that other programs take.
const SCHEMES: [&[u8]; 4] = [b"scp", b"sftp", b"ssh", b"rsync"];

/// Where the `:` after a host is, if the argument begins with one.
fn host_end(bytes: &[u8]) -> Option<usize> {
    let mut bracket = false;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'[' => bracket = true,
            b']' => bracket = false,
            b'/' => return None,
            b':' if !bracket => return (at > 0).then_some(at),
            _ => {}
        }
    }
    None
}

/// Why an argument is no place elsewhere, and what reaches the file that it names.
fn not_text(argument: &OsStr) -> String {
    let text = argument.to_string_lossy();
    let pattern = text.replace(char::REPLACEMENT_CHARACTER, "*");
    format!(
        "{argument:?}: names on other machines are given as UTF-8; a pattern finds what has others, as '{pattern}'"
    )
}

impl Place {
    /// [`Place::read`] for the command line, where names need not be UTF-8.
    pub fn read_value() -> impl clap::builder::TypedValueParser<Value = Self> {
        use clap::builder::TypedValueParser;
        clap::builder::OsStringValueParser::new().try_map(|argument| Self::read(&argument))
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::read(OsStr::new(text))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here(path) => write!(f, "{}", path.display()),
            Self::There { host, path } => write!(f, "{host}:{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_scp_reads_them() {
        let there = |host: &str, path: &str| Place::There {
            host: host.into(),
            path: path.into(),
        };
        for (text, place) in [
            ("a/b", Place::Here("a/b".into())),
            ("./a:b", Place::Here("./a:b".into())),
            ("a/b:c", Place::Here("a/b:c".into())),
            (":odd", Place::Here(":odd".into())),
            ("host:", there("host", "")),
            ("host:a:b", there("host", "a:b")),
            ("me@host:/x y", there("me@host", "/x y")),
            ("[fe80::1%eth0]:d", there("fe80::1%eth0", "d")),
            ("me@[::1]:d", there("me@::1", "d")),
        ] {
            assert_eq!(text.parse(), Ok(place), "{text}");
        }
        for bad in ["-oProxyCommand=x:y", "me@-x:y", "me@:y", "a b:c"] {
            assert!(bad.parse::<Place>().is_err(), "{bad}");
        }
        for address in ["scp://me@host:22/x", "rsync://host/x"] {
            let why = address.parse::<Place>().unwrap_err();
            assert!(why.contains("[USER@]HOST:PATH"), "{why}");
        }
        assert_eq!("host://x".parse(), Ok(there("host", "//x")));
        let latin = Place::read(OsStr::from_bytes(b"host:caf\xe9"));
        let why = latin.unwrap_err();
        assert!(why.ends_with("as 'host:caf*'"), "{why}");
    }
}
