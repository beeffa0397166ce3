//! `loss`: a probability, a Gilbert–Elliott channel by packets or by time, marks packet by packet,
//! or several of these.

use std::collections::BTreeMap;
use std::sync::Arc;

use dfcp_proto::Duration;

use crate::link::{GilbertElliott, LossModel, TimedGilbertElliott};
use crate::scenario::fields::{
    Codec, Fields, Flag, Number, Optional, PROBABILITY, Section, Text, Time, fault, valid,
};
use crate::scenario::tree::{Fault, Node, Value};

/// Loss as the file describes it.
#[derive(Clone, Debug)]
pub(in crate::scenario) enum LossSettings {
    Bernoulli(f64),
    GilbertElliott(GilbertElliott),
    TimedGilbertElliott(TimedGilbertElliott),
    Bursts(Bursts),
    Marks(Marks),
    Any(Vec<LossSettings>),
}

impl LossSettings {
    /// What is lost, given the files of marks.
    ///
    /// # Errors
    /// Says which marks are wrong or missing.
    pub fn model(&self, files: &BTreeMap<String, Arc<str>>) -> Result<LossModel, String> {
        match self {
            Self::Bernoulli(0.0) => Ok(LossModel::None),
            Self::Bernoulli(p) => Ok(LossModel::Bernoulli(*p)),
            Self::GilbertElliott(channel) => Ok(LossModel::GilbertElliott(*channel)),
            Self::TimedGilbertElliott(channel) => Ok(LossModel::TimedGilbertElliott(*channel)),
            Self::Bursts(bursts) => bursts.model(),
            Self::Marks(marks) => marks.model(files),
            Self::Any(models) => {
                let models = models.iter().map(|model| model.model(files));
                models.collect::<Result<_, _>>().map(LossModel::Any)
            }
        }
    }
}

/// A probability, a table that says which model, or a list of these.
pub(super) struct Loss;

impl Codec<LossSettings> for Loss {
    fn read(&self, node: &Node) -> Result<LossSettings, Fault> {
        let table = match &node.value {
            Value::Table(table) => table,
            Value::Array(items) => {
                let models = items.iter().map(|item| self.read(item));
                return models.collect::<Result<_, _>>().map(LossSettings::Any);
            }
            _ => return PROBABILITY.read(node).map(LossSettings::Bernoulli),
        };
        let has = |keys: &[&str]| keys.iter().any(|key| table.get(key).is_some());
        if has(&["trace", "mask"]) {
            return Marks::default().read(node, "loss").map(LossSettings::Marks);
        }
        if has(&["share", "burst"]) {
            return Bursts::read_from(node).map(LossSettings::Bursts);
        }
        if has(&["mean_good", "mean_bad"]) {
            return read_timed(node).map(LossSettings::TimedGilbertElliott);
        }
        let channel = GILBERT.read(node, "loss")?;
        if channel.good_to_bad + channel.bad_to_good == 0.0 {
            return fault(
                node,
                "the state never changes: write for example { share = 0.02, burst = 12 }, \
                 { share = 0.02, burst = \"10 ms\" }, { p_good_to_bad = 0.01, \
                 p_bad_to_good = 0.3 }, { mean_good = \"1 s\", mean_bad = \"10 ms\" }, \
                 { trace = \"file\" }, or a probability",
            );
        }
        Ok(LossSettings::GilbertElliott(channel))
    }

    fn write(&self, value: &LossSettings) -> Option<Value> {
        Some(match value {
            LossSettings::Bernoulli(p) => Value::Float(*p),
            LossSettings::GilbertElliott(channel) => Value::Table(channel.write()),
            LossSettings::TimedGilbertElliott(channel) => Value::Table(channel.write()),
            LossSettings::Bursts(bursts) => Value::Table(bursts.write()),
            LossSettings::Marks(marks) => Value::Table(marks.write()),
            LossSettings::Any(models) => {
                let written = models.iter().filter_map(|model| self.write(model));
                written.collect()
            }
        })
    }
}

/// Gilbert's channel by how much it loses and in how long bursts.
#[derive(Clone, Debug)]
pub(in crate::scenario) struct Bursts {
    share: Option<f64>,
    burst: Option<Burst>,
}

/// The mean length of a burst.
#[derive(Clone, Copy, Debug)]
enum Burst {
    Packets(f64),
    Time(Duration),
}

impl Section for Bursts {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("share", &mut self.share, Optional(PROBABILITY));
        f.item("burst", &mut self.burst, Optional(BurstLength));
    }
}

impl Bursts {
    fn read_from(node: &Node) -> Result<Self, Fault> {
        let blank = Self {
            share: None,
            burst: None,
        };
        let bursts = blank.read(node, "loss")?;
        valid(node, bursts.model()).map(|_| bursts)
    }

