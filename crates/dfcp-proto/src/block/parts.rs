//! Symbols that come in parts: a path became too narrow for those of the blocks that were open.

use crate::connection::CloseCode;
use std::collections::{BTreeMap, VecDeque};

/// Bytes of unfinished symbols kept at most, over all channels: as much as a path of 100 Mbit/s and
/// 20 ms has in flight. When it is used up the oldest symbol is dropped, as if it had been lost.
const MAX_BYTES: usize = 1 << 18;

/// The shortest symbol that any path is too narrow for: a datagram of 1200 bytes holds one of this size, whatever is
/// beside it.
const LEAST_SYMBOL: usize = 1024;
/// Parts have this many bytes on average, since a symbol is cut into as few as can be, all but the last as long as
/// each other: what is kept of a part and of a symbol beside their bytes is then less than these.
const LEAST_PART: usize = LEAST_SYMBOL / 2;

/// A symbol: its channel, the offset of its block, its ESI.
pub type SymbolName = (u64, u64, u32);

/// Part of a symbol.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Bytes of the whole symbol.
    pub symbol_len: usize,
    /// Where the part begins.
    pub at: usize,
    /// How long it is.
    pub len: usize,
    /// Its bytes; none with virtual payload.
    pub data: &'a [u8],
}

#[derive(Debug)]
struct Unfinished {
    symbol_len: usize,
    bytes: Vec<u8>,
    /// First byte of each part, and the byte after its last.
    parts: BTreeMap<usize, usize>,
}

/// Joins parts to symbols.
#[derive(Debug, Default)]
pub struct Parts {
    symbols: BTreeMap<SymbolName, Unfinished>,
    /// In the order in which they were begun; some are finished.
    begun: VecDeque<SymbolName>,
    /// Sum of `symbol_len`.
    bytes: usize,
}

impl Parts {
    /// Takes a part; gives the symbol when it is the last one. The bytes are empty with virtual
    /// payload.
    ///
    /// # Errors
    /// A part that is empty, or reaches beyond its symbol, is the peer's fault, and so are parts of a symbol that
    /// every path carries whole, or more parts than any path makes of one.
    pub fn push(&mut self, name: SymbolName, part: Part<'_>) -> Result<Option<Vec<u8>>, CloseCode> {
        let end = part.at.checked_add(part.len);
        let end = end.filter(|&end| part.len > 0 && end <= part.symbol_len);
        let end = end.ok_or(CloseCode::PROTOCOL)?;
        // No datagram is longer: such a symbol is none.
        if !(LEAST_SYMBOL..=usize::from(u16::MAX)).contains(&part.symbol_len) {
            return Err(CloseCode::PROTOCOL);
        }
        // ESIs come back after 65,536 symbols: what does not fit is of an earlier one.
        let fits = self
            .symbols
            .get(&name)
            .is_none_or(|symbol| symbol.takes(&part, end));
        if !fits {
            self.remove(name);
        }
        let symbol = self.symbols.entry(name).or_insert_with(|| {
            self.begun.push_back(name);
            self.bytes += part.symbol_len;
            Unfinished {
                symbol_len: part.symbol_len,
                bytes: Vec::new(),
                parts: BTreeMap::new(),
            }
        });
        if !part.data.is_empty() {
            symbol.bytes.resize(part.symbol_len, 0);
            symbol.bytes[part.at..end].copy_from_slice(part.data);
        }
        symbol.parts.insert(part.at, end);
        if symbol.parts.len() > part.symbol_len.div_ceil(LEAST_PART) {
            return Err(CloseCode::PROTOCOL);
        }
        let known: usize = symbol.parts.iter().map(|(at, end)| end - at).sum();
        if known == part.symbol_len {
            return Ok(self.remove(name));
        }
        self.drop_oldest();
        Ok(None)
    }

    fn remove(&mut self, name: SymbolName) -> Option<Vec<u8>> {
        let symbol = self.symbols.remove(&name)?;
        self.bytes -= symbol.symbol_len;
        Some(symbol.bytes)
    }

    fn drop_oldest(&mut self) {
        while let Some(&oldest) = self.begun.front()
            && (self.bytes > MAX_BYTES || !self.symbols.contains_key(&oldest))
        {
            self.begun.pop_front();
            self.remove(oldest);
        }
        // Names of finished symbols behind an unfinished one.
        if self.begun.len() > 2 * self.symbols.len() + 64 {
            self.begun.retain(|name| self.symbols.contains_key(name));
        }
    }
}

