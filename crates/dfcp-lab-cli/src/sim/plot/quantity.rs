//! What the numbers of a column mean: their unit, and how it is written on an axis.
//!
//! Figures carry their unit in the column's name (`goodput_bps`); swept parameters carry it in
//! their values (`"10 ms"`).

use super::super::table::Cell;

/// Units that an axis knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bits per second.
    BitsPerSecond,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Shares of one, shown as per cent.
    Share,
    /// Anything counted, with its name; numbers alone if that is empty.
    Count(&'static str),
}

/// SI prefixes, and what they multiply with.
const PREFIXES: [(&str, f64); 8] = [
    ("T", 1e12),
    ("G", 1e9),
    ("M", 1e6),
    ("k", 1e3),
    ("", 1.0),
    ("m", 1e-3),
    ("µ", 1e-6),
    ("n", 1e-9),
];

impl Unit {
    /// The unit of a figure, by its name.
    pub fn of_column(name: &str) -> Self {
        let last = name.rsplit(['.', '_']).next().unwrap_or(name);
        match (last, name) {
            ("bps", _) => Self::BitsPerSecond,
            ("s", _) => Self::Seconds,
            ("bytes", _) | (_, "bytes_sent") => Self::Bytes,
            ("packets", _) if name != "packets" => Self::Count("packets"),
            ("loss" | "utilisation" | "overhead", _) if name != "dropped_loss" => Self::Share,
            (_, "drop_rate") => Self::Share,
            _ => Self::Count(""),
        }
    }

    /// Its symbol with a prefix.
    pub fn symbol(self, prefix: &str) -> String {
        match self {
            Self::BitsPerSecond => format!("{prefix}bit/s"),
            Self::Seconds => format!("{prefix}s"),
            Self::Bytes => format!("{prefix}B"),
            Self::Share => "%".to_owned(),
            Self::Count(name) => name.to_owned(),
        }
    }

    /// The prefix that makes a number of this size short, and what it multiplies with.
    pub fn prefix(self, size: f64) -> (&'static str, f64) {
        let allowed = |factor: f64| match self {
            Self::BitsPerSecond | Self::Bytes => factor >= 1.0,
            Self::Seconds => factor <= 1.0,
            Self::Share | Self::Count(_) => factor == 1.0,
        };
        let mut all = PREFIXES.iter().filter(|(_, factor)| allowed(*factor));
        // Rounding shall not turn 1 k into 1000.
        let fits = all.find(|(_, factor)| size * (1.0 + 1e-9) >= *factor);
        let (prefix, factor) = fits.copied().unwrap_or(("", 1.0));
        match self {
            Self::Share => ("", 0.01),
            _ => (prefix, factor),
        }
    }
}

/// A number in its base unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantity {
    /// The number.
    pub value: f64,
    /// Its unit; none for a bare number.
    pub unit: Option<Unit>,
}

impl Quantity {
    /// What a cell means, if it is a number or a number with a unit.
    pub fn of(cell: &Cell) -> Option<Self> {
        let Cell::Text(text) = cell else {
            let value = cell.number()?;
            return Some(Self { value, unit: None });
        };
        let end = text.find(|c: char| c.is_alphabetic() || c == '%')?;
        let (number, unit) = text.split_at(end);
        let number: f64 = number.trim().parse().ok()?;
        let (unit, factor) = unit_named(unit.trim())?;
        let value = number * factor;
        value.is_finite().then_some(Self {
            value,
            unit: Some(unit),
        })
    }
}

fn unit_named(name: &str) -> Option<(Unit, f64)> {
    let plain = match name {
        "min" => (Unit::Seconds, 60.0),
        "h" => (Unit::Seconds, 3600.0),
        "us" => (Unit::Seconds, 1e-6),
        "%" => (Unit::Share, 0.01),
        "packets" | "packet" => (Unit::Count("packets"), 1.0),
        "bdp" | "BDP" => (Unit::Count("BDP"), 1.0),
        "KiB" => (Unit::Bytes, 1024.0),
        "MiB" => (Unit::Bytes, 1048576.0),
        "GiB" => (Unit::Bytes, 1073741824.0),
        "TiB" => (Unit::Bytes, 1099511627776.0),
        _ => return prefixed(name),
    };
    Some(plain)
}

