//! Runs a simulated network on the real clock, in a thread of its own.
//!
//! A transport measures the spacing of its packets, so what matters is that each leaves at the
//! time that the network computed. Packets enter the simulation at the time at which the port says
//! they came, so that being scheduled late costs no accuracy as long as the network's delay is
//! longer. The thread sleeps with the finest timer slack until shortly before the next packet is
//! due and then polls, and counts how late each delivery was ([`Lateness`]).
//!
//! Steady state allocates nothing: buffers of packets that left are used again.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use dfcp_proto::{Duration, Instant};
use dfcp_sim::engine::{Direction, ExternalPacket, Simulation};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};

use super::clock::{self, Clock};
use super::lateness::Lateness;
use super::port::{Port, PortStats};

/// What an emulator runs.
pub struct EmulatorConfig {
    /// The network; all hosts are outside.
    pub network: Simulation,
    /// The clock; its start is the network's time zero.
    pub clock: Clock,
    /// Where packets enter and leave.
    pub ports: Vec<Box<dyn Port>>,
    /// For each flow, the ports at its source and at its sink.
    pub ends: Vec<[usize; 2]>,
    /// How long before something is due the thread stops sleeping and polls.
    pub spin: Duration,
}

/// What happened on a path so far.
#[derive(Clone, Debug)]
pub struct PathStats {
    /// How late packets left.
    pub lateness: Lateness,
    /// How much later than the network's time reached packets came in: what a late thread could
    /// not make good.
    pub late_entry: Duration,
    /// For each port.
    pub ports: Vec<PortStats>,
    /// Processor time of the path's thread.
    pub cpu: Duration,
    /// Time since the path's start.
    pub elapsed: Duration,
}

/// A running path; it ends when dropped.
pub struct Emulator {
    shared: Arc<Shared>,
    clock: Clock,
    thread: Option<JoinHandle<io::Result<()>>>,
}

struct Shared {
    path: Mutex<Path>,
    stopping: AtomicBool,
}

struct Path {
    network: Simulation,
    clock: Clock,
    ports: Vec<Box<dyn Port>>,
    ends: Vec<[usize; 2]>,
    inbox: Vec<(Instant, ExternalPacket)>,
    /// For each port, what leaves there now, and when it should have left.
    outbox: Vec<(Vec<ExternalPacket>, Vec<Instant>)>,
    lateness: Lateness,
    late_entry: Duration,
    cpu: Duration,
}

impl Emulator {
    /// Starts the path.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(config: EmulatorConfig) -> io::Result<Self> {
        let (clock, spin) = (config.clock, config.spin);
        let shared = Arc::new(Shared {
            path: Mutex::new(Path {
                outbox: config.ports.iter().map(|_| Default::default()).collect(),
                network: config.network,
                clock,
                ports: config.ports,
                ends: config.ends,
                inbox: Vec::new(),
                lateness: Lateness::default(),
                late_entry: Duration::ZERO,
                cpu: Duration::ZERO,
            }),
            stopping: AtomicBool::new(false),
        });
        let run = {
            let shared = Arc::clone(&shared);
            move || shared.run(spin)
        };
        let thread = thread::Builder::new().name("path".into()).spawn(run)?;
        Ok(Self {
            shared,
            clock,
            thread: Some(thread),
        })
    }

    /// The path's clock.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// What happened so far.
    pub fn stats(&self) -> PathStats {
        self.shared.path().stats()
    }

    /// Shows the network as it stands: counters of its links and flows.
    pub fn inspect<T>(&self, look: impl FnOnce(&Simulation) -> T) -> T {
        look(&self.shared.path().network)
    }

    /// Ends the path and shows the network as it stood; packets still on it are gone.
    ///
    /// # Errors
    /// When a port had failed, which cut the path.
    pub fn stop<T>(mut self, look: impl FnOnce(&Simulation) -> T) -> io::Result<(PathStats, T)> {
        self.join()?;
        let path = self.shared.path();
        Ok((path.stats(), look(&path.network)))
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

/// How long the thread may sleep before it looks whether it should stop.
const LONGEST_WAIT: Duration = Duration::from_millis(50);

impl Shared {
    fn path(&self) -> MutexGuard<'_, Path> {
        self.path.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, spin: Duration) -> io::Result<()> {
        prefer_this_thread();
        let fds: Vec<_> = {
            let path = self.path();
            let fds = path
                .ports
                .iter()
                .map(|port| port.as_fd().try_clone_to_owned());
            fds.collect::<io::Result<_>>()?
        };
        let poll = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut fds: Vec<_> = fds.iter().map(|fd| poll(fd.as_fd())).collect();
        let mut readable = vec![true; fds.len()];
        let mut sleep = Sleep::new(spin);
        let clock = self.path().clock;
        while !self.stopping.load(Ordering::Relaxed) {
            let (next, now) = self.path().step(&readable)?;
            let left = next.map_or(LONGEST_WAIT, |at| at.saturating_since(now));
            let wait = left.min(LONGEST_WAIT).saturating_sub(sleep.spin());
            wait_readable(&mut fds, wait, &mut readable)?;
            let woken = clock.now();
            sleep.slept(if wait.is_zero() { woken } else { now }, woken);
        }
        let mut path = self.path();
        path.cpu = clock::thread_cpu();
        Ok(())
    }
}

