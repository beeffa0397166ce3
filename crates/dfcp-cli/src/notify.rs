//! Tells the service manager how far a service is (sd_notify(3)): a datagram to the socket that it names,
//! if it does.

use std::os::unix::net::{SocketAddr, UnixDatagram};

/// It serves.
pub fn ready() {
    notify("READY=1");
}

/// It ends, which may take until open connections have.
pub fn stopping() {
    notify("STOPPING=1");
}

fn notify(state: &str) {
    let Ok(name) = std::env::var("NOTIFY_SOCKET") else {
        return;
    };
    let send = || {
        let address = address(&name)?;
        UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)
    };
    if let Err(error) = send() {
        dfcp_command::tell!("dfcp: the service manager cannot be told {state}: {error}");
    }
}

/// Of a path, or on Linux, after `@`, an abstract name.
fn address(name: &str) -> std::io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = name.strip_prefix('@') {
        use std::os::linux::net::SocketAddrExt;
        return SocketAddr::from_abstract_name(name);
    }
    SocketAddr::from_pathname(name)
}
