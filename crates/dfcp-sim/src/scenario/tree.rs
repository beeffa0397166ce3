//! A TOML document as a tree whose every key and value knows where it was written, so that an
//! error found late still names its line, also in a value that a sweep has put in.

use std::fmt;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A byte in one of a document's sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// 0 for the file, then one for each value set from outside.
    pub source: usize,
    /// Bytes from the source's beginning.
    pub offset: usize,
}

/// Something wrong at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub place: Place,
    pub message: String,
}

impl Fault {
    pub fn new(place: Place, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { place, message }
    }

    /// The fault with more to say.
    pub fn and(mut self, more: &str) -> Self {
        self.message.push_str(more);
        self
    }
}

/// A value and its place. Equality is of values.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub value: Value,
    pub place: Place,
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    String(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Array(Vec<Node>),
    Table(Table),
}

/// Keys in the order in which they were written.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Table(pub Vec<Entry>);

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub key: String,
    /// Of the key.
    pub place: Place,
    pub node: Node,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.node == other.node
    }
}

impl Table {
    /// Parses TOML.
    pub fn parse(text: &str, source: usize) -> Result<Self, Fault> {
        let table = DeTable::parse(text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            Fault::new(Place { source, offset }, error.message())
        })?;
        convert_table(table.into_inner(), source)
    }

    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.key == key)
    }

    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.node)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        self.0
            .iter_mut()
            .find(|entry| entry.key == key)
            .map(|entry| &mut entry.node)
    }

    /// The items of a list; none where it is missing.
    pub fn list(&self, key: &str) -> Result<&[Node], Fault> {
        self.get(key).map_or(Ok(&[]), Node::list)
    }

    /// Sets a key, keeping its position if it exists.
    pub fn set(&mut self, entry: Entry) {
        match self.0.iter_mut().find(|old| old.key == entry.key) {
            Some(old) => *old = entry,
            None => self.0.push(entry),
        }
    }

    /// Sets a key to something that nobody wrote.
    pub fn put(&mut self, key: &str, value: Value) {
        self.set(Entry {
            key: key.to_owned(),
            place: Place::default(),
            node: value.into(),
        });
    }
}

/// A value that nobody wrote.
impl From<Value> for Node {
    fn from(value: Value) -> Self {
        let place = Place::default();
        Self { value, place }
    }
}

impl FromIterator<Value> for Value {
    fn from_iter<T: IntoIterator<Item = Value>>(values: T) -> Self {
        Self::Array(values.into_iter().map(Node::from).collect())
    }
}

impl Node {
    /// What kind of value it is, in the words of an error.
    pub fn kind(&self) -> &'static str {
        match self.value {
            Value::String(_) => "a string",
            Value::Integer(_) | Value::Float(_) => "a number",
            Value::Boolean(_) => "true or false",
            Value::Array(_) => "a list",
            Value::Table(_) => "a table",
        }
    }

    pub fn table(&self) -> Result<&Table, Fault> {
        match &self.value {
            Value::Table(table) => Ok(table),
            _ => Err(Fault::new(
                self.place,
                format!("{self} should be a table, it is {}", self.kind()),
            )),
        }
    }

    /// Where a key of a table is written; the table where it is missing.
    pub fn place_of(&self, key: &str) -> Place {
        let stated = self.table().ok().and_then(|table| table.get(key));
        stated.map_or(self.place, |stated| stated.place)
    }

    pub fn list(&self) -> Result<&[Node], Fault> {
        match &self.value {
            Value::Array(list) => Ok(list),
            _ => Err(Fault::new(
                self.place,
                format!("{self} should be a list: write [{self}]"),
            )),
        }
    }
}

fn convert_table(table: DeTable<'_>, source: usize) -> Result<Table, Fault> {
    let entries = table.into_iter().map(|(key, value)| {
        Ok(Entry {
            place: Place {
                source,
                offset: key.span().start,
            },
            key: key.into_inner().into_owned(),
            node: convert(value, source)?,
        })
    });
    Ok(Table(entries.collect::<Result<_, _>>()?))
}

