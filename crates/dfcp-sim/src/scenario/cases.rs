//! `[sweep.cases.AXIS.NAME]`: named sets of settings, each laid over the file as a whole.
//!
//! A grid varies single values; what differs between two paths or two networks is several values
//! at once, and not the same ones. So a case is a table of any settings, written as they would be
//! at the top of the file: what it does not name stays as the file has it, table by table, and a
//! list is replaced as a whole.
//!
//! Invariant: a case that needs a file that cannot be read is left out and named, and costs the
//! other cases nothing.

use super::document::{Document, LeftOut, find_item, named_files, set_at};
use super::sweep::leaves;
use super::tree::{Entry, Fault, Node, Place, Table, Value};
use super::{ScenarioError, fields};

/// A setting of a case: its dotted path, where it is written, its value.
pub(super) type Setting = (String, Place, Node);

impl Document {
    /// The names of all cases of all axes, in the order of the file; of those left out too.
    pub fn cases(&self) -> Vec<String> {
        let present = self.all_cases().map(|(_, name, _)| name.to_owned());
        let absent = self.left_out.iter().map(|left| left.case.clone());
        present.chain(absent).collect()
    }

    /// The cases whose files cannot be read, with the reasons.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Lays the case called `name` over the document for good; the sweep goes.
    ///
    /// # Errors
    /// There is no such case, it was left out, or its settings lead nowhere.
    pub fn choose(&mut self, name: &str) -> Result<(), ScenarioError> {
        let place = self
            .root
            .entry("sweep")
            .map_or(Place::default(), |e| e.place);
        if let Some(left) = self.left_out.iter().find(|left| left.case == name) {
            let message = format!("case `{name}` is left out: {}", left.why);
            return Err(self.error(Fault::new(place, message)));
        }
        let found = self.all_cases().find(|(_, case, _)| *case == name);
        let settings = match found.map(|(_, _, node)| settings(node)) {
            Some(Ok(settings)) => settings,
            Some(Err(fault)) => return Err(self.error(fault)),
            None => {
                let names = self.cases();
                let hint = fields::did_you_mean(name, names.iter().map(String::as_str), '`');
                let message = format!("there is no case `{name}`.{hint}");
                return Err(self.error(Fault::new(place, message)));
            }
        };
        for (path, place, node) in settings {
            lay(&mut self.root, (path, place, node)).map_err(|fault| self.error(fault))?;
        }
        self.root.0.retain(|entry| entry.key != "sweep");
        Ok(())
    }

    /// Every case: its axis, its name, its settings.
    fn all_cases(&self) -> impl Iterator<Item = (&str, &str, &Node)> {
        let axes = self.root.get("sweep").and_then(|sweep| get(sweep, "cases"));
        let axes = axes.and_then(|axes| axes.table().ok()).into_iter();
        axes.flat_map(|axes| &axes.0).flat_map(|axis| {
            let cases = axis.node.table().ok().into_iter();
            cases
                .flat_map(|cases| &cases.0)
                .map(|case| (axis.key.as_str(), case.key.as_str(), &case.node))
        })
    }

    /// The cases that name files, with the files.
    pub(super) fn cases_with_files(&self) -> Vec<(String, Vec<String>)> {
        let files = |node: &Node| {
            let mut named = Vec::new();
            if let Value::Table(table) = &node.value {
                named_files(table, &mut named);
            }
            named.into_iter().map(|(file, _)| file).collect::<Vec<_>>()
        };
        self.all_cases()
            .map(|(_, name, node)| (name.to_owned(), files(node)))
            .filter(|(_, files)| !files.is_empty())
            .collect()
    }

    /// Leaves out the cases whose files were never read.
    pub(super) fn leave_out_unread(&mut self) {
        for (case, files) in self.cases_with_files() {
            if let Some(file) = files.iter().find(|file| !self.files.contains_key(*file)) {
                self.leave_out(&case, format!("trace `{file}` is not loaded"));
            }
        }
    }

    /// Leaves a case out.
    pub(super) fn leave_out(&mut self, case: &str, why: String) {
        let axes = self.root.get_mut("sweep").and_then(|sweep| table(sweep));
        let axes = axes
            .and_then(|sweep| sweep.get_mut("cases"))
            .and_then(table);
        for axis in axes.into_iter().flat_map(|axes| &mut axes.0) {
            if let Some(cases) = table(&mut axis.node) {
                cases.0.retain(|entry| entry.key != case);
            }
        }
        self.left_out.push(LeftOut {
            case: case.to_owned(),
            why,
        });
    }
}

/// What a case sets.
pub(super) fn settings(case: &Node) -> Result<Vec<Setting>, Fault> {
    let leaves = leaves(case.table()?, "").into_iter();
    let settings = leaves.map(|(path, place, node)| (path, place, node.clone()));
    Ok(settings.collect())
}

