//! `[sweep]`: one scenario for each combination of values and each seed, made one at a time.

use std::collections::BTreeMap;

use super::cases::{self, Setting};
use super::document::{Document, LeftOut, set_at};
use super::fields::unknown_key;
use super::tree::{Entry, Fault, Node, Place, Table, Value};
use super::units::Quantity;
use super::{Scenario, ScenarioError};

/// All points of a sweep. Points are numbered from zero; the last axis of the grid varies faster
/// than the first, seeds fastest of all.
#[derive(Clone, Debug)]
pub struct Sweep {
    document: Document,
    axes: Vec<Axis>,
    seeds: Vec<u64>,
}

/// What changes together.
#[derive(Clone, Debug)]
struct Axis {
    /// Its parameters: dotted paths, or the name of an axis of cases.
    names: Vec<String>,
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
struct Step {
    /// The value of each parameter.
    values: Vec<Node>,
    /// What is set.
    settings: Vec<Setting>,
}

/// One run of a sweep.
#[derive(Clone, Debug)]
pub struct Point {
    /// Its number.
    pub index: usize,
    /// The swept values, in the order of [`Sweep::parameters`].
    pub parameters: Vec<Parameter>,
    /// The seed of the run.
    pub seed: u64,
    /// What to run.
    pub scenario: Scenario,
}

/// A value that a sweep has set.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// The dotted path.
    pub name: String,
    /// The value as the file has it, strings without quotes.
    pub text: String,
    /// The value as a number: quantities in seconds, bits a second, bytes, packets.
    pub number: Option<f64>,
    /// The unit of `number`: `s`, `bit/s`, `B`, `packets`, `bdp`; empty for plain numbers.
    pub unit: &'static str,
}

impl Sweep {
    /// Reads a scenario with a sweep; see [`Document::sweep`].
    ///
    /// # Errors
    /// As for [`Scenario::from_toml`], for every swept value on its own.
    pub fn from_toml(text: &str, file: &str) -> Result<Self, ScenarioError> {
        Document::parse(text, file)?.sweep()
    }

    pub(super) fn new(mut document: Document) -> Result<Self, ScenarioError> {
        document.leave_out_unread();
        let base = document.scenario()?;
        let mut sweep = Self {
            seeds: vec![base.run.seed.0],
            axes: Vec::new(),
            document,
        };
        (sweep.read()).map_err(|fault| sweep.document.error(fault))?;
        for (axis, Axis { steps, .. }) in sweep.axes.iter().enumerate() {
            for step in 0..steps.len() {
                let mut chosen = vec![0; sweep.axes.len()];
                chosen[axis] = step;
                sweep.scenario(&chosen, sweep.seeds[0])?;
            }
        }
        Ok(sweep)
    }

    fn read(&mut self) -> Result<(), Fault> {
        let Some(node) = self.document.root.get("sweep") else {
            return Ok(());
        };
        for entry in &node.table()?.0 {
            match entry.key.as_str() {
                "seeds" => self.seeds = seeds(&entry.node)?,
                "grid" => {
                    for key in leaves(entry.node.table()?, "") {
                        self.axes.push(axis(vec![key])?);
                    }
                }
                "cases" => {
                    for axis in &entry.node.table()?.0 {
                        self.axes.push(axis_of_cases(axis)?);
                    }
                }
                "zip" => {
                    for group in entry.node.list()? {
                        self.axes.push(axis(leaves(group.table()?, ""))?);
                    }
                }
                key => {
                    let known = ["seeds", "cases", "grid", "zip"];
                    return Err(unknown_key(key, entry.place, "[sweep]", &known));
                }
            }
        }
        self.check_once()
    }

