//! The lab's end of a host's cable, as a port of the path.
//!
//! A packet socket sees what the host sends, with the kernel's timestamp of when it did. As to a
//! network card, the kernel hands over what a program sent at once, to be cut into packets here,
//! and leaves checksums open; they stay open through the path and the receiving kernel is told so.
//! Only where the path may flip bits they are computed, so that the receiver notices.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use dfcp_proto::Instant;
use dfcp_sim::engine::{Direction, ExternalPacket};
use dfcp_sim::{Ecn, FlowId};

use super::frame::{self, Cut, Header};
use super::sys::{self, BATCH, Received};
use crate::path::{Arrived, Clock, Port, PortStats};

/// Bytes before the IP packet: `virtio_net_hdr` and the Ethernet header.
const PREFIX: usize = 10 + 14;

/// Largest thing that the kernel hands over at once: an IP packet.
const LARGEST: usize = 1 << 16;

/// Batches that are taken in before what is due is sent.
const RECEIVE_BATCHES: usize = 4;

/// Bytes of packets that wait for the path's thread: a tenth of a second and more at 1 Gbit/s.
const SOCKET_BUFFER: i32 = 32 << 20;

// `virtio_net_hdr` (linux/virtio_net.h).
const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;

/// [`Arrived::tag`] of packets whose checksum is open.
const OPEN_CHECKSUM: u8 = 1;

/// [`Arrived::tag`] of frames about a link.
const LINK_FRAME: u8 = 2;

const ETHERTYPE_LLDP: u16 = 0x88cc;

/// Which flow a packet belongs to.
pub(crate) trait Classify: Send + Sync + 'static {
    /// The flow and way of a packet from the host with this number.
    fn classify(&self, from: usize, header: &Header) -> Option<(FlowId, Direction)>;

    /// The flow with which a frame goes that switches exchange about a link (LLDP), which has no
    /// header of IP; none where there are no switches.
    fn classify_link_frame(&self, _from: usize) -> Option<(FlowId, Direction)> {
        None
    }
}

/// Whether the path may change a packet's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checksums {
    /// Left open.
    Open,
    /// Computed here.
    Computed,
}

/// What a port is made for.
pub(crate) struct CableConfig {
    /// The device here.
    pub device: u32,
    /// The number of the host at the other end.
    pub host: usize,
    /// The host's hardware address.
    pub mac: [u8; 6],
    /// Whose packets are whose.
    pub flows: Arc<dyn Classify>,
    /// What is done with open checksums.
    pub checksums: Checksums,
}

/// The lab's end of a cable.
pub(crate) struct CablePort {
    socket: OwnedFd,
    config: CableConfig,
    buffers: Vec<Box<[u8]>>,
    scratch: Vec<u8>,
    prefixes: Vec<[u8; PREFIX]>,
    /// What the kernel last said of packets without room.
    overflowed: u32,
    stats: PortStats,
}

impl CablePort {
    /// Opens the port for a device of this thread's namespace.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open(config: CableConfig) -> io::Result<Self> {
        let socket = sys::packet_socket(config.device)?;
        let set = |level, name, value| sys::set_option(socket.as_fd(), level, name, value);
        let packet = libc::SOL_PACKET;
        set(packet, libc::PACKET_VNET_HDR, 1)?;
        set(packet, libc::PACKET_IGNORE_OUTGOING, 1)?;
        // What goes out is paced by the path: no further queue.
        set(packet, libc::PACKET_QDISC_BYPASS, 1)?;
        let general = libc::SOL_SOCKET;
        set(general, libc::SO_TIMESTAMPNS, 1)?;
        set(general, libc::SO_RXQ_OVFL, 1)?;
        if set(general, libc::SO_RCVBUFFORCE, SOCKET_BUFFER).is_err() {
            set(general, libc::SO_RCVBUF, SOCKET_BUFFER)?;
        }
        Ok(Self {
            socket,
            config,
            buffers: vec![vec![0; PREFIX + LARGEST].into_boxed_slice(); BATCH],
            scratch: Vec::with_capacity(LARGEST),
            prefixes: Vec::with_capacity(BATCH),
            overflowed: 0,
            stats: PortStats::default(),
        })
    }
}

impl AsFd for CablePort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Port for CablePort {
    fn receive(&mut self, clock: &Clock, arrived: &mut dyn FnMut(Arrived<'_>)) -> io::Result<()> {
        for _ in 0..RECEIVE_BATCHES {
            let mut received = [Received::default(); BATCH];
            let socket = self.socket.as_fd();
            let count = match sys::receive_batch(socket, &mut self.buffers, &mut received) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // A device that goes down says so once.
                Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => return Ok(()),
                Err(error) => return Err(error),
            };
            let reading = clock.reading();
            for (received, buffer) in received.iter().zip(&mut self.buffers).take(count) {
                if let Some(total) = received.overflowed {
                    let more = total.wrapping_sub(self.overflowed);
                    self.stats.overflowed += u64::from(more);
                    self.overflowed = total;
                }
                let at = received
                    .stamp_ns
                    .map_or(reading.now, |ns| reading.at_real(ns));
                let Some(frame) = buffer.get_mut(..received.len) else {
                    continue; // larger than any IP packet: cut off
                };
                let intake = Intake {
                    config: &self.config,
                    scratch: &mut self.scratch,
                    stats: &mut self.stats,
                };
                intake.take(frame, at, arrived);
            }
            if count < BATCH {
                break;
            }
        }
        Ok(())
    }

