//! Which addresses are this machine's own.
//!
//! More than it has been given one by one: with 192.0.2.1/24 on the loopback device, or a `local` route for a
//! network, the kernel takes every address of the network for its own (on Linux its table `local` says so), and
//! whoever connects there reaches what listens here. So the kernel is asked, about the one address that is to be
//! connected to.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Whether what is sent to `address` from this machine stays here.
///
/// # Errors
/// When there is no route to it.
pub fn is_here(address: SocketAddr) -> io::Result<bool> {
    let address = SocketAddr::new(address.ip().to_canonical(), address.port());
    #[cfg(target_os = "linux")]
    match routes::ask(address.ip()) {
        Ok(is_here) => return Ok(is_here),
        Err(error) if has_no_route(&error) => return Err(error),
        // As in a sandbox without such sockets.
        Err(_) => {}
    }
    by_sockets(address)
}

/// Whether what was going to `address` is for another machine. It is where there is no route: a gateway need not
/// have one to what the far side of its proxy reaches.
///
/// # Errors
/// When it cannot be found out.
pub(crate) fn is_elsewhere(address: SocketAddr) -> io::Result<bool> {
    match is_here(address) {
        Ok(is_here) => Ok(!is_here),
        Err(error) if has_no_route(&error) => Ok(true),
        Err(error) => Err(error),
    }
}

fn has_no_route(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), NetworkUnreachable | HostUnreachable)
}

/// The same as far as sockets can tell: what one can be bound to is here, and so is what the system would also
/// connect from. With `ip_nonlocal_bind` everything can be bound to, and counts as here.
fn by_sockets(address: SocketAddr) -> io::Result<bool> {
    if UdpSocket::bind((address.ip(), 0)).is_ok() {
        return Ok(true);
    }
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    // Nobody notices.
    socket.connect(address)?;
    Ok(socket.local_addr()?.ip() == address.ip())
}

/// Linux' routes, by rtnetlink(7).
#[cfg(target_os = "linux")]
mod routes {
    use std::io;
    use std::net::IpAddr;

    use dfcp_netlink::route::{RouteAttribute, RouteMessage, RouteType};
    use dfcp_netlink::{Netlink, RouteNetlinkMessage, family};

    /// Whether the way to `ip` ends here.
    ///
    /// # Errors
    /// When there is none, or it cannot be asked for.
    pub fn ask(ip: IpAddr) -> io::Result<bool> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(ip);
        message.header.destination_prefix_length = if ip.is_ipv4() { 32 } else { 128 };
        message.attributes = vec![RouteAttribute::Destination(ip.into())];
        let message = RouteNetlinkMessage::GetRoute(message);
        match Netlink::open()?.ask(message)? {
            RouteNetlinkMessage::NewRoute(route) => {
                let kind = route.header.kind;
                Ok(matches!(kind, RouteType::Local | RouteType::Anycast))
            }
            _ => Err(io::Error::other("the kernel answers with something else")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELSEWHERE: &str = "192.0.2.1:9";

    /// What this machine calls itself towards others, where it has a route to any.
    fn own() -> Option<SocketAddr> {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.connect(ELSEWHERE).ok()?;
        socket.local_addr().ok()
    }

    #[test]
    fn addresses_of_this_machine_are_known() {
        assert!(is_here("127.0.0.1:9".parse().unwrap()).unwrap());
        assert!(is_here("[::ffff:127.0.0.1]:9".parse().unwrap()).unwrap());
        if let Some(own) = own() {
            for is_here in [is_here, by_sockets] {
                assert!(!is_here(ELSEWHERE.parse().unwrap()).unwrap());
                assert!(is_here(own).unwrap());
            }
        }
    }

    /// Linux has 127.0.0.1/8 on its loopback device, and what connects to any of these addresses arrives.
    #[test]
    #[cfg(target_os = "linux")]
    fn addresses_that_the_kernel_takes_for_its_own_are_here_though_none_of_them_was_given() {
        for address in ["127.0.0.2:9", "127.9.8.7:9", "[::ffff:127.9.8.7]:9"] {
            let address: SocketAddr = address.parse().unwrap();
            assert!(is_here(address).unwrap(), "{address}");
            let canonical = SocketAddr::new(address.ip().to_canonical(), 9);
            assert!(by_sockets(canonical).unwrap(), "{address}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn routes_tell_where_the_way_ends() {
        let ask = |ip: &str| routes::ask(ip.parse().unwrap()).ok();
        assert_eq!(ask("127.1.2.3"), Some(true));
        // Where there is IPv6.
        assert_ne!(ask("::1"), Some(false));
        for elsewhere in ["192.0.2.1", "2001:db8::1"] {
            assert_ne!(ask(elsewhere), Some(true));
        }
    }
}
