//! `jitter`: a time, a table that says how delays are distributed, or a list of these.

use dfcp_proto::Duration;

use super::outage::{no_windows, windows};
use crate::link::{Jitter, JitterModel, Windows};
use crate::scenario::fields::{
    Codec, Fields, ListOf, Nested, Number, Optional, PROBABILITY, Section, Time, fault,
};
use crate::scenario::tree::{Fault, Node, Value};

/// See the module's text.
pub(super) struct JitterSum;

impl Codec<Jitter> for JitterSum {
    fn read(&self, node: &Node) -> Result<Jitter, Fault> {
        match &node.value {
            Value::Table(_) | Value::Array(_) => ListOf(Model).read(node).map(Jitter::from),
            _ => Time.read(node).map(|below: Duration| Jitter::from(below)),
        }
    }

    fn write(&self, value: &Jitter) -> Option<Value> {
        let models = value.models().to_vec();
        ListOf(Model)
            .write(&models)
            .or_else(|| Time.write(&Duration::ZERO))
    }
}

const RIGHT: &str = "write for example \"30 ms\", { uniform = \"30 ms\" }, \
                     { exponential = \"5 ms\" }, { gamma = { mean = \"8 ms\", shape = 2.0 } }, \
                     { late = \"30 ms\", share = 0.2 }, { wifi = \"12.5 ms\" } or \
                     { spike = \"150 ms\", every = \"20 s\", length = \"1 s\" }";

/// One delay.
struct Model;

impl Codec<JitterModel> for Model {
    fn read(&self, node: &Node) -> Result<JitterModel, Fault> {
        let Value::Table(table) = &node.value else {
            return Time.read(node).map(JitterModel::Uniform);
        };
        let model = if table.get("late").is_some() {
            Late::default().read(node, "jitter")?.model()
        } else if table.get("spike").is_some() {
            Spike::default().read(node, "jitter")?.model()
        } else {
            match Single::default().read(node, "jitter")?.model() {
                Some(model) => model,
                None => return fault(node, format!("it needs one distribution: {RIGHT}")),
            }
        };
        match model.validate() {
            Ok(()) => Ok(model),
            Err(why) => fault(node, why.to_string()),
        }
    }

    fn write(&self, value: &JitterModel) -> Option<Value> {
        let single = Single::default();
        Some(Value::Table(match *value {
            JitterModel::Uniform(below) => return Time.write(&below),
            JitterModel::Exponential(mean) => Single {
                exponential: Some(mean),
                ..single
            }
            .write(),
            JitterModel::Gamma { mean, shape } => Single {
                gamma: Some(Gamma { mean, shape }),
                ..single
            }
            .write(),
            JitterModel::WiFi(mean) => Single {
                wifi: Some(mean),
                ..single
            }
            .write(),
            JitterModel::Late { delay, share } => Late { delay, share }.write(),
            JitterModel::Spike { below, windows } => Spike { below, windows }.write(),
        }))
    }
}

/// Distributions with one parameter, of which one is stated.
#[derive(Clone, Default)]
struct Single {
    uniform: Option<Duration>,
    exponential: Option<Duration>,
    gamma: Option<Gamma>,
    wifi: Option<Duration>,
}

impl Section for Single {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("uniform", &mut self.uniform, Optional(Time));
        f.item("exponential", &mut self.exponential, Optional(Time));
        let gamma = Nested(Gamma::default(), "gamma");
        f.item("gamma", &mut self.gamma, Optional(gamma));
        f.item("wifi", &mut self.wifi, Optional(Time));
        f.known("late");
        f.known("spike");
    }
}

impl Single {
    fn model(&self) -> Option<JitterModel> {
        match (self.uniform, self.exponential, &self.gamma, self.wifi) {
            (Some(below), None, None, None) => Some(JitterModel::Uniform(below)),
            (None, Some(mean), None, None) => Some(JitterModel::Exponential(mean)),
            (None, None, Some(Gamma { mean, shape }), None) => Some(JitterModel::Gamma {
                mean: *mean,
                shape: *shape,
            }),
            (None, None, None, Some(mean)) => Some(JitterModel::WiFi(mean)),
            _ => None,
        }
    }
}

#[derive(Clone)]
struct Gamma {
    mean: Duration,
    shape: f64,
}

impl Default for Gamma {
    /// Exponential.
    fn default() -> Self {
        Self {
            mean: Duration::ZERO,
            shape: 1.0,
        }
    }
}

impl Section for Gamma {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("mean", &mut self.mean, Time);
        f.item("shape", &mut self.shape, Number(0.01, 1000.0));
    }
}

#[derive(Clone, Default)]
struct Late {
    delay: Duration,
    share: f64,
}

impl Section for Late {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("late", &mut self.delay, Time);
        f.item("share", &mut self.share, PROBABILITY);
    }
}

impl Late {
    fn model(&self) -> JitterModel {
        JitterModel::Late {
            delay: self.delay,
            share: self.share,
        }
    }
}

#[derive(Clone)]
struct Spike {
    below: Duration,
    windows: Windows,
}

impl Default for Spike {
    fn default() -> Self {
        Self {
            below: Duration::ZERO,
            windows: no_windows(),
        }
    }
}

impl Section for Spike {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("spike", &mut self.below, Time);
        windows(f, &mut self.windows);
    }
}

impl Spike {
    fn model(&self) -> JitterModel {
        JitterModel::Spike {
            below: self.below,
            windows: self.windows,
        }
    }
}
