//! The system calls that no crate here wraps safely: the only unsafe code of this crate.
//!
//! Each function keeps what the kernel is pointed to alive for the call, and gives plain data.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use libc::{c_int, c_void, socklen_t};

/// Most messages of a batch.
pub(super) const BATCH: usize = 32;

fn check(result: c_int) -> io::Result<c_int> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value),
    }
}

/// A socket that sees every packet of a device, with its hardware header (packet(7)).
pub(super) fn packet_socket(device: u32) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers; the descriptor is checked and owned from here on.
    let socket = unsafe {
        let fd = check(libc::socket(libc::AF_PACKET, kind, 0))?;
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: all bytes zero is a valid `sockaddr_ll`.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = device as c_int;
    let size = mem::size_of_val(&address) as socklen_t;
    // SAFETY: the address is one of `size` bytes that outlives the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) })?;
    Ok(socket)
}

/// Sets an option that is a number.
pub(super) fn set_option(
    socket: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: c_int,
) -> io::Result<()> {
    let size = mem::size_of_val(&value) as socklen_t;
    let value = (&raw const value).cast::<c_void>();
    // SAFETY: the value is one of `size` bytes that outlives the call.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, size) })?;
    Ok(())
}

/// A message that was received.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Received {
    /// Its bytes, from the start of its buffer.
    pub len: usize,
    /// When the kernel got it, nanoseconds of `CLOCK_REALTIME`.
    pub stamp_ns: Option<u64>,
    /// Messages that the socket has had no room for so far.
    pub overflowed: Option<u32>,
}

/// Room for a timestamp and a drop counter.
const CONTROL: usize = 64;

#[repr(align(8))]
struct Control([u8; CONTROL]);

/// Receives up to as many messages as there are buffers, without waiting.
///
/// # Errors
/// What the kernel says; nothing waiting is [`io::ErrorKind::WouldBlock`].
pub(super) fn receive_batch(
    socket: BorrowedFd<'_>,
    buffers: &mut [Box<[u8]>],
    received: &mut [Received; BATCH],
) -> io::Result<usize> {
    let mut controls = [const { Control([0; CONTROL]) }; BATCH];
    // SAFETY: all bytes zero is a valid value of these structures of pointers and numbers.
    let (mut vectors, mut headers): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
        unsafe { (mem::zeroed(), mem::zeroed()) };
    let count = buffers.len().min(BATCH);
    for (i, buffer) in buffers.iter_mut().take(count).enumerate() {
        vectors[i].iov_base = buffer.as_mut_ptr().cast();
        vectors[i].iov_len = buffer.len();
        let header = &mut headers[i].msg_hdr;
        header.msg_iov = &raw mut vectors[i];
        header.msg_iovlen = 1;
        header.msg_control = controls[i].0.as_mut_ptr().cast();
        header.msg_controllen = CONTROL as _;
    }
    let flags = libc::MSG_DONTWAIT as _;
    let fd = socket.as_raw_fd();
    // SAFETY: `count` headers point to buffers, vectors and control areas that outlive the call.
    let got = check(unsafe {
        libc::recvmmsg(
            fd,
            headers.as_mut_ptr(),
            count as _,
            flags,
            std::ptr::null_mut(),
        )
    })? as usize;
    for (header, received) in headers.iter().zip(received).take(got) {
        *received = Received {
            len: header.msg_len as usize,
            ..Received::default()
        };
        // SAFETY: the kernel filled the header, whose control area lives still.
        unsafe { read_control(&header.msg_hdr, received) };
    }
    Ok(got)
}

