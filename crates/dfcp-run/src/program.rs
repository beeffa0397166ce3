//! A program, started so that its calls are asked about.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::sys::{self, Calls};
use crate::{filter, process};

/// Starts `command`.
pub(crate) fn start(mut command: Command) -> io::Result<(Child, Calls)> {
    let (mut here, there) = UnixStream::pair()?;
    sys::confine(&mut command, filter::program(), there);
    // It becomes the program when its calls are taken, and `spawn` returns when it has.
    let taken = std::thread::spawn(move || {
        let mut told = [0; 8];
        here.read_exact(&mut told)?;
        let [a, b, c, d, rest @ ..] = told;
        let (pid, listener) = (i32::from_ne_bytes([a, b, c, d]), i32::from_ne_bytes(rest));
        let calls = process::file(pid, listener)?;
        here.write_all(&[1])?;
        Calls::of(calls)
    });
    let child = command.spawn();
    // Its end of the channel goes, too: nobody waits for a process that did not come about.
    drop(command);
    let taken = taken.join().map_err(|_| io::Error::other("a panic"))?;
    match (child, taken) {
        (Ok(child), Ok(calls)) => Ok((child, calls)),
        (Ok(mut child), Err(error)) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
        // Of a process that was not let in, its own failure says less.
        (Err(_), Err(error)) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        (Err(error), _) => Err(error),
    }
}

/// A program file, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// It is for another kind of processor, or one of 32 bits: its calls are others, and are not asked about.
    pub is_foreign: bool,
    /// It has more rights than who starts it (set-user-ID, set-group-ID).
    pub is_privileged: bool,
}

/// Where ELF says how many bits there are, and for which processor it is (gABI, "ELF Header").
const BITS: usize = 4;
const MACHINE: usize = 18;

impl Program {
    /// Looks at what `name` would start: itself if it has a slash, or else the first of the directories of
    /// `path` that has it. What cannot be looked at is nothing special.
    pub fn look_at(name: &Path, path: &str) -> Self {
        let found = match name.components().count() {
            1 if !name.as_os_str().as_encoded_bytes().contains(&b'/') => {
                let places = path.split(':').map(|place| Path::new(place).join(name));
                places.into_iter().find(|file| is_executable(file))
            }
            _ => Some(PathBuf::from(name)),
        };
        // Whoever opens a pipe waits for somebody at its other end.
        let found = found.filter(|path| path.metadata().is_ok_and(|metadata| metadata.is_file()));
        let file = found.and_then(|path| File::open(path).ok());
        let mode = file.as_ref().and_then(|file| file.metadata().ok());
        let mode = mode.map_or(0, |metadata| metadata.permissions().mode());
        let mut head = [0; 20];
        let read = file.is_some_and(|mut file| file.read_exact(&mut head).is_ok());
        Self {
            is_foreign: read && is_foreign(&head),
            is_privileged: mode & 0o6000 != 0,
        }
    }
}

fn is_executable(file: &Path) -> bool {
    let metadata = file.metadata();
    metadata.is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn is_foreign(head: &[u8; 20]) -> bool {
    let own = match std::env::consts::ARCH {
        "x86_64" => 62,
        "aarch64" => 183,
        "riscv64" => 243,
        _ => return true,
    };
    let machine = u16::from_le_bytes([head[MACHINE], head[MACHINE + 1]]);
    head.starts_with(b"\x7fELF") && (head[BITS] != 2 || machine != own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_looked_for_as_the_system_does() {
        let own = Program {
            is_foreign: false,
            is_privileged: false,
        };
        let shell = Program::look_at(Path::new("sh"), "/nowhere:/bin:/usr/bin");
        assert_eq!(shell, own);
        assert_eq!(Program::look_at(Path::new("/nowhere/x"), ""), own);
        let pipe = std::env::temp_dir().join(format!("dfcp-run-pipe-{}", std::process::id()));
        let made = Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let (looked, looks) = std::sync::mpsc::channel();
        let there = pipe.clone();
        std::thread::spawn(move || looked.send(Program::look_at(&there, "")));
        let looked = looks.recv_timeout(std::time::Duration::from_secs(60));
        std::fs::remove_file(&pipe).unwrap();
        assert_eq!(looked, Ok(own), "nobody writes to it");
        let mut head = [0; 20];
        head[..5].copy_from_slice(b"\x7fELF\x01");
        head[MACHINE] = 3; // a 386
        assert!(is_foreign(&head));
        head[..5].copy_from_slice(b"#!/bi");
        assert!(!is_foreign(&head));
    }
}
