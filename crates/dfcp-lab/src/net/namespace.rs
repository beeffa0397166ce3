//! Network namespaces (namespaces(7)).
//!
//! A namespace lives as long as something refers to it. The lab's refer to nothing outside this
//! process: each is held by a thread that lives in it, and everything in it goes with it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How this process came to a network of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// By its privileges.
    Root,
    /// By a user namespace, in which it is root.
    UserNamespace,
}

/// Why this machine or this user cannot have a lab: a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// Leaves the machine's network for an empty one, in which this process may do as it likes. Call it
/// before the process starts any thread; in a thread of a privileged process it is that thread, and
/// those that it starts, that leave.
///
/// # Errors
/// Why that is not possible here.
pub fn isolate() -> Result<Isolation, Unavailable> {
    let isolation = match unshare(CloneFlags::CLONE_NEWNET) {
        Ok(()) => Isolation::Root,
        Err(_) => {
            own_user_namespace()?;
            Isolation::UserNamespace
        }
    };
    // Programs of a host talk to themselves over loopback too.
    netlink_up_loopback().map_err(|error| {
        Unavailable(format!(
            "the kernel does not let this user set up a network: {error}"
        ))
    })?;
    Ok(isolation)
}

fn own_user_namespace() -> Result<(), Unavailable> {
    let (user, group) = (nix::unistd::geteuid(), nix::unistd::getegid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET).map_err(|error| {
        Unavailable(match error {
            nix::errno::Errno::EINVAL => {
                "a user namespace needs a process without threads, or the kernel has none".into()
            }
            _ => format!("this user may not create network namespaces ({error:?}); root may"),
        })
    })?;
    let map = |file: &str, text: String| {
        fs::write(format!("/proc/self/{file}"), text)
            .map_err(|error| Unavailable(format!("cannot map this user: {error}")))
    };
    map("uid_map", format!("0 {user} 1"))?;
    // Groups are a nicety: files made in there belong to this user's group.
    let _ = map("setgroups", "deny".into());
    let _ = map("gid_map", format!("0 {group} 1"));
    Ok(())
}

fn netlink_up_loopback() -> io::Result<()> {
    super::netlink::Netlink::open()?.up("lo")
}

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace; it ends, with all processes' links in it cut, when dropped.
pub(crate) struct Namespace {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    file: fs::File,
}

impl Namespace {
    /// A namespace with nothing but loopback.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn create() -> io::Result<Self> {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let (made, result) = mpsc::channel();
        let thread = thread::Builder::new().name("host".into()).spawn(move || {
            let enter = || {
                unshare(CloneFlags::CLONE_NEWNET)?;
                netlink_up_loopback()?;
                fs::File::open("/proc/thread-self/ns/net")
            };
            if made.send(enter()).is_ok() {
                // Lives as long as the host: the kernel ties what it starts to it.
                inbox.into_iter().for_each(|job| job());
            }
        })?;
        let file = result
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("the namespace's thread ended")))?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
            file,
        })
    }

    /// Does something in the namespace, in the thread that lives there.
    ///
    /// # Errors
    /// What `job` says, and when the thread is gone.
    pub fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (done, result) = mpsc::channel();
        let gone = || io::Error::other("the namespace's thread ended");
        let job = Box::new(move || {
            let _ = done.send(job());
        });
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        jobs.send(job).map_err(|_| gone())?;
        result.recv().map_err(|_| gone())?
    }

    /// A descriptor of the namespace.
    pub fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        end_inhabitants(&self.file);
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Kills the processes that live in a namespace of ours: what its programs have started, also where
/// that left their process groups, or outlived them.
fn end_inhabitants(namespace: &fs::File) {
    let identity = |found: io::Result<fs::Metadata>| found.ok().map(|at| (at.dev(), at.ino()));
    let Some(own) = identity(namespace.metadata()) else {
        return;
    };
    let mut killed = BTreeSet::new();
    loop {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
        let inhabits =
            |pid: &i32| identity(fs::metadata(format!("/proc/{pid}/ns/net"))) == Some(own);
        let here = std::process::id() as i32;
        let found: Vec<i32> = numbers
            .filter(|pid| *pid != here)
            .filter(inhabits)
            .collect();
        let mut news = false;
        for pid in found {
            news |= killed.insert(pid);
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        // What one of them started meanwhile is found the next time.
        if !news {
            return;
        }
    }
}
