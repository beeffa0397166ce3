//! Two sides of a code and a server, as processes.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use serde_json::Value;

use super::{Bench, PATIENCE, Receiver, wait};

/// Where a process runs: here, or in the network of a process.
pub type Place = Option<u32>;

/// The program, in a place.
pub fn program_in(place: Place, home: &Path) -> Command {
    let program = env!("CARGO_BIN_EXE_dfcp");
    let mut command = match place {
        None => Command::new(program),
        Some(pid) => {
            let mut command = Command::new("nsenter");
            command.args(["-t", &pid.to_string(), "-n", "--", program]);
            command
        }
    };
    command
        .env("XDG_CONFIG_HOME", home.join("config"))
        .env_remove("DFCP_RENDEZVOUS")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A process that says something while it runs; it is killed when dropped.
pub struct Process {
    child: Child,
    stderr: mpsc::Receiver<String>,
    said: String,
}

impl Process {
    pub fn start(name: &'static str, mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (say, stderr) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                eprintln!("{name}: {line}");
                let _ = say.send(line);
            }
        });
        Self {
            child,
            stderr,
            said: String::new(),
        }
    }

    /// Waits until it says something with these words in it.
    pub fn says(&mut self, words: &str) -> String {
        loop {
            let line = self.stderr.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("it never says {words:?}"));
            self.said.push_str(&line);
            self.said.push('\n');
            if line.contains(words) {
                return line;
            }
        }
    }

    pub fn id(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits for its end: exit code, its JSON object, and all it said.
    pub fn end(mut self) -> (i32, Value, String) {
        let status = wait(&mut self.child);
        let mut text = String::new();
        let mut stdout = self.child.stdout.take().unwrap();
        stdout.read_to_string(&mut text).unwrap();
        for line in self.stderr.iter() {
            self.said.push_str(&line);
            self.said.push('\n');
        }
        let said = std::mem::take(&mut self.said);
        let json = serde_json::from_str(&text);
        let json = json.unwrap_or_else(|error| panic!("{error}: {text:?}"));
        (status.code().unwrap(), json, said)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A rendezvous server.
pub fn rendezvous(bench: &Bench, place: Place, listen: &str, args: &[&str]) -> Receiver {
    let mut command = program_in(place, &bench.path("server"));
    command.args(["rendezvous", "--listen", listen]).args(args);
    Receiver::start(command)
}

/// A sender without a host, and the code that it prints.
pub fn offer(bench: &Bench, place: Place, args: &[&str], file: &Path) -> (Process, String) {
    let mut command = program_in(place, &bench.path("sender"));
    command
        .args(["send", "--json", "--key"])
        .arg(bench.path("sender.key"))
        .args(args)
        .arg(file);
    let mut process = Process::start("sender", command);
    let line = process.says("dfcp recv ");
    let (_, command) = line.split_once("dfcp recv ").unwrap();
    let code = command.split(' ').next().unwrap().to_owned();
    (process, code)
}

/// A receiver with a code.
pub fn claim(bench: &Bench, place: Place, args: &[&str], code: &str) -> Process {
    let mut command = program_in(place, &bench.path("receiver"));
    command
        .args(["recv", "--json", code, "--key"])
        .arg(bench.path("receiver.key"))
        .arg("-o")
        .arg(bench.path("received"))
        .args(args);
    Process::start("receiver", command)
}

/// The code with its first word exchanged.
pub fn spoilt(code: &str) -> String {
    let mut parts: Vec<_> = code.split('-').collect();
    parts[1] = if parts[1] == "otter" { "lamp" } else { "otter" };
    parts.join("-")
}