    /// No two axes set the same.
    fn check_once(&self) -> Result<(), Fault> {
        let mut paths = BTreeMap::new();
        for (number, axis) in self.axes.iter().enumerate() {
            let settings = axis.steps.iter().flat_map(|step| &step.settings);
            for (path, place, _) in settings {
                if *paths.entry(path).or_insert(number) != number {
                    return Err(Fault::new(*place, format!("`{path}` is swept twice")));
                }
            }
        }
        Ok(())
    }

    /// Number of points: combinations times seeds.
    pub fn len(&self) -> usize {
        let combinations = self.axes.iter().map(|axis| axis.steps.len());
        combinations.fold(self.seeds.len(), usize::saturating_mul)
    }

    /// Never: without `[sweep]` there is the scenario itself.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The swept paths, and the names of the axes of cases.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        let names = self.axes.iter().flat_map(|axis| &axis.names);
        names.map(String::as_str)
    }

    /// Cases left out because of files that cannot be read.
    pub fn left_out(&self) -> &[LeftOut] {
        self.document.left_out()
    }

    /// The seeds of each combination.
    pub fn seeds(&self) -> &[u64] {
        &self.seeds
    }

    /// The `index`-th point.
    ///
    /// # Errors
    /// This combination of values makes no scenario, or there is no such point.
    pub fn point(&self, index: usize) -> Result<Point, ScenarioError> {
        if index >= self.len() {
            let message = format!("there is no point {index}, only {}", self.len());
            return Err(self.document.error(Fault::new(Place::default(), message)));
        }
        let seed = self.seeds[index % self.seeds.len()];
        let mut rest = index / self.seeds.len();
        let mut chosen = vec![0; self.axes.len()];
        for (step, axis) in chosen.iter_mut().zip(&self.axes).rev() {
            *step = rest % axis.steps.len();
            rest /= axis.steps.len();
        }
        let parameters = self.axes.iter().zip(&chosen).flat_map(|(axis, step)| {
            let values = axis.names.iter().zip(&axis.steps[*step].values);
            values.map(|(name, node)| Parameter::new(name, node))
        });
        Ok(Point {
            index,
            parameters: parameters.collect(),
            seed,
            scenario: self.scenario(&chosen, seed)?,
        })
    }

    fn scenario(&self, chosen: &[usize], seed: u64) -> Result<Scenario, ScenarioError> {
        let mut document = self.document.clone();
        for (axis, step) in self.axes.iter().zip(chosen) {
            for setting in &axis.steps[*step].settings {
                cases::lay(&mut document.root, setting.clone())
                    .map_err(|fault| self.document.error(fault))?;
            }
        }
        let place = Place::default();
        let value = Value::Integer(i64::try_from(seed).unwrap_or(i64::MAX));
        set_at(&mut document.root, "run.seed", Node { value, place }, place)
            .map_err(|fault| self.document.error(fault))?;
        document.scenario()
    }

    /// The file with every default and the sweep written out.
    ///
    /// # Errors
    /// None once the sweep has been read.
    pub fn to_toml_with_defaults(&self) -> Result<String, ScenarioError> {
        self.document.to_toml_with_defaults()
    }

    /// A hash of everything that decides what the points are.
    ///
    /// # Errors
    /// None once the sweep has been read.
    pub fn hash(&self) -> Result<String, ScenarioError> {
        Ok(self.document.hash(&self.to_toml_with_defaults()?))
    }
}

impl Parameter {
    fn new(path: &str, node: &Node) -> Self {
        let quantity = match &node.value {
            Value::String(text) => Quantity::parse(text).and_then(Quantity::plottable),
            Value::Integer(number) => Some((*number as f64, "")),
            Value::Float(number) => Some((*number, "")),
            _ => None,
        };
        let text = match &node.value {
            Value::String(text) => text.clone(),
            _ => node.to_string(),
        };
        Self {
            name: path.to_owned(),
            text,
            number: quantity.map(|(number, _)| number),
            unit: quantity.map_or("", |(_, unit)| unit),
        }
    }
}

pub(super) type Leaf<'a> = (String, Place, &'a Node);

