//! `jitter`: a time, a table that says how delays are distributed, or a list of these.

use dfcp_proto::Duration;

use super::outage::{no_windows, windows};
use crate::link::{Jitter, JitterModel};
use crate::scenario::fields::{
    Codec, Fields, ListOf, Nested, Number, PROBABILITY, Section, Time, fault, valid,
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
        let none = || Time.write(&Duration::ZERO);
        ListOf(Model).write(&value.models().to_vec()).or_else(none)
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
        let is_stated = |(key, _): &(&str, JitterModel)| table.get(key).is_some();
        let stated: Vec<_> = blanks().into_iter().filter(is_stated).collect();
        let none = JitterModel::Uniform(Duration::ZERO);
        let blank = stated.first().map_or(none, |&(_, blank)| blank);
        let model = blank.read(node, "jitter")?;
        if stated.len() != 1 {
            return fault(node, format!("it needs one distribution: {RIGHT}"));
        }
        valid(node, model.validate()).map(|()| model)
    }

    fn write(&self, value: &JitterModel) -> Option<Value> {
        match value {
            JitterModel::Uniform(below) => Time.write(below),
            model => Some(Value::Table(model.write())),
        }
    }
}

/// Each model, with the key that says that it is this one.
fn blanks() -> [(&'static str, JitterModel); 6] {
    let (below, windows) = (Duration::ZERO, no_windows());
    let (delay, share) = (Duration::ZERO, 0.0);
    let (mean, shape) = (Duration::ZERO, 1.0); // exponential
    [
        ("late", JitterModel::Late { delay, share }),
        ("spike", JitterModel::Spike { below, windows }),
        ("uniform", JitterModel::Uniform(below)),
        ("exponential", JitterModel::Exponential(mean)),
        ("gamma", JitterModel::Gamma { mean, shape }),
        ("wifi", JitterModel::WiFi(mean)),
    ]
}

impl Section for JitterModel {
    fn fields(&mut self, f: &mut Fields<'_>) {
        match self {
            Self::Late { delay, share } => {
                f.item("late", delay, Time);
                f.item("share", share, PROBABILITY);
                return;
            }
            Self::Spike {
                below,
                windows: when,
            } => {
                f.item("spike", below, Time);
                return windows(f, when);
            }
            _ => {}
        }
        match self {
            Self::Uniform(below) => f.item("uniform", below, Time),
            _ => f.known("uniform"),
        }
        match self {
            Self::Exponential(mean) => f.item("exponential", mean, Time),
            _ => f.known("exponential"),
        }
        match self {
            Self::Gamma { mean, shape } => {
                let mut gamma = Gamma(*mean, *shape);
                let blank = gamma.clone();
                f.item("gamma", &mut gamma, Nested(blank, "gamma"));
                (*mean, *shape) = (gamma.0, gamma.1);
            }
            _ => f.known("gamma"),
        }
        match self {
            Self::WiFi(mean) => f.item("wifi", mean, Time),
            _ => f.known("wifi"),
        }
        f.known("late");
        f.known("spike");
    }
}

/// Mean and shape.
#[derive(Clone)]
struct Gamma(Duration, f64);

impl Section for Gamma {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("mean", &mut self.0, Time);
        f.item("shape", &mut self.1, Number(0.01, 1000.0));
    }
}
