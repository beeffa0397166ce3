//! What no crate here wraps safely: the only unsafe code of this crate.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use libc::{IFF_NO_PI, IFF_TUN, IFF_TUN_EXCL, IFNAMSIZ};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Makes `file`, which is `/dev/net/tun`, a new device of IP packets, and says its name: `name`, in which
/// `%d` becomes the first number that is free. The device goes with the file.
///
/// # Errors
/// What the kernel says; a name that is too long is [`io::ErrorKind::InvalidInput`].
pub fn attach(file: &File, name: &str) -> io::Result<String> {
    if name.len() >= IFNAMSIZ || name.contains('\0') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: all bytes zero is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (IFF_TUN | IFF_NO_PI | IFF_TUN_EXCL) as libc::c_short;
    // SAFETY: the request is one of this call (tun.rst in the kernel's documents) and outlives it.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let bytes = request.ifr_name.iter().map(|&c| c as u8);
    let bytes = bytes.take_while(|&byte| byte != 0).collect();
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// What a device is watched for.
pub const WATCHED: Interest = Interest::READABLE.add(Interest::ERROR);

/// Has the runtime watch `file`; call within one.
pub fn watch(file: File) -> io::Result<AsyncFd<File>> {
    // SAFETY: a file owns its descriptor, which is the same for as long as it lives.
    unsafe { AsyncFd::register_with_interest(file, WATCHED) }.map_err(io::Error::from)
}
