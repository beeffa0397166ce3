//! Which rendezvous server: there is no public one, so somebody has to name it.

use std::fmt;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::str::FromStr;

use dfcp_command::Failure;

use crate::keys::config_file;
use crate::net::Host;

/// Where rendezvous servers listen unless told otherwise.
pub const DEFAULT_PORT: u16 = 4435;
/// The variable that names one.
const VARIABLE: &str = "DFCP_RENDEZVOUS";
/// Longest file of settings that is read.
const MAX_CONFIG: u64 = 1 << 16;

/// A rendezvous server as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server(Host);

impl Server {
    /// The host.
    pub fn host(&self) -> &Host {
        &self.0
    }
}

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Host::parse(text, DEFAULT_PORT).map(Self)
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The server that the environment or the file of settings names.
///
/// # Errors
/// When what they say is no server.
pub fn configured() -> Result<Option<Server>, Failure> {
    if let Some(value) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        let server = value.to_string_lossy().parse();
        let server = server.map_err(|why| Failure::usage(format!("{VARIABLE}: {why}")));
        return server.map(Some);
    }
    // Without a home there are no settings.
    let Ok(path) = config_file("config") else {
        return Ok(None);
    };
    in_file(&path)
}

/// The server that a file of settings names, which need not be there.
fn in_file(path: &Path) -> Result<Option<Server>, Failure> {
    let file = match std::fs::File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| Failure::io(path, error))?,
    };
    let mut text = String::new();
    file.take(MAX_CONFIG)
        .read_to_string(&mut text)
        .map_err(|error| Failure::io(path, error))?;
    from_settings(&text).map_err(|why| Failure::usage(format!("{}: {why}", path.display())))
}

/// The server of a file of lines `NAME = VALUE`; other names are others' business.
fn from_settings(text: &str) -> Result<Option<Server>, String> {
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        if let Some((name, value)) = line.split_once('=')
            && name.trim() == "rendezvous"
        {
            return value.trim().trim_matches('"').parse().map(Some);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_name_a_server_or_none() {
        let server = |text| from_settings(text).map(|found| found.map(|s| s.to_string()));
        assert_eq!(server(""), Ok(None));
        assert_eq!(server("# rendezvous = a\nother = 1\n"), Ok(None));
        let named = Ok(Some("meet.example.org:4435".to_owned()));
        assert_eq!(server("rendezvous = \"meet.example.org\"\n"), named);
        assert_eq!(
            server("x = 1\nrendezvous=meet.example.org:4435 # ours"),
            named
        );
        assert!(server("rendezvous = a:b:c").is_err());
    }

    #[test]
    fn a_file_that_cannot_be_read_is_no_file_without_a_server() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        assert_eq!(in_file(&path).unwrap(), None);
        std::os::unix::fs::symlink("config", &path).unwrap();
        assert!(in_file(&path).is_err());
    }
}
