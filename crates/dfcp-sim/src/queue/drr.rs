//! Deficit round robin: Shreedhar and Varghese, "Efficient Fair Queuing Using Deficit
//! Round-Robin", IEEE/ACM Transactions on Networking 4(3), 1996.
//!
//! Invariants: a class with packets is on the active list; a class without has no deficit, so
//! nobody saves up while idle; a deficit is always less than a packet plus a quantum.

use std::collections::VecDeque;

use super::backlog::Backlog;
use super::config::{DropFrom, DrrConfig, Limit};
use super::shares::{Classes, Shares};
use crate::packet::{DropCause, Packet, Queued};

#[derive(Clone, Debug)]
pub(super) struct Drr<P> {
    classes: Classes,
    quantum: u32,
    robin: RoundRobin<P>,
}

impl<P: Packet> Drr<P> {
    pub(super) fn new(config: DrrConfig, shares: Shares) -> Self {
        Self {
            classes: Classes::new(shares),
            quantum: config.quantum,
            robin: RoundRobin::new(config.drop_from),
        }
    }

    pub(super) fn enqueue(
        &mut self,
        item: Queued<P>,
        limit: Limit,
        dropped: &mut impl FnMut(P, DropCause),
    ) {
        let class = self.classes.of(item.packet.flow());
        self.robin.enqueue(class, item, limit, dropped);
    }

    pub(super) fn dequeue(&mut self) -> Option<Queued<P>> {
        let quantum = u64::from(self.quantum);
        let classes = &self.classes;
        self.robin
            .dequeue(|class| quantum * u64::from(classes.weight(class)))
    }

    pub(super) fn backlog(&self) -> &Backlog<P> {
        self.robin.backlog()
    }
}

/// Classes that take turns, whatever makes a class.
#[derive(Clone, Debug)]
pub(super) struct RoundRobin<P> {
    backlog: Backlog<P>,
    credits: Vec<Credit>,
    /// Classes in the order of their turns.
    active: VecDeque<u32>,
    /// Whether the first active class got its quantum for this turn.
    turn: Turn,
    drop_from: DropFrom,
}

#[derive(Clone, Copy, Debug, Default)]
struct Credit {
    deficit: u64,
    active: bool,
}

#[derive(Clone, Copy, Debug)]
enum Turn {
    Due,
    Begun,
}

impl<P> RoundRobin<P> {
    pub(super) fn new(drop_from: DropFrom) -> Self {
        Self {
            backlog: Backlog::new(),
            credits: Vec::new(),
            active: VecDeque::new(),
            turn: Turn::Due,
            drop_from,
        }
    }

    pub(super) fn enqueue(
        &mut self,
        class: usize,
        item: Queued<P>,
        limit: Limit,
        dropped: &mut impl FnMut(P, DropCause),
    ) {
        if !limit.has_room(0, 0, item.size) {
            return dropped(item.packet, DropCause::Full);
        }
        if self.credits.len() <= class {
            self.credits.resize(class + 1, Credit::default());
        }
        self.backlog.push(class, item, ());
        let credit = &mut self.credits[class];
        if !credit.active {
            credit.active = true;
            self.active.push_back(class as u32);
        }
        while let Some((victim, _)) = self.backlog.shed(limit, self.drop_from, dropped) {
            // It leaves the active list when its turn comes.
            if self.backlog.is_empty(victim) {
                self.credits[victim].deficit = 0;
            }
        }
    }

    /// The next packet; `quantum` says what a class is due in a round.
    pub(super) fn dequeue(&mut self, quantum: impl Fn(usize) -> u64) -> Option<Queued<P>> {
        loop {
            let class = *self.active.front()? as usize;
            let credit = &mut self.credits[class];
            let Some((head, ())) = self.backlog.front(class) else {
                credit.active = false;
                self.next_turn();
                continue;
            };
            if let Turn::Due = self.turn {
                credit.deficit += quantum(class).max(1);
                self.turn = Turn::Begun;
            }
            if credit.deficit < u64::from(head.size) {
                self.active.rotate_left(1);
                self.turn = Turn::Due;
                continue;
            }
            credit.deficit -= u64::from(head.size);
            let item = self.backlog.pop(class);
            if self.backlog.is_empty(class) {
                *credit = Credit::default();
                self.next_turn();
            }
            return item;
        }
    }

    /// The first class leaves the active list.
    fn next_turn(&mut self) {
        self.active.pop_front();
        self.turn = Turn::Due;
    }

    pub(super) fn backlog(&self) -> &Backlog<P> {
        &self.backlog
    }
}
