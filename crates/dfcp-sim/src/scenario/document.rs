//! A scenario file that has been parsed but not yet understood: values can still be set.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::tree::{Entry, Fault, Node, Place, Table, Value};
use super::{Scenario, ScenarioError, Sweep, build};

/// The text of a scenario as a tree, with the files it refers to.
///
/// ```
/// # use dfcp_sim::scenario::Document;
/// let text = r#"
/// schema = 1
/// topology.kind = "dumbbell"
/// link.default.rate = "1 Gbit/s"
/// flow = [{ protocol = "tcp-cubic" }]
/// "#;
/// let mut document = Document::parse(text, "dumbbell.toml")?;
/// document.set("link.bottleneck.loss", "0.01")?;
/// let scenario = document.scenario()?;
/// assert_eq!(scenario.flows.len(), 1);
/// # Ok::<(), dfcp_sim::scenario::ScenarioError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Document {
    sources: Vec<Source>,
    pub(super) root: Table,
    pub(super) files: BTreeMap<String, Arc<str>>,
    pub(super) left_out: Vec<LeftOut>,
}

/// A case of a sweep that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Its name.
    pub case: String,
    /// Which file cannot be read, and why.
    pub why: String,
}

#[derive(Clone, Debug)]
struct Source {
    name: String,
    /// `None` for a value set from outside, which has no lines.
    text: Option<Arc<str>>,
}

impl Document {
    /// Parses TOML. `file` is the name that errors show.
    ///
    /// # Errors
    /// The text is no TOML.
    pub fn parse(text: &str, file: &str) -> Result<Self, ScenarioError> {
        let mut document = Self {
            sources: vec![Source {
                name: file.to_owned(),
                text: Some(Arc::from(text)),
            }],
            root: Table::default(),
            files: BTreeMap::new(),
            left_out: Vec::new(),
        };
        document.root = Table::parse(text, 0).map_err(|fault| document.error(fault))?;
        Ok(document)
    }

    /// Sets the value at a dotted path such as `link.bottleneck.loss` or `flow.0.tcp.mss`; flows
    /// and changes are counted from zero, flows may be named. What is no TOML value is taken as a
    /// string, so that `10 ms` needs no quotes.
    ///
    /// # Errors
    /// The path leads nowhere. Whether the value makes sense is found out later.
    pub fn set(&mut self, path: &str, value: &str) -> Result<(), ScenarioError> {
        let source = self.sources.len();
        self.sources.push(Source {
            name: format!("{path}={value}"),
            text: None,
        });
        let place = Place { source, offset: 0 };
        let parsed = Table::parse(&format!("value = {value}"), source).ok();
        let node = match parsed.as_ref().map(|table| table.0.as_slice()) {
            Some([entry]) => entry.node.clone(),
            _ => Node {
                value: Value::String(value.to_owned()),
                place,
            },
        };
        set_at(&mut self.root, path, node, place).map_err(|fault| self.error(fault))
    }

    /// Reads every file that the document names (rate traces, loss traces) by `read`. A case of a
    /// sweep whose file cannot be read is left out: see [`Document::left_out`].
    ///
    /// # Errors
    /// `read` failed for a file that is named elsewhere; its message is shown at the line that
    /// names the file.
    pub fn load_files(
        &mut self,
        mut read: impl FnMut(&str) -> Result<String, String>,
    ) -> Result<(), ScenarioError> {
        for (case, files) in self.cases_with_files() {
            for file in files {
                if self.files.contains_key(&file) {
                    continue;
                }
                match read(&file) {
                    Ok(text) => drop(self.files.insert(file, text.into())),
                    Err(why) => {
                        self.leave_out(&case, format!("cannot read trace `{file}`: {why}"));
                        break;
                    }
                }
            }
        }
        let mut named = Vec::new();
        named_files(&self.root, &mut named);
        for (file, place) in named {
            if self.files.contains_key(&file) {
                continue;
            }
            let text = read(&file).map_err(|why| {
                self.error(Fault::new(
                    place,
                    format!("cannot read trace `{file}`: {why}"),
                ))
            })?;
            self.files.insert(file, text.into());
        }
        Ok(())
    }

    /// What the document says that it is about; empty where it does not.
    ///
    /// # Errors
    /// The title is no string.
    pub fn title(&self) -> Result<String, ScenarioError> {
        build::title(&self.root).map_err(|fault| self.error(fault))
    }

    /// What the document means.
    ///
    /// # Errors
    /// The first thing that is wrong, its line, and what would be right.
    pub fn scenario(&self) -> Result<Scenario, ScenarioError> {
        build::build(self).map_err(|fault| self.error(fault))
    }

