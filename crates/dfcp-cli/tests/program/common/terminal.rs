//! A terminal that a test types at and reads.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use nix::pty::openpty;

/// A terminal of its own for a program.
pub struct Terminal {
    keyboard: File,
    screen: mpsc::Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    pub fn new(command: &mut Command) -> Self {
        let pty = openpty(None, None).unwrap();
        command.stdin(Stdio::from(pty.slave.try_clone().unwrap()));
        command.stderr(Stdio::from(pty.slave));
        let keyboard = File::from(pty.master);
        let mut output = keyboard.try_clone().unwrap();
        let (show, screen) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = output.read(&mut buffer) {
                eprint!("{}", String::from_utf8_lossy(&buffer[..n]));
                let _ = show.send(buffer[..n].to_vec());
            }
        });
        Self {
            keyboard,
            screen,
            seen: String::new(),
        }
    }

    /// What is shown up to `words`, which it waits for.
    pub fn wait_for(&mut self, words: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(words) {
                let rest = self.seen.split_off(at + words.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            let more = self.screen.recv_timeout(Duration::from_secs(30));
            let more = more.unwrap_or_else(|_| panic!("never: {words}: {}", self.seen));
            self.seen += &String::from_utf8_lossy(&more);
        }
    }

    pub fn type_line(&mut self, line: &str) {
        self.keyboard
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
    }
}
