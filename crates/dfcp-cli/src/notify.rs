//! Tells the service manager how far a service is (sd_notify(3)): a datagram to the socket that it names,
//! if it does.

use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A manager that reads nothing for so long is not waited for: whoever tells it serves others.
const PATIENCE: Duration = Duration::from_secs(1);
/// Shortest time between two signs of life: the manager's own clock for them is no finer.
const LEAST_WATCHDOG: Duration = Duration::from_millis(1);

/// It serves.
pub fn ready() {
    notify("READY=1");
}

/// It reads its settings again; ready() says that it has.
pub fn reloading() {
    // Of the clock that the manager compares with (CLOCK_MONOTONIC).
    let clock = nix::time::ClockId::CLOCK_MONOTONIC;
    let micros = nix::time::clock_gettime(clock).map_or(0, |now| {
        now.tv_sec() as u64 * 1_000_000 + now.tv_nsec() as u64 / 1000
    });
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
}

/// How often the manager wants to hear that it works, if it does (sd_watchdog_enabled(3)): half of the
/// time after which it counts as dead.
pub fn watchdog() -> Option<Duration> {
    let micros: u64 = std::env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    let other =
        std::env::var("WATCHDOG_PID").is_ok_and(|pid| pid != std::process::id().to_string());
    let half = Duration::from_micros(micros / 2).max(LEAST_WATCHDOG);
    (micros > 0 && !other).then_some(half)
}

/// It works.
pub fn alive() {
    notify("WATCHDOG=1");
}

/// What it does, in a line for people.
pub fn status(line: &str) {
    notify(&format!("STATUS={line}"));
}

/// It ends, which may take until open connections have.
pub fn stopping() {
    notify("STOPPING=1");
}

/// It ends, within so long: the manager is not to kill it before.
pub fn stopping_within(limit: Duration) {
    // What is told at the end takes a second or two.
    let limit = limit + Duration::from_secs(5);
    notify(&format!(
        "STOPPING=1\nEXTEND_TIMEOUT_USEC={}",
        limit.as_micros()
    ));
}

fn notify(state: &str) {
    let Ok(name) = std::env::var("NOTIFY_SOCKET") else {
        return;
    };
    /// That it could not be told was said.
    static SAID: AtomicBool = AtomicBool::new(false);
    let sent =
        address(&name).and_then(|address| socket()?.send_to_addr(state.as_bytes(), &address));
    match sent {
        Ok(_) => SAID.store(false, Ordering::Relaxed),
        Err(_) if SAID.swap(true, Ordering::Relaxed) => {}
        Err(error) => {
            dfcp_command::tell!("dfcp: the service manager cannot be told {state}: {error}");
        }
    }
}

/// Kept open: a service that has no more open files is at work, and is not to be killed for silence.
fn socket() -> io::Result<&'static UnixDatagram> {
    static SOCKET: OnceLock<UnixDatagram> = OnceLock::new();
    if SOCKET.get().is_none() {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let _ = SOCKET.set(socket);
    }
    SOCKET
        .get()
        .ok_or_else(|| io::ErrorKind::NotConnected.into())
}

/// Of a path, or on Linux, after `@`, an abstract name.
fn address(name: &str) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = name.strip_prefix('@') {
        use std::os::linux::net::SocketAddrExt;
        return SocketAddr::from_abstract_name(name);
    }
    SocketAddr::from_pathname(name)
}
