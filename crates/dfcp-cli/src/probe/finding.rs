//! What figures mean, and what to do about them.

use dfcp::Rate;
use serde::Serialize;

use super::near::{Direction, Path};
use super::trace::{Carried, Sent};

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// Nothing need be done.
    Good,
    /// Something could be better.
    Note,
    /// Something does not work.
    Bad,
}

/// Something that was looked at.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// What.
    pub subject: &'static str,
    /// How much it matters.
    pub grade: Grade,
    /// What was found.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    /// Nothing need be done.
    pub fn good(subject: &'static str, found: impl Into<String>) -> Self {
        Self {
            subject,
            grade: Grade::Good,
            found: found.into(),
            advice: None,
        }
    }

    /// Something could be better by doing as `advice` says.
    pub fn note(
        subject: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            grade: Grade::Note,
            advice: Some(advice.into()),
            ..Self::good(subject, found)
        }
    }

    /// Something does not work before what `advice` says is done.
    pub fn bad(subject: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            grade: Grade::Bad,
            ..Self::note(subject, found, advice)
        }
    }
}

/// What limits a path in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Its rate: nothing is lost that matters.
    Rate,
    /// It loses packets at any rate.
    RandomLoss,
    /// It carries bursts and then drops what is above a rate: a token bucket without a queue (Flach et
    /// al., "An Internet-Wide Analysis of Traffic Policing", SIGCOMM 2016, §2).
    Policer,
    /// It drops what is above a rate at once: a queue of few packets, or a policer with a small bucket.
    ShallowQueue,
    /// It loses packets, and whether that depends on the rate was not tried.
    Loss,
}

/// Loss from which a limit is other than the rate, so that a second look at half the rate is worth it;
/// below it nothing need be done about it.
pub(super) const LOSS: f64 = 0.005;
/// A link never delivers faster than its rate; a tenth is what sampling adds, and a queue that was
/// full when it became faster. A policer's bucket delivers at the rate of the link before it.
const BURST: f64 = 1.3;

/// What limits a direction, by what was sent and carried at full rate and lost at half of it.
pub fn limit(sent: &Sent, carried: &Carried, at_half: Option<f64>) -> Limit {
    let lossy = sent.loss.max(sent.steady_loss);
    if lossy < LOSS {
        return Limit::Rate;
    }
    let Some(at_half) = at_half else {
        return Limit::Loss;
    };
    if at_half > lossy / 2.0 {
        return Limit::RandomLoss;
    }
    match carried.peak_bps as f64 > BURST * carried.rate_bps as f64 {
        true => Limit::Policer,
        // Lost while the rate was sought, as full queues are.
        false if sent.steady_loss < LOSS => Limit::Rate,
        false => Limit::ShallowQueue,
    }
}

/// What the figures of a path say.
pub fn findings(path: &Path) -> Vec<Finding> {
    let mut found = vec![Finding::good(
        "round trip",
        format!("{:.1} ms", path.min_rtt_ms),
    )];
    found.push(direction("there", &path.there));
    found.extend(path.back.as_ref().map(|back| direction("back", back)));
    found.push(queue(path));
    found.push(datagram(path.datagram_bytes));
    found.push(clock(path.clock_offset_ms, path.min_rtt_ms));
    found
}

fn direction(subject: &'static str, way: &Direction) -> Finding {
    let rate = Rate::from_bps(way.rate_bps);
    let mut found = format!("carries {rate}, loses {:.2} %", way.loss * 100.0);
    if let Some(half) = way.loss_at_half {
        found += &format!(" ({:.2} % at half the rate)", half * 100.0);
    }
    let below = Rate::from_bps((way.rate_bps as f64 * 0.95) as u64);
    match way.limit {
        Limit::Rate => Finding::good(subject, found),
        Limit::RandomLoss => Finding::note(
            subject,
            format!("{found}: it loses at any rate"),
            "nothing to set: the code makes up for it. A radio link, a bad cable or an overloaded \
             device is the usual cause",
        ),
        Limit::Policer => Finding::note(
            subject,
            format!(
                "{found}: it is policed, for it carried {} at first",
                Rate::from_bps(way.peak_bps)
            ),
            format!("nothing to set; --bwlimit {} keeps below it", bits(below)),
        ),
        Limit::ShallowQueue => Finding::note(
            subject,
            format!("{found}: its queue holds few packets, or it is policed"),
            format!("nothing to set; --bwlimit {} keeps below it", bits(below)),
        ),
        Limit::Loss => Finding::note(
            subject,
            found,
            "nothing to set: what is lost is made up for. `dfcp doctor` from the other side says \
             whether loss depends on the rate",
        ),
    }
}

