//! Quantities on the command line: `100M`, `64Mi`, `60ms`, `5%`.

use std::time::Duration;

use dfcp::Rate;

/// A whole number with an optional suffix: decimal `k`, `M`, `G`, `T` or binary `Ki`, `Mi`, `Gi`,
/// `Ti`.
pub fn count(text: &str) -> Result<u64, String> {
    let (number, suffix) = split(text)?;
    let factor = match suffix {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" => 1024.0,
        "Mi" => 1024_f64.powi(2),
        "Gi" => 1024_f64.powi(3),
        "Ti" => 1024_f64.powi(4),
        _ => {
            return Err(format!(
                "unknown suffix {suffix:?}: use k, M, G, T or Ki, Mi, Gi, Ti"
            ));
        }
    };
    match number * factor {
        value if value < u64::MAX as f64 => Ok(value.round() as u64),
        _ => Err("too large".into()),
    }
}

/// Bits per second, at least 1; also as they are shown, `20 Mbit/s`.
pub fn rate(text: &str) -> Result<Rate, String> {
    let number = ["bit/s", "bit", "bps"]
        .iter()
        .find_map(|unit| text.strip_suffix(unit));
    let number = number.unwrap_or(text);
    if let Some(bytes) = number
        .strip_suffix("/s")
        .unwrap_or(number)
        .strip_suffix('B')
    {
        let what = count(bytes).map_or_else(
            |_| "eight times as many".into(),
            |bytes| format!("{text} are {}", Rate::from_bps(bytes.saturating_mul(8))),
        );
        return Err(format!("rates are in bits per second: {what}"));
    }
    match count(number)? {
        0 => Err("a rate must be above zero".into()),
        bps => Ok(Rate::from_bps(bps)),
    }
}

/// What may be taken of a path at most. Below a kilobit per second, at which one packet takes ten seconds,
/// the unit was forgotten.
pub fn limit(text: &str) -> Result<Rate, String> {
    match rate(text)? {
        limit if limit.as_bps() < 1000 => Err(format!(
            "{limit} takes longer than ten seconds for one packet; 20M is 20 Mbit/s"
        )),
        limit => Ok(limit),
    }
}

/// A limit that somebody types. A bare number below a hundred kilobits is most often one of `rsync --bwlimit`, whose
/// unit is KiB/s: it is not taken for a thousandth of that without a word.
pub fn typed_limit(text: &str) -> Result<Rate, String> {
    let limit = limit(text)?;
    if limit.as_bps() < 100_000 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let as_rsync = Rate::from_bps(limit.as_bps() * 8 * 1024);
        return Err(format!(
            "rates are in bits per second, so this is {limit}: write {text}bit/s if that is meant, or a \
             unit; as rsync's --bwlimit={text} it is {as_rsync}"
        ));
    }
    Ok(limit)
}

/// A time with a unit (`us`, `ms`, `s`, `m`, `h`); a bare number means seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, suffix) = split(text)?;
    let seconds = match suffix {
        "us" | "µs" => number / 1e6,
        "ms" => number / 1e3,
        "" | "s" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(format!("unknown unit {suffix:?}: use us, ms, s, m or h")),
    };
    match seconds {
        0.0..=86400.0 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("at most a day".into()),
    }
}

/// A time to wait for something: a [`duration`] above zero.
pub fn patience(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("a time above zero is needed, such as 60s".into()),
        time => Ok(time),
    }
}

/// How long ago: as a time, or with `h`, `d` or `w`; up to a century.
pub fn age(text: &str) -> Result<Duration, String> {
    let (number, suffix) = split(text)?;
    let unit = match suffix {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        "w" => 604_800.0,
        _ => return Err(format!("unknown unit {suffix:?}: use s, m, h, d or w")),
    };
    match number * unit {
        seconds @ 0.0..=3.2e9 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("at most a hundred years".into()),
    }
}

/// So many files, for people: `1 file`, `2 files`.
pub fn files(count: u64) -> String {
    match count {
        1 => "1 file".to_owned(),
        _ => format!("{count} files"),
    }
}

