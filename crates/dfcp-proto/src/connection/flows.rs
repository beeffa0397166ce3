//! What a connection keeps of each direction.

use super::Control;
use super::datagrams::DatagramQueue;
use super::migration::Moved;
use super::queue::SendQueue;
use crate::block::{Buffers, ChannelId, Credit, MemoryBudget, Parts, SolveBudget, SymbolOut};
use crate::config::TransportConfig;
use crate::crypto::{RecentTags, SecretRng};
use crate::feedback::{FeedbackPolicy, Timed};
use crate::packet::{
    ArrivalClock, BlackHole, LossEstimator, MtuSearch, ReceivedPackets, ReversePath, SentPackets,
};
use crate::rate::{Grouping, PathControl};
use crate::scheduler::{BlockScheduler, Policy};
use crate::time::Instant;
use crate::wire::PATH_DATA_LEN;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Open blocks hold a connection up if they leave less than this part of what may be held. The rest is for what
/// is complete and on its way from one buffer to another.
const HELD_UP: u64 = 4;

/// What flows towards the peer.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub sent: SentPackets<Control>,
    pub path: PathControl,
    pub arrivals: ArrivalClock,
    pub redundancy: Redundancy,
    pub control: VecDeque<Control>,
    /// Channels that may have symbols to send.
    pub queue: SendQueue,
    pub datagrams: DatagramQueue,
    /// The peer's credit and what we used of it.
    pub max_data: u64,
    pub charged: u64,
    /// The most credit that there was at once.
    pub most_credit: u64,
    /// Bytes before the limit of each stream that the peer asks to leave alone.
    pub withheld: u64,
    /// Of blocks that have arrived, no more than the next ones may need.
    pub buffers: Buffers,
    /// Bytes written and not known to have arrived.
    pub buffered: u64,
    /// Those of them of which nothing was sent.
    pub unsent: u64,
    /// Data packets sent.
    pub data_number: u32,
    /// The feedback that the peer was asked for.
    pub feedback: Box<dyn FeedbackPolicy>,
    /// Packets that a channel's receive window holds, if the peer reports what is free of it.
    pub receive_window: Option<u64>,
    /// The peer moved, and has not shown yet that it receives at its new address.
    pub moved: Option<Moved>,
    /// What comes back of feedback.
    pub reverse: ReversePath,
    pub pto_count: u32,
    pub probes_due: u8,
    /// Probes in a row that were answered, with nothing else to send afterwards.
    pub vain_probes: u32,
    /// Since when something is in flight and nothing was acknowledged.
    pub waiting_since: Instant,
    pub last_sent: Instant,
    /// Newest packet number that asked for feedback.
    pub last_eliciting: u64,
    pub next_skip: u64,
    pub mtu_search: MtuSearch,
    pub black_hole: BlackHole,
    /// A symbol that leaves in parts.
    pub split: Option<Split>,
    /// When to tell the peer what was given up.
    pub tell_skips: Option<Instant>,
    /// Packets that a reset may answer: sent since the peer is known to know the connection.
    pub recent: RecentTags,
}

impl Outgoing {
    pub fn new(now: Instant, config: &TransportConfig, rng: &mut SecretRng) -> Self {
        let profile = &config.profile;
        Self {
            sent: SentPackets::new(profile.loss_rules),
            path: PathControl::new(
                now,
                profile.rate.make(),
                Grouping::Coalesced(config.coalescing),
            ),
            arrivals: ArrivalClock::default(),
            redundancy: Redundancy {
                scheduler: profile.scheduler.make(),
                loss: LossEstimator::new(profile.loss_rules.estimate),
                held_up: None,
            },
            control: VecDeque::new(),
            queue: SendQueue::new(),
            datagrams: DatagramQueue::default(),
            max_data: 0,
            charged: 0,
            most_credit: 0,
            withheld: 0,
            buffers: Buffers::default(),
            buffered: 0,
            unsent: 0,
            data_number: 0,
            feedback: profile.feedback.make(),
            receive_window: None,
            moved: None,
            reverse: ReversePath::default(),
            pto_count: 0,
            probes_due: 0,
            vain_probes: 0,
            waiting_since: now,
            last_sent: now,
            last_eliciting: 0,
            next_skip: 64 + rng.below(1024),
            mtu_search: MtuSearch::new(0),
            black_hole: BlackHole::default(),
            split: None,
            tell_skips: None,
            recent: RecentTags::default(),
        }
    }

