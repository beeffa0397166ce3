//! The sender's side of the code.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use dfcp_fec::gf256::{Kernel, Rows};

use super::protection::{Loss, PRIOR};
use super::{
    Kind, REPAIR, REPAIR_HEAD, ROW, ROWS, SOURCE_HEAD, SYMBOL_HEAD, WINDOW, coefficients, max_piece,
};

/// What the transport knows of its path.
#[derive(Clone, Copy, Debug, Default)]
pub struct Path {
    /// Probability that a packet is lost.
    pub loss: f64,
    /// Variance of the losses of a long flight ÷ that of independent ones.
    pub burstiness: f64,
    /// Packets of which it is known that they arrived or were lost, so far.
    pub settled: u64,
    /// Of these, the lost ones.
    pub lost: u64,
    /// How long after a packet its repair is still of use.
    pub delay: Duration,
}

/// Packets after which the transport's estimate has followed a change, to within a twentieth: it remembers a
/// thousand, weighted by their age (e^−3). Until then what was lost since the change says more.
const FOLLOWED: u64 = 3000;

/// A source symbol in the window.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Duration,
    /// Repair symbols before it.
    repairs: u64,
    /// With its head.
    len: usize,
}

/// Turns packets into datagrams, and makes the repair symbols that are due.
pub struct Encoder {
    /// The symbols of the window, each in the row of its number modulo [`WINDOW`].
    rows: Vec<u8>,
    window: VecDeque<Sent>,
    /// Number of the next symbol.
    next: u32,
    delay: Duration,
    loss: Loss,
    /// [`Loss::repairs`] for so many symbols, as far as it was asked for.
    needs: Vec<Option<u16>>,
    /// Repair symbols that are owed.
    owed: f64,
    repairs: u64,
    /// When the last packets get what they lack, unless others come before.
    tail_at: Option<Duration>,
    /// Of the path: losses known, and packets settled when the last one became known, or at the begin.
    lost: u64,
    lost_at: u64,
    settled: u64,
    /// Losses known, and packets settled, before the first loss after a time without.
    began: (u64, u64),
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder")
            .field("next", &self.next)
            .field("loss", &self.loss)
            .finish_non_exhaustive()
    }
}

impl Default for Encoder {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            window: VecDeque::new(),
            next: 0,
            delay: Duration::ZERO,
            loss: Loss::NONE,
            needs: vec![None; WINDOW + 1],
            owed: 0.0,
            repairs: 0,
            tail_at: None,
            lost: 0,
            lost_at: 0,
            settled: 0,
            began: (0, 0),
        }
    }
}

impl Encoder {
    /// One whose first symbol has this number.
    #[cfg(test)]
    pub fn beginning(number: u32) -> Self {
        Self {
            next: number,
            ..Self::default()
        }
    }

    /// The path is like this now.
    pub fn set_path(&mut self, path: &Path) {
        if path.lost > self.lost {
            if path.settled.saturating_sub(self.lost_at) >= FOLLOWED {
                self.began = (self.lost, self.settled);
            }
            self.lost = path.lost;
            self.lost_at = path.settled;
        }
        self.settled = path.settled;
        self.delay = path.delay;
        let since = path.settled.saturating_sub(self.lost_at);
        let (lost, of) = self.began;
        let lost = path.lost.saturating_sub(lost);
        let of = path.settled.saturating_sub(of);
        let mean = match of < FOLLOWED {
            true => path.loss.max(lost as f64 / (of as f64 + PRIOR)),
            false => path.loss,
        };
        let loss = Loss::expected(mean, path.burstiness, since);
        if loss.is_none() {
            // What is not repaired need not be kept.
            self.window.clear();
            self.rows = Vec::new();
            (self.owed, self.tail_at) = (0.0, None);
        }
        if loss != self.loss {
            self.loss = loss;
            self.needs.fill(None);
        }
    }

    /// Repair symbols made so far.
    pub fn repairs(&self) -> u64 {
        self.repairs
    }

    /// Writes a packet as datagrams of at most `most` bytes to `out`: one, or two for a packet that one
    /// does not hold. False if two do not either.
    pub fn push(
        &mut self,
        now: Duration,
        packet: &[u8],
        most: usize,
        out: &mut impl FnMut(Vec<u8>),
    ) -> bool {
        let piece = max_piece(most);
        if packet.len() <= piece {
            out(self.symbol(now, Kind::Whole, packet));
        } else if packet.len() <= 2 * piece {
            let (head, tail) = packet.split_at(packet.len().div_ceil(2));
            out(self.symbol(now, Kind::Head, head));
            out(self.symbol(now, Kind::Tail, tail));
        } else {
            return false;
        }
        true
    }