/// Reads what came beside a message.
///
/// # Safety
/// The header's control area is valid for its stated length.
unsafe fn read_control(header: &libc::msghdr, received: &mut Received) {
    // SAFETY: as the caller promises; the macros stay within the area, and both kinds of data may
    // be unaligned.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(header);
        while let Some(head) = control.as_ref() {
            let data = libc::CMSG_DATA(control);
            match (head.cmsg_level, head.cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    let stamp = data.cast::<libc::timespec>().read_unaligned();
                    let seconds = stamp.tv_sec as u64;
                    received.stamp_ns = Some(seconds * 1_000_000_000 + stamp.tv_nsec as u64);
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    received.overflowed = Some(data.cast::<u32>().read_unaligned());
                }
                _ => {}
            }
            control = libc::CMSG_NXTHDR(header, control);
        }
    }
}

/// Sends messages of two parts each, up to [`BATCH`], without waiting; says how many went.
///
/// # Errors
/// Why the first did not go.
pub(super) fn send_batch<'a>(
    socket: BorrowedFd<'_>,
    messages: impl Iterator<Item = [&'a [u8]; 2]>,
) -> io::Result<usize> {
    // SAFETY: all bytes zero is a valid value of these structures of pointers and numbers.
    let (mut vectors, mut headers): ([[libc::iovec; 2]; BATCH], [libc::mmsghdr; BATCH]) =
        unsafe { (mem::zeroed(), mem::zeroed()) };
    let mut count = 0;
    for (i, parts) in messages.take(BATCH).enumerate() {
        for (vector, part) in vectors[i].iter_mut().zip(parts) {
            // The kernel only reads what is sent.
            vector.iov_base = part.as_ptr().cast_mut().cast();
            vector.iov_len = part.len();
        }
        headers[i].msg_hdr.msg_iov = vectors[i].as_mut_ptr();
        headers[i].msg_hdr.msg_iovlen = 2;
        count = i + 1;
    }
    let flags = libc::MSG_DONTWAIT as _;
    let fd = socket.as_raw_fd();
    // SAFETY: `count` headers point to vectors and bytes that outlive the call.
    let sent = unsafe { libc::sendmmsg(fd, headers.as_mut_ptr(), count as _, flags) };
    check(sent).map(|sent| sent as usize)
}

/// Ends a command's process with the thread that starts it, and lets it lead a process group.
pub(super) fn tie_to_parent(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: between fork and exec only async-signal-safe system calls are made, and nothing is
    // allocated.
    unsafe {
        command.pre_exec(move || {
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
            // The parent may have ended before.
            if libc::getppid() as u32 != parent {
                libc::_exit(1);
            }
            prefer();
            Ok(())
        });
    }
    command.process_group(0);
}

/// Takes the status of a child that has ended, and the processor time that it and the children it
/// waited for have used.
///
/// # Errors
/// When it is no child of this process.
pub(super) fn reap(pid: u32) -> io::Result<(ExitStatus, Duration)> {
    use std::os::unix::process::ExitStatusExt;
    let mut status = 0;
    // SAFETY: all bytes zero is a valid `rusage`.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: both are valid to write to.
    check(unsafe { libc::wait4(pid as c_int, &raw mut status, 0, &raw mut usage) })?;
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    Ok((
        ExitStatus::from_raw(status),
        time(usage.ru_utime) + time(usage.ru_stime),
    ))
}

/// What the kernel knows of a TCP connection: its smoothed round-trip time, and segments sent again.
pub(crate) fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<(Duration, u64)> {
    // SAFETY: all bytes zero is a valid `tcp_info`.
    let mut info: libc::tcp_info = unsafe { mem::zeroed() };
    let mut size = mem::size_of_val(&info) as socklen_t;
    let place = (&raw mut info).cast::<c_void>();
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_INFO);
    // SAFETY: the place is one of `size` bytes that outlives the call.
    check(unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, place, &raw mut size) })?;
    let rtt = Duration::from_micros(u64::from(info.tcpi_rtt));
    Ok((rtt, u64::from(info.tcpi_total_retrans)))
}

/// Lets the calling thread, and what it starts, go before others of ordinary priority, if the kernel
/// lets it: a program that waits for a processor measures the machine, not the path.
pub(crate) fn prefer() {
    const NICE: c_int = -15;
    // SAFETY: no pointers; zero is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}