/// Decides how long before something is due to stop sleeping. A thread that is nearly always busy
/// does not poll: it would take the hosts' time, and the kernel makes one that never sleeps wait.
struct Sleep {
    spin: Duration,
    busy: bool,
    /// Since when sleep is counted.
    since: Instant,
    slept: Duration,
}

/// How often [`Sleep`] decides anew.
const SLEEP_WINDOW: Duration = Duration::from_millis(20);

/// The least share of its time that the thread sleeps.
const LEAST_SLEEP: f64 = 0.2;

impl Sleep {
    fn new(spin: Duration) -> Self {
        Self {
            spin,
            busy: false,
            since: Instant::ZERO,
            slept: Duration::ZERO,
        }
    }

    fn spin(&self) -> Duration {
        if self.busy { Duration::ZERO } else { self.spin }
    }

    fn slept(&mut self, from: Instant, to: Instant) {
        self.slept += to.saturating_since(from);
        let window = to.saturating_since(self.since);
        if window >= SLEEP_WINDOW {
            self.busy = self.slept < window.mul_f64(LEAST_SLEEP);
            self.since = to;
            self.slept = Duration::ZERO;
        }
    }
}

impl Path {
    /// Takes in what arrived and sends what is due; says when to come back, and what time it is.
    fn step(&mut self, readable: &[bool]) -> io::Result<(Option<Instant>, Instant)> {
        self.take_in(readable)?;
        let now = self.clock.now();
        self.network.run_until(now);
        self.send_out();
        Ok((self.network.next_event(), now))
    }

    fn take_in(&mut self, readable: &[bool]) -> io::Result<()> {
        let Self {
            ports,
            network,
            inbox,
            clock,
            ..
        } = self;
        let mut sources = 0;
        for (port, _) in ports.iter_mut().zip(readable).filter(|(_, ready)| **ready) {
            let before = inbox.len();
            port.receive(clock, &mut |arrived| {
                let mut bytes = network.take_buffer();
                bytes.extend_from_slice(arrived.bytes);
                inbox.push((
                    arrived.at,
                    ExternalPacket {
                        flow: arrived.flow,
                        direction: arrived.direction,
                        size: arrived.size,
                        ecn: arrived.ecn,
                        tag: arrived.tag,
                        bytes,
                    },
                ));
            })?;
            sources += usize::from(inbox.len() > before);
        }
        if sources > 1 {
            inbox.sort_by_key(|(at, _)| *at);
        }
        for (at, packet) in inbox.drain(..) {
            let late = network.now().saturating_since(at);
            self.late_entry = self.late_entry.max(late);
            network.inject_external(at, packet);
        }
        Ok(())
    }

    fn send_out(&mut self) {
        while let Some((due, packet)) = self.network.take_external() {
            let [source, sink] = self.ends[packet.flow.0 as usize];
            let port = match packet.direction {
                Direction::Forward => sink,
                Direction::Backward => source,
            };
            self.outbox[port].0.push(packet);
            self.outbox[port].1.push(due);
        }
        for (port, (packets, dues)) in self.ports.iter_mut().zip(&mut self.outbox) {
            if packets.is_empty() {
                continue;
            }
            port.send(packets);
            let sent = self.clock.now();
            for due in dues.drain(..) {
                self.lateness.record(sent.saturating_since(due));
            }
            for packet in packets.drain(..) {
                self.network.give_buffer(packet.bytes);
            }
        }
    }

    fn stats(&self) -> PathStats {
        PathStats {
            lateness: self.lateness.clone(),
            late_entry: self.late_entry,
            ports: self.ports.iter().map(|port| port.stats()).collect(),
            cpu: self.cpu,
            elapsed: self.clock.now().saturating_since(Instant::ZERO),
        }
    }
}

/// Linux lets timers be 50 µs late by default, to save power: half a packet at 100 Mbit/s. The
/// priority is that of the programs in the hosts: a path that goes before them, on few processors,
/// makes them late instead.
fn prefer_this_thread() {
    #[cfg(target_os = "linux")]
    {
        let _ = nix::sys::prctl::set_timerslack(1);
        crate::net::sys::prefer();
    }
}

/// Waits for descriptors to be readable, at most `wait`; notes which are.
fn wait_readable(fds: &mut [PollFd<'_>], wait: Duration, readable: &mut [bool]) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    let polled = nix::poll::ppoll(fds, Some(wait.into()), None);
    // Elsewhere to the millisecond: rounded down, so that the last one is spent polling.
    #[cfg(not(target_os = "linux"))]
    let polled = nix::poll::poll(fds, wait.as_millis() as u16);
    match polled {
        Ok(_) => {
            for (fd, readable) in fds.iter().zip(readable) {
                *readable = fd.any().unwrap_or(false);
            }
            Ok(())
        }
        Err(Errno::EINTR) => {
            readable.fill(false);
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}
