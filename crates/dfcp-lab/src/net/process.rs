//! Processes in hosts: started in the host's namespace, watched, and ended with the lab.
//!
//! A process dies when the thread that started it does (prctl(2), `PR_SET_PDEATHSIG`), and that
//! thread lives in the host: whatever ends the lab ends its processes. Output is read as it comes,
//! and kept up to a limit, so that no process waits for its reader and none fills the memory.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use super::namespace::Namespace;
use super::sys;

/// Where a process' output goes.
#[derive(Debug)]
pub enum Output {
    /// It is kept: the end of it, if it is long.
    Keep,
    /// Into a file.
    File(File),
    /// Nowhere.
    Discard,
}

/// A command to be run in a host.
pub struct HostCommand {
    namespace: Arc<Namespace>,
    command: Command,
    stdout: Output,
    stderr: Output,
}

impl HostCommand {
    pub(super) fn new(namespace: Arc<Namespace>, program: &OsStr) -> Self {
        let mut command = Command::new(program);
        command.stdin(Stdio::null());
        Self {
            namespace,
            command,
            stdout: Output::Keep,
            stderr: Output::Keep,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    /// Sets its working directory.
    #[must_use]
    pub fn current_dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// What it reads from standard input; nothing if not set.
    #[must_use]
    pub fn stdin(mut self, file: File) -> Self {
        self.command.stdin(file);
        self
    }

    /// Where standard output goes; kept if not set.
    #[must_use]
    pub fn stdout(mut self, output: Output) -> Self {
        self.stdout = output;
        self
    }

    /// Where standard error goes; kept if not set.
    #[must_use]
    pub fn stderr(mut self, output: Output) -> Self {
        self.stderr = output;
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// Why that is not possible: the program is missing, …
    pub fn spawn(self) -> io::Result<HostProcess> {
        let Self {
            namespace,
            mut command,
            stdout,
            stderr,
        } = self;
        command.stdout(stdio(stdout)).stderr(stdio(stderr));
        sys::tie_to_parent(&mut command);
        let mut child = namespace.run(move || command.spawn())?;
        let stdout = child.stdout.take().map(Reader::start).transpose()?;
        let stderr = child.stderr.take().map(Reader::start).transpose()?;
        Ok(HostProcess {
            life: Life::watch(child)?,
            stdout,
            stderr,
            _namespace: namespace,
        })
    }
}

fn stdio(output: Output) -> Stdio {
    match output {
        Output::Keep => Stdio::piped(),
        Output::File(file) => file.into(),
        Output::Discard => Stdio::null(),
    }
}

/// A process in a host; it is killed when dropped.
pub struct HostProcess {
    life: Life,
    stdout: Option<Reader>,
    stderr: Option<Reader>,
    _namespace: Arc<Namespace>,
}

/// How a process ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its status; `None` where even killing did not end it.
    pub status: Option<ExitStatus>,
    /// Processor time, user and system, of it and the children it waited for.
    pub cpu: Duration,
    /// What it wrote to standard output, if that was kept.
    pub stdout: String,
    /// What it wrote to standard error, if that was kept.
    pub stderr: String,
    /// Whether it was still running at the deadline.
    pub timed_out: bool,
}

impl Finished {
    /// Whether it ended by itself, successfully.
    pub fn succeeded(&self) -> bool {
        !self.timed_out && self.status.is_some_and(|status| status.success())
    }
}

impl HostProcess {
    /// Its process identifier.
    pub fn id(&self) -> u32 {
        self.life.pid
    }

    /// The next line of standard output, without its end.
    ///
    /// # Errors
    /// When there is none by the deadline, or the output ended.
    pub fn wait_line(&mut self, deadline: Instant) -> io::Result<String> {
        match &mut self.stdout {
            Some(reader) => reader.line(deadline),
            None => Err(io::Error::other("standard output is not kept")),
        }
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.life.state().status.is_some()
    }

    /// Waits until it ends, and kills it at the deadline.
    pub fn wait(mut self, deadline: Instant) -> Finished {
        let timed_out = !self.life.wait_until(deadline);
        if timed_out {
            self.kill();
            // What it did in the kernel may take a moment to come to an end.
            self.life.wait_until(Instant::now() + LAST_WISHES);
        }
        let (status, cpu) = {
            let state = self.life.state();
            (state.status, state.cpu)
        };
        let text = |reader: Option<Reader>| reader.map_or_else(String::new, Reader::finish);
        Finished {
            status,
            cpu,
            stdout: text(self.stdout.take()),
            stderr: text(self.stderr.take()),
            timed_out,
        }
    }

    /// Asks it to end (SIGTERM).
    pub fn terminate(&mut self) {
        self.life.signal(Signal::SIGTERM);
    }

    /// Ends it and the processes it started, at once.
    pub fn kill(&mut self) {
        self.life.signal(Signal::SIGKILL);
    }

    /// Whether it ends by the deadline.
    pub fn ends_by(&self, deadline: Instant) -> bool {
        self.life.wait_until(deadline)
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How long a killed process may take to end.
const LAST_WISHES: Duration = Duration::from_secs(5);

/// Watches a process to its end.
struct Life {
    pid: u32,
    shared: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    status: Option<ExitStatus>,
    cpu: Duration,
}

impl Life {
    fn watch(child: Child) -> io::Result<Self> {
        let pid = child.id();
        let shared = Arc::<(Mutex<State>, Condvar)>::default();
        let watched = Arc::clone(&shared);
        thread::Builder::new().name("watch".into()).spawn(move || {
            // Leaves it a zombie, so that its number stays its own until the lock is held.
            let id = || Id::Pid(Pid::from_raw(pid as i32));
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
            while waitid(id(), flags) == Err(nix::errno::Errno::EINTR) {}
            let mut state = lock(&watched.0);
            if let Ok((status, cpu)) = sys::reap(pid) {
                *state = State {
                    status: Some(status),
                    cpu,
                };
            }
            watched.1.notify_all();
        })?;
        Ok(Self { pid, shared })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.shared.0)
    }

    /// Whether it has ended by the deadline.
    fn wait_until(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let state = self.state();
        let running = |state: &mut State| state.status.is_none();
        let waited = self.shared.1.wait_timeout_while(state, left, running);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.status.is_some()
    }

    fn signal(&self, signal: Signal) {
        let state = self.state();
        if state.status.is_none() {
            // It leads a group of its own.
            let _ = killpg(Pid::from_raw(self.pid as i32), signal);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Most bytes of output that are kept.
const KEPT: usize = 4 << 20;

/// Reads an output to its end.
struct Reader {
    shared: Arc<(Mutex<Text>, Condvar)>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Text {
    bytes: VecDeque<u8>,
    /// Bytes at the front that were handed out as lines.
    taken: usize,
    ended: bool,
}

impl Reader {
    fn start(mut pipe: impl Read + Send + 'static) -> io::Result<Self> {
        let shared = Arc::<(Mutex<Text>, Condvar)>::default();
        let written = Arc::clone(&shared);
        let read = move || {
            let mut chunk = vec![0; 1 << 16];
            loop {
                let got = match pipe.read(&mut chunk) {
                    Ok(0) => break,
                    Ok(got) => got,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(_) => break,
                };
                let mut text = lock(&written.0);
                text.bytes.extend(&chunk[..got]);
                let excess = text.bytes.len().saturating_sub(KEPT);
                text.bytes.drain(..excess);
                text.taken = text.taken.saturating_sub(excess);
                written.1.notify_all();
            }
            lock(&written.0).ended = true;
            written.1.notify_all();
        };
        let thread = thread::Builder::new().name("output".into()).spawn(read)?;
        Ok(Self { shared, thread })
    }

    fn line(&mut self, deadline: Instant) -> io::Result<String> {
        let mut text = lock(&self.shared.0);
        loop {
            let fresh = text.bytes.iter().skip(text.taken);
            if let Some(end) = fresh.clone().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = fresh.take(end).copied().collect();
                text.taken += end + 1;
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            if text.ended {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let waited = self.shared.1.wait_timeout(text, left);
            text = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// All that was kept. A grandchild may hold the pipe open: it is not waited for.
    fn finish(self) -> String {
        let text = lock(&self.shared.0);
        let ended = |text: &mut Text| !text.ended;
        let waited = self
            .shared
            .1
            .wait_timeout_while(text, Duration::from_secs(1), ended);
        let (mut text, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let all = String::from_utf8_lossy(text.bytes.make_contiguous()).into_owned();
        drop(text);
        if self.thread.is_finished() {
            let _ = self.thread.join();
        }
        all
    }
}