    /// The datagram of a source symbol, which the window has from now on.
    fn symbol(&mut self, now: Duration, kind: Kind, bytes: &[u8]) -> Vec<u8> {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        if !self.loss.is_none() {
            self.remember(now, number, kind, bytes);
        }
        let mut datagram = Vec::with_capacity(SOURCE_HEAD + bytes.len());
        datagram.push(kind as u8);
        datagram.extend_from_slice(&number.to_be_bytes());
        datagram.extend_from_slice(bytes);
        datagram
    }

    fn remember(&mut self, now: Duration, number: u32, kind: Kind, bytes: &[u8]) {
        self.rows.resize(WINDOW * ROW, 0);
        let row = &mut self.rows[number as usize % WINDOW * ROW..][..ROW];
        let len = SYMBOL_HEAD + bytes.len();
        row[..2].copy_from_slice(&(bytes.len() as u16).to_be_bytes());
        row[2] = kind as u8;
        row[SYMBOL_HEAD..len].copy_from_slice(bytes);
        row[len..].fill(0);
        if self.window.len() == WINDOW {
            self.window.pop_front();
        }
        self.forget(now);
        self.window.push_back(Sent {
            at: now,
            repairs: self.repairs,
            len,
        });
        let n = self.window.len();
        self.owed += self.needs(n) as f64 / n as f64;
        self.tail_at = Some(now + self.delay / 2);
    }

    /// Takes out of the window what a repair would come too late for.
    fn forget(&mut self, now: Duration) {
        while self
            .window
            .front()
            .is_some_and(|sent| sent.at + self.delay < now)
        {
            self.window.pop_front();
        }
    }

    fn needs(&mut self, n: usize) -> usize {
        let known = &mut self.needs[n];
        usize::from(*known.get_or_insert_with(|| self.loss.repairs(n) as u16))
    }

    /// When [`Encoder::repair`] is to be asked though no packet came: packets that none follow soon get
    /// their repair symbols then.
    pub fn timeout(&self) -> Option<Duration> {
        self.tail_at
    }

    /// The datagram of the next repair symbol that is due.
    pub fn repair(&mut self, now: Duration) -> Option<Vec<u8>> {
        if self.tail_at.is_some_and(|at| at <= now) {
            self.tail_at = None;
            self.forget(now);
            self.owed = self.owed.max(self.lacking() as f64);
        }
        if self.owed < 1.0 || self.window.is_empty() {
            return None;
        }
        self.owed -= 1.0;
        Some(self.combine())
    }

    /// Repair symbols that the last packets lack: those followed by others have been covered by what came
    /// since, the last one by nothing.
    fn lacking(&mut self) -> usize {
        let n = self.window.len();
        (1..=n)
            .map(|last| {
                let since = self.repairs - self.window[n - last].repairs;
                self.needs(last).saturating_sub(since as usize)
            })
            .max()
            .unwrap_or(0)
    }

    fn combine(&mut self) -> Vec<u8> {
        let n = self.window.len();
        let first = self.next.wrapping_sub(n as u32);
        let len = self.window.iter().map(|sent| sent.len).max().unwrap_or(0);
        // Another one for each of the same symbols; which one does not matter.
        let key = self.repairs as u16;
        self.repairs += 1;
        let mut datagram = vec![0; REPAIR_HEAD + len];
        let (head, symbol) = datagram.split_at_mut(REPAIR_HEAD);
        head[0] = REPAIR;
        head[1..5].copy_from_slice(&first.to_be_bytes());
        head[5] = (n - 1) as u8;
        head[6..].copy_from_slice(&key.to_be_bytes());
        let (mut factors, mut index) = ([0; WINDOW], [0; WINDOW]);
        coefficients(first, key, &mut factors[..n]);
        for (i, row) in index[..n].iter_mut().enumerate() {
            *row = ROWS[first.wrapping_add(i as u32) as usize % WINDOW];
        }
        let rows = Rows::new(&self.rows, ROW, &index[..n]);
        Kernel::best().combine(symbol, &factors[..n], rows);
        datagram
    }
}
