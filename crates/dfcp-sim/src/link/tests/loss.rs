//! Which packets are lost, against what the models say.

use std::sync::Arc;

use super::super::*;

fn run(model: LossModel, seed: u64, packets: usize) -> Vec<bool> {
    let mut process = LossProcess::new(model, Seed(seed).stream("loss"));
    (0..packets).map(|_| process.lose(Instant::ZERO)).collect()
}

fn share(losses: &[bool]) -> f64 {
    losses.iter().filter(|&&lost| lost).count() as f64 / losses.len() as f64
}

/// Lengths of the runs of losses between packets that arrive.
fn bursts(losses: &[bool]) -> Vec<usize> {
    losses
        .split(|lost| !lost)
        .map(<[bool]>::len)
        .filter(|&length| length > 0)
        .collect()
}

/// Runs of losses are geometric: each goes on with probability `stay`.
fn assert_geometric(bursts: &[usize], stay: f64) {
    for longer_than in 1..6 {
        let at_least = |n: usize| bursts.iter().filter(|&&b| b >= n).count() as f64;
        let tried = at_least(longer_than);
        let measured = at_least(longer_than + 1) / tried;
        let error = (stay * (1.0 - stay) / tried).sqrt();
        assert!(
            (measured - stay).abs() < 4.0 * error,
            "after {longer_than}: {measured} ± {error} go on, expected {stay}"
        );
    }
}

#[test]
fn bernoulli_losses_are_independent() {
    for p in [0.01, 0.3, 0.7] {
        let losses = run(LossModel::Bernoulli(p), 1, 400_000);
        let error = (p * (1.0 - p) / 400_000.0).sqrt();
        assert!((share(&losses) - p).abs() < 4.0 * error);
        assert_eq!(LossModel::Bernoulli(p).mean_loss(), p);
        if p > 0.1 {
            assert_geometric(&bursts(&losses), p);
        }
    }
}

#[test]
fn gilbert_bursts_are_geometric() {
    let channel = GilbertElliott {
        good_to_bad: 0.02,
        bad_to_good: 0.25,
        loss_good: 0.0,
        loss_bad: 1.0,
    };
    let model = LossModel::GilbertElliott(channel);
    let mean = 0.02 / 0.27;
    assert!((model.mean_loss() - mean).abs() < 1e-12);
    let losses = run(model, 1, 1_000_000);
    // Runs raise the variance by (1 + c)/(1 - c), c = 1 - 0.02 - 0.25 the correlation of
    // neighbours.
    let error = (mean * (1.0 - mean) / 1e6 * 1.73 / 0.27).sqrt();
    assert!((share(&losses) - mean).abs() < 4.0 * error);
    assert_geometric(&bursts(&losses), 0.75);
}

#[test]
fn elliott_states_mix_by_their_stationary_probabilities() {
    let channel = GilbertElliott {
        good_to_bad: 0.1,
        bad_to_good: 0.3,
        loss_good: 0.05,
        loss_bad: 0.6,
    };
    assert!((channel.bad_share() - 0.25).abs() < 1e-12);
    let model = LossModel::GilbertElliott(channel);
    let mean = 0.75 * 0.05 + 0.25 * 0.6;
    assert!((model.mean_loss() - mean).abs() < 1e-12);
    let losses = run(model.clone(), 2, 1_000_000);
    assert!((share(&losses) - mean).abs() < 0.003);
    // The first packet already: 20,000 processes, standard error 0.0028.
    let first: Vec<bool> = (0..20_000).map(|s| run(model.clone(), s, 1)[0]).collect();
    assert!((share(&first) - mean).abs() < 0.011);
    // Two in a row: P(bad, bad) and so on, by one step of the chain.
    let pairs: Vec<bool> = losses.windows(2).map(|w| w[0] && w[1]).collect();
    let after_bad = 0.7 * 0.6 + 0.3 * 0.05;
    let after_good = 0.9 * 0.05 + 0.1 * 0.6;
    let both = 0.25 * 0.6 * after_bad + 0.75 * 0.05 * after_good;
    assert!((share(&pairs) - both).abs() < 0.003);
}

#[test]
fn bursts_by_packets_have_the_share_and_the_length() {
    for (share, burst) in [(0.02, 12.0), (0.09, 50.0), (0.2, 5.0)] {
        let channel = GilbertElliott::in_bursts(share, burst).expect("it exists");
        let losses = run(LossModel::GilbertElliott(channel), 3, 2_000_000);
        let bursts = bursts(&losses);
        let mean = bursts.iter().sum::<usize>() as f64 / bursts.len() as f64;
        // Four standard errors; a geometric length deviates by about its mean.
        let tolerance = 4.0 / (bursts.len() as f64).sqrt();
        assert!((mean / burst - 1.0).abs() < tolerance, "bursts of {mean}");
        let lost = self::share(&losses);
        assert!((lost / share - 1.0).abs() < 2.0 * tolerance, "{lost} lost");
    }
    assert!(GilbertElliott::in_bursts(0.9, 2.0).is_err());
    assert!(GilbertElliott::in_bursts(0.1, 0.5).is_err());
}