    /// So many of the bytes written have arrived, or are given up.
    pub fn let_go(&mut self, bytes: u64) {
        self.buffered = self.buffered.saturating_sub(bytes);
        self.buffers.trim(self.buffered);
    }

    /// Bytes of blocks that were begun and are not known to have arrived.
    fn open(&self) -> u64 {
        self.buffered.saturating_sub(self.unsent)
    }

    /// The peer grants so much in all.
    pub fn raise_max_data(&mut self, limit: u64) {
        self.max_data = limit;
        let done = self.charged.saturating_sub(self.open());
        self.most_credit = self.most_credit.max(limit.saturating_sub(done));
    }

    /// Whether open blocks have most of what this side or the peer may hold: nothing can follow them then. What
    /// the peer's application has not taken yet is none of them.
    pub fn is_held_up(&self, send_buffer: u64) -> bool {
        let room = self.most_credit.min(send_buffer);
        room > 0 && self.open() >= room - room / HELD_UP
    }

    /// Whether channels may have symbols to send.
    pub fn has_symbols_ready(&self) -> bool {
        self.queue.is_ready() || self.split.is_some()
    }
}

/// What blocks get, and by what it is judged.
#[derive(Debug)]
pub(super) struct Redundancy {
    pub scheduler: Box<dyn BlockScheduler>,
    pub loss: LossEstimator,
    /// When open blocks last had so much of what may be held that nothing could follow them.
    pub held_up: Option<Instant>,
}

impl Redundancy {
    pub fn policy(&self) -> Policy<'_> {
        Policy {
            scheduler: &*self.scheduler,
            loss: self.loss.estimate(),
            awaits_all: self.held_up.is_some(),
        }
    }
}

/// A symbol too long for a datagram, of which a part left already.
#[derive(Debug)]
pub(super) struct Split {
    pub channel: ChannelId,
    pub symbol: SymbolOut,
    /// Empty with virtual payload.
    pub bytes: Vec<u8>,
    /// What left.
    pub sent: usize,
    /// Bytes of each part; the last may be shorter.
    pub part: usize,
}

impl Split {
    /// Bytes of the next part.
    pub fn next(&self) -> usize {
        self.part.min(self.symbol.symbol_len - self.sent)
    }
}

/// What comes from the peer.
#[derive(Debug)]
pub(super) struct Incoming {
    pub received: ReceivedPackets,
    pub policy: Box<dyn FeedbackPolicy>,
    pub credit: Credit,
    pub datagrams: DatagramQueue,
    /// For blocks that turn out not to be solvable.
    pub solves: SolveBudget,
    pub largest_at: Instant,
    pub ce: u64,
    pub last_heard: Instant,
    /// When data came last, unless it was asked since whether more can come.
    pub last_data: Option<Instant>,
    /// Channels to report on, and for how many more reports.
    pub touched: BTreeMap<ChannelId, u8>,
    /// The first of them for which the last report had no room.
    pub report_from: ChannelId,
    /// Channels that may have blocks to be solved.
    pub solvable: BTreeSet<ChannelId>,
    /// Newest packet of the peer whose feedback was used, and newest that limited ours.
    pub newest_feedback: u64,
    pub newest_limit: u64,
    pub newest_first_window: Option<u64>,
    pub peer_ce: u64,
    /// Symbols of which parts are missing.
    pub parts: Parts,
    /// The newest challenge, and the packet that it came in.
    pub challenge: Option<(u64, [u8; PATH_DATA_LEN])>,
}

impl Incoming {
    pub fn new(now: Instant, config: &TransportConfig, budget: Arc<MemoryBudget>) -> Self {
        Self {
            received: ReceivedPackets::default(),
            policy: Box::new(Timed::default()),
            credit: Credit::new(config.receive_budget, budget),
            datagrams: DatagramQueue::default(),
            solves: SolveBudget::new(now),
            largest_at: now,
            ce: 0,
            last_heard: now,
            last_data: None,
            touched: BTreeMap::new(),
            report_from: ChannelId(0),
            solvable: BTreeSet::new(),
            newest_feedback: 0,
            newest_limit: 0,
            newest_first_window: None,
            peer_ce: 0,
            parts: Parts::default(),
            challenge: None,
        }
    }
}