/// A rate as the command line takes it: `9500k`.
fn bits(rate: Rate) -> String {
    match rate.as_bps() {
        bps @ 0..10_000_000 => format!("{}k", bps / 1000),
        bps => format!("{}M", bps / 1_000_000),
    }
}

/// Delay that a full queue may add before calls and games beside a transfer suffer: ITU-T G.114 has
/// 150 ms one way as what people do not mind.
const BLOAT_MS: f64 = 150.0;

fn queue(path: &Path) -> Finding {
    let back = path.back.as_ref().map_or(0.0, |back| back.queue_ms);
    let found = format!(
        "packets waited {:.0} ms at most there ({} kB), {back:.0} ms back",
        path.there.queue_ms,
        path.there.queue_bytes / 1000,
    );
    match path.there.queue_ms.max(back) > BLOAT_MS {
        false => Finding::good("queue", found),
        true => Finding::note(
            "queue",
            found,
            "others on this path will notice large transfers: set the router's smart queue (SQM, \
             fq_codel), or keep below the rate with --bwlimit",
        ),
    }
}

/// UDP payload of a packet of 1500 bytes over IPv6, less what tunnels take.
const USUAL_DATAGRAM: usize = 1400;

fn datagram(bytes: usize) -> Finding {
    let found = format!("datagrams of {bytes} bytes pass");
    match bytes >= USUAL_DATAGRAM {
        true => Finding::good("path MTU", found),
        false => Finding::note(
            "path MTU",
            found,
            "nothing to set; a tunnel on the path, or a device with a small MTU, costs a few percent",
        ),
    }
}

/// Times of change are compared in whole seconds by rsync, and here by --on-conflict newer.
const CLOCK_MS: i64 = 1000;

fn clock(offset_ms: i64, rtt_ms: f64) -> Finding {
    let found = format!(
        "they differ by {:.2} s",
        offset_ms.unsigned_abs() as f64 / 1e3
    );
    match offset_ms.unsigned_abs() as f64 > CLOCK_MS as f64 + rtt_ms {
        false => Finding::good("clocks", found),
        true => Finding::note(
            "clocks",
            found,
            "set both by a time server (timedatectl set-ntp true): --on-conflict newer compares times",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_other_side_makes_up_is_survived() {
        for n in [0, 1, u64::MAX] {
            let sent = Sent {
                packets: n,
                bytes: n,
                loss: -(n as f64),
                steady_loss: f64::MAX,
                queue_ms: n as f64 * 1e280,
            };
            let carried = Carried {
                bytes: n,
                rate_bps: n,
                peak_bps: n,
            };
            let way = Direction::new(sent.plausible(), carried.plausible(), Some(0.0));
            let path = Path {
                min_rtt_ms: 0.0,
                datagram_bytes: 0,
                there: way.clone(),
                back: Some(way),
                clock_offset_ms: i64::MIN,
            };
            assert_eq!(findings(&path).len(), 6);
        }
    }

    #[test]
    fn limits_are_told_apart() {
        let sent = |loss, steady_loss| Sent {
            loss,
            steady_loss,
            ..Sent::default()
        };
        let carried = |rate_bps, peak_bps| Carried {
            bytes: 0,
            rate_bps,
            peak_bps,
        };
        let steady = carried(10_000_000, 10_500_000);
        let burst = carried(10_000_000, 40_000_000);
        for (sent, carried, at_half, expected) in [
            (sent(0.001, 0.0), burst, None, Limit::Rate),
            (sent(0.1, 0.0), steady, Some(0.0), Limit::Rate),
            (sent(0.05, 0.05), steady, Some(0.04), Limit::RandomLoss),
            (sent(0.05, 0.05), burst, Some(0.04), Limit::RandomLoss),
            (sent(0.3, 0.02), burst, Some(0.0), Limit::Policer),
            (sent(0.3, 0.05), steady, Some(0.0), Limit::ShallowQueue),
            (sent(0.3, 0.05), steady, None, Limit::Loss),
        ] {
            assert_eq!(
                limit(&sent, &carried, at_half),
                expected,
                "{sent:?} {carried:?}"
            );
        }
    }
}
