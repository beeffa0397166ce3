//! The source: an encoder of every block, and the sending half.

use super::outbound::{Outbound, Slot};
use super::{Blocks, CodedConfig, CodedPacket, Content, Data, Symbol};
use crate::engine::{Agent, Arrival, Body, Buffers, FlowConfig, Outgoing, Pace, Progress};
use dfcp_proto::Instant;

#[derive(Debug)]
pub(super) struct Source {
    blocks: Blocks,
    out: Outbound,
    packet: u32,
    pace: Pace,
    start: Instant,
    stop: Option<Instant>,
    started: bool,
    stopped: bool,
    /// When it asks for an answer if nothing else is to be sent.
    probe_at: Option<Instant>,
}

impl Source {
    pub fn new(config: &CodedConfig, blocks: Blocks, flow: &FlowConfig) -> Self {
        Self {
            blocks,
            out: Outbound::new(config, 1 + config.others.len(), flow.start),
            packet: config.packet,
            pace: config.pace(),
            start: flow.start,
            stop: flow.stop,
            started: false,
            stopped: false,
            probe_at: None,
        }
    }

    fn is_finished(&self) -> bool {
        let count = self.blocks.count();
        self.stopped || count.is_some_and(|count| self.out.first() >= count)
    }

    fn data(&self, slot: Slot) -> Outgoing {
        let symbols = self.blocks.symbols(slot.block) as u16;
        let packet = CodedPacket {
            path: slot.path,
            content: Content::Data(Data {
                number: slot.number,
                block: slot.block,
                symbols,
                symbol: Symbol::Esi(slot.index),
            }),
        };
        packet.outgoing(self.packet, slot.path)
    }
}

impl Agent for Source {
    fn receive(&mut self, now: Instant, packet: Arrival, _: &mut Buffers) {
        if let Body::Coded(packet) = &packet.body
            && let Content::Report(report) = &packet.content
        {
            self.out.on_report(now, packet.path, report);
            self.probe_at = None;
        }
    }

    fn timeout(&mut self, now: Instant) {
        self.started |= self.start <= now;
        self.stopped |= self.stop.is_some_and(|stop| stop <= now);
        self.out.on_timeout(now);
    }

    fn poll_transmit(&mut self, now: Instant, _: &mut Buffers) -> Option<Outgoing> {
        if !self.started || self.is_finished() {
            self.probe_at = None;
            return None;
        }
        let blocks = self.blocks;
        if let Some(slot) = self.out.poll(now, |block| blocks.symbols(block)) {
            self.probe_at = None;
            return Some(self.data(slot));
        }
        // All that the next node takes is there, and it should say so when it takes more: if that
        // word is lost, somebody has to ask.
        if self.out.is_quiet() {
            let due = self.probe_at;
            if due.is_some_and(|due| due <= now) {
                self.probe_at = None;
                let slot = self.out.probe(now)?;
                return Some(self.data(slot));
            }
            let wait = self.out.srtt().unwrap_or_default() * 2;
            self.probe_at = due.or(Some(now + wait.max(super::path::GIVE_UP.1)));
        }
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if !self.started {
            return Some(self.start);
        }
        if self.is_finished() {
            return None;
        }
        let stop = self.stop.into_iter();
        let own = self.out.wakes_at().into_iter().chain(self.probe_at);
        own.chain(stop).min()
    }

    fn progress(&self) -> Progress {
        Progress {
            repairs: self.out.repairs(),
            srtt: self.out.srtt(),
            window: Some(self.out.window()),
            ..Progress::default()
        }
    }

    fn pace(&self) -> Pace {
        self.pace
    }
}