    fn model(&self) -> Result<LossModel, String> {
        let (Some(share), Some(burst)) = (self.share, self.burst) else {
            return Err(
                "bursts need both: write for example { share = 0.02, burst = 12 } or \
                 { share = 0.02, burst = \"10 ms\" }"
                    .to_owned(),
            );
        };
        let model = match burst {
            Burst::Packets(packets) => {
                GilbertElliott::in_bursts(share, packets).map(LossModel::GilbertElliott)
            }
            Burst::Time(time) => {
                let model =
                    LossModel::TimedGilbertElliott(TimedGilbertElliott::in_bursts(share, time));
                model.validate().map(|()| model)
            }
        };
        model.map_err(|error| format!("no channel loses the share {share} in such bursts: {error}"))
    }
}

/// A number of packets or a time.
struct BurstLength;

impl Codec<Burst> for BurstLength {
    fn read(&self, node: &Node) -> Result<Burst, Fault> {
        match node.value {
            Value::String(_) => Time.read(node).map(Burst::Time),
            _ => Number(1.0, 1e9).read(node).map(Burst::Packets),
        }
    }

    fn write(&self, value: &Burst) -> Option<Value> {
        match value {
            Burst::Packets(packets) => Some(Value::Float(*packets)),
            Burst::Time(time) => Time.write(time),
        }
    }
}

fn read_timed(node: &Node) -> Result<TimedGilbertElliott, Fault> {
    let gilbert = TimedGilbertElliott {
        mean_good: Duration::ZERO,
        mean_bad: Duration::ZERO,
        loss_good: 0.0,
        loss_bad: 1.0,
    };
    let channel = gilbert.read(node, "loss")?;
    match LossModel::TimedGilbertElliott(channel).validate() {
        Ok(()) => Ok(channel),
        Err(why) => fault(
            node,
            format!("{why}: write for example {{ mean_good = \"1 s\", mean_bad = \"10 ms\" }}"),
        ),
    }
}

impl Section for TimedGilbertElliott {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("mean_good", &mut self.mean_good, Time);
        f.item("mean_bad", &mut self.mean_bad, Time);
        f.item("loss_good", &mut self.loss_good, PROBABILITY);
        f.item("loss_bad", &mut self.loss_bad, PROBABILITY);
    }
}

/// Gilbert's case by default: no loss in the good state, all lost in the bad one.
const GILBERT: GilbertElliott = GilbertElliott {
    good_to_bad: 0.0,
    bad_to_good: 0.0,
    loss_good: 0.0,
    loss_bad: 1.0,
};

impl Section for GilbertElliott {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("p_good_to_bad", &mut self.good_to_bad, PROBABILITY);
        f.item("p_bad_to_good", &mut self.bad_to_good, PROBABILITY);
        f.item("loss_good", &mut self.loss_good, PROBABILITY);
        f.item("loss_bad", &mut self.loss_bad, PROBABILITY);
    }
}

/// One mark a packet: `.` delivered, `x` lost, blanks ignored.
#[derive(Clone, Debug)]
pub(in crate::scenario) struct Marks {
    /// In the scenario itself.
    mask: Option<String>,
    /// In a file.
    trace: Option<String>,
    /// Whether they start again after the last.
    repeat: bool,
}

impl Default for Marks {
    fn default() -> Self {
        Self {
            mask: None,
            trace: None,
            repeat: true,
        }
    }
}

impl Section for Marks {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.item("mask", &mut self.mask, Optional(Text));
        f.item("trace", &mut self.trace, Optional(Text));
        f.item("repeat", &mut self.repeat, Flag);
    }
}

impl Marks {
    fn model(&self, files: &BTreeMap<String, Arc<str>>) -> Result<LossModel, String> {
        let text = match (&self.mask, &self.trace) {
            (Some(_), Some(_)) => return Err("`mask` and `trace` exclude each other".to_owned()),
            (Some(mask), None) => mask.as_str(),
            (None, file) => {
                let file = file.as_deref().unwrap_or_default();
                files
                    .get(file)
                    .ok_or_else(|| format!("trace `{file}` is not loaded"))?
            }
        };
        let marks = text.chars().filter(|c| !c.is_whitespace());
        let lost: Result<Vec<bool>, String> = marks
            .map(|c| match c {
                '.' => Ok(false),
                'x' => Ok(true),
                other => Err(format!("`{other}` is no mark")),
            })
            .collect();
        let lost = lost.and_then(|lost| match lost.len() {
            0 => Err("there are no marks".to_owned()),
            _ => Ok(Arc::from(lost)),
        });
        let lost =
            lost.map_err(|why| format!("{why}: write one a packet, `.` delivered, `x` lost"))?;
        Ok(if self.repeat {
            LossModel::Trace(lost)
        } else {
            LossModel::Mask(lost)
        })
    }
}
