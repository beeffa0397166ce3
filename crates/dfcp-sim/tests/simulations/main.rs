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
mod validation;
