//! The receiver's side of the code: packets go on as they arrive, and those that were lost as soon as
//! repair symbols determine them.
//!
//! Kept are the last [`SPAN`] source symbols and at most [`EQUATIONS`] repair symbols with what is known
//! taken out, in reduced row echelon form: a row's pivot is the oldest symbol that it lacks, and no other
//! row has that one. So what becomes too old takes its row along and no other, and whatever a peer
//! sends, a datagram costs one pass over the symbols it combines and one over the rows.

use std::fmt;

use dfcp_fec::gf256::{Kernel, Rows, inv};

use super::{
    Kind, REPAIR, REPAIR_HEAD, ROW, ROWS, SOURCE_HEAD, SYMBOL_HEAD, WINDOW, add, coefficients,
};

/// Source symbols that are remembered: a window, and as many that may overtake it.
const SPAN: usize = 2 * WINDOW;
/// Repair symbols that wait for others: half of a window lost, which no rate of repairs makes good.
const EQUATIONS: usize = WINDOW / 2;
/// Bytes of an equation: a coefficient for each symbol of the span, the combination.
const EQUATION: usize = SPAN + ROW;

/// What came of the datagrams of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Source symbols that arrived.
    pub arrived: u64,
    /// Source symbols that repair symbols gave back.
    pub recovered: u64,
    /// Source symbols that neither arrived nor were recovered while they were remembered.
    pub lost: u64,
    /// Repair symbols that arrived.
    pub repairs: u64,
    /// Datagrams that are none of these.
    pub malformed: u64,
}

impl std::ops::Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            arrived: self.arrived.saturating_add(other.arrived),
            recovered: self.recovered.saturating_add(other.recovered),
            lost: self.lost.saturating_add(other.lost),
            repairs: self.repairs.saturating_add(other.repairs),
            malformed: self.malformed.saturating_add(other.malformed),
        }
    }
}

/// A repair symbol without what is known.
#[derive(Clone, Copy, Debug)]
struct Equation {
    /// Its row.
    slot: u16,
    /// The oldest symbol in it.
    pivot: u32,
}

/// Turns datagrams into packets.
pub struct Decoder {
    /// The symbols that are known, each in the row of its number modulo [`SPAN`].
    rows: Vec<u8>,
    known: [bool; SPAN],
    /// The number after the newest that was heard of, and how many before it are remembered.
    end: u32,
    span: usize,
    equations: Vec<u8>,
    active: Vec<Equation>,
    free: Vec<u16>,
    /// For sums.
    sum: Box<[u8; ROW]>,
    counts: Counts,
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder")
            .field("end", &self.end)
            .field("equations", &self.active.len())
            .finish_non_exhaustive()
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            rows: vec![0; SPAN * ROW],
            known: [false; SPAN],
            end: 0,
            span: 0,
            equations: Vec::new(),
            active: Vec::new(),
            free: (0..EQUATIONS as u16).rev().collect(),
            sum: Box::new([0; ROW]),
            counts: Counts::default(),
        }
    }
}

fn slot(number: u32) -> usize {
    number as usize % SPAN
}

impl Decoder {
    /// What came of datagrams so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// One that has seen all symbols before `number`.
    #[cfg(test)]
    pub fn beginning(number: u32) -> Self {
        Self {
            end: number,
            ..Self::default()
        }
    }

