//! All packets of a run in one pcap file (draft-ietf-opsawg-pcap), each as it leaves its sender:
//! what captures at all hosts would show together. A packet that is lost on the way is there, and
//! none is there twice.
//!
//! Invariants: raw IPv4 packets, nanosecond timestamps since the start of the run, little-endian
//! on every machine. A record's original length is the packet's size in the simulation; its
//! captured length is what exists of it, headers and the bytes that are simulated.

use std::io::Write;
use std::path::Path;

use dfcp_command::Failure;
use dfcp_sim::engine::{End, PacketEvent};
use dfcp_sim::scenario::Scenario;

use super::Log;
use super::wire::Wire;

const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const VERSION: (u16, u16) = (2, 4);
/// No packet is cut.
const SNAPLEN: u32 = 262_144;
/// Packets begin with their IP header.
const LINKTYPE_RAW: u32 = 101;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A pcap file.
#[derive(Debug)]
pub struct Pcap {
    log: Log,
    /// By flow.
    wires: Vec<Wire>,
    /// The packet being written.
    packet: Vec<u8>,
}

impl Pcap {
    pub fn create(path: &Path, scenario: &Scenario) -> Result<Self, Failure> {
        let mut log = Log::create(path)?;
        let mut header = Vec::with_capacity(24);
        header.extend(MAGIC_NANOSECONDS.to_le_bytes());
        header.extend(VERSION.0.to_le_bytes());
        header.extend(VERSION.1.to_le_bytes());
        header.extend([0; 8]); // time zone and accuracy, unused
        header.extend(SNAPLEN.to_le_bytes());
        header.extend(LINKTYPE_RAW.to_le_bytes());
        log.write(|file| file.write_all(&header));
        let flows = scenario.flows.iter().zip(0..);
        Ok(Self {
            log,
            wires: flows.map(|(flow, id)| Wire::new(flow, id)).collect(),
            packet: Vec::new(),
        })
    }

    pub fn record(&mut self, event: &PacketEvent<'_>) {
        let wire = self.wires.get(event.packet.flow.0 as usize);
        let Some(wire) = wire.filter(|_| event.end == End::Sent) else {
            return;
        };
        self.packet.clear();
        wire.emit(event, &mut self.packet);
        let at = event.at.as_nanos();
        let [seconds, nanos] = [at / NANOS_PER_SECOND, at % NANOS_PER_SECOND].map(|n| n as u32);
        let captured = self.packet.len() as u32;
        let mut header = [0; 16];
        let fields = [seconds, nanos, captured, event.packet.size];
        for (place, field) in header.chunks_exact_mut(4).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        self.log.write(|file| {
            file.write_all(&header)?;
            file.write_all(&self.packet)
        });
    }

    pub fn finish(self) -> Result<(), Failure> {
        self.log.finish()
    }
}