/// Sets a setting. A value that stands where it needs a table goes: `rate = { trace = "file" }`
/// over `rate = "1 Gbit/s"`.
pub(super) fn lay(root: &mut Table, (path, place, node): Setting) -> Result<(), Fault> {
    let (parents, _) = path.rsplit_once('.').unwrap_or(("", &path));
    let mut keys = parents.split('.');
    let mut walked = Some(&mut *root);
    while let (Some(parent), Some(key)) = (walked, keys.next()) {
        let value = |entry: &Entry| {
            entry.key == key && !matches!(entry.node.value, Value::Table(_) | Value::Array(_))
        };
        parent.0.retain(|entry| !value(entry));
        walked = match parent.get_mut(key).map(|node| &mut node.value) {
            Some(Value::Table(table)) => Some(table),
            Some(Value::Array(items)) => {
                let item = keys.next().and_then(|item| find_item(items, item));
                item.and_then(table)
            }
            _ => None,
        };
    }
    set_at(root, &path, node, place)
}

fn get<'a>(node: &'a Node, key: &str) -> Option<&'a Node> {
    node.table().ok()?.get(key)
}

fn table(node: &mut Node) -> Option<&mut Table> {
    match &mut node.value {
        Value::Table(table) => Some(table),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::LinkRate;

    const TEXT: &str = r#"
schema = 1
title = "clean"
run = { duration = "10 s" }
topology = { kind = "dumbbell", rtt = "50 ms" }
link.default = { rate = "unlimited" }
link.bottleneck = { rate = "10 Mbit/s", loss = 0.1 }
flow = [{ protocol = "auto" }]
sweep.seeds = "1..2"
sweep.grid.flow.0.protocol = ["auto", "tcp-cubic"]
sweep.cases.path.far = { title = "a far one", topology.rtt = "200 ms", run.duration = "20 s" }
sweep.cases.path.bursty.link.bottleneck.loss = { share = 0.2, burst = 5 }
sweep.cases.path.recorded.link.bottleneck = { rate = { trace = "t" }, loss = 0.0 }
"#;

    fn document(traces: &[&str]) -> Document {
        let mut document = Document::parse(TEXT, "cases.toml").expect("it is TOML");
        let read = |name: &str| match traces.contains(&name) {
            true => Ok("1\n2\n".to_owned()),
            false => Err("no such file".to_owned()),
        };
        document.load_files(read).expect("only cases name files");
        document
    }

    #[test]
    fn cases_are_an_axis_with_their_names() {
        let sweep = document(&["t"]).sweep().expect("it is a sweep");
        assert_eq!(sweep.len(), 3 * 2 * 2);
        let parameters: Vec<_> = sweep.parameters().collect();
        assert!(parameters.contains(&"path"), "{parameters:?}");
        let points = (0..sweep.len()).map(|index| sweep.point(index).expect("it is one"));
        let of = |name: &str| {
            let has = |point: &crate::scenario::Point| {
                point
                    .parameters
                    .iter()
                    .any(|parameter| parameter.text == name)
            };
            points.clone().find(has).expect("it is there").scenario
        };
        let far = of("far");
        assert_eq!(
            (far.title.as_str(), far.run.duration.as_secs_f64()),
            ("a far one", 20.0)
        );
        assert_eq!(far.rtt(&far.flows[0]).as_secs_f64(), 0.2);
        // A table over a value, and what a case does not name stays.
        let bursty = of("bursty");
        let bottleneck = |scenario: &crate::scenario::Scenario| {
            let link = scenario.links.iter().find(|link| link.name == "bottleneck");
            link.expect("a dumbbell has one").config.clone()
        };
        assert!((bottleneck(&bursty).loss.mean_loss() - 0.2).abs() < 1e-9);
        assert_eq!(bursty.title, "clean");
        assert!(matches!(
            bottleneck(&of("recorded")).rate,
            LinkRate::Trace(_)
        ));
    }

    #[test]
    fn a_case_whose_trace_is_missing_is_left_out() {
        let mut document = document(&[]);
        assert_eq!(document.cases(), ["far", "bursty", "recorded"]);
        assert_eq!(document.left_out()[0].case, "recorded");
        let error = document.choose("recorded").expect_err("it is left out");
        assert!(error.message.contains("no such file"), "{error}");
        let sweep = document.clone().sweep().expect("the others are there");
        assert_eq!((sweep.len(), sweep.left_out().len()), (2 * 2 * 2, 1));
        document.choose("far").expect("it is there");
        assert_eq!(document.scenario().expect("it is one").title, "a far one");
        assert_eq!(document.sweep().expect("nothing is swept").len(), 1);
    }

    #[test]
    fn mistakes_in_cases_are_named() {
        let error = document(&["t"]).choose("fare").expect_err("there is none");
        assert!(error.message.contains("Did you mean `far`?"), "{error}");
        let sweep = |line: &str| {
            let document = Document::parse(&format!("{TEXT}\n{line}\n"), "cases.toml");
            document
                .and_then(Document::sweep)
                .expect_err(line)
                .to_string()
        };
        let twice = sweep("sweep.cases.path.twice.flow.0.protocol = \"auto\"");
        assert!(twice.contains("swept twice"), "{twice}");
        let seed = sweep("sweep.cases.path.seed.run.seed = 3");
        assert!(seed.contains("sweep.seeds"), "{seed}");
    }
}
