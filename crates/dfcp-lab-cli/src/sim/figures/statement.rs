//! What must hold of the curves of an item, and on whose word.
//!
//! A check cannot be written without its [`Basis`]: either the paper's words and their place, or our
//! own reason, or that a parameter was chosen so that it holds. Nor can it bound a number on one side
//! alone: where the paper has a number, or we have one, both sides are bounded; where the paper has
//! an order ("faster"), there is no number in the check either ([`Bound::Order`]).

use serde::{Deserialize, Serialize};

/// A statement about curves: numbers are taken from them, and all must lie within bounds.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// What is looked at, in words.
    pub what: String,
    /// On whose word.
    pub basis: Basis,
    /// The curves; each must hold.
    pub curves: Vec<String>,
    /// Values are divided by this curve's.
    #[serde(default)]
    pub over: Option<String>,
    /// This curve's values are subtracted.
    #[serde(default)]
    pub minus: Option<String>,
    /// Only in this panel.
    #[serde(default)]
    pub panel: Option<String>,
    /// Only there.
    #[serde(default)]
    pub x: Option<f64>,
    /// Only from there on.
    #[serde(default)]
    pub from: Option<f64>,
    /// Only up to there.
    #[serde(default)]
    pub to: Option<f64>,
    /// Another column than the item's vertical axis.
    #[serde(default)]
    pub y: Option<String>,
    /// Which numbers.
    #[serde(default)]
    pub take: Take,
    /// What they should be.
    pub bound: Bound,
}

/// On whose word something is asked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// The paper's.
    Stated(Quote),
    /// Ours, with the reason: the paper does not state it.
    Ours(String),
    /// Nobody's: what was chosen so that it holds. It says how good the fit is, and is no evidence.
    Fitted(String),
}

/// What a paper says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Quote {
    /// Where: a section, a table, a caption.
    pub place: String,
    /// Its words or numbers.
    pub words: String,
}

/// What a paper says and nothing here decides.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Unchecked {
    /// Where.
    pub place: String,
    /// Its words.
    pub words: String,
    /// Why not.
    pub because: String,
}

/// Bounds of a number.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// A number, and how far off it may be as a share of it.
    WithinShare((f64, f64)),
    /// A number, and how far off it may be.
    Within((f64, f64)),
    /// The least and the most.
    Between((f64, f64)),
    /// On which side of equal: of 1 for quotients, of 0 for differences.
    Order(Order),
}

/// Sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// More than the other.
    Above,
    /// Less than the other.
    Below,
}

/// Numbers taken from a curve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Take {
    /// Every value.
    #[default]
    Each,
    /// The mean.
    Mean,
    /// The greatest.
    Greatest,
    /// The greatest over the least.
    Spread,
    /// The last over the first.
    Ends,
    /// Of the curves' means the greatest over the least: one number of all curves together.
    Apart,
    /// The greatest rise from one value to the next, as a share of the former; 0 if it falls.
    Rise,
    /// The greatest fall likewise.
    Fall,
}

impl Check {
    /// What is wrong with it, if anything.
    pub fn fault(&self) -> Option<String> {
        if self.over.is_some() && self.minus.is_some() {
            return Some("a quotient and a difference at once".to_owned());
        }
        let compared = self.equal().is_some();
        match self.bound {
            Bound::Order(_) if !compared => Some("an order of what with what".to_owned()),
            Bound::WithinShare((_, off)) | Bound::Within((_, off)) if off.is_nan() || off < 0.0 => {
                Some("a tolerance below zero".to_owned())
            }
            Bound::Between((least, most)) if least.is_nan() || most.is_nan() || least > most => {
                Some("the least is above the most".to_owned())
            }
            Bound::Between((least, most)) if least.is_infinite() || most.is_infinite() => {
                Some("bounded on one side alone".to_owned())
            }
            _ => None,
        }
    }

    /// What the number is where both things compared are equal; none where it compares nothing.
    fn equal(&self) -> Option<f64> {
        match (&self.over, &self.minus, self.take) {
            (_, Some(_), _) => Some(0.0),
            (Some(_), ..) | (.., Take::Ends) => Some(1.0),
            _ => None,
        }
    }

    /// How far a number is beyond what is allowed; at most zero if it is not.
    pub fn excess(&self, value: f64) -> f64 {
        // What is no number holds nothing.
        if value.is_nan() {
            return f64::INFINITY;
        }
        let equal = self.equal().unwrap_or(0.0);
        // A number on its bound is within, however it was rounded on its way there.
        let beyond = |excess: f64, bound: f64| excess - 1e-9 * bound.abs();
        match self.bound {
            Bound::WithinShare((expect, share)) => {
                beyond((value - expect).abs() - share * expect.abs(), expect)
            }
            Bound::Within((expect, off)) => beyond((value - expect).abs() - off, expect.max(off)),
            Bound::Between((least, most)) => {
                beyond(least - value, least).max(beyond(value - most, most))
            }
            // Equal is on neither side.
            Bound::Order(Order::Above) if value <= equal => (equal - value).max(f64::MIN_POSITIVE),
            Bound::Order(Order::Below) if value >= equal => (value - equal).max(f64::MIN_POSITIVE),
            Bound::Order(Order::Above) => equal - value,
            Bound::Order(Order::Below) => value - equal,
        }
    }

    /// What is allowed, in words.
    pub fn tolerance(&self) -> String {
        use super::check::short;
        match self.bound {
            Bound::WithinShare((expect, share)) => {
                format!("{} ± {} %", short(expect), short(share * 100.0))
            }
            Bound::Within((expect, 0.0)) => short(expect),
            Bound::Within((expect, off)) => format!("{} ± {}", short(expect), short(off)),
            Bound::Between((least, most)) => format!("{} to {}", short(least), short(most)),
            Bound::Order(order) => {
                let side = if order == Order::Above {
                    "above"
                } else {
                    "below"
                };
                format!("{side} {}", short(self.equal().unwrap_or(0.0)))
            }
        }
    }
}

impl Take {
    /// The least that such a number can be.
    pub fn least(self) -> f64 {
        match self {
            Self::Spread | Self::Apart => 1.0,
            Self::Rise | Self::Fall => 0.0,
            Self::Each | Self::Mean | Self::Greatest | Self::Ends => f64::NEG_INFINITY,
        }
    }
}

impl Basis {
    /// Whether it is the paper's word.
    pub fn is_stated(&self) -> bool {
        matches!(self, Self::Stated(_))
    }
}
