//! Two machines for `dfcp cp`: a remote shell runs what ssh would run on another one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::{bytes, run};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_dfcp");

/// A machine that is reached by a shell.
pub struct Machines {
    pub dir: TempDir,
}

impl Machines {
    /// `prelude` is what the other machine's login does first.
    pub fn new(prelude: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("home")).unwrap();
        let shell = dir.path().join("shell");
        let home = dir.path().join("home");
        let script = format!(
            "#!/bin/sh\ntest \"$1\" = there || exit 255\nHOME={}; export HOME\nPATH=/usr/bin:/bin\n\
             cd \"$HOME\"\n{prelude}\nexec sh -c \"$2\"\n",
            home.display()
        );
        fs::write(&shell, script).unwrap();
        fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).unwrap();
        Self { dir }
    }

    pub fn here(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn there(&self, name: &str) -> PathBuf {
        self.dir.path().join("home").join(name)
    }

    pub fn write(&self, path: &Path, size: usize) -> Vec<u8> {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let content = bytes(path.to_str().unwrap(), size);
        fs::write(path, &content).unwrap();
        content
    }

    /// `dfcp cp` in this machine's directory.
    pub fn cp(&self, arguments: &[&str]) -> Command {
        let mut command = self.program("cp");
        command.args(arguments);
        command
    }

    /// `dfcp sync` in this machine's directory.
    pub fn sync(&self) -> Command {
        let mut command = self.program("sync");
        command.args(["--remote-path", PROGRAM]);
        command
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .current_dir(self.dir.path())
            .env_remove("SSH_CONNECTION")
            .env("XDG_STATE_HOME", self.dir.path().join("state"))
            .args([name, "--json", "-e", "./shell"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn copies(&self, arguments: &[&str]) -> Value {
        let (code, report, said) = run(self.cp(arguments).args(["--remote-path", PROGRAM]));
        assert_eq!(code, 0, "{said}");
        report
    }

    pub fn fails(&self, arguments: &[&str], code: i32, words: &str) {
        let (found, report, said) = run(self.cp(arguments).args(["--remote-path", PROGRAM]));
        assert_eq!(found, code, "{said}");
        assert_eq!(report["exit_code"], code);
        let message = report["error"]["message"].as_str().unwrap();
        assert!(message.contains(words), "{message}");
    }
}
