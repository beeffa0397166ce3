//! Senders show themselves on the local network by DNS-SD over multicast DNS (RFC 6762, 6763), as a
//! service of the type `_dfcp._udp` whose name is the code's number and the session's name. Neither
//! says anything about the words, nor about the machine or its user.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use dfcp_meet::wire::Id;
use mdns_sd::{Receiver, ScopedIp, ServiceDaemon, ServiceEvent, ServiceInfo};

/// The type of the service.
const SERVICE: &str = "_dfcp._udp.local.";

/// A session is shown as long as this is there.
pub struct Announcement(ServiceDaemon);

impl Announcement {
    /// Shows a session.
    ///
    /// # Errors
    /// Why that is not possible, in words.
    pub fn start(number: u32, session: &Id, port: u16) -> Result<Self, String> {
        let daemon = ServiceDaemon::new().map_err(|error| error.to_string())?;
        let name = hex(session);
        let host = format!("dfcp-{name}.local.");
        let properties: &[(&str, &str)] = &[];
        let service = ServiceInfo::new(
            SERVICE,
            &format!("{number}-{name}"),
            &host,
            "",
            port,
            properties,
        );
        let service = service.map_err(|error| error.to_string())?;
        let registered = daemon.register(service.enable_addr_auto());
        registered.map_err(|error| error.to_string())?;
        Ok(Self(daemon))
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        // It says goodbye for the service.
        let _ = self.0.shutdown();
    }
}

/// A session of the number that was looked for, and where it is.
pub struct Sighting {
    /// Its name.
    pub session: Id,
    /// Its addresses.
    pub addresses: Vec<SocketAddr>,
}

/// A search for sessions of one number.
pub struct Search {
    daemon: ServiceDaemon,
    events: Receiver<ServiceEvent>,
    number: u32,
}

impl Search {
    /// Begins to ask.
    ///
    /// # Errors
    /// Why that is not possible, in words.
    pub fn start(number: u32) -> Result<Self, String> {
        let daemon = ServiceDaemon::new().map_err(|error| error.to_string())?;
        let events = daemon.browse(SERVICE).map_err(|error| error.to_string())?;
        Ok(Self {
            daemon,
            events,
            number,
        })
    }

    /// The next session; never returns if there is none.
    pub async fn next(&self) -> Sighting {
        loop {
            match self.events.recv_async().await {
                Ok(ServiceEvent::ServiceResolved(service)) => {
                    let name = service.get_fullname().split('.').next().unwrap_or_default();
                    if let Some(session) = session_of(name, self.number) {
                        let port = service.get_port();
                        let addresses = service.get_addresses().iter();
                        let addresses = addresses.filter_map(|ip| address(ip, port)).collect();
                        return Sighting { session, addresses };
                    }
                }
                Ok(_) => {}
                Err(_) => std::future::pending().await,
            }
        }
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        let _ = self.daemon.shutdown();
    }
}

fn address(ip: &ScopedIp, port: u16) -> Option<SocketAddr> {
    match ip {
        ScopedIp::V6(v6) => {
            let scope = match v6.addr().is_unicast_link_local() {
                true => v6.scope_id().index,
                false => 0,
            };
            Some(SocketAddrV6::new(*v6.addr(), port, 0, scope).into())
        }
        ScopedIp::V4(v4) => Some((IpAddr::V4(*v4.addr()), port).into()),
        _ => None,
    }
}

fn hex(id: &Id) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The session that a service's name says, if it has this number.
fn session_of(name: &str, number: u32) -> Option<Id> {
    let (found, session) = name.split_once('-')?;
    if found.parse() != Ok(number) || session.len() != 32 || !session.is_ascii() {
        return None;
    }
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(session.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_number_and_session() {
        let id = [0xa7; 16];
        let name = format!("7-{}", hex(&id));
        assert_eq!(session_of(&name, 7), Some(id));
        assert_eq!(session_of(&name, 8), None);
        for bad in [
            "",
            "7",
            "7-",
            "7-a7",
            "x-a7a7",
            &name[..20],
            &format!("{name}0"),
        ] {
            assert_eq!(session_of(bad, 7), None, "{bad}");
        }
        let not_hex = format!("7-{}", "zz".repeat(16));
        assert_eq!(session_of(&not_hex, 7), None);
    }
}
