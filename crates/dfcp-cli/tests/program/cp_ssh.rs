//! `dfcp cp` through a real sshd, where there is one, and what differs from the tests' own remote shell.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};

use crate::common;
use crate::common::machines::{Machines, PROGRAM};
use crate::common::run;
use crate::cp_again::{agent, watched};

/// A server of its own on loopback, with a key that logs in.
struct Sshd {
    server: Child,
    /// The command that logs in to it.
    ssh: String,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Sshd {
    /// None where there is no such program.
    fn start(machines: &Machines) -> Option<Self> {
        let sshd = Path::new("/usr/sbin/sshd");
        if !(sshd.exists() && nix::unistd::geteuid().is_root()) {
            eprintln!("skipped: needs /usr/sbin/sshd and root");
            return None;
        }
        let at = |name: &str| machines.here(name).display().to_string();
        for key in ["host_key", "user_key"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f", &at(key)])
                .status();
            assert!(made.unwrap().success());
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        fs::create_dir_all("/run/sshd").unwrap();
        let mut server = Command::new(sshd);
        server.args(["-D", "-e", "-f", "/dev/null", "-h", &at("host_key")]);
        server.args(["-p", &port.to_string()]);
        let keys = format!("AuthorizedKeysFile={}", at("user_key.pub"));
        for option in [
            "ListenAddress=127.0.0.1",
            "PidFile=none",
            "StrictModes=no",
            "UsePAM=no",
            "PermitRootLogin=yes",
            &keys,
        ] {
            server.args(["-o", option]);
        }
        let server = server.stderr(Stdio::null()).spawn().unwrap();
        let ssh = format!(
            "ssh -F none -p {port} -i {} -o StrictHostKeyChecking=no -o \
             UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o BatchMode=yes",
            at("user_key")
        );
        let started = Self { server, ssh };
        common::eventually("sshd listens", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Some(started)
    }

    /// `dfcp cp` with this ssh.
    fn cp(&self, machines: &Machines) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .current_dir(machines.dir.path())
            .args(["cp", "--json", "-e", &self.ssh])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

#[test]
fn a_real_ssh_carries_it() {
    let machines = Machines::new("");
    let Some(sshd) = Sshd::start(&machines) else {
        return;
    };
    let content = machines.write(&machines.here("file"), 1_000_000);
    let target = machines.here("copy of it");
    let mut command = sshd.cp(&machines);
    command.args(["--remote-path", PROGRAM, "file"]);
    command.arg(format!("root@127.0.0.1:{}", target.display()));
    let (code, report, said) = run(&mut command);
    assert_eq!(code, 0, "{said}");
    assert_eq!(report["via"], "udp");
    assert_eq!(fs::read(target).unwrap(), content);
}

/// Copies until some of it is there, kills the agent, and expects to be told, without a wait for the
/// `--timeout` of a path that went silent.
fn killed(machines: &Machines, copy: &mut Command, host: &str) {
    let copy = copy.args(["-b", "40M", "--timeout", "10m", "--remote-path"]);
    let copy = copy.arg(machines.there("program")).arg("file");
    let child = copy.arg(format!("{host}:{}", machines.there("").display()));
    let child = child.spawn().unwrap();
    let journal = machines.there("file.dfcp-journal");
    common::eventually("some of it is there", || {
        fs::metadata(&journal).is_ok_and(|journal| journal.len() > 1000)
    });
    kill(agent(machines), Signal::SIGKILL).unwrap();
    let (code, report, said) = common::finish(child);
    assert_eq!(code, 5, "{said}");
    let message = report["error"]["message"].as_str().unwrap();
    assert!(message.contains("ended there by signal 9"), "{message}");
}

/// ssh ends with the code of its own failures when a signal ends what it runs.
#[test]
fn an_agent_that_is_killed_is_told_from_an_ssh_that_broke() {
    let machines = watched();
    machines.write(&machines.here("file"), 60_000_000);
    killed(&machines, &mut machines.cp(&[]), "there");
    if let Some(sshd) = Sshd::start(&machines) {
        let at_home = machines.there("program");
        let script = fs::read_to_string(&at_home).unwrap();
        let home = format!("#!/bin/sh\ncd {}\n", machines.there("").display());
        fs::write(&at_home, script.replacen("#!/bin/sh\n", &home, 1)).unwrap();
        fs::remove_file(machines.there("file.dfcp-journal")).unwrap();
        killed(&machines, &mut sshd.cp(&machines), "root@127.0.0.1");
    }
}