fn convert(value: Spanned<DeValue<'_>>, source: usize) -> Result<Node, Fault> {
    let offset = value.span().start;
    let place = Place { source, offset };
    let bad = |what| Fault::new(place, what);
    let value = match value.into_inner() {
        DeValue::String(text) => Value::String(text.into_owned()),
        DeValue::Integer(n) => Value::Integer(
            i64::from_str_radix(n.as_str(), n.radix())
                .map_err(|_| bad("this number is too large"))?,
        ),
        DeValue::Float(n) => Value::Float(
            n.as_str()
                .parse()
                .ok()
                .filter(|n: &f64| n.is_finite())
                .ok_or_else(|| bad("this is not a finite number"))?,
        ),
        DeValue::Boolean(flag) => Value::Boolean(flag),
        DeValue::Datetime(_) => return Err(bad("no setting is a date")),
        DeValue::Array(items) => Value::Array(
            items
                .into_iter()
                .map(|item| convert(item, source))
                .collect::<Result<_, _>>()?,
        ),
        DeValue::Table(table) => Value::Table(convert_table(table, source)?),
    };
    Ok(Node { value, place })
}

/// As TOML on one line.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Value::String(text) => write_string(f, text),
            Value::Integer(n) => write!(f, "{n}"),
            Value::Float(n) => write!(f, "{n:?}"),
            Value::Boolean(flag) => write!(f, "{flag}"),
            Value::Array(items) => {
                f.write_str("[")?;
                for (index, item) in items.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{item}")?;
                }
                f.write_str("]")
            }
            Value::Table(table) => {
                f.write_str("{")?;
                for (index, entry) in table.0.iter().enumerate() {
                    let comma = if index == 0 { " " } else { ", " };
                    write!(f, "{comma}{} = {}", Key(&entry.key), entry.node)?;
                }
                f.write_str(" }")
            }
        }
    }
}

/// A key as TOML writes it: bare where it can be.
pub(super) struct Key<'a>(pub &'a str);

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if !self.0.is_empty() && self.0.chars().all(bare) {
            f.write_str(self.0)
        } else {
            write_string(f, self.0)
        }
    }
}

fn write_string(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            c if c.is_control() => write!(f, "\\U{:08X}", u32::from(c))?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

/// As a TOML document: sections one level deep, lists of tables as `[[…]]`, the rest inline.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_lines(f, self, |node| {
            !matches!(node.value, Value::Table(_)) && !is_list_of_tables(node)
        })?;
        for entry in &self.0 {
            let key = Key(&entry.key);
            match &entry.node.value {
                Value::Table(table) if entry.key == "link" => {
                    for link in &table.0 {
                        let Value::Table(table) = &link.node.value else {
                            continue;
                        };
                        writeln!(f, "\n[link.{}]", Key(&link.key))?;
                        write_lines(f, table, |_| true)?;
                    }
                }
                Value::Table(table) => {
                    writeln!(f, "\n[{key}]")?;
                    write_lines(f, table, |_| true)?;
                }
                Value::Array(items) if is_list_of_tables(&entry.node) => {
                    for item in items {
                        writeln!(f, "\n[[{key}]]")?;
                        if let Value::Table(table) = &item.value {
                            write_lines(f, table, |_| true)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn is_list_of_tables(node: &Node) -> bool {
    matches!(&node.value, Value::Array(items)
        if items.first().is_some_and(|item| matches!(item.value, Value::Table(_))))
}

fn write_lines(
    f: &mut fmt::Formatter<'_>,
    table: &Table,
    keep: impl Fn(&Node) -> bool,
) -> fmt::Result {
    for entry in table.0.iter().filter(|entry| keep(&entry.node)) {
        writeln!(f, "{} = {}", Key(&entry.key), entry.node)?;
    }
    Ok(())
}
