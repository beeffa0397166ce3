//! Carries packets between two ports through a forward and a backward link, on the real clock, in
//! a thread of its own.
//!
//! A transport measures the spacing of its packets, so what matters is that each leaves at the
//! time that the link computed. The thread sleeps in `ppoll` with the finest timer slack until
//! the next packet is due or one arrives, and counts how late each delivery was ([`Lateness`]).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use dfcp_proto::{Duration, Instant};
use dfcp_sim::{Datagram, Link, LinkStats};

use super::path::PathConfig;

/// Where packets enter and leave the emulated path; its descriptor is readable when some wait.
pub trait Port: AsFd + Send + 'static {
    /// Takes in what has arrived, without waiting.
    ///
    /// # Errors
    /// When the port is of no more use.
    fn receive(&mut self, arrived: &mut dyn FnMut(Datagram)) -> io::Result<()>;

    /// Sends a packet, or drops it where that is not possible at once.
    fn send(&mut self, packet: &Datagram);
}

/// What happened on a path so far.
#[derive(Clone, Debug)]
pub struct PathStats {
    /// The link from the client to the server.
    pub forward: LinkStats,
    /// The link from the server to the client.
    pub backward: LinkStats,
    /// How late packets of both directions were delivered.
    pub lateness: Lateness,
}

/// A running path; it ends when dropped.
pub struct Emulator {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

struct Shared {
    path: Mutex<Path>,
    stopping: AtomicBool,
}

struct Path {
    forward: Link<Datagram>,
    backward: Link<Datagram>,
    lateness: Lateness,
}

impl Emulator {
    /// Starts a path between `near` (the client's end) and `far` (the server's end). The links
    /// count `framing` bytes more than a packet carries.
    ///
    /// # Errors
    /// When the configuration is out of range or there can be no thread.
    pub fn start(
        config: &PathConfig,
        framing: u32,
        near: impl Port,
        far: impl Port,
    ) -> anyhow::Result<Self> {
        let (forward, backward) = config.links(framing)?;
        let shared = Arc::new(Shared {
            path: Mutex::new(Path {
                forward,
                backward,
                lateness: Lateness::default(),
            }),
            stopping: AtomicBool::new(false),
        });
        let run = {
            let shared = Arc::clone(&shared);
            move || shared.run(near, far)
        };
        let thread = thread::Builder::new().name("demo-path".into()).spawn(run)?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// What happened so far.
    pub fn stats(&self) -> PathStats {
        let path = self.shared.path();
        PathStats {
            forward: path.forward.stats().clone(),
            backward: path.backward.stats().clone(),
            lateness: path.lateness.clone(),
        }
    }

    /// Ends the path; packets still on it are gone.
    ///
    /// # Errors
    /// When a port had failed, which cut the path.
    pub fn stop(mut self) -> io::Result<PathStats> {
        self.join()?;
        Ok(self.stats())
    }

    fn join(&mut self) -> io::Result<()> {
        self.shared.stopping.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("the path's thread panicked")),
            None => Ok(()),
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // A failed port cut the path; whoever cares calls `stop`.
        let _ = self.join();
    }
}

impl Shared {
    fn path(&self) -> MutexGuard<'_, Path> {
        self.path.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, mut near: impl Port, mut far: impl Port) -> io::Result<()> {
        finest_timers();
        let clock = Clock::start();
        let mut readable = [true; 2];
        while !self.stopping.load(Ordering::Relaxed) {
            let next = self.path().step(&clock, readable, &mut near, &mut far)?;
            let wait = next.map_or(LONGEST_WAIT, |at| {
                at.saturating_since(clock.now()).min(LONGEST_WAIT)
            });
            readable = wait_readable([near.as_fd(), far.as_fd()], wait)?;
        }
        Ok(())
    }
}

impl Path {
    /// Takes in what arrived and sends what is due; says when to come back.
    fn step(
        &mut self,
        clock: &Clock,
        readable: [bool; 2],
        near: &mut impl Port,
        far: &mut impl Port,
    ) -> io::Result<Option<Instant>> {
        if readable[0] {
            near.receive(&mut |packet| self.forward.send(clock.now(), packet))?;
        }
        if readable[1] {
            far.receive(&mut |packet| self.backward.send(clock.now(), packet))?;
        }
        let now = clock.now();
        deliver(&mut self.forward, far, clock, now, &mut self.lateness);
        deliver(&mut self.backward, near, clock, now, &mut self.lateness);
        let next = [self.forward.poll_at(), self.backward.poll_at()];
        Ok(next.into_iter().flatten().min())
    }
}

fn deliver(
    link: &mut Link<Datagram>,
    port: &mut impl Port,
    clock: &Clock,
    now: Instant,
    lateness: &mut Lateness,
) {
    while let Some((due, packet)) = link.poll_timed(now) {
        port.send(&packet);
        lateness.record(clock.now().saturating_since(due));
    }
}

/// How long the thread may sleep before it looks whether it should stop.
const LONGEST_WAIT: Duration = Duration::from_millis(50);

/// The real clock as the links' [`Instant`].
struct Clock(std::time::Instant);

impl Clock {
    fn start() -> Self {
        Self(std::time::Instant::now())
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.0.elapsed()
    }
}

/// Linux lets timers be 50 µs late by default, to save power: half a packet at 100 Mbit/s.
fn finest_timers() {
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_timerslack(1);
}

/// Waits for a descriptor to be readable, at most `wait`; says which are.
fn wait_readable(ports: [BorrowedFd<'_>; 2], wait: Duration) -> io::Result<[bool; 2]> {
    use nix::errno::Errno;
    use nix::poll::{PollFd, PollFlags};

    let mut fds = ports.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    #[cfg(target_os = "linux")]
    let polled = nix::poll::ppoll(&mut fds, Some(wait.into()), None);
    // Elsewhere to the millisecond: rounded down, so that the last one is spent polling.
    #[cfg(not(target_os = "linux"))]
    let polled = nix::poll::poll(&mut fds, wait.as_millis() as u16);
    match polled {
        Ok(0) | Err(Errno::EINTR) => Ok([false; 2]),
        Ok(_) => Ok(fds.map(|fd| fd.any().unwrap_or(false))),
        Err(error) => Err(error.into()),
    }
}

/// How late deliveries were, to the microsecond.
#[derive(Clone, Debug)]
pub struct Lateness {
    /// Deliveries by whole microseconds of lateness; the last also counts all beyond.
    counts: Vec<u64>,
    max: Duration,
}

impl Default for Lateness {
    fn default() -> Self {
        Self {
            counts: vec![0; 2000],
            max: Duration::ZERO,
        }
    }
}

impl Lateness {
    fn record(&mut self, late: Duration) {
        let micros = usize::try_from(late.as_micros()).unwrap_or(usize::MAX);
        let last = self.counts.len() - 1;
        self.counts[micros.min(last)] += 1;
        self.max = self.max.max(late);
    }

    /// The lateness that this share of the deliveries did not exceed, up to 2 ms.
    pub fn quantile(&self, share: f64) -> Duration {
        let total: u64 = self.counts.iter().sum();
        let rank = (total as f64 * share) as u64;
        let mut below = 0;
        let micros = self.counts.iter().position(|count| {
            below += count;
            below > rank
        });
        micros.map_or(self.max, |micros| Duration::from_micros(micros as u64))
    }

    /// The latest delivery.
    pub fn max(&self) -> Duration {
        self.max
    }
}
