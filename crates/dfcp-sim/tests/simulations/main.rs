//! Scenarios, reference controllers and `auto` in simulated time.

mod background;
mod bad_paths;
mod friendliness;
mod hosts;
mod loss_tests;
mod published_runs;
mod rate_control;
mod runs;
mod scenarios;
mod sharing;
mod slow_paths;
mod validation;

/// Within `tolerance`, a share, of what is expected.
#[track_caller]
fn assert_near(value: f64, expected: f64, tolerance: f64, what: &str) {
    assert!(
        (value / expected - 1.0).abs() <= tolerance,
        "{what}: {value}, not {expected}"
    );
}
