//! Runs the kernel's TCP between two network namespaces, each with a TUN device whose packets the
//! emulator carries to the other over the demo's path.
//!
//! Every transfer has namespaces of its own, so the kernel's memory of earlier connections
//! (`tcp_metrics`) helps none. A namespace lives as long as a socket in it: dropping a transfer's
//! sockets removes all there was.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::Instant;

use anyhow::{Context, anyhow};
use dfcp_proto::{Duration, Rate};
use dfcp_sim::Datagram;
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use socket2::{Domain, SockAddr, Socket, Type};
use tun_rs::{DeviceBuilder, SyncDevice};

use super::emulator::{Emulator, Port};
use super::tcp::{TcpArgs, TcpResult, Unavailable};

// These exist only inside the namespaces; 198.18.0.0/15 is for benchmarks (RFC 2544).
const CLIENT: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const PREFIX: u8 = 30;
const PORT: u16 = 4000;
const MTU: u16 = 1500;

/// In the order in which they are shown; those that the kernel does not offer are left out.
const CONGESTION_CONTROLS: [&str; 3] = ["cubic", "bbr", "reno"];

/// Runs a transfer with each congestion control.
pub(super) fn run(args: &TcpArgs, each: &mut dyn FnMut(TcpResult)) -> Result<(), Unavailable> {
    isolate()?;
    check_tun()?;
    // Whoever is interrupted while waiting for the results leaves nothing running.
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
    let offered = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .map_err(|error| Unavailable::new(format!("cannot list congestion controls: {error}")))?;
    let offered: Vec<_> = offered.split_whitespace().collect();
    for control in CONGESTION_CONTROLS {
        if offered.contains(&control) {
            let result = transfer(control, args)
                .map_err(|error| Unavailable::new(format!("TCP {control}: {error:#}")))?;
            each(result);
        }
    }
    Ok(())
}

/// Leaves the machine's network for an empty one, in which this process may do as it likes.
fn isolate() -> Result<(), Unavailable> {
    if unshare(CloneFlags::CLONE_NEWNET).is_err() {
        let user = nix::unistd::geteuid();
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET).map_err(|error| {
            Unavailable::new(format!(
                "this user may not create network namespaces ({error:?}); root may"
            ))
        })?;
        // Root of the new user namespace owns its sysctls.
        fs::write("/proc/self/uid_map", format!("0 {user} 1"))
            .map_err(|error| Unavailable::new(format!("cannot map this user: {error}")))?;
    }
    Ok(())
}

fn check_tun() -> Result<(), Unavailable> {
    let tun = "/dev/net/tun";
    match File::options().read(true).write(true).open(tun) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Unavailable::new(format!(
            "this machine has no {tun}: the kernel's TUN driver is missing"
        ))),
        Err(error) => Err(Unavailable::new(format!(
            "this user may not open {tun} ({}); root may",
            error.kind()
        ))),
    }
}

/// One end of the path.
struct End {
    tun: TunPort,
    socket: Socket,
}

impl End {
    /// Makes a namespace with a TUN device and a socket that `prepare` sets up.
    fn new(
        address: Ipv4Addr,
        prepare: impl FnOnce(&Socket) -> io::Result<()> + Send,
    ) -> anyhow::Result<Self> {
        let make = || {
            unshare(CloneFlags::CLONE_NEWNET).context("network namespace")?;
            tune();
            let device = DeviceBuilder::new()
                .ipv4(address, PREFIX, None)
                .mtu(MTU)
                .build_sync()
                .context("TUN device")?;
            // The path's queue is the emulated one: this must not overflow first. Only root may
            // make it longer; the default suits all but the fastest paths.
            let _ = device.set_tx_queue_len(10_000);
            device.set_nonblocking(true)?;
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            // Closing ends the connection at once, and with it the namespace.
            socket.set_linger(Some(Duration::ZERO))?;
            prepare(&socket).context("TCP socket")?;
            let tun = TunPort::new(device);
            Ok(Self { tun, socket })
        };
        // A thread that ends at once: only what it makes stays in the namespace.
        thread::scope(|scope| scope.spawn(make).join())
            .unwrap_or_else(|_| Err(anyhow!("setting up a namespace panicked")))
    }
}

/// Lets TCP windows grow to what long, fast paths need; the kernel's defaults may not.
fn tune() {
    let sysctls = [
        ("ipv4/tcp_rmem", "4096 131072 67108864"),
        ("ipv4/tcp_wmem", "4096 131072 67108864"),
        ("ipv6/conf/all/disable_ipv6", "1"), // no neighbour discovery on the path
    ];
    for (name, value) in sysctls {
        // Some containers make these read-only; then the defaults serve.
        let _ = fs::write(format!("/proc/sys/net/{name}"), value);
    }
}

fn transfer(control: &str, args: &TcpArgs) -> anyhow::Result<TcpResult> {
    let server = SocketAddr::V4(SocketAddrV4::new(SERVER, PORT));
    let far = End::new(SERVER, |socket| {
        socket.bind(&server.into())?;
        socket.listen(1)
    })?;
    let near = End::new(CLIENT, |socket| {
        socket.set_tcp_congestion(control.as_bytes())
    })?;
    // What crosses a TUN device are IP packets already: no framing.
    let path = Emulator::start(&args.path(), 0, near.tun, far.tun)?;

    let start = Instant::now();
    let deadline = start + args.limit();
    let progress = thread::scope(|scope| {
        scope.spawn(|| send(&near.socket, &server.into(), args.size(), deadline));
        let progress = receive(&far.socket, args.size(), start, deadline);
        // Wakes a sender that still has data after the deadline.
        let _ = near.socket.shutdown(std::net::Shutdown::Both);
        progress
    })?;
    path.stop().context("path")?;
    Ok(progress.result(control, args))
}

