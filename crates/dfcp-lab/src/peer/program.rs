//! Where the programs of the peers are, and which version each is.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// A program that this machine lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not installed: {program} ({hint})")]
pub struct Missing {
    program: &'static str,
    hint: &'static str,
}

/// Programs that take part.
#[derive(Clone, Debug)]
pub struct Programs {
    worker: PathBuf,
    directories: Vec<PathBuf>,
}

/// How each is got, and how it is asked for its version.
const KNOWN: [(&str, &str, &[&str]); 8] = [
    (
        "dfcp",
        "cargo build --release -p dfcp-cli makes it",
        &["--version"],
    ),
    ("dfcp-peer-quinn", INSTALL, &["--version"]),
    ("dfcp-peer-udt", INSTALL, &[]),
    ("iperf3", INSTALL, &["--version"]),
    ("kcptun-client", INSTALL, &["--version"]),
    ("kcptun-server", INSTALL, &["--version"]),
    ("srt-file-transmit", INSTALL, &["-version"]),
    (
        "hysteria",
        "hysteria2's binary, from its authors: no package registry has it",
        &["version"],
    ),
];
const INSTALL: &str = "scripts/install-peers installs it";

impl Programs {
    /// Programs in these directories, the first that has one; and `worker`, which does the lab's own
    /// jobs ([`crate::worker`]).
    pub fn within(worker: PathBuf, directories: Vec<PathBuf>) -> Self {
        Self {
            worker,
            directories,
        }
    }

    /// The program that does the lab's own jobs.
    pub fn worker(&self) -> &Path {
        &self.worker
    }

    /// Where a program is.
    ///
    /// # Errors
    /// With how to get it, if it is nowhere.
    pub fn find(&self, name: &'static str) -> Result<PathBuf, Missing> {
        let candidates = self
            .directories
            .iter()
            .map(|directory| directory.join(name));
        candidates
            .into_iter()
            .find(|path| is_program(path))
            .ok_or_else(|| Missing {
                program: name,
                hint: KNOWN
                    .iter()
                    .find(|known| known.0 == name)
                    .map_or(INSTALL, |known| known.1),
            })
    }

    /// A line for each known program that is here: its name and what it says its version is.
    pub fn versions(&self) -> Vec<(String, String)> {
        let mut versions = Vec::new();
        for (name, _, arguments) in KNOWN {
            if let Ok(path) = self.find(name) {
                versions.push((name.to_owned(), version(&path, arguments)));
            }
        }
        versions
    }
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// What a package says where there is one; a program built from source may know less.
fn version(path: &Path, arguments: &[&str]) -> String {
    let owner = first_line("dpkg-query", &["-S", &path.to_string_lossy()]);
    if let Some((package, _)) = owner.split_once(": ") {
        let format = "-f=${Package} ${Version}";
        let version = first_line("dpkg-query", &["-W", format, package]);
        if !version.is_empty() {
            return version;
        }
    }
    match arguments {
        [] => "built here".to_owned(),
        _ => first_line(path, arguments),
    }
}

/// The first line that a program prints; nothing if it cannot be run.
fn first_line(program: impl AsRef<OsStr>, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    let output = ask(command.args(arguments));
    let text = output.map_or_else(|_| Vec::new(), |output| output.stdout);
    let text = String::from_utf8_lossy(&text);
    version_line(&text)
}

/// The line that begins with the word, else the first: some programs draw a banner above it.
fn version_line(text: &str) -> String {
    let says = |line: &&str| line.trim_start().starts_with("Version");
    let line = text.lines().find(says).or_else(|| text.lines().next());
    let words = line.unwrap_or_default().split_whitespace();
    words.collect::<Vec<_>>().join(" ")
}

/// How long a program may take to say something about itself.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs a program that ought to end at once; kills it, and what it started, if it does not.
pub(super) fn ask(command: &mut Command) -> io::Result<Output> {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let group = Pid::from_raw(child.id() as i32);
    let (done, result) = mpsc::channel();
    let waiting = thread::spawn(move || done.send(child.wait_with_output()));
    let output = result.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        let _ = killpg(group, Signal::SIGKILL);
        Err(io::ErrorKind::TimedOut.into())
    });
    let _ = waiting.join();
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_below_a_banner_is_found() {
        assert_eq!(
            version_line("\n░█░█\n\nVersion:\tv2.6.1\nArch: x"),
            "Version: v2.6.1"
        );
        assert_eq!(
            version_line("iperf 3.12 (cJSON)\nLinux"),
            "iperf 3.12 (cJSON)"
        );
        assert_eq!(version_line(""), "");
    }

    #[test]
    fn what_is_missing_says_how_to_get_it() {
        let folder = tempfile::tempdir().unwrap();
        let programs = Programs::within("worker".into(), vec![folder.path().to_path_buf()]);
        let error = programs.find("hysteria").unwrap_err().to_string();
        assert!(error.starts_with("not installed: hysteria ("), "{error}");
        // A file that may not be run is no program.
        let path = folder.path().join("kcptun-client");
        fs::write(&path, "").unwrap();
        assert!(programs.find("kcptun-client").is_err());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(programs.find("kcptun-client"), Ok(path));
    }

    #[test]
    fn a_program_that_hangs_is_not_waited_for() {
        let mut hangs = Command::new("sh");
        // A child of its own holds the output open.
        let error = ask(hangs.args(["-c", "sleep 1000; true"])).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