impl Unfinished {
    /// Whether the part is of this symbol: as long, and the same as or apart from those known.
    fn takes(&self, part: &Part<'_>, end: usize) -> bool {
        let below = self.parts.range(..end).next_back();
        self.symbol_len == part.symbol_len
            && below.is_none_or(|(&at, &known)| known <= part.at || (at, known) == (part.at, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: SymbolName = (2, 5000, 7);

    /// What each byte in these tests stands for.
    const UNIT: usize = 128;

    /// A part of a symbol of ten units.
    fn part(at: usize, data: &[u8]) -> Part<'static> {
        let data = units(data);
        Part {
            symbol_len: 10 * UNIT,
            at: at.saturating_mul(UNIT),
            len: data.len(),
            data: data.leak(),
        }
    }

    fn units(data: &[u8]) -> Vec<u8> {
        data.iter().flat_map(|&byte| [byte; UNIT]).collect()
    }

    #[test]
    fn parts_are_joined_in_any_order_and_copies_do_not_count() {
        let mut parts = Parts::default();
        assert_eq!(parts.push(NAME, part(6, &[6, 7, 8, 9])), Ok(None));
        assert_eq!(parts.push(NAME, part(6, &[6, 7, 8, 9])), Ok(None));
        assert_eq!(parts.push(NAME, part(0, &[0, 1, 2])), Ok(None));
        let whole = parts.push(NAME, part(3, &[3, 4, 5])).expect("fits");
        assert_eq!(whole, Some(units(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9])));
        assert_eq!((parts.bytes, parts.symbols.len()), (0, 0));
    }

    #[test]
    fn a_part_that_overlaps_begins_the_symbol_anew() {
        let mut parts = Parts::default();
        assert_eq!(parts.push(NAME, part(0, &[9; 5])), Ok(None));
        assert_eq!(parts.push(NAME, part(4, &[1; 6])), Ok(None));
        assert_eq!(
            parts.push(NAME, part(0, &[2; 4])),
            Ok(Some(units(&[2, 2, 2, 2, 1, 1, 1, 1, 1, 1])))
        );
    }

    #[test]
    fn nonsense_is_refused_and_memory_is_bounded() {
        let mut parts = Parts::default();
        assert_eq!(parts.push(NAME, part(8, &[1; 3])), Err(CloseCode::PROTOCOL));
        assert_eq!(
            parts.push(NAME, part(usize::MAX, &[1])),
            Err(CloseCode::PROTOCOL)
        );
        assert_eq!(parts.push(NAME, part(0, &[])), Err(CloseCode::PROTOCOL));
        for esi in 0..10_000 {
            let long = Part {
                symbol_len: 60_000,
                ..part(0, &[1])
            };
            assert_eq!(parts.push((2, 0, esi), long), Ok(None));
        }
        assert!(parts.bytes <= MAX_BYTES && parts.begun.len() < 1000);
    }

    /// Records of tiny symbols and parts took two hundred times what the bytes do that are counted.
    #[test]
    fn what_no_path_makes_is_refused() {
        let mut parts = Parts::default();
        let of = |symbol_len, at| Part {
            symbol_len,
            at,
            len: 1,
            data: &[1],
        };
        let mut push = |esi, part| parts.push((2, 0, esi), part);
        assert_eq!(push(0, of(1023, 0)), Err(CloseCode::PROTOCOL));
        assert_eq!(push(0, of(1024, 0)), Ok(None));
        // As many as a path of 1200 bytes makes of the longest, and some.
        for at in 0..128 {
            assert_eq!(push(1, of(65_535, 2 * at)), Ok(None), "{at}");
        }
        assert_eq!(push(1, of(65_535, 256)), Err(CloseCode::PROTOCOL));
        assert_eq!(parts.symbols.len(), 2);
    }

    #[test]
    fn copies_and_parts_of_another_symbol_are_told_apart() {
        let mut parts = Parts::default();
        // A copy between others changes nothing.
        assert_eq!(parts.push(NAME, part(0, &[0, 1, 2])), Ok(None));
        assert_eq!(parts.push(NAME, part(6, &[6, 7, 8, 9])), Ok(None));
        assert_eq!(parts.push(NAME, part(6, &[6, 7, 8, 9])), Ok(None));
        let whole = parts.push(NAME, part(3, &[3, 4, 5])).expect("fits");
        assert_eq!(whole, Some(units(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9])));
        // One of a longer symbol begins it anew.
        let longer = |at, data: &[u8]| Part {
            symbol_len: 12 * UNIT,
            ..part(at, data)
        };
        assert_eq!(parts.push(NAME, part(0, &[0; 8])), Ok(None));
        assert_eq!(parts.push(NAME, longer(8, &[1; 4])), Ok(None));
        assert_eq!(parts.bytes, 12 * UNIT);
        let whole = parts.push(NAME, longer(0, &[2; 8])).expect("fits");
        assert_eq!(whole, Some(units(&[&[2; 8][..], &[1; 4]].concat())));
        // One that begins where another did and is longer is of another symbol, too.
        assert_eq!(parts.push(NAME, part(0, &[3; 4])), Ok(None));
        assert_eq!(parts.push(NAME, part(0, &[4; 6])), Ok(None));
        let whole = parts.push(NAME, part(6, &[5; 4])).expect("fits");
        assert_eq!(whole, Some(units(&[4, 4, 4, 4, 4, 4, 5, 5, 5, 5])));
    }

    #[test]
    fn the_oldest_is_dropped_when_there_is_no_room_and_no_sooner() {
        let mut parts = Parts::default();
        let long = |at| Part {
            symbol_len: 1 << 15,
            ..part(at, &[1])
        };
        for esi in 0..8 {
            assert_eq!(parts.push((2, 0, esi), long(0)), Ok(None));
        }
        assert_eq!((parts.bytes, parts.symbols.len()), (MAX_BYTES, 8));
        assert_eq!(parts.push((2, 0, 8), long(0)), Ok(None));
        assert!(!parts.symbols.contains_key(&(2, 0, 0)));
        assert_eq!(parts.symbols.len(), 8);
        let longest = |symbol_len| Part {
            symbol_len,
            ..part(0, &[1])
        };
        assert_eq!(parts.push(NAME, longest(65_535)), Ok(None));
        let refused = parts.push(NAME, longest(65_536));
        assert_eq!(refused, Err(CloseCode::PROTOCOL), "no datagram is as long");
    }

    #[test]
    fn names_of_finished_symbols_are_forgotten_behind_one_that_never_ends() {
        let mut parts = Parts::default();
        assert_eq!(parts.push((2, 0, 0), part(0, &[1])), Ok(None));
        for esi in 1..1000 {
            let name = (2, 0, esi);
            assert_eq!(parts.push(name, part(0, &[1; 5])), Ok(None));
            assert!(parts.push(name, part(5, &[2; 5])).expect("fits").is_some());
            assert!(parts.begun.len() <= 70, "{}", parts.begun.len());
        }
        assert_eq!(parts.symbols.len(), 1);
    }
}
