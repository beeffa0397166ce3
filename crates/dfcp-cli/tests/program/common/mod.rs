//! Real processes of the program on loopback, each with keys and directories of its own.

#![allow(dead_code)] // no test file uses all of this

pub mod machines;
pub mod meeting;
#[cfg(target_os = "linux")]
pub mod namespace;
pub mod proxying;
pub mod terminal;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Longer than anything here takes on a machine that is alive, also where what is more important leaves a
/// twentieth of a processor (40 s were too few for what takes 6 s otherwise).
const PATIENCE: Duration = Duration::from_secs(300);

/// A directory for a test, with a key for each side.
pub struct Bench {
    dir: TempDir,
    pub sender_key: String,
    pub receiver_key: String,
}

impl Bench {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let keygen = |name: &str| {
            let out = program(dir.path())
                .args(["keygen", "--out"])
                .arg(dir.path().join(name))
                .output();
            let out = out.unwrap();
            assert!(out.status.success());
            String::from_utf8(out.stdout).unwrap().trim().to_owned()
        };
        Self {
            sender_key: keygen("sender.key"),
            receiver_key: keygen("receiver.key"),
            dir,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file of pseudo-random bytes.
    pub fn write(&self, name: &str, size: usize) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes(name, size)).unwrap();
        path
    }

    pub fn program(&self) -> Command {
        program(self.dir.path())
    }

    /// Starts a receiver into the directory `received`. It allows the sender unless `args` say whom.
    pub fn receiver(&self, args: &[&str]) -> Receiver {
        let mut command = self.recv(args);
        if !args
            .iter()
            .any(|arg| ["--allow", "--allow-any"].contains(arg))
        {
            command.args(["--allow", &self.sender_key]);
        }
        Receiver::start(command)
    }

    /// A receiver that allows those only that `args` name.
    pub fn recv(&self, args: &[&str]) -> Command {
        let mut command = self.program();
        command
            .args(["recv", "--json", "--listen", "127.0.0.1:0"])
            .args(["--key".as_ref(), self.path("receiver.key").as_os_str()])
            .args(["-o".as_ref(), self.path("received").as_os_str()])
            .args(args);
        command
    }

    /// A sender that knows the receiver's key; paths and address are the caller's.
    pub fn sender(&self) -> Command {
        let mut command = self.anonymous_sender();
        command.args(["--peer-key", &self.receiver_key]);
        command
    }

    /// A sender that has to look the receiver up among its known hosts.
    pub fn anonymous_sender(&self) -> Command {
        let mut command = self.program();
        command
            .args(["send", "--json"])
            .args(["--key".as_ref(), self.path("sender.key").as_os_str()])
            .args([
                "--known-hosts".as_ref(),
                self.path("known_hosts").as_os_str(),
            ]);
        command
    }

    /// Names of all files beneath the directory of the receiver.
    pub fn received(&self) -> Vec<String> {
        let root = self.path("received");
        let mut names = Vec::new();
        let mut directories = vec![root.clone()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).into_iter().flatten() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => directories.push(path),
                    false => names.push(
                        path.strip_prefix(&root)
                            .unwrap()
                            .to_str()
                            .unwrap()
                            .to_owned(),
                    ),
                }
            }
        }
        names.sort();
        names
    }

    pub fn assert_received(&self, name: &str, expected: &[u8]) {
        let got = fs::read(self.path("received").join(name)).unwrap();
        assert!(
            got == expected,
            "{name}: {} of {} bytes",
            got.len(),
            expected.len()
        );
    }
}

fn program(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dfcp"));
    command
        .env("XDG_CONFIG_HOME", home.join("config"))
        .env("XDG_STATE_HOME", home.join("state"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The content of [`Bench::write`].
pub fn bytes(name: &str, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    blake3::Hasher::new()
        .update(name.as_bytes())
        .finalize_xof()
        .fill(&mut bytes);
    bytes
}

/// A running receiver; it is killed when dropped.
pub struct Receiver {
    child: Child,
    pub address: SocketAddr,
    stderr: mpsc::Receiver<String>,
}

impl Receiver {
    /// Waits until it says something with these words in it.
    pub fn says(&self, words: &str) -> String {
        loop {
            let line = self.stderr.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("it never says {words:?}"));
            if line.contains(words) {
                return line;
            }
        }
    }

    pub fn start(command: Command) -> Self {
        let (mut started, line) = Self::start_until(command, "listening on ");
        let (_, address) = line.split_once("listening on ").unwrap();
        started.address = address.parse().unwrap();
        started
    }

    /// Another program, once it says something with these words in it; it has no address.
    pub fn start_saying(command: Command, words: &str) -> Self {
        Self::start_until(command, words).0
    }

    fn start_until(mut command: Command, words: &str) -> (Self, String) {
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (say, stderr) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                eprintln!("receiver: {line}");
                let _ = say.send(line);
            }
        });
        let started = Self {
            child,
            address: SocketAddr::from(([0, 0, 0, 0], 0)),
            stderr,
        };
        let line = started.says(words);
        (started, line)
    }

    pub fn id(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    #[cfg(unix)]
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.id()), signal).unwrap();
    }

    /// Waits for its end: exit code and what it reported.
    pub fn end(self) -> (i32, Value) {
        let (code, text) = self.end_with();
        (code, parse(text.as_bytes()))
    }

    /// Waits for the end of one that reports nothing.
    pub fn end_code(mut self) -> Option<i32> {
        wait(&mut self.child).code()
    }

    /// The same of one that tells of each event.
    pub fn end_stream(self) -> (i32, Vec<Value>) {
        let (code, text) = self.end_with();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        (code, lines.collect())
    }

    fn end_with(mut self) -> (i32, String) {
        let status = wait(&mut self.child);
        let mut text = String::new();
        let mut stdout = self.child.stdout.take().unwrap();
        stdout.read_to_string(&mut text).unwrap();
        (status.code().unwrap(), text)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a process, not for ever.
pub fn wait(child: &mut Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("a process does not end");
        }
        pause();
    }
}

/// Runs a command: exit code, its JSON object, and what it said.
pub fn run(command: &mut Command) -> (i32, Value, String) {
    finish(command.spawn().unwrap())
}

/// The same for a process that was started before.
pub fn finish(mut child: Child) -> (i32, Value, String) {
    wait(&mut child);
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&stderr).into_owned();
    eprintln!("sender: {said}");
    (status.code().unwrap(), parse(&stdout), said)
}

/// Exactly one JSON object.
fn parse(stdout: &[u8]) -> Value {
    let text = String::from_utf8_lossy(stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
}

/// Before looking again at another process or its files, which do not call back.
#[expect(clippy::disallowed_methods)]
fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}

/// Waits until something holds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        pause();
    }
}

/// Programs that are started from here on hear that their terminal goes away, also where this one was
/// started to ignore it (`nohup make test`): a signal that is caught has its default in what is executed.
pub fn hear_hang_ups() {
    use tokio::signal::unix::{SignalKind, signal};
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_io().build().unwrap();
    let _guard = runtime.enter();
    drop(signal(SignalKind::hangup()).unwrap());
}
