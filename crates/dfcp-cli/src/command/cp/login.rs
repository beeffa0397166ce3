//! How long a remote shell may take until the other side greets; the time at its questions is the user's own.

use std::time::Duration;

use tokio::time::sleep;

/// So many times the silence that ends a session: two minutes by default, as long as sshd lets a login take
/// (`LoginGraceTime`), be it that somebody approves it on a telephone.
const LOGIN: u32 = 2;
/// How often is looked whether there is a question.
const LOOK: Duration = Duration::from_millis(250);

/// What `greeting` gives, or none where it takes longer than a login may for sessions that end after `silence`.
pub async fn within<T>(silence: Duration, greeting: impl Future<Output = T>) -> Option<T> {
    let mut left = silence * LOGIN;
    let mut greeting = std::pin::pin!(greeting);
    loop {
        let step = LOOK.min(left);
        tokio::select! {
            found = &mut greeting => return Some(found),
            () = sleep(step) => {}
        }
        if !is_asking() {
            left -= step;
        }
        if left.is_zero() {
            return None;
        }
    }
}

/// Whether one of the programs that this one started asks something: `ssh` opens the terminal only for that
/// (readpassphrase), or starts a program for it. Where that cannot be seen it may be.
fn is_asking() -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return true;
    };
    let ours = nix::unistd::getpgrp().as_raw();
    let own = std::process::id();
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let mut others = pids.filter(|&pid| pid != own && group(pid) == Some(ours));
    others.any(|pid| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        has_terminal_open(pid) || name.is_ok_and(|name| name.contains("askpass"))
    })
}

/// The process group of a process (proc_pid_stat(5)): its name before may have any characters.
fn group(pid: u32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(2)?.parse().ok()
}

fn has_terminal_open(pid: u32) -> bool {
    let Ok(files) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    let mut files = files.filter_map(Result::ok);
    files.any(|file| std::fs::read_link(file.path()).is_ok_and(|at| at.as_os_str() == "/dev/tty"))
}
