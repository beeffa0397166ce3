//! What of the papers' figures is measured on a real path, as data: which scenarios, changed how so
//! that a machine of a few processors can run them, and which items they decide.
//!
//! Both worlds run the changed scenario, so that the simulated curve is of what the real one
//! measured, not of the paper's size.

use std::collections::BTreeMap;

use dfcp_command::Failure;
use serde::Deserialize;
use serde_json::Value;

use crate::sim::figures::Size;
use crate::sim::figures::catalogue::{Catalogue, Entry, Item};
use crate::sim::figures::papers::Paper;

/// Dotted paths and values.
type Settings = BTreeMap<String, Value>;

/// What of a paper is measured.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What stands at the head of the page.
    pub note: String,
    /// What both worlds' scenarios are changed by, all of them.
    #[serde(default)]
    settings: Settings,
    #[serde(rename = "scenario")]
    scenarios: Vec<Scaled>,
    #[serde(rename = "figure")]
    figures: Vec<Figure>,
}

/// A scenario of `scenarios/figures` as it is run here.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scaled {
    /// Its name, without `.toml`.
    pub name: String,
    /// What is other than in the paper, for readers.
    pub scaled: String,
    /// Points that one machine runs at the same time without making each other late: more than one
    /// where rates are low.
    #[serde(default = "one")]
    pub at_once: usize,
    #[serde(default)]
    settings: Settings,
    /// What a quick run changes besides.
    #[serde(default)]
    quick: Settings,
}

fn one() -> usize {
    1
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    /// The item of `dfcp sim figures` that it is measured for.
    item: String,
    /// What to know of the real one.
    #[serde(default)]
    note: String,
    /// Of a time series: from when on its mean counts, seconds.
    #[serde(default)]
    mean_from: f64,
    /// Whether it is left out of quick runs.
    #[serde(default)]
    full_only: bool,
}

/// An item to be measured.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// What it is.
    pub item: &'a Item,
    /// The scenario that decides it.
    pub scenario: &'a Scaled,
    /// What to know of the real one.
    pub note: &'a str,
    /// Of a time series: from when on its mean counts, seconds.
    pub mean_from: f64,
}

impl Plan {
    /// What is measured of a paper.
    ///
    /// # Errors
    /// A usage failure for what has no testbed figures.
    pub fn of(paper: Paper) -> Result<Self, Failure> {
        let (name, text) = match paper {
            Paper::Dfcp => ("dfcp.toml", include_str!("dfcp.toml")),
            Paper::Ctcp => ("ctcp.toml", include_str!("ctcp.toml")),
            Paper::Rcudp => ("rcudp.toml", include_str!("rcudp.toml")),
            Paper::Chameleon => ("chameleon.toml", include_str!("chameleon.toml")),
            Paper::Together => ("together.toml", include_str!("together.toml")),
            Paper::Ablation => {
                let message =
                    "ablation has parts that no real sender has: `dfcp sim figures ablation`";
                return Err(Failure::usage(message));
            }
            Paper::Reasons => {
                let message =
                    "what decides a simulated figure is simulated: `dfcp sim figures reasons`";
                return Err(Failure::usage(message));
            }
        };
        toml::from_str(text).map_err(|error| Failure::usage(format!("{name}: {error}")))
    }

    /// The items to measure, those named or else all of a size.
    ///
    /// # Errors
    /// An item that is not known.
    pub fn wanted<'a>(
        &'a self,
        catalogue: &'a Catalogue,
        only: &[String],
        size: Size,
    ) -> Result<Vec<Wanted<'a>>, Failure> {
        let known = |id: &&String| self.figures.iter().any(|figure| figure.item == **id);
        if let Some(unknown) = only.iter().find(|id| !known(id)) {
            let ids: Vec<_> = self.figures.iter().map(|own| own.item.as_str()).collect();
            let message = format!(
                "no item {unknown} on a real path; there are {}",
                ids.join(", ")
            );
            return Err(Failure::usage(message));
        }
        let is_wanted = |figure: &&Figure| match only {
            [] => size == Size::Full || !figure.full_only,
            only => only.contains(&figure.item),
        };
        let wanted = |figure: &'a Figure| {
            let id = &figure.item;
            let items = &mut catalogue.items.iter();
            let item = items.find(|item| item.id == *id);
            let item = item.ok_or_else(|| Failure::usage(format!("no item {id}")))?;
            let scenario = self.scenarios.iter().find(|own| own.name == item.scenario);
            let scenario = scenario.ok_or_else(|| {
                let name = &item.scenario;
                Failure::usage(format!("{id}: no scenario {name} on a real path"))
            })?;
            Ok(Wanted {
                item,
                scenario,
                note: &figure.note,
                mean_from: figure.mean_from,
            })
        };
        self.figures.iter().filter(is_wanted).map(wanted).collect()
    }

    /// A scenario with all that is changed of it for a size.
    pub fn entry(&self, scenario: &Scaled, size: Size) -> Entry {
        let mut settings = self.settings.clone();
        settings.extend(scenario.settings.clone());
        if size == Size::Quick {
            settings.extend(scenario.quick.clone());
        }
        Entry {
            name: scenario.name.clone(),
            quick: settings,
        }
    }
}
