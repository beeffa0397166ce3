//! The sink: a progressive decoder of every open block, whatever path its symbols took.

use super::inbound::Inbound;
use super::{Blocks, CodedConfig, CodedPacket, Content};
use crate::engine::{Agent, Arrival, Body, Buffers, Outgoing, Progress};
use dfcp_fec::{RlncDecoder, structural};
use dfcp_proto::Instant;
use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct Sink {
    blocks: Blocks,
    inbound: Inbound<RlncDecoder>,
    reports: VecDeque<CodedPacket>,
    packet: u32,
    progress: Progress,
}

impl Sink {
    pub fn new(config: &CodedConfig, blocks: Blocks) -> Self {
        let decoder = |spec, _| structural::rlnc_decoder(spec);
        Self {
            blocks,
            inbound: Inbound::new(config, blocks, 0, decoder),
            reports: VecDeque::new(),
            packet: config.packet,
            progress: Progress::default(),
        }
    }
}

impl Agent for Sink {
    fn receive(&mut self, now: Instant, packet: Arrival, _: &mut Buffers) {
        let Body::Coded(packet) = &packet.body else {
            return;
        };
        let Content::Data(data) = &packet.content else {
            return;
        };
        if self.inbound.on_data(data) {
            self.progress.delivered += self.blocks.bytes(data.block);
        }
        self.inbound.release(self.inbound.current());
        let answers = Some((data.number, now));
        let report = self.inbound.report(packet.path, answers);
        self.reports.push_back(report);
        let done = Some(self.inbound.current()) == self.blocks.count();
        if done && self.progress.finished.is_none() {
            self.progress.finished = Some(now);
        }
    }

    fn timeout(&mut self, _: Instant) {}

    fn poll_transmit(&mut self, _: Instant, _: &mut Buffers) -> Option<Outgoing> {
        let report = self.reports.pop_front()?;
        let path = report.path;
        Some(report.outgoing(self.packet, path))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn progress(&self) -> Progress {
        self.progress
    }
}
