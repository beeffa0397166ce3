//! The kernel's TCP, one connection from the source to the sink.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::job::{Load, Ready, Sink, TcpSource};
use super::progress::{Meter, Received, Sent};
use super::{in_time, print_line, sleep_until};
use crate::net::sys;
use crate::path::clock::monotonic_ns;

/// How often a blocked call looks at the time.
const TICK: Duration = Duration::from_millis(20);

const CHUNK: usize = 1 << 18;

/// Takes one connection until its end.
pub(super) fn sink(job: &Sink) -> io::Result<Received> {
    let listener = TcpListener::bind(job.listen)?;
    // Bounds `accept`.
    socket2::SockRef::from(&listener).set_read_timeout(Some(TICK))?;
    let mut output = job.output.as_ref().map(File::create).transpose()?;
    print_line(&Ready { ready: true });
    let in_time = || in_time(job.until_ns);
    let mut meter = Meter::default();
    let mut connection = loop {
        match listener.accept() {
            Ok((connection, _)) => break connection,
            Err(error) if is_timeout(&error) && in_time() => {}
            Err(error) if is_timeout(&error) => return Ok(meter.finish()),
            Err(error) => return Err(error),
        }
    };
    connection.set_read_timeout(Some(TICK))?;
    let mut buffer = vec![0; CHUNK];
    while in_time() {
        match connection.read(&mut buffer) {
            Ok(0) => break,
            Ok(got) => {
                if let Some(file) = &mut output {
                    file.write_all(&buffer[..got])?;
                }
                meter.add(got as u64);
            }
            Err(error) if is_timeout(&error) => {}
            // A sender that stops before the end breaks the connection off.
            Err(_) => break,
        }
    }
    Ok(meter.finish())
}

fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// Sends what there is to send, or until it is to stop.
pub(super) fn source(job: &TcpSource) -> io::Result<Sent> {
    let socket = Socket::new(Domain::for_address(job.connect), Type::STREAM, None)?;
    if let Some(name) = &job.congestion {
        socket.set_tcp_congestion(name.as_bytes()).map_err(|_| {
            io::Error::other(format!("this kernel has no congestion control {name:?}"))
        })?;
    }
    let mut file = match &job.load {
        Load::File(path) => Some(File::open(path)?),
        Load::Bytes(_) | Load::Endless => None,
    };
    let mut left = match &job.load {
        Load::Bytes(bytes) => *bytes,
        Load::File(path) => std::fs::metadata(path)?.len(),
        Load::Endless => u64::MAX,
    };
    let size = left;
    sleep_until(job.time.start_ns);
    let start_ns = monotonic_ns();
    let in_time = || in_time(job.time.stop_ns);
    let time_left = || {
        let left = job.time.stop_ns.saturating_sub(monotonic_ns());
        Duration::from_nanos(left.max(1_000_000))
    };
    socket.connect_timeout(&job.connect.into(), time_left())?;
    socket.set_write_timeout(Some(TICK))?;
    socket.set_read_timeout(Some(TICK))?;
    let mut connection = TcpStream::from(socket);
    let mut buffer = vec![0x5a; CHUNK];
    let (mut at, mut filled) = (0, 0);
    while (left > 0 || at < filled) && in_time() {
        if at == filled {
            let want = CHUNK.min(usize::try_from(left).unwrap_or(usize::MAX));
            filled = match &mut file {
                Some(file) => file.read(&mut buffer[..want])?,
                None => want,
            };
            if filled == 0 {
                break; // the file has become shorter
            }
            left -= filled as u64;
            at = 0;
        }
        match connection.write(&buffer[at..filled]) {
            Ok(written) => at += written,
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
    }
    let unsent = left + (filled - at) as u64;
    let bytes = size - unsent;
    if unsent > 0 {
        // What the kernel still holds is not to be sent.
        let _ = socket2::SockRef::from(&connection).set_linger(Some(Duration::ZERO));
    } else {
        wait_for_end(&mut connection, &in_time)?;
    }
    let (rtt, repairs) = sys::tcp_info(connection.as_fd())?;
    Ok(Sent {
        bytes,
        start_ns,
        done_ns: monotonic_ns(),
        rtt_ns: Some(rtt.as_nanos() as u64),
        repairs,
        ..Sent::default()
    })
}

/// Says that this was all, and waits until the sink has read it and closes.
fn wait_for_end(connection: &mut TcpStream, in_time: &impl Fn() -> bool) -> io::Result<()> {
    connection.shutdown(Shutdown::Write)?;
    while in_time() {
        match connection.read(&mut [0; 64]) {
            Err(error) if is_timeout(&error) => {}
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
    Ok(())
}