    /// Equations that wait.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.active.len()
    }

    /// Takes a datagram, and gives the packets that are whole now to `deliver`.
    pub fn handle(&mut self, datagram: &[u8], deliver: &mut impl FnMut(&[u8])) {
        let taken = match datagram.first() {
            Some(&REPAIR) => self.on_repair(datagram, deliver),
            Some(&kind) => Kind::of(kind).and_then(|kind| self.on_source(kind, datagram, deliver)),
            None => None,
        };
        if taken.is_none() {
            self.counts.malformed += 1;
        }
    }

    fn on_source(
        &mut self,
        kind: Kind,
        datagram: &[u8],
        deliver: &mut impl FnMut(&[u8]),
    ) -> Option<()> {
        let (head, bytes) = datagram.split_at_checked(SOURCE_HEAD)?;
        if bytes.is_empty() || bytes.len() > ROW - SYMBOL_HEAD {
            return None;
        }
        let number = u32::from_be_bytes(head[1..].try_into().ok()?);
        self.reach(number);
        self.counts.arrived += 1;
        if !self.remembers(number) {
            // A packet that was overtaken by many is a packet still.
            if kind == Kind::Whole {
                deliver(bytes);
            }
            return Some(());
        }
        if self.known[slot(number)] {
            return Some(());
        }
        let len = SYMBOL_HEAD + bytes.len();
        let row = &mut self.rows[slot(number) * ROW..][..ROW];
        row[..2].copy_from_slice(&(bytes.len() as u16).to_be_bytes());
        row[2] = kind as u8;
        row[SYMBOL_HEAD..len].copy_from_slice(bytes);
        row[len..].fill(0);
        self.known[slot(number)] = true;
        self.hand_on(number, deliver);
        self.substitute(number, deliver);
        Some(())
    }

    fn on_repair(&mut self, datagram: &[u8], deliver: &mut impl FnMut(&[u8])) -> Option<()> {
        let (head, symbol) = datagram.split_at_checked(REPAIR_HEAD)?;
        if symbol.len() <= SYMBOL_HEAD || symbol.len() > ROW {
            return None;
        }
        let first = u32::from_be_bytes(head[1..5].try_into().ok()?);
        let n = usize::from(head[5]) + 1;
        let key = u16::from_be_bytes([head[6], head[7]]);
        self.counts.repairs += 1;
        self.reach(first.wrapping_add(n as u32 - 1));
        let numbers = (0..n as u32).map(|i| first.wrapping_add(i));
        if numbers.clone().all(|number| self.knows(number)) {
            return Some(());
        }
        // One of them may be out of reach for ever: the others do not follow without it.
        if numbers.clone().any(|number| !self.remembers(number)) {
            return Some(());
        }
        let mut factors = [0; WINDOW];
        coefficients(first, key, &mut factors[..n]);
        let at = self.new_equation();
        let (mut index, mut known, mut count) = ([0; WINDOW], [0; WINDOW], 0);
        let equation = &mut self.equations[usize::from(at) * EQUATION..][..EQUATION];
        equation.fill(0);
        for (number, &factor) in numbers.zip(&factors[..n]) {
            if self.known[slot(number)] {
                (index[count], known[count]) = (ROWS[slot(number)], factor);
                count += 1;
            } else {
                equation[slot(number)] = factor;
            }
        }
        let sum = &mut self.sum[..symbol.len()];
        let rows = Rows::new(&self.rows, ROW, &index[..count]);
        Kernel::best().combine(sum, &known[..count], rows);
        let combination = &mut equation[SPAN..][..symbol.len()];
        combination.copy_from_slice(symbol);
        add(combination, sum);
        self.insert(at);
        self.settle(deliver);
        Some(())
    }

    fn remembers(&self, number: u32) -> bool {
        let age = self.end.wrapping_sub(number);
        age > 0 && age as usize <= self.span
    }

    fn knows(&self, number: u32) -> bool {
        self.remembers(number) && self.known[slot(number)]
    }

    /// Moves the span on so that it has `number`, if that is newer than all before; numbers are compared
    /// as RFC 1982 does.
    fn reach(&mut self, number: u32) {
        let ahead = number.wrapping_sub(self.end);
        if ahead > u32::MAX / 2 {
            return;
        }
        if ahead as usize >= SPAN {
            // Nothing before it matters any more.
            self.lose(self.span);
            // Two billion for each datagram, if a peer says so: that has no end in a number.
            self.counts.lost = self.counts.lost.saturating_add(ahead.into());
            self.known = [false; SPAN];
            self.span = 1;
        } else {
            let new = ahead as usize + 1;
            self.lose((self.span + new).saturating_sub(SPAN));
            for i in 0..new as u32 {
                self.known[slot(self.end.wrapping_add(i))] = false;
            }
            self.span = (self.span + new).min(SPAN);
        }
        self.end = number.wrapping_add(1);
    }

    /// Forgets the oldest `count` symbols of the span.
    fn lose(&mut self, count: usize) {
        let oldest = self.end.wrapping_sub(self.span as u32);
        for i in 0..count as u32 {
            let number = oldest.wrapping_add(i);
            if self.known[slot(number)] {
                continue;
            }
            self.counts.lost = self.counts.lost.saturating_add(1);
            if let Some(i) = self.active.iter().position(|e| e.pivot == number) {
                let equation = self.active.swap_remove(i);
                self.free.push(equation.slot);
            }
        }
        self.span -= count;
    }

    /// A row for an equation; the one whose pivot is the oldest gives way if there is none.
    fn new_equation(&mut self) -> u16 {
        self.equations.resize(EQUATIONS * EQUATION, 0);
        if let Some(slot) = self.free.pop() {
            return slot;
        }
        let age = |i: &usize| self.end.wrapping_sub(self.active[*i].pivot);
        let oldest = (0..self.active.len()).max_by_key(age);
        // Every row is either free or active.
        oldest.map_or(0, |i| self.active.swap_remove(i).slot)
    }

    fn factor(&self, equation: u16, number: u32) -> u8 {
        self.equations[usize::from(equation) * EQUATION + slot(number)]
    }

    /// Reduces the equation in row `at` by the others and these by it; frees the row if it says nothing
    /// new.
    fn insert(&mut self, at: u16) {
        let start = usize::from(at) * EQUATION;
        let (mut index, mut factors, mut count) = ([0; EQUATIONS], [0; EQUATIONS], 0);
        for equation in &self.active {
            let factor = self.factor(at, equation.pivot);
            if factor != 0 {
                (index[count], factors[count]) = (equation.slot, factor);
                count += 1;
            }
        }
        let kernel = Kernel::best();
        let all = &mut self.equations;
        kernel.accumulate_within(all, EQUATION, &[start], &factors[..count], &index[..count]);
        let oldest = self.end.wrapping_sub(self.span as u32);
        let pivot = (0..self.span as u32)
            .map(|i| oldest.wrapping_add(i))
            .find(|&number| self.factor(at, number) != 0);
        let Some(pivot) = pivot else {
            self.free.push(at);
            return;
        };
        let scale = inv(self.factor(at, pivot));
        let row = self.equations[start..][..EQUATION].to_vec();
        let target = &mut self.equations[start..][..EQUATION];
        kernel.combine(target, &[scale], Rows::new(&row, EQUATION, &ROWS[..1]));
        let (mut targets, mut factors, mut count) = ([0; EQUATIONS], [0; EQUATIONS], 0);
        for equation in &self.active {
            let factor = self.factor(equation.slot, pivot);
            if factor != 0 {
                targets[count] = usize::from(equation.slot) * EQUATION;
                factors[count] = factor;
                count += 1;
            }
        }
        let (targets, factors) = (&targets[..count], &factors[..count]);
        kernel.accumulate_within(&mut self.equations, EQUATION, targets, factors, &[at]);
        self.active.push(Equation { slot: at, pivot });
    }

    /// Takes a symbol that became known out of the equations.
    fn substitute(&mut self, number: u32, deliver: &mut impl FnMut(&[u8])) {
        if self.active.is_empty() {
            return;
        }
        let mut without_pivot = None;
        let mut changed = false;
        for i in (0..self.active.len()).rev() {
            let Equation { slot: at, pivot } = self.active[i];
            let factor = self.factor(at, number);
            if factor == 0 {
                continue;
            }
            let rows = Rows::new(&self.rows[slot(number) * ROW..], ROW, &ROWS[..1]);
            Kernel::best().combine(&mut self.sum[..], &[factor], rows);
            let equation = &mut self.equations[usize::from(at) * EQUATION..][..EQUATION];
            equation[slot(number)] = 0;
            add(&mut equation[SPAN..], &self.sum[..]);
            changed = true;
            if pivot == number {
                self.active.swap_remove(i);
                without_pivot = Some(at);
            }
        }
        if let Some(at) = without_pivot {
            self.insert(at);
        }
        if changed {
            self.settle(deliver);
        }
    }

    /// Takes the symbols that equations determine: those of which nothing but the pivot is left.
    fn settle(&mut self, deliver: &mut impl FnMut(&[u8])) {
        for i in (0..self.active.len()).rev() {
            let Equation { slot: at, pivot } = self.active[i];
            let equation = &self.equations[usize::from(at) * EQUATION..][..EQUATION];
            let left = equation[..SPAN].iter().filter(|&&factor| factor != 0);
            if left.count() != 1 {
                continue;
            }
            self.rows[slot(pivot) * ROW..][..ROW].copy_from_slice(&equation[SPAN..]);
            self.active.swap_remove(i);
            self.free.push(at);
            self.known[slot(pivot)] = true;
            self.counts.recovered += 1;
            self.hand_on(pivot, deliver);
        }
    }

    /// The kind and the bytes of a symbol that is known; `None` if it cannot be one.
    fn symbol(&self, number: u32) -> Option<(Kind, &[u8])> {
        let row = &self.rows[slot(number) * ROW..][..ROW];
        let len = usize::from(u16::from_be_bytes([row[0], row[1]]));
        let bytes = row[SYMBOL_HEAD..].get(..len)?;
        Some((Kind::of(row[2])?, bytes))
    }

    /// Hands on the packet that a symbol is, or completes.
    fn hand_on(&mut self, number: u32, deliver: &mut impl FnMut(&[u8])) {
        let Some((kind, bytes)) = self.symbol(number) else {
            // Only who made a wrong combination gets here.
            self.counts.malformed += 1;
            return;
        };
        let (first, last) = match kind {
            Kind::Whole => return deliver(bytes),
            Kind::Head => (number, number.wrapping_add(1)),
            Kind::Tail => (number.wrapping_sub(1), number),
        };
        if !self.knows(first) || !self.knows(last) {
            return;
        }
        if let (Some((Kind::Head, head)), Some((Kind::Tail, tail))) =
            (self.symbol(first), self.symbol(last))
        {
            deliver(&[head, tail].concat());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A datagram of a peer says that two billion packets were lost before it, and a session may have billions of such.
    #[test]
    fn what_a_peer_says_is_lost_is_counted_to_the_end_and_no_further() {
        let mut decoder = Decoder::default();
        decoder.counts.lost = u64::MAX - 1;
        for number in [1_u32 << 30, 1 << 31, 3 << 30] {
            let datagram = [&[0][..], &number.to_be_bytes(), b"packet"].concat();
            decoder.handle(&datagram, &mut |_| ());
        }
        let counts = decoder.counts() + decoder.counts();
        assert_eq!((counts.lost, counts.arrived), (u64::MAX, 6));
    }
}