/// When the states of a channel by the clock change, as packets every `gap` see it.
fn bad_times(channel: TimedGilbertElliott, gap: Duration, packets: u64) -> Vec<u64> {
    let model = LossModel::TimedGilbertElliott(channel);
    let mut process = LossProcess::new(model, Seed(4).stream("loss"));
    let times = (0..packets).map(|n| Instant::ZERO + gap * n as u32);
    times
        .filter(|at| process.lose(*at))
        .map(Instant::as_nanos)
        .collect()
}

#[test]
fn bursts_by_time_have_the_share_and_the_length() {
    let (share, burst) = (0.026, Duration::from_millis(17));
    let channel = TimedGilbertElliott::in_bursts(share, burst);
    assert!((channel.bad_share() - share).abs() < 1e-9);
    let gap = Duration::from_micros(100);
    let lost = bad_times(channel, gap, 10_000_000);
    // 1000 s: 1530 bursts are expected.
    let begins = lost.windows(2).filter(|w| w[1] - w[0] > 100_000).count() + 1;
    let each = lost.len() as f64 * 1e-4 / begins as f64;
    assert!((each / 0.017 - 1.0).abs() < 4.0 / (begins as f64).sqrt());
    let measured = lost.len() as f64 / 10e6;
    assert!((measured / share - 1.0).abs() < 0.15, "{measured} lost");
    // Exponentially distributed: the standard deviation is the mean.
    let mut lengths = Vec::new();
    for pair in lost.windows(2) {
        match lengths.last_mut() {
            Some(length) if pair[1] - pair[0] == 100_000 => *length += 1.0,
            _ => lengths.push(1.0),
        }
    }
    let spread = crate::metrics::stability(&[lengths]);
    assert!(
        spread.is_some_and(|cv| (cv - 1.0).abs() < 0.13),
        "{spread:?}"
    );
}

#[test]
fn when_a_channel_changes_does_not_depend_on_the_packets() {
    let ms = Duration::from_millis;
    let channel = TimedGilbertElliott {
        mean_good: ms(30),
        mean_bad: ms(10),
        loss_good: 0.0,
        loss_bad: 1.0,
    };
    let often = bad_times(channel, ms(1), 10_000);
    let seldom = bad_times(channel, ms(5), 2_000);
    let fifth = |at: &&u64| at.is_multiple_of(5_000_000);
    assert_eq!(
        often.iter().filter(fifth).copied().collect::<Vec<_>>(),
        seldom
    );
    // An idle millennium costs no more than a second.
    let mut process = LossProcess::new(
        LossModel::TimedGilbertElliott(channel),
        Seed(4).stream("loss"),
    );
    process.lose(Instant::from_nanos(u64::MAX / 2));
    process.lose(Instant::from_nanos(u64::MAX));
}

#[test]
fn a_packet_is_lost_if_any_of_several_models_loses_it() {
    let marks: Arc<[bool]> = Arc::new([true, false, false, false]);
    let model = LossModel::Any(vec![
        LossModel::Trace(marks.clone()),
        LossModel::Bernoulli(0.2),
        LossModel::Bernoulli(0.2),
    ]);
    let expected = 1.0 - 0.75 * 0.8 * 0.8;
    assert!((model.mean_loss() - expected).abs() < 1e-12);
    let losses = run(model, 5, 400_000);
    assert!(losses.iter().step_by(4).all(|&lost| lost));
    assert!((share(&losses) - expected).abs() < 0.004);
    let wrong = LossModel::Any(vec![LossModel::Trace(marks), LossModel::Bernoulli(2.0)]);
    assert!(wrong.validate().is_err());
}

#[test]
fn traces_are_exact() {
    let trace: Arc<[bool]> = Arc::new([true, false, false, true]);
    let twice = [true, false, false, true, true, false, false, true];
    let once = [true, false, false, true, false, false, false, false];
    assert_eq!(run(LossModel::Trace(trace.clone()), 1, 8), twice);
    assert_eq!(run(LossModel::Mask(trace.clone()), 1, 8), once);
    assert_eq!(LossModel::Trace(trace).mean_loss(), 0.5);
    let empty = LossModel::Trace(Arc::new([]));
    assert_eq!(run(empty.clone(), 1, 3), [false; 3]);
    assert_eq!(empty.mean_loss(), 0.0);
}

#[test]
fn parameters_out_of_range_are_named_and_harmless() {
    let channel = GilbertElliott {
        good_to_bad: 2.0,
        bad_to_good: f64::NAN,
        loss_good: -1.0,
        loss_bad: 3.0,
    };
    let model = LossModel::GilbertElliott(channel);
    let error = model.validate().expect_err("2 is no probability");
    assert_eq!(
        error.to_string(),
        "good_to_bad is 2, not a probability from 0 to 1"
    );
    assert_eq!(model.mean_loss(), 1.0);
    assert_eq!(run(model, 1, 10), [true; 10]);
    assert!(LossModel::Bernoulli(f64::NAN).validate().is_err());
    assert_eq!(LossModel::Bernoulli(0.5).validate(), Ok(()));
}
