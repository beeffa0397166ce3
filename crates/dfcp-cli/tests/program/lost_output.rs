//! Programs that read JSON hear by the exit code that it was lost, whatever lost it.

use std::fs::File;
use std::process::{Command, Stdio};

use crate::common;
use crate::common::machines::{Machines, PROGRAM};
use crate::common::{Bench, Receiver};

/// Standard output of which nothing arrives: whoever read it has ended, or its disk is full.
#[derive(Clone, Copy, Debug)]
enum Lost {
    Reader,
    Disk,
}

impl Lost {
    /// Those that can be had here.
    fn all() -> Vec<Self> {
        match File::options().write(true).open("/dev/full") {
            Ok(_) => vec![Self::Reader, Self::Disk],
            Err(_) => vec![Self::Reader],
        }
    }

    fn stdout(self) -> Stdio {
        match self {
            Self::Reader => std::io::pipe().unwrap().1.into(),
            Self::Disk => {
                let full = File::options().write(true).open("/dev/full");
                full.unwrap().into()
            }
        }
    }

    /// Ends with 7, and says why.
    fn loses(self, command: &mut Command) {
        command.stdin(Stdio::null()).stdout(self.stdout());
        let output = command.stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(7),
            "{self:?} {command:?}: {said}"
        );
        let told = said.matches("standard output cannot be written").count();
        assert_eq!(told, 1, "{self:?} {command:?}: {said}");
    }
}

#[test]
fn of_a_session() {
    for lost in Lost::all() {
        for how in ["--json", "--json=stream"] {
            let bench = Bench::new();
            let mut receiver = bench.program();
            receiver.args(["recv", how, "--once", "--listen", "127.0.0.1:0"]);
            receiver.args(["--allow", &bench.sender_key, "--key"]);
            receiver.arg(bench.path("receiver.key")).arg("-o");
            receiver.arg(bench.path("received")).stdout(lost.stdout());
            let receiver = Receiver::start(receiver);
            let mut sender = bench.program();
            sender.args(["send", how, "-q", "--peer-key", &bench.receiver_key]);
            sender.arg("--key").arg(bench.path("sender.key"));
            sender.arg(bench.write("x", 1000));
            lost.loses(sender.arg(receiver.address.to_string()));
            // All the same the file is there.
            assert_eq!(receiver.end_code(), Some(7), "{lost:?} {how}");
            bench.assert_received("x", &common::bytes("x", 1000));
        }
    }
}

#[test]
fn of_a_copy() {
    for lost in Lost::all() {
        for how in ["--json", "--json=stream"] {
            let machines = Machines::new("");
            machines.write(&machines.here("tree/x"), 1000);
            for (name, arguments) in [
                ("cp", &["-r", "tree", "there:copy"][..]),
                ("cp", &["-n", "-r", "tree", "there:other"]),
                ("cp", &["-r", "there:copy", "back"]),
                ("sync", &["--delete", "tree", "there:copy"]),
                ("sync", &["there:copy", "back"]),
            ] {
                let mut copy = Command::new(PROGRAM);
                copy.current_dir(machines.dir.path());
                copy.env_remove("SSH_CONNECTION");
                copy.env("XDG_STATE_HOME", machines.here("state"));
                copy.args([name, how, "-q", "-e", "./shell", "--remote-path", PROGRAM]);
                lost.loses(copy.args(arguments));
            }
            assert!(machines.here("back/x").exists());
        }
    }
}

#[test]
fn of_what_is_measured() {
    let bench = Bench::new();
    let receiver = bench.receiver(&[]);
    for lost in Lost::all() {
        lost.loses(bench.program().args(["doctor", "--json"]));
        let mut probe = bench.program();
        probe.args(["probe", "--json", "--time", "2s", "--peer-key"]);
        probe.args([&bench.receiver_key, "--key"]);
        probe.arg(bench.path("sender.key"));
        lost.loses(probe.arg(receiver.address.to_string()));
    }
}

/// What failed before that is the better answer; who reads only a beginning has that.
#[test]
fn other_codes_stay_and_text_may_be_cut() {
    let bench = Bench::new();
    for lost in Lost::all() {
        for (arguments, code) in [
            (&["send", "--json", "--no-such-option"][..], 2),
            (&["send", "--json=stream", "-q", "no-such-file", "h"], 7),
            (&["doctor", "--json", "--no-such-option"], 2),
            (&["probe", "--json", "127.0.0.1:9"], 5),
        ] {
            let mut command = bench.program();
            let status = command.args(arguments).stdout(lost.stdout()).status();
            assert_eq!(status.unwrap().code(), Some(code), "{lost:?} {arguments:?}");
        }
    }
    for arguments in [&["--help"][..], &["doctor"], &["completions", "bash"]] {
        let mut command = bench.program();
        let status = command
            .args(arguments)
            .stdout(Lost::Reader.stdout())
            .status();
        assert_eq!(status.unwrap().code(), Some(0), "{arguments:?}");
    }
}
