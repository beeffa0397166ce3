//! A relay that recodes: the receiving half of one hop, the sending half of the next.
//!
//! It acknowledges what it has, as the sink would, and keeps a block until the next node has it.

use super::inbound::Inbound;
use super::outbound::{Outbound, Slot};
use super::{Blocks, CodedConfig, CodedPacket, Content, Data, Symbol};
use crate::engine::{Agent, Arrival, Body, Buffers, Outgoing, Pace, Progress};
use dfcp_fec::{Recoder, structural};
use dfcp_proto::Instant;
use std::collections::VecDeque;

/// Its routes: data to the next node, reports to the one before.
const NEXT: u8 = 0;
const PREVIOUS: u8 = 1;

#[derive(Debug)]
pub(super) struct Relay {
    inbound: Inbound<Recoder>,
    out: Outbound,
    reports: VecDeque<CodedPacket>,
    packet: u32,
    pace: Pace,
}

impl Relay {
    pub fn new(config: &CodedConfig, blocks: Blocks, seed: u64) -> Self {
        Self {
            inbound: Inbound::new(config, blocks, seed, structural::recoder),
            out: Outbound::new(config, 1, Instant::ZERO),
            reports: VecDeque::new(),
            packet: config.packet,
            pace: config.pace(),
        }
    }

    fn data(&mut self, slot: Slot) -> Option<Outgoing> {
        let (recoder, symbols) = self.inbound.span(slot.block)?;
        let mut vector = vec![0; symbols as usize].into_boxed_slice();
        recoder.recode(&mut vector, &mut []).ok()?;
        let packet = CodedPacket {
            path: slot.path,
            content: Content::Data(Data {
                number: slot.number,
                block: slot.block,
                symbols: symbols as u16,
                symbol: Symbol::Combination(vector),
            }),
        };
        Some(packet.outgoing(self.packet, NEXT))
    }
}

impl Agent for Relay {
    fn receive(&mut self, now: Instant, packet: Arrival, _: &mut Buffers) {
        let Body::Coded(packet) = &packet.body else {
            return;
        };
        match &packet.content {
            Content::Data(data) => {
                self.inbound.on_data(data);
                let answers = Some((data.number, now));
                let report = self.inbound.report(packet.path, answers);
                self.reports.push_back(report);
            }
            Content::Report(report) => {
                self.out.on_report(now, packet.path, report);
                if self.inbound.release(self.out.first()) {
                    self.reports.push_back(self.inbound.report(0, None));
                }
            }
        }
    }

    fn timeout(&mut self, now: Instant) {
        self.out.on_timeout(now);
    }

    fn poll_transmit(&mut self, now: Instant, _: &mut Buffers) -> Option<Outgoing> {
        if let Some(report) = self.reports.pop_front() {
            return Some(report.outgoing(self.packet, PREVIOUS));
        }
        let inbound = &self.inbound;
        let slot = self.out.poll(now, |block| inbound.degrees(block))?;
        self.data(slot)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.out.wakes_at()
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }

    fn pace(&self) -> Pace {
        self.pace
    }
}
