//! Keys of receivers by the name they were reached under, as ssh keeps them. A line is
//! `host:port dfcp-pub-…`; what follows is a comment.

use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dfcp::PublicKey;
use dfcp_command::{Failure, Kind};

use crate::net::Host;
use crate::phrase::phrase;

/// The file of known hosts.
#[derive(Clone, Debug)]
pub struct KnownHosts(PathBuf);

impl KnownHosts {
    /// Kept in `path`, which need not exist.
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The key of `host`, if it is known.
    pub fn find(&self, host: &Host) -> Result<Option<PublicKey>, Failure> {
        let text = match fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::io(&self.0, error)),
        };
        let name = host.to_string();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            if words.next() == Some(name.as_str()) {
                let key = words.next().unwrap_or_default().parse();
                return key.map(Some).map_err(|error| {
                    let message = format!("{}: {name}: {error}", self.0.display());
                    Failure::new(Kind::Authentication, message)
                });
            }
        }
        Ok(None)
    }

    /// Adds a host.
    pub fn add(&self, host: &Host, key: &PublicKey) -> Result<(), Failure> {
        let add = || {
            if let Some(parent) = self.0.parent() {
                DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(parent)?;
            }
            let mut file = File::options()
                .append(true)
                .create(true)
                .mode(0o600)
                .open(&self.0)?;
            // One write, so that two processes do not mix their lines.
            file.write_all(format!("{host} {key}\n").as_bytes())
        };
        add().map_err(|error| Failure::io(&self.0, error))
    }

    /// What to say when `host` proves another key than the one that is known.
    pub fn changed(&self, host: &Host, known: &PublicKey, found: &PublicKey) -> Failure {
        Failure::new(
            Kind::Authentication,
            format!(
                "the key of {host} has changed: nothing was sent. Known is {known}, found was {found}. \
                 Someone may be in between, or the receiver has a new key. If that is so, remove \
                 its line from {}",
                self.0.display()
            ),
        )
    }
}

/// Asks whether `key` is right for `host`; without a terminal the answer is no.
pub fn ask(host: &Host, key: &PublicKey) -> Result<(), Failure> {
    let refused = |message: String| Failure::new(Kind::Authentication, message);
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(refused(format!(
            "{host} is not a known host and there is no terminal to ask on; it offers {key}: if \
             that is right, pass --peer-key {key}"
        )));
    }
    eprint!(
        "{host} is not a known host. Its key is\n  {key}\n  {}\nIs that right (yes/no)? ",
        phrase(key)
    );
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        match line.trim() {
            "yes" => return Ok(()),
            "no" => break,
            _ => eprint!("Please type yes or no: "),
        }
    }
    Err(refused(format!("the key of {host} was not accepted")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_by_their_whole_name() {
        let dir = tempfile::tempdir().unwrap();
        let known = KnownHosts::new(dir.path().join("new/known_hosts"));
        let host = |text: &str| text.parse::<Host>().unwrap();
        let key = dfcp::generate_key().unwrap().public();
        assert_eq!(known.find(&host("a")).unwrap(), None);
        known.add(&host("a"), &key).unwrap();
        known.add(&host("[::1]:99"), &key).unwrap();
        assert_eq!(known.find(&host("A:4433")).unwrap(), Some(key));
        assert_eq!(known.find(&host("[::1]:99")).unwrap(), Some(key));
        assert_eq!(known.find(&host("a:4434")).unwrap(), None);
        fs::write(known.path(), "b:4433 garbage\n").unwrap();
        assert!(known.find(&host("b")).is_err());
    }
}
