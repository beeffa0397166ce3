//! `loss`: a probability, a Gilbert–Elliott channel, or marks packet by packet.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::link::{GilbertElliott, LossModel};
use crate::scenario::fields::{Codec, Fields, Flag, Optional, PROBABILITY, Section, Text, fault};
use crate::scenario::tree::{Fault, Node, Value};

/// Loss as the file describes it.
#[derive(Clone, Debug)]
pub(in crate::scenario) enum LossSettings {
    Bernoulli(f64),
    GilbertElliott(GilbertElliott),
    Marks(Marks),
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
            Self::Marks(marks) => marks.model(files),
        }
    }
}

/// A probability, or a table that says which model.
pub(super) struct Loss;

impl Codec<LossSettings> for Loss {
    fn read(&self, node: &Node) -> Result<LossSettings, Fault> {
        let Value::Table(table) = &node.value else {
            return PROBABILITY.read(node).map(LossSettings::Bernoulli);
        };
        if table.get("trace").is_some() || table.get("mask").is_some() {
            return Marks::default().read(node, "loss").map(LossSettings::Marks);
        }
        let channel = GILBERT.read(node, "loss")?;
        if channel.good_to_bad + channel.bad_to_good == 0.0 {
            return fault(
                node,
                "the state never changes: write for example { p_good_to_bad = 0.01, \
                 p_bad_to_good = 0.3 }, { trace = \"file\" }, or a probability",
            );
        }
        Ok(LossSettings::GilbertElliott(channel))
    }

    fn write(&self, value: &LossSettings) -> Option<Value> {
        Some(match value {
            LossSettings::Bernoulli(p) => Value::Float(*p),
            LossSettings::GilbertElliott(channel) => Value::Table(channel.write()),
            LossSettings::Marks(marks) => Value::Table(marks.write()),
        })
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
