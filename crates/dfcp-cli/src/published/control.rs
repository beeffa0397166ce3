//! `--control`: how fast a published profile sends (DFCP-J §3.2).

use std::io::BufRead;

use dfcp::Rate;
use dfcp::published::Monitor;
use dfcp::published::rate::{
    FixedRate, Marked, MaxRate, Ordered, ProbeGap, ProbeRate, RateController, Restrained,
};
use dfcp_command::{Failure, units};

use crate::command::Output;

/// Until the first order, for a controller that is asked late: little enough for any path.
const BEFORE_ORDERS: Rate = Rate::from_bps(10_000_000);

/// How much more than the available bandwidth is sent: the estimate of a flow that takes less than its
/// share would else stay there (DFCP-J §3.2 prefers overestimation). The same as in the simulator.
const OVERESTIMATE: f64 = 0.05;

/// Who says how fast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Control {
    /// Nobody: as fast as the host can, or at --fixed-rate
    #[default]
    Max,
    /// A network controller: --controller, or without one a rate a line, such as 50M, on standard
    /// input; before the first one --fixed-rate, or 10M
    Ordered,
    /// The bandwidth that packet pairs find available (probe gap model)
    ProbeGap,
    /// The bandwidth that chirps find available (probe rate model)
    ProbeRate,
    /// The congestion marks of the network (ECN)
    Marked,
}

impl Control {
    /// Whether a rate that the user fixes means anything to it.
    fn takes_rate(self) -> bool {
        matches!(self, Self::Max | Self::Ordered)
    }

    fn estimates(self) -> bool {
        matches!(self, Self::ProbeGap | Self::ProbeRate)
    }

    /// A controller; `rate` is the one that the user fixed.
    pub fn controller(
        self,
        rate: Option<Rate>,
        overestimate: Option<f64>,
    ) -> Box<dyn RateController> {
        let overestimate = overestimate.unwrap_or(OVERESTIMATE);
        match (self, rate) {
            (Self::Max, None) => Box::new(MaxRate),
            (Self::Max, Some(rate)) => Box::new(FixedRate::new(rate)),
            // A wrong order must not become a flood that lasts.
            (Self::Ordered, rate) => {
                Box::new(Restrained::new(Box::new(Ordered::new(before_orders(rate)))))
            }
            (Self::ProbeGap, _) => Box::new(ProbeGap::new(overestimate)),
            (Self::ProbeRate, _) => Box::new(ProbeRate::new(overestimate)),
            (Self::Marked, _) => Box::new(Marked::new()),
        }
    }

    /// Refuses what would have no effect: a rate, or an overestimate, that the user gave.
    pub fn check(self, rate: Option<Rate>, overestimate: Option<f64>) -> Result<(), Failure> {
        if rate.is_some() && !self.takes_rate() {
            return Err(Failure::usage(
                "--control probe-gap, probe-rate and marked find the rate: --fixed-rate is not for them",
            ));
        }
        if overestimate.is_some() && !self.estimates() {
            return Err(Failure::usage(
                "--overestimate needs --control probe-gap or probe-rate",
            ));
        }
        Ok(())
    }
}

/// What is sent at without an order; `rate` is the one that the user fixed.
pub fn before_orders(rate: Option<Rate>) -> Rate {
    rate.unwrap_or(BEFORE_ORDERS)
}

/// Follows the orders on standard input until it ends, on a thread of its own; what is no rate is said
/// and changes nothing.
pub fn follow_orders(monitor: Monitor, output: &Output) {
    let output = output.clone();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            match units::rate(line.trim()) {
                Ok(rate) => monitor.order_rate(rate),
                Err(error) => output.say(format_args!("no order: {error}")),
            }
        }
    });
}