/// Everything in nested tables that is no table, by its dotted path.
pub(super) fn leaves<'a>(table: &'a Table, prefix: &str) -> Vec<Leaf<'a>> {
    let mut found = Vec::new();
    for entry in &table.0 {
        let path = format!("{prefix}{}", entry.key);
        match &entry.node.value {
            Value::Table(inner) => found.extend(leaves(inner, &format!("{path}."))),
            _ => found.push((path, entry.place, &entry.node)),
        }
    }
    found
}

fn axis(leaves: Vec<Leaf<'_>>) -> Result<Axis, Fault> {
    let mut keys = Vec::new();
    let mut lists = Vec::new();
    for (path, place, node) in leaves {
        let list = node.list()?;
        let length = lists
            .first()
            .map_or(list.len(), |first: &&[Node]| first.len());
        if list.is_empty() {
            return Err(Fault::new(node.place, format!("`{path}` has no values")));
        }
        if list.len() != length {
            let message = format!(
                "`{path}` has {} values, the parameter it is zipped with has {length}",
                list.len()
            );
            return Err(Fault::new(place, message));
        }
        check_path(&path, place)?;
        keys.push((path, place));
        lists.push(list);
    }
    let steps = lists.first().map_or(0, |list| list.len());
    let step = |index: usize| {
        let values: Vec<Node> = lists.iter().map(|list| list[index].clone()).collect();
        let settings = keys.iter().zip(&values);
        let settings = settings.map(|((path, place), node)| (path.clone(), *place, node.clone()));
        Step {
            settings: settings.collect(),
            values,
        }
    };
    let steps = (0..steps.max(1)).map(step).collect();
    Ok(Axis {
        names: keys.into_iter().map(|(path, _)| path).collect(),
        steps,
    })
}

/// The axis `[sweep.cases.NAME]`: a step for each case.
fn axis_of_cases(axis: &Entry) -> Result<Axis, Fault> {
    let mut steps = Vec::new();
    for case in &axis.node.table()?.0 {
        let settings = cases::settings(&case.node)?;
        for (path, place, _) in &settings {
            check_path(path, *place)?;
        }
        let name = Node {
            value: Value::String(case.key.clone()),
            place: case.place,
        };
        steps.push(Step {
            values: vec![name],
            settings,
        });
    }
    if steps.is_empty() {
        let message = format!("`{}`: there is no case, or all were left out", axis.key);
        return Err(Fault::new(axis.place, message));
    }
    Ok(Axis {
        names: vec![axis.key.clone()],
        steps,
    })
}

/// What makes a sweep, or the file, cannot be part of it.
fn check_path(path: &str, place: Place) -> Result<(), Fault> {
    if matches!(path.split('.').next(), Some("sweep" | "schema")) || path == "run.seed" {
        let message = format!("`{path}` cannot be swept here; seeds go into `sweep.seeds`");
        return Err(Fault::new(place, message));
    }
    Ok(())
}

/// A list, or `"1..10"`, both included.
fn seeds(node: &Node) -> Result<Vec<u64>, Fault> {
    let wrong = |node: &Node| {
        let message = format!("`seeds`: {node} should be \"1..10\" or a list such as [1, 2, 3]");
        Fault::new(node.place, message)
    };
    match &node.value {
        Value::String(range) => {
            let (first, last) = range.split_once("..").ok_or_else(|| wrong(node))?;
            let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong(node));
            let (first, last) = (number(first)?, number(last)?);
            if first > last || last - first >= 1_000_000 {
                return Err(wrong(node));
            }
            Ok((first..=last).map(u64::from).collect())
        }
        Value::Array(items) if !items.is_empty() => items
            .iter()
            .map(|item| match item.value {
                Value::Integer(seed) => u64::try_from(seed).map_err(|_| wrong(item)),
                _ => Err(wrong(item)),
            })
            .collect(),
        _ => Err(wrong(node)),
    }
}