fn prefixed(name: &str) -> Option<(Unit, f64)> {
    let symbols = [
        ("bit/s", Unit::BitsPerSecond, 1.0),
        ("bps", Unit::BitsPerSecond, 1.0),
        ("B/s", Unit::BitsPerSecond, 8.0),
        ("s", Unit::Seconds, 1.0),
        ("B", Unit::Bytes, 1.0),
    ];
    symbols.into_iter().find_map(|(symbol, unit, size)| {
        let prefix = name.strip_suffix(symbol)?;
        let mut known = PREFIXES.iter();
        let (_, factor) = known.find(|(known, _)| *known == prefix)?;
        Some((unit, factor * size))
    })
}

/// What an axis calls a column.
pub fn label(column: &str) -> String {
    let known = match column {
        "fct_s" => "Flow completion time",
        "rtt_mean_s" => "Mean RTT",
        "rtt_s" => "RTT",
        "jain" => "Jain's index",
        "queue_mean_packets" | "queue_mean_bytes" => "Mean queue length",
        "queue_p50_packets" => "Median queue length",
        "queue_p95_packets" => "95th percentile of queue length",
        "queue_p99_packets" => "99th percentile of queue length",
        "queue_max_packets" => "Longest queue",
        "queue_packets" | "queue_bytes" => "Queue length",
        "sojourn_mean_s" => "Mean sojourn time",
        "sojourn_p95_s" => "95th percentile of sojourn time",
        "sojourn_max_s" => "Longest sojourn time",
        _ => "",
    };
    if !known.is_empty() {
        return known.to_owned();
    }
    let name = ["_bps", "_s", "_bytes", "_packets"]
        .iter()
        .find_map(|suffix| column.strip_suffix(suffix))
        .unwrap_or(column);
    // Of a path such as link.bottleneck.loss or topology.rtt, the end says enough.
    let section = |part: &&str| {
        matches!(*part, "topology" | "run" | "link" | "flow") || part.parse::<u32>().is_ok()
    };
    let mut parts: Vec<_> = name.split('.').skip_while(section).collect();
    if parts.is_empty() {
        parts.push(name);
    }
    let words = parts[parts.len().saturating_sub(2)..].join(" ");
    let words = words.replace(['_', '-'], " ");
    let words = words.split(' ').map(|word| match word {
        "rtt" | "mtu" | "ecn" | "fct" | "tcp" | "udp" | "rto" => word.to_uppercase(),
        word => word.to_owned(),
    });
    let words = words.collect::<Vec<_>>().join(" ");
    let mut letters = words.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => column.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_units_are_numbers() {
        let of = |text: &str| Quantity::of(&Cell::from(text)).map(|q| (q.value, q.unit));
        assert_eq!(of("10 ms"), Some((0.01, Some(Unit::Seconds))));
        assert_eq!(of("2.5Gbit/s"), Some((2.5e9, Some(Unit::BitsPerSecond))));
        assert_eq!(of("0.1 bdp"), Some((0.1, Some(Unit::Count("BDP")))));
        assert_eq!(of("150 kB"), Some((150e3, Some(Unit::Bytes))));
        assert_eq!(of("tcp-cubic"), None);
        assert_eq!(of("12 apples"), None);
        assert_eq!(of("ms"), None);
    }

    #[test]
    fn columns_say_what_they_are() {
        assert_eq!(label("goodput_bps"), "Goodput");
        assert_eq!(label("link.bottleneck.loss"), "Bottleneck loss");
        assert_eq!(label("topology.rtt"), "RTT");
        assert_eq!(label("flow.0.tcp.initial_window"), "TCP initial window");
        assert_eq!(label("flow"), "Flow");
        assert_eq!(Unit::of_column("link.bottleneck.loss"), Unit::Share);
        assert_eq!(Unit::of_column("packets_sent"), Unit::Count(""));
        assert_eq!(
            Unit::of_column("queue_mean_packets"),
            Unit::Count("packets")
        );
    }
}