/// Sends until everything is sent, the connection ends or the deadline passes.
fn send(socket: &Socket, server: &SockAddr, size: u64, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    socket.connect_timeout(server, left)?;
    socket.set_write_timeout(Some(left))?;
    let chunk = vec![0x5a; 1 << 16];
    let mut unsent = size;
    while unsent > 0 && Instant::now() < deadline {
        let len = chunk
            .len()
            .min(usize::try_from(unsent).unwrap_or(usize::MAX));
        unsent -= (&*socket).write(&chunk[..len])? as u64;
    }
    Ok(())
}

/// When how many bytes had been received.
#[derive(Default)]
struct Progress(Vec<(Duration, u64)>);

fn receive(
    listener: &Socket,
    size: u64,
    start: Instant,
    deadline: Instant,
) -> io::Result<Progress> {
    /// How often the deadline is looked at.
    const TICK: Duration = Duration::from_millis(50);
    let timed_out = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;

    let mut progress = Progress::default();
    listener.set_read_timeout(Some(TICK))?; // bounds `accept`
    let connection = loop {
        match listener.accept() {
            Ok((connection, _)) => break connection,
            Err(error) if timed_out(&error) && Instant::now() < deadline => {}
            Err(error) if timed_out(&error) => return Ok(progress),
            Err(error) => return Err(error),
        }
    };
    connection.set_linger(Some(Duration::ZERO))?;
    connection.set_read_timeout(Some(TICK))?;
    let mut buffer = vec![0; 1 << 18];
    let mut received = 0;
    while received < size && Instant::now() < deadline {
        match (&connection).read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => {
                received += read as u64;
                progress.0.push((start.elapsed(), received));
            }
            Err(error) if timed_out(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(progress)
}

impl Progress {
    fn result(&self, control: &str, args: &TcpArgs) -> TcpResult {
        let (last, bytes) = self.0.last().copied().unwrap_or_default();
        let complete = bytes >= args.size();
        let end = if complete { last } else { args.limit() };
        let tenth = self.0.iter().find(|sample| sample.1 >= bytes / 10);
        let (tenth_at, tenth_bytes) = tenth.copied().unwrap_or_default();
        let rate = |bytes, time: Duration| match bytes {
            0 => 0,
            _ => Rate::from_transfer(bytes, time).as_bps(),
        };
        TcpResult {
            protocol: format!("tcp-{control}"),
            goodput_bps: rate(bytes, end),
            steady_bps: rate(bytes - tenth_bytes, end.saturating_sub(tenth_at)),
            seconds: end.as_secs_f64(),
            complete,
            bytes,
        }
    }
}

/// A TUN device as an end of the path.
struct TunPort {
    device: SyncDevice,
    buffer: Vec<u8>,
}

/// Most packets that are taken in before what is due is sent.
const RECEIVE_PACKETS: usize = 128;

impl TunPort {
    fn new(device: SyncDevice) -> Self {
        let buffer = vec![0; usize::from(MTU)];
        Self { device, buffer }
    }
}

impl AsFd for TunPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

impl Port for TunPort {
    fn receive(&mut self, arrived: &mut dyn FnMut(Datagram)) -> io::Result<()> {
        for _ in 0..RECEIVE_PACKETS {
            match self.device.recv(&mut self.buffer) {
                Ok(len) => {
                    let packet = &self.buffer[..len];
                    let is_ipv4 = packet.first().is_some_and(|byte| byte >> 4 == 4);
                    if is_ipv4 {
                        arrived(Datagram::new(packet.to_vec()));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.raw_os_error() == Some(Errno::EINTR as i32) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn send(&mut self, packet: &Datagram) {
        // As on a real interface: what the kernel does not take is gone.
        let _ = self.device.send(&packet.data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::path::PathConfig;

    fn run_in_thread(path: &PathConfig, limit: Duration) -> Result<Vec<TcpResult>, Unavailable> {
        // In a thread of its own: the test's thread stays in the machine's network.
        let args = TcpArgs::new(path, 200_000, limit);
        thread::spawn(move || {
            let mut results = Vec::new();
            run(&args, &mut |result| results.push(result)).map(|()| results)
        })
        .join()
        .unwrap()
    }

    #[test]
    fn tcp_crosses_the_path_or_says_why_not() {
        let clear = PathConfig::new(Rate::from_bps(50_000_000), Duration::from_millis(4), 0.0, 1);
        match run_in_thread(&clear, Duration::from_secs(10)) {
            Ok(results) => {
                assert!(!results.is_empty());
                for result in results {
                    assert!(result.complete && result.bytes == 200_000, "{result:?}");
                    assert!(result.goodput_bps > 0 && result.goodput_bps < 50_000_000);
                }
            }
            Err(reason) => {
                eprintln!("skipped: {reason}");
                assert!(!reason.to_string().is_empty());
            }
        }
    }

    #[test]
    fn a_dead_path_ends_at_the_limit() {
        let dead = PathConfig::new(Rate::from_bps(50_000_000), Duration::from_millis(4), 1.0, 1);
        if let Ok(results) = run_in_thread(&dead, Duration::from_millis(300)) {
            for result in results {
                assert!(!result.complete);
                assert_eq!(
                    (result.bytes, result.goodput_bps, result.seconds),
                    (0, 0, 0.3)
                );
            }
        }
    }
}