/// So many bytes, for people: `1.25 MB`.
pub fn bytes(count: u64) -> String {
    let mut value = count as f64;
    let mut units = ["bytes", "kB", "MB", "GB", "TB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    for larger in units {
        if value < 999.5 {
            break;
        }
        (value, unit) = (value / 1000.0, larger);
    }
    match unit {
        "bytes" if count == 1 => "1 byte".to_owned(),
        "bytes" => format!("{count} bytes"),
        _ if value < 9.995 => format!("{value:.2} {unit}"),
        _ if value < 99.95 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

/// A share: `5%` or `0.05`.
pub fn share(text: &str) -> Result<f64, String> {
    let (number, suffix) = split(text)?;
    let share = match suffix {
        "%" => number / 100.0,
        "" => number,
        _ => return Err(format!("not a share: {text:?}; write 5% or 0.05")),
    };
    match share {
        0.0..=1.0 => Ok(share),
        _ => Err("a share lies between 0 and 100%".into()),
    }
}

fn split(text: &str) -> Result<(f64, &str), String> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    match number.parse::<f64>() {
        Ok(number) => Ok((number, suffix.trim_start())),
        Err(_) => Err(format!("not a number: {text:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        assert_eq!(count("64M"), Ok(64_000_000));
        assert_eq!(count("64Mi"), Ok(64 << 20));
        assert_eq!(count("1.5k"), Ok(1500));
        assert_eq!(count("0"), Ok(0));
        for bad in ["", "-1", "1X", "M", "1e99999", "99999999999T"] {
            assert!(count(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_and_shares() {
        assert_eq!(duration("60ms"), Ok(Duration::from_millis(60)));
        assert_eq!(duration("2"), Ok(Duration::from_secs(2)));
        assert_eq!(duration("1.5h"), duration("90m"));
        assert_eq!(patience("60ms"), duration("60ms"));
        assert!(patience("0").is_err() && patience("0ms").is_err());
        assert!(duration("1d").is_err() && duration("99999m").is_err());
        assert_eq!(share("5%"), Ok(0.05));
        assert_eq!(share("0.2"), Ok(0.2));
        assert!(share("101%").is_err() && share("5 apples").is_err());
    }

    #[test]
    fn ages_and_sizes() {
        assert_eq!(age("7d"), Ok(Duration::from_secs(604_800)));
        assert_eq!(age("1w"), age("168h"));
        assert!(age("7y").is_err() && age("99999w").is_err());
        for (count, text) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (999, "999 bytes"),
            (1_250_000, "1.25 MB"),
            (64_000_000, "64.0 MB"),
            (999_600, "1.00 MB"),
            (123_000_000_000_000_000, "123000 TB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn a_rate_is_not_zero() {
        assert_eq!(rate("20M"), Ok(Rate::from_bps(20_000_000)));
        assert!(rate("0").is_err());
        for same in ["20Mbit/s", "20 Mbit/s", "20Mbps", "20000k", "20000000bit/s"] {
            assert_eq!(rate(same), rate("20M"), "{same}");
        }
        for bytes in ["2.5MB", "2.5MB/s", "2.5 MB/s"] {
            let why = rate(bytes).unwrap_err();
            assert!(why.ends_with("20.00 Mbit/s"), "{why}");
        }
        for bad in ["B", "xB/s", "bit/s", "/s", "20M/s"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_number_of_rsync_is_not_taken_for_bits() {
        let why = typed_limit("1000").unwrap_err();
        assert!(why.contains("this is 1.0 kbit/s"), "{why}");
        assert!(
            why.contains("1000bit/s") && why.contains("8.19 Mbit/s"),
            "{why}"
        );
        assert_eq!(typed_limit("1000bit/s"), rate("1k"));
        assert_eq!(typed_limit("1k"), rate("1k"));
        assert_eq!(typed_limit("100000"), rate("100k"));
        assert!(typed_limit("20").unwrap_err().contains("20M"));
    }

    #[test]
    fn a_limit_without_its_unit_is_not_taken() {
        assert_eq!(limit("1k"), rate("1k"));
        let why = limit("20").unwrap_err();
        assert!(why.contains("20M is"), "{why}");
    }
}
