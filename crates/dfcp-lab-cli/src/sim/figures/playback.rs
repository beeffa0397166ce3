//! A video over a path: how long watching takes and how often it stops (CTCP Fig. 8), from what
//! arrived when.
//!
//! The player shows blocks of frames one after another. It starts a block when all of it has arrived;
//! if that is after the end of the block before, there is an under-run.

/// A video.
#[derive(Clone, Copy, Debug)]
pub struct Video {
    /// Seconds that it takes to watch.
    pub length_s: f64,
    /// Bits of each of its seconds.
    pub rate_bps: f64,
    /// Seconds of a block of frames.
    pub block_s: f64,
}

/// That of CTCP §6.5.2. A rate of 12 Mbit/s follows from 1886 s at 20 % of loss, where TCP has
/// 0.4 Mbit/s; 100 blocks from the plateau of about 100 under-runs.
pub const VIDEO: Video = Video {
    length_s: 60.0,
    rate_bps: 12e6,
    block_s: 0.6,
};

/// What a viewer saw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Playback {
    /// Seconds from the first packet to the last frame.
    pub time_s: f64,
    /// How often it stopped.
    pub underruns: u32,
}

/// Plays a video of which `goodput` arrived: ends of intervals in seconds, and bits a second in
/// them. `None` if not all of it came.
pub fn play(video: Video, goodput: impl IntoIterator<Item = (f64, f64)>) -> Option<Playback> {
    let mut series = goodput.into_iter();
    let blocks = (video.length_s / video.block_s).round() as u32;
    let block = video.rate_bps * video.block_s;
    // Bits that arrived by the end of an interval, its start, and its goodput.
    let (mut arrived, mut from, mut to, mut rate) = (0.0, 0.0, 0.0, 0.0);
    let mut playback = Playback {
        time_s: 0.0,
        underruns: 0,
    };
    for number in 1..=blocks {
        // A bit less, for rounding.
        let wanted = f64::from(number) * block - 1.0;
        while arrived < wanted {
            (from, (to, rate)) = (to, series.next()?);
            arrived += rate * (to - from);
        }
        let complete = if rate > 0.0 {
            (to - (arrived - wanted) / rate).max(from)
        } else {
            to
        };
        if complete > playback.time_s {
            playback.underruns += u32::from(number > 1);
            playback.time_s = complete;
        }
        playback.time_s += video.block_s;
    }
    Some(playback)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten seconds in ten blocks.
    const SHORT: Video = Video {
        length_s: 10.0,
        rate_bps: 1e6,
        block_s: 1.0,
    };

    fn at(bps: f64) -> impl Iterator<Item = (f64, f64)> {
        (1..=1000).map(move |n| (f64::from(n) * 0.1, bps))
    }

    #[test]
    fn a_fast_path_costs_the_first_block_and_a_slow_one_stops_at_every_block() {
        let near = |playback: Option<Playback>, time_s: f64, underruns: u32| {
            let playback = playback.expect("it arrived");
            assert!((playback.time_s - time_s).abs() < 1e-3, "{playback:?}");
            assert_eq!(playback.underruns, underruns);
        };
        near(play(SHORT, at(2e6)), 10.5, 0);
        near(play(SHORT, at(0.5e6)), 21.0, 9);
    }

    #[test]
    fn a_pause_stops_it_once() {
        let pause = |(to, bps)| (to, if (1.0..6.0).contains(&to) { 0.0 } else { bps });
        let playback = play(SHORT, at(4e6).map(pause)).expect("it arrived");
        assert_eq!(playback.underruns, 1, "{playback:?}");
    }

    #[test]
    fn what_never_arrived_is_not_played() {
        assert_eq!(play(SHORT, at(0.0)), None);
        assert_eq!(play(SHORT, at(2e6).take(40)), None);
    }
}
