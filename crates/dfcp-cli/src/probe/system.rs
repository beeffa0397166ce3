//! This machine, as far as it matters for fast transfers.

use std::fs;
use std::io;
use std::net::UdpSocket;
use std::path::Path;

use dfcp::SocketBuffers;
use dfcp_command::DEFAULT_PORT;
use quinn_udp::{UdpSockRef, UdpSocketState};

use super::clock_ms;
use super::finding::Finding;

/// Looks at everything that can be known without a host.
pub fn findings(buffers: SocketBuffers) -> Vec<Finding> {
    let mut found = vec![buffers_of(buffers)];
    found.extend(offloads());
    found.extend(interfaces());
    found.push(firewall(Path::new("/")));
    found.push(clock());
    found
}

fn buffers_of(buffers: SocketBuffers) -> Finding {
    let kib = |bytes: usize| bytes / 1024;
    let found = format!(
        "asked for {} KiB, given {} KiB to receive and {} KiB to send",
        kib(buffers.requested),
        kib(buffers.receive),
        kib(buffers.send)
    );
    if buffers.receive.min(buffers.send) >= buffers.requested {
        return Finding::good("socket buffers", found);
    }
    let wanted = buffers.requested;
    let advice = match cfg!(target_os = "linux") {
        true => format!(
            "sudo sysctl -w net.core.rmem_max={wanted} net.core.wmem_max={wanted}; the same two \
             lines in /etc/sysctl.d/90-dfcp.conf keep it"
        ),
        false => format!("sudo sysctl -w kern.ipc.maxsockbuf={}", 2 * wanted),
    };
    Finding::note("socket buffers", found, advice)
}

/// Segmentation offload: one system call for many datagrams.
fn offloads() -> Option<Finding> {
    let socket = UdpSocket::bind("[::]:0").or_else(|_| UdpSocket::bind("0.0.0.0:0"));
    let socket = socket.ok()?;
    let state = UdpSocketState::new(UdpSockRef::from(&socket)).ok()?;
    let (gso, gro) = (state.max_gso_segments(), state.gro_segments());
    let found = format!("up to {gso} datagrams in one call out (GSO), {gro} in (GRO)");
    Some(match gso > 1 && gro > 1 {
        true => Finding::good("offloads", found),
        false => Finding::note(
            "offloads",
            found,
            "above some 500 Mbit/s a newer kernel helps: Linux 4.18 has GSO, 5.0 GRO",
        ),
    })
}

/// Smallest MTU over which the usual datagrams pass (RFC 8200 §5 allows 1280).
const USUAL_MTU: u32 = 1500;

/// MTUs of the interfaces that are up, but for the loopback.
fn interfaces() -> Option<Finding> {
    let mut list = mtus().ok()?;
    list.sort();
    if list.is_empty() {
        return Some(Finding::bad(
            "MTU",
            "no network interface is up",
            "connect this machine: ip link, nmcli",
        ));
    }
    let found: Vec<_> = list
        .iter()
        .map(|(name, mtu)| format!("{name} {mtu}"))
        .collect();
    let found = found.join(", ");
    let small = list.iter().rfind(|(_, mtu)| *mtu < USUAL_MTU);
    Some(match small {
        None => Finding::good("MTU", found),
        Some((name, _)) => Finding::note(
            "MTU",
            found,
            format!(
                "nothing to set: {name} is small, as tunnels are, and datagrams are made to fit"
            ),
        ),
    })
}

/// Names and MTUs, of the network namespace that this process is in: files below /sys are those of the one
/// that they were mounted in.
#[cfg(target_os = "linux")]
fn mtus() -> io::Result<Vec<(String, u32)>> {
    use dfcp_netlink::link::{LinkAttribute, LinkFlags, LinkMessage};
    use dfcp_netlink::{Netlink, RouteNetlinkMessage};
    let netlink = Netlink::open()?;
    let mut list = Vec::new();
    for interface in &nix::net::if_::if_nameindex()? {
        let mut message = LinkMessage::default();
        message.header.index = interface.index();
        // One that is gone meanwhile is none.
        let Ok(RouteNetlinkMessage::NewLink(link)) =
            netlink.ask(RouteNetlinkMessage::GetLink(message))
        else {
            continue;
        };
        let flags = link.header.flags;
        // Running: its cable, or what is in place of one, is there (RFC 2863).
        let is_up = flags.contains(LinkFlags::Up | LinkFlags::Running);
        if !is_up || flags.contains(LinkFlags::Loopback) {
            continue;
        }
        let mtu = link
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::Mtu(mtu) => Some(*mtu),
                _ => None,
            });
        let name = interface.name().to_string_lossy().into_owned();
        list.extend(mtu.map(|mtu| (name, mtu)));
    }
    Ok(list)
}

#[cfg(not(target_os = "linux"))]
fn mtus() -> io::Result<Vec<(String, u32)>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// What filters packets here, by the traces that firewalls leave for everybody to read.
fn firewall(root: &Path) -> Finding {
    let port = DEFAULT_PORT;
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let ufw = read("etc/ufw/ufw.conf");
    if ufw.lines().any(|line| line.trim() == "ENABLED=yes") {
        let advice = format!("to receive here: sudo ufw allow {port}/udp");
        return Finding::note("firewall", "ufw is on", advice);
    }
    if root.join("run/firewalld.pid").exists() {
        let advice =
            format!("to receive here: sudo firewall-cmd --add-port={port}/udp --permanent");
        return Finding::note("firewall", "firewalld is on", advice);
    }
    let tables = read("proc/net/ip_tables_names") + &read("proc/net/ip6_tables_names");
    if tables.lines().any(|table| table == "filter") {
        let advice = format!(
            "to receive here, if its rules drop what is not asked for: sudo iptables -I INPUT -p udp \
             --dport {port} -j ACCEPT"
        );
        return Finding::note("firewall", "iptables has rules or had some", advice);
    }
    Finding::good(
        "firewall",
        "no sign of ufw, firewalld or iptables; nft and devices on the way do not show",
    )
}

/// 2025-01-01: no machine that runs this has an earlier date.
const EARLIEST_MS: i64 = 1_735_689_600_000;

fn clock() -> Finding {
    match clock_ms() > EARLIEST_MS {
        true => Finding::good("clock", "is set"),
        false => Finding::note(
            "clock",
            "is years behind",
            "sudo timedatectl set-ntp true: times of files are wrong until then",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::finding::Grade;

    #[test]
    fn small_buffers_come_with_the_line_that_mends_them() {
        let buffers = |receive| SocketBuffers {
            requested: 4 << 20,
            receive,
            send: 4 << 20,
        };
        assert_eq!(buffers_of(buffers(4 << 20)).grade, Grade::Good);
        let small = buffers_of(buffers(212_992));
        assert_eq!(small.grade, Grade::Note);
        let advice = small.advice.unwrap_or_default();
        assert!(
            advice.contains("sysctl") && advice.contains("4194304"),
            "{advice}"
        );
    }

    #[test]
    fn firewalls_are_known_by_what_they_leave() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(firewall(root.path()).grade, Grade::Good);
        fs::create_dir_all(root.path().join("etc/ufw")).unwrap();
        fs::write(root.path().join("etc/ufw/ufw.conf"), "# x\nENABLED=yes\n").unwrap();
        let advice = firewall(root.path()).advice.unwrap_or_default();
        assert!(advice.contains("ufw allow 4433/udp"), "{advice}");
    }
}