    /// The sweep that the document describes; a single point for each seed if none.
    ///
    /// # Errors
    /// As for [`Document::scenario`], for every swept value on its own.
    pub fn sweep(self) -> Result<Sweep, ScenarioError> {
        Sweep::new(self)
    }

    /// The document with every default written out.
    ///
    /// # Errors
    /// As for [`Document::scenario`].
    pub fn to_toml_with_defaults(&self) -> Result<String, ScenarioError> {
        let mut table = build::canonical(self).map_err(|fault| self.error(fault))?;
        if let Some(sweep) = self.root.entry("sweep") {
            table.set(sweep.clone());
        }
        Ok(table.to_string())
    }

    /// BLAKE3 of a text and of the files that the document refers to, in hexadecimal.
    pub(super) fn hash(&self, canonical: &str) -> String {
        let mut hasher = blake3::Hasher::new();
        let files = self
            .files
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_ref()));
        for (name, text) in std::iter::once(("", canonical)).chain(files) {
            for part in [name, text] {
                hasher.update(&(part.len() as u64).to_le_bytes());
                hasher.update(part.as_bytes());
            }
        }
        hasher.finalize().to_hex().to_string()
    }

    pub(super) fn error(&self, fault: Fault) -> ScenarioError {
        let source = self.sources.get(fault.place.source);
        let line = source.and_then(|source| source.text.as_ref()).map(|text| {
            let before = text.as_bytes().iter().take(fault.place.offset);
            1 + before.filter(|byte| **byte == b'\n').count()
        });
        ScenarioError {
            file: source.map_or_else(String::new, |source| source.name.clone()),
            line,
            message: fault.message,
        }
    }
}

/// Every `trace = "file"`, also where a sweep lists files.
pub(super) fn named_files(table: &Table, found: &mut Vec<(String, Place)>) {
    for entry in &table.0 {
        let traces = entry.key == "trace" || entry.key.ends_with(".trace");
        visit(&entry.node, traces, found);
    }

    fn visit(node: &Node, traces: bool, found: &mut Vec<(String, Place)>) {
        match &node.value {
            Value::Table(table) => named_files(table, found),
            Value::Array(items) => {
                for item in items {
                    visit(item, traces, found);
                }
            }
            Value::String(file) if traces => found.push((file.clone(), node.place)),
            _ => {}
        }
    }
}

/// Puts `node` at a dotted path; tables on the way are made where they are missing. `place` is
/// where the path was written.
pub(super) fn set_at(root: &mut Table, path: &str, node: Node, place: Place) -> Result<(), Fault> {
    let (parents, last) = path.rsplit_once('.').unwrap_or(("", path));
    if path.split('.').any(str::is_empty) {
        let message = format!("`{path}` is no path: write for example link.bottleneck.loss");
        return Err(Fault::new(place, message));
    }
    let mut table = root;
    let mut walked = String::new();
    let mut keys = parents.split('.').filter(|key| !key.is_empty());
    while let Some(key) = keys.next() {
        if !walked.is_empty() {
            walked.push('.');
        }
        walked.push_str(key);
        if table.get(key).is_none() {
            table.set(Entry {
                key: key.to_owned(),
                place,
                node: Node {
                    value: Value::Table(Table::default()),
                    place,
                },
            });
        }
        let mut next = table.get_mut(key).map(|node| &mut node.value);
        if let Some(Value::Array(items)) = next {
            let item = keys.next().unwrap_or(last);
            next = find_item(items, item).map(|node| &mut node.value);
            if next.is_none() {
                return Err(Fault::new(
                    place,
                    format!("`{path}`: there is no `{walked}.{item}`; they count from 0"),
                ));
            }
        }
        table = match next {
            Some(Value::Table(table)) => table,
            _ => {
                let message = format!("`{path}`: `{walked}` is no table, it holds nothing");
                return Err(Fault::new(place, message));
            }
        };
    }
    table.set(Entry {
        key: last.to_owned(),
        place,
        node,
    });
    Ok(())
}

/// An item of a list by its number or by its name.
pub(super) fn find_item<'a>(items: &'a mut [Node], key: &str) -> Option<&'a mut Node> {
    let named = |node: &Node| {
        let name = node.table().ok().and_then(|table| table.get("name"));
        matches!(name.map(|node| &node.value), Some(Value::String(name)) if name == key)
    };
    let index = match key.parse() {
        Ok(index) => index,
        Err(_) => items.iter().position(named)?,
    };
    items.get_mut(index)
}
