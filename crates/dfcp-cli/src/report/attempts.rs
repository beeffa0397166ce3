//! The attempts of a transfer that is tried again, summed up.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use dfcp_transfer::{Diary, Entry, Meter, Outcome};

use super::Report;
use crate::progress::Before;

/// Attempts at a transfer that ended before all was there.
#[derive(Clone, Debug, Default)]
pub struct Attempts {
    /// When the first one began.
    pub(super) began: Option<Instant>,
    /// How long people were asked.
    pub(super) asked: Duration,
    /// Sums.
    pub(super) figures: Box<Report>,
    /// What these attempts brought, by its place at the receiver, with its size.
    pub(super) arrived: BTreeMap<String, u64>,
    /// How far the last one was.
    reached: (u64, u64),
}

impl Attempts {
    /// Whether there were any.
    pub fn is_some(&self) -> bool {
        self.began.is_some()
    }

    /// Notes an attempt since `start`, what it brought, and how long a person was asked meanwhile.
    pub fn note(&mut self, report: &Report, start: Instant, asked: Duration) {
        self.began.get_or_insert(start);
        self.asked += asked;
        let mut sum = report.clone();
        // Its time is a part of the whole.
        sum.add_figures(&self.figures);
        *self.figures = sum;
    }

    /// Notes those entries of an offer that came to their places.
    pub fn note_arrived(
        &mut self,
        entries: &[Entry],
        places: impl Iterator<Item = u64>,
        diary: &Diary,
    ) {
        let arrived = places.filter_map(|place| {
            let entry = entries.get(usize::try_from(place).ok()?)?;
            Some((entry.path.clone(), diary.size(place).unwrap_or(entry.size)))
        });
        self.arrived.extend(arrived);
    }

    /// How far they were, for who shows how the next one goes on.
    pub fn before(&self) -> Before {
        let figures = &self.figures;
        Before {
            bytes: self.reached.0,
            total: self.reached.1,
            wire_bytes: figures.wire_bytes.max(figures.wire_bytes_received),
        }
    }

    /// Notes how far the attempt is that `meter` watches.
    pub fn note_reached(&mut self, meter: &Meter) {
        self.reached = (self.before()).and(meter.progress().bytes(), meter.total());
    }

    /// What was there because one of these attempts had brought it has come in this transfer.
    pub fn own(&self, entries: &[Entry], outcomes: &mut BTreeMap<u64, Outcome>) {
        for (index, outcome) in outcomes {
            let entry = usize::try_from(*index).ok().and_then(|i| entries.get(i));
            if *outcome == Outcome::There
                && entry.is_some_and(|e| self.arrived.contains_key(&e.path))
            {
                *outcome = Outcome::Done;
            }
        }
    }
}
