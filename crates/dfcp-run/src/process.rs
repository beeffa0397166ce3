//! What there is to know of a program that waits in a call.

use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;

use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use socket2::Socket;

use crate::sys::Call;

/// A copy of what the program of `call` has open as `number`. It may turn out to be no socket.
///
/// # Errors
/// That there is no such, or that this process may not look into that one.
pub(crate) fn socket(call: &Call, number: u64) -> io::Result<Socket> {
    let open = file(call.thread, number as u32 as i32)?;
    Ok(Socket::from(open))
}

/// A copy of what a thread's process has open as `number`.
pub(crate) fn file(thread: i32, number: i32) -> io::Result<OwnedFd> {
    let process = match open(thread) {
        Ok(process) => process,
        // A thread that is not its process's first one.
        Err(error) => open(process_of(thread).map_err(|_| error)?)?,
    };
    Ok(pidfd_getfd(process, number, PidfdGetfdFlags::empty())?)
}

fn open(process: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(process).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// The process that a thread is of.
fn process_of(thread: i32) -> io::Result<i32> {
    let status = std::fs::File::open(format!("/proc/{thread}/status"))?;
    for line in BufReader::new(status).lines() {
        if let Some(process) = line?.strip_prefix("Tgid:") {
            return process.trim().parse().map_err(io::Error::other);
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Reads `len` bytes of the memory of a thread.
pub(crate) fn read(thread: i32, at: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let from = [RemoteIoVec {
        base: at as usize,
        len,
    }];
    let pid = nix::unistd::Pid::from_raw(thread);
    let read = process_vm_readv(pid, &mut [IoSliceMut::new(&mut bytes)], &from)?;
    whole(read, len)?;
    Ok(bytes)
}

/// Writes to the memory of a thread.
pub(crate) fn write(thread: i32, at: u64, bytes: &[u8]) -> io::Result<()> {
    let to = [RemoteIoVec {
        base: at as usize,
        len: bytes.len(),
    }];
    let pid = nix::unistd::Pid::from_raw(thread);
    let wrote = process_vm_writev(pid, &[IoSlice::new(bytes)], &to)?;
    whole(wrote, bytes.len())
}

fn whole(done: usize, of: usize) -> io::Result<()> {
    match done == of {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}