    fn send(&mut self, packets: &mut [ExternalPacket]) {
        for batch in packets.chunks_mut(BATCH) {
            self.prefixes.clear();
            for packet in batch.iter_mut() {
                if packet.ecn == Ecn::Ce {
                    frame::set_ecn(&mut packet.bytes, Ecn::Ce);
                }
                self.prefixes.push(prefix(&self.config.mac, packet));
            }
            let mut done = 0;
            while done < batch.len() {
                let messages = self.prefixes[done..].iter().zip(&batch[done..]);
                let messages = messages.map(|(prefix, packet)| [&prefix[..], &packet.bytes[..]]);
                match sys::send_batch(self.socket.as_fd(), messages) {
                    Ok(sent) => {
                        self.stats.sent += sent as u64;
                        done += sent.max(1);
                    }
                    // As on a real interface: what does not fit is gone, what follows may go.
                    Err(_) => {
                        self.stats.refused += 1;
                        done += 1;
                    }
                }
            }
        }
    }

    fn stats(&self) -> PortStats {
        self.stats
    }
}

/// Takes in one frame.
struct Intake<'a> {
    config: &'a CableConfig,
    scratch: &'a mut Vec<u8>,
    stats: &'a mut PortStats,
}

impl Intake<'_> {
    fn take(self, frame: &mut [u8], at: Instant, arrived: &mut dyn FnMut(Arrived<'_>)) {
        let Some((prefix, packet)) = frame.split_first_chunk_mut::<PREFIX>() else {
            return;
        };
        if prefix[PREFIX - 2..] == ETHERTYPE_LLDP.to_be_bytes() {
            if let Some((flow, direction)) = self.config.flows.classify_link_frame(self.config.host)
            {
                arrived(Arrived {
                    at,
                    flow,
                    direction,
                    size: packet.len() as u32,
                    ecn: Ecn::NotEct,
                    tag: LINK_FRAME,
                    bytes: packet,
                });
            }
            return;
        }
        let header = Header::parse(packet);
        // What hosts say of themselves unasked (multicast) is no traffic.
        if header.is_none_or(|header| is_multicast(header.destination)) {
            return;
        }
        let owner = header.and_then(|header| {
            Some((
                header,
                self.config.flows.classify(self.config.host, &header)?,
            ))
        });
        let Some((header, (flow, direction))) = owner else {
            self.stats.strange += 1;
            return;
        };
        let open = prefix[0] & NEEDS_CHECKSUM != 0;
        let compute = open && self.config.checksums == Checksums::Computed;
        let whole = Arrived {
            at,
            flow,
            direction,
            size: 0,
            ecn: header.ecn,
            tag: if open && !compute { OPEN_CHECKSUM } else { 0 },
            bytes: &[],
        };
        let stats = self.stats;
        let mut one = |bytes: &[u8]| {
            stats.received += 1;
            let size = bytes.len() as u32;
            arrived(Arrived {
                size,
                bytes,
                ..whole
            });
        };
        let cut = Cut {
            payload: usize::from(u16::from_ne_bytes([prefix[4], prefix[5]])),
        };
        match (prefix[1], compute) {
            (GSO_NONE, false) => one(packet),
            (GSO_NONE, true) => {
                frame::complete_checksum(packet);
                one(packet);
            }
            (_, false) => frame::segments(packet, cut, self.scratch, &mut |part| one(part)),
            (_, true) => frame::segments(packet, cut, self.scratch, &mut |part| {
                frame::complete_checksum(part);
                one(part);
            }),
        }
    }
}

fn is_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_multicast() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_multicast(),
    }
}

/// What goes before a packet: how the receiving kernel is to see it, and where it goes.
fn prefix(mac: &[u8; 6], packet: &ExternalPacket) -> [u8; PREFIX] {
    const ETHERNET: usize = 10;
    let mut prefix = [0; PREFIX];
    if packet.tag == OPEN_CHECKSUM
        && let Some((start, offset)) = Header::parse(&packet.bytes).and_then(|h| h.checksum())
    {
        prefix[0] = NEEDS_CHECKSUM;
        prefix[6..8].copy_from_slice(&((14 + start) as u16).to_ne_bytes());
        prefix[8..10].copy_from_slice(&(offset as u16).to_ne_bytes());
    }
    prefix[ETHERNET..ETHERNET + 6].copy_from_slice(mac);
    prefix[ETHERNET + 6] = 0x02; // locally administered
    let kind: u16 = match packet.bytes.first().map(|byte| byte >> 4) {
        _ if packet.tag == LINK_FRAME => ETHERTYPE_LLDP,
        Some(6) => 0x86dd,
        _ => 0x0800,
    };
    prefix[ETHERNET + 12..].copy_from_slice(&kind.to_be_bytes());
    prefix
}
