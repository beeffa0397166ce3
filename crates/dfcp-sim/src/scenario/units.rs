//! Quantities with units, as scenario files write them: `"1 Gbit/s"`, `"10 ms"`, `"1500 B"`.
//!
//! Prefixes are decimal (k = 1000); sizes may also be in KiB, MiB, GiB, TiB. What is written is
//! read back as exactly the same number of nanoseconds, bits a second or bytes.

/// Units and what one of each is in the base unit, greatest first.
pub(super) type Units = &'static [(&'static str, u64)];

/// Base: nanoseconds.
pub(super) const TIME: Units = &[
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1000),
    ("µs", 1000),
    ("ns", 1),
];

/// Base: bits a second.
pub(super) const RATE: Units = &[
    ("Tbit/s", 1_000_000_000_000),
    ("Gbit/s", 1_000_000_000),
    ("Mbit/s", 1_000_000),
    ("kbit/s", 1000),
    ("bit/s", 1),
    ("Gbps", 1_000_000_000),
    ("Mbps", 1_000_000),
    ("kbps", 1000),
    ("bps", 1),
    ("GB/s", 8_000_000_000),
    ("MB/s", 8_000_000),
    ("kB/s", 8000),
    ("B/s", 8),
];

/// Base: bytes.
pub(super) const SIZE: Units = &[
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1000),
    ("B", 1),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];

/// Base: packets.
pub(super) const PACKETS: Units = &[("packets", 1), ("packet", 1)];

/// Base: a millionth of the bandwidth-delay product.
pub(super) const BDP: Units = &[("bdp", 1_000_000)];

/// What a family of units measures, and the unit that a plot would use, with how many base units
/// are one of it.
const FAMILIES: [(&str, Units, &str, f64); 5] = [
    ("a time", TIME, "s", 1e9),
    ("a rate", RATE, "bit/s", 1.0),
    ("a size", SIZE, "B", 1.0),
    ("a number of packets", PACKETS, "packets", 1.0),
    ("a bandwidth-delay product", BDP, "bdp", 1e6),
];

/// A number and a unit as they were written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Quantity<'a> {
    pub number: f64,
    pub unit: &'a str,
}

impl<'a> Quantity<'a> {
    /// Splits `"10 ms"`; `None` where no number comes first.
    pub fn parse(text: &'a str) -> Option<Self> {
        let text = text.trim();
        let end = number_length(text);
        let number = text[..end].replace('_', "").parse().ok()?;
        let unit = text[end..].trim();
        Some(Self { number, unit })
    }

    /// In base units of `units`, rounded; `None` for another unit or out of range.
    pub fn within(self, units: Units) -> Option<u64> {
        let (_, size) = units.iter().find(|(name, _)| *name == self.unit)?;
        let value = (self.number * *size as f64).round();
        (0.0..1.8e19).contains(&value).then_some(value as u64)
    }

    /// What it measures: `"a time"`, …
    pub fn family(self) -> Option<&'static str> {
        self.plottable()?;
        FAMILIES
            .iter()
            .find(|(_, units, ..)| units.iter().any(|(name, _)| *name == self.unit))
            .map(|(family, ..)| *family)
    }

    /// Its value in the unit that a plot would use, and that unit.
    pub fn plottable(self) -> Option<(f64, &'static str)> {
        FAMILIES.iter().find_map(|(_, units, unit, base)| {
            let (_, size) = units.iter().find(|(name, _)| *name == self.unit)?;
            Some((self.number * *size as f64 / base, *unit))
        })
    }
}

/// How much of `text` is a number: digits, point, sign, exponent.
fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut end = 0;
    while let Some(&byte) = bytes.get(end) {
        let exponent = matches!(byte, b'e' | b'E')
            && end > 0
            && bytes
                .get(end + 1)
                .is_some_and(|next| next.is_ascii_digit() || matches!(next, b'+' | b'-'));
        let signed =
            matches!(byte, b'+' | b'-') && (end == 0 || matches!(bytes[end - 1], b'e' | b'E'));
        if !(byte.is_ascii_digit() || matches!(byte, b'.' | b'_') || exponent || signed) {
            break;
        }
        end += 1;
    }
    end
}

/// Writes `value` base units in the greatest unit of which it is a whole number; where that is
/// only the base unit, in the greatest that needs at most three decimals.
pub(super) fn format(value: u64, units: Units) -> String {
    // Nobody says 0.001 h, and a packet is 1500 B to everybody, not 1.5 kB.
    let usual = |(name, size): &&(&str, u64)| {
        !matches!(*name, "h" | "min")
            && !name.contains("B/")
            && value >= *size
            && (units != SIZE || *size == 1 || value >= 10 * size)
    };
    let thousandths = |size: u64| u128::from(value) * 1000 / u128::from(size);
    let exact = |size: u64| u128::from(value) * 1000 % u128::from(size) == 0;
    let base = units.iter().find(|(_, size)| *size == 1).copied();
    let greatest = |fits: &dyn Fn(u64) -> bool| {
        let fitting = units.iter().filter(usual).filter(|(_, size)| fits(*size));
        fitting.rev().max_by_key(|(_, size)| *size).copied()
    };
    let whole = greatest(&|size| value.is_multiple_of(size)).filter(|(_, size)| *size > 1);
    let (unit, size) = whole
        .or_else(|| greatest(&exact))
        .or(base)
        .unwrap_or(("", 1));
    let number = format!(
        "{}.{:03}",
        thousandths(size) / 1000,
        thousandths(size) % 1000
    );
    let number = number.trim_end_matches('0').trim_end_matches('.');
    format!("{number} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_split_and_scaled() {
        let read = |text, units| Quantity::parse(text).and_then(|q| q.within(units));
        assert_eq!(read("10 ms", TIME), Some(10_000_000));
        assert_eq!(read("2.5us", TIME), Some(2500));
        assert_eq!(read("1 Gbit/s", RATE), Some(1_000_000_000));
        assert_eq!(read("62 GB/s", RATE), Some(496_000_000_000));
        assert_eq!(read("4.7 GB", SIZE), Some(4_700_000_000));
        assert_eq!(read("1e3 packets", PACKETS), Some(1000));
        assert_eq!(read("1_000 B", SIZE), Some(1000));
        assert_eq!(read("10 ms", RATE), None);
        assert_eq!(read("-1 ms", TIME), None);
        assert_eq!(read("fast", RATE), None);
        assert_eq!(read("1e300 GB", SIZE), None);
    }

    #[test]
    fn what_is_written_reads_back() {
        for value in [
            0,
            1,
            999,
            1500,
            1_000_000,
            1_234_567,
            2_500_000_000,
            u64::MAX / 4,
        ] {
            for units in [TIME, RATE, SIZE, PACKETS] {
                let text = format(value, units);
                let back = Quantity::parse(&text).and_then(|q| q.within(units));
                assert!(
                    back == Some(value) || value > 1 << 53,
                    "{value} as {text} is {back:?}"
                );
            }
        }
        assert_eq!(format(10_000_000, TIME), "10 ms");
        assert_eq!(format(2_500_000, RATE), "2500 kbit/s");
        assert_eq!(format(0, TIME), "0 ns");
        assert_eq!(format(32 << 20, SIZE), "32 MiB");
        assert_eq!(format(4_700_000_000, SIZE), "4700 MB");
        assert_eq!(format(1500, SIZE), "1500 B");
    }
}
