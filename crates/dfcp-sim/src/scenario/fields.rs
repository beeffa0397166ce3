//! One description of a section both reads and writes it.
//!
//! A [`Section`] names its keys once, each with a [`Codec`]; from that come the reading, the list
//! of known keys for errors, and the text with every default written out. What is not in the file
//! keeps the value the section had before: its default.

use super::tree::{Entry, Fault, Node, Place, Table, Value};
use super::units::{self, Quantity, Units};
use dfcp_proto::{Duration, Instant, Rate};

/// A table of the file with known keys.
pub(super) trait Section: Clone {
    /// Visits every key.
    fn fields(&mut self, fields: &mut Fields<'_>);

    /// Reads `node` over `self`, which holds the defaults. `what` names the section in errors.
    fn read(mut self, node: &Node, what: &str) -> Result<Self, Fault> {
        read_table(node, what, |fields| self.fields(fields))?;
        Ok(self)
    }

    /// The section with everything written out.
    fn write(&self) -> Table {
        let mut fields = Fields(Mode::Write(Table::default()));
        self.clone().fields(&mut fields);
        match fields.0 {
            Mode::Write(table) => table,
            Mode::Read(_) => Table::default(),
        }
    }
}

/// Reads the keys that `visit` names.
fn read_table(node: &Node, what: &str, visit: impl FnOnce(&mut Fields<'_>)) -> Result<(), Fault> {
    let mut fields = Fields(Mode::Read(Reader {
        table: node.table()?,
        known: Vec::new(),
        fault: None,
    }));
    visit(&mut fields);
    match fields.0 {
        Mode::Read(reader) => reader.finish(what),
        Mode::Write(_) => Ok(()),
    }
}

/// How one kind of value is written in the file.
pub(super) trait Codec<T> {
    fn read(&self, node: &Node) -> Result<T, Fault>;
    /// `None` leaves the key out.
    fn write(&self, value: &T) -> Option<Value>;
}

impl<T, C: Codec<T>> Codec<T> for &C {
    fn read(&self, node: &Node) -> Result<T, Fault> {
        (*self).read(node)
    }

    fn write(&self, value: &T) -> Option<Value> {
        (*self).write(value)
    }
}

/// The keys of a section, being read or written.
pub(super) struct Fields<'a>(Mode<'a>);

enum Mode<'a> {
    Read(Reader<'a>),
    Write(Table),
}

struct Reader<'a> {
    table: &'a Table,
    known: Vec<&'static str>,
    /// The first one found.
    fault: Option<Fault>,
}

impl Fields<'_> {
    /// One key.
    pub fn item<T>(&mut self, key: &'static str, value: &mut T, codec: impl Codec<T>) {
        match &mut self.0 {
            Mode::Read(reader) => {
                reader.known.push(key);
                let Some(node) = reader.table.get(key) else {
                    return;
                };
                match codec.read(node) {
                    Ok(read) => *value = read,
                    Err(mut fault) => {
                        fault.message = format!("`{key}`: {}", fault.message);
                        reader.fault.get_or_insert(fault);
                    }
                }
            }
            Mode::Write(table) => {
                if let Some(written) = codec.write(value) {
                    table.put(key, written);
                }
            }
        }
    }

    /// A table within this one, read over what is there.
    pub fn nested<T: Section>(&mut self, key: &'static str, value: &mut T) {
        match &mut self.0 {
            Mode::Read(reader) => {
                reader.known.push(key);
                let read = |node| value.clone().read(node, &format!("`{key}`"));
                match reader.table.get(key).map(read) {
                    Some(Ok(read)) => *value = read,
                    Some(Err(fault)) => {
                        reader.fault.get_or_insert(fault);
                    }
                    None => {}
                }
            }
            Mode::Write(table) => table.put(key, Value::Table(value.write())),
        }
    }

    /// A key that is read elsewhere.
    pub fn known(&mut self, key: &'static str) {
        if let Mode::Read(reader) = &mut self.0 {
            reader.known.push(key);
        }
    }
}

impl Reader<'_> {
    /// A wrong value comes first: which keys there are may hang on it.
    fn finish(self, what: &str) -> Result<(), Fault> {
        let known = &self.known;
        let unknown = |entry: &&Entry| !known.contains(&entry.key.as_str());
        match (self.fault, self.table.0.iter().find(unknown)) {
            (Some(fault), _) => Err(fault),
            (None, Some(entry)) => Err(unknown_key(&entry.key, entry.place, what, known)),
            (None, None) => Ok(()),
        }
    }
}

/// The fault of a key that a section does not have.
pub(super) fn unknown_key(key: &str, place: Place, what: &str, known: &[&str]) -> Fault {
    let hint = did_you_mean(key, known.iter().copied(), '`');
    let known = known.join("`, `");
    Fault::new(
        place,
        format!("{what} has no key `{key}`.{hint} Its keys are `{known}`."),
    )
}

/// What to say of a word that is not among the known ones: which of them, between `quote`s, it was
/// probably meant to be; nothing if none is near.
pub(super) fn did_you_mean<'a>(
    word: &str,
    known: impl Iterator<Item = &'a str>,
    quote: char,
) -> String {
    nearest(word, known).map_or_else(String::new, |near| {
        format!(" Did you mean {quote}{near}{quote}?")
    })
}

/// The known word that `word` was probably meant to be, case ignored.
fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let distance = |known: &str| strsim::levenshtein(&lower, &known.to_lowercase());
    known
        .map(|candidate| (distance(candidate), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len().max(word.len()) / 2)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Any string.
pub(super) struct Text;

impl Codec<String> for Text {
    fn read(&self, node: &Node) -> Result<String, Fault> {
        match &node.value {
            Value::String(text) => Ok(text.clone()),
            _ => fault(node, format!("write it in quotes: \"{node}\"")),
        }
    }

    fn write(&self, value: &String) -> Option<Value> {
        Some(Value::String(value.clone()))
    }
}

/// `true` or `false`.
pub(super) struct Flag;

impl Codec<bool> for Flag {
    fn read(&self, node: &Node) -> Result<bool, Fault> {
        match node.value {
            Value::Boolean(flag) => Ok(flag),
            _ => fault(node, format!("{node} should be true or false")),
        }
    }

    fn write(&self, value: &bool) -> Option<Value> {
        Some(Value::Boolean(*value))
    }
}

/// A number without unit within bounds, both included.
pub(super) struct Number(pub f64, pub f64);

/// A probability.
pub(super) const PROBABILITY: Number = Number(0.0, 1.0);
/// A weight: anything above zero.
pub(super) const WEIGHT: Number = Number(1e-6, 1e6);

impl Codec<f64> for Number {
    fn read(&self, node: &Node) -> Result<f64, Fault> {
        let number = match &node.value {
            Value::Float(number) => *number,
            Value::Integer(number) => *number as f64,
            _ => return fault(node, format!("{node} should be a number such as 0.01")),
        };
        if (self.0..=self.1).contains(&number) {
            Ok(number)
        } else {
            fault(
                node,
                format!("{node} is not within {} to {}", self.0, self.1),
            )
        }
    }

    fn write(&self, value: &f64) -> Option<Value> {
        Some(Value::Float(*value))
    }
}

/// A whole number within bounds, both included.
pub(super) struct Count(pub u64, pub u64);

impl<T: TryFrom<u64> + Copy + Into<u64>> Codec<T> for Count {
    fn read(&self, node: &Node) -> Result<T, Fault> {
        match node.value {
            Value::Integer(number) => within(node, number.try_into().ok(), [self.0, self.1], ""),
            _ => fault(
                node,
                format!("{node} should be a whole number such as {}", self.0),
            ),
        }
    }

    fn write(&self, value: &T) -> Option<Value> {
        i64::try_from((*value).into()).ok().map(Value::Integer)
    }
}

/// A number that is there and within bounds.
fn within<T: TryFrom<u64>>(
    node: &Node,
    number: Option<u64>,
    [least, most]: [u64; 2],
    unit: &str,
) -> Result<T, Fault> {
    let number = number.filter(|number| (least..=most).contains(number));
    let number = number.and_then(|number| T::try_from(number).ok());
    let wrong = || format!("{node} is not within {least} to {most}{unit}");
    number.ok_or_else(|| Fault::new(node.place, wrong()))
}

/// A length of time.
pub(super) struct Time;

impl Codec<Duration> for Time {
    fn read(&self, node: &Node) -> Result<Duration, Fault> {
        quantity(node, units::TIME, "10 ms").map(Duration::from_nanos)
    }

    fn write(&self, value: &Duration) -> Option<Value> {
        let nanos = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
        Some(Value::String(units::format(nanos, units::TIME)))
    }
}

impl Codec<Instant> for Time {
    fn read(&self, node: &Node) -> Result<Instant, Fault> {
        quantity(node, units::TIME, "10 s").map(Instant::from_nanos)
    }

    fn write(&self, value: &Instant) -> Option<Value> {
        Some(Value::String(units::format(value.as_nanos(), units::TIME)))
    }
}

/// A rate above zero.
pub(super) struct BitRate;

impl Codec<Rate> for BitRate {
    fn read(&self, node: &Node) -> Result<Rate, Fault> {
        match quantity(node, units::RATE, "10 Mbit/s")? {
            0 => fault(
                node,
                "a rate of zero moves nothing: for a blackout set `loss = 1`",
            ),
            bps => Ok(Rate::from_bps(bps)),
        }
    }

    fn write(&self, value: &Rate) -> Option<Value> {
        Some(Value::String(units::format(value.as_bps(), units::RATE)))
    }
}

/// A number of bytes within bounds, both included.
pub(super) struct Bytes(pub u64, pub u64);

impl<T: TryFrom<u64> + Copy + Into<u64>> Codec<T> for Bytes {
    fn read(&self, node: &Node) -> Result<T, Fault> {
        let bytes = quantity(node, units::SIZE, "1500 B")?;
        within(node, Some(bytes), [self.0, self.1], " B")
    }

    fn write(&self, value: &T) -> Option<Value> {
        let text = units::format((*value).into(), units::SIZE);
        Some(Value::String(text))
    }
}

/// One of a few words.
pub(super) struct OneOf<'a, T>(pub &'a [(&'a str, T)]);

impl<T: Copy + PartialEq> Codec<T> for OneOf<'_, T> {
    fn read(&self, node: &Node) -> Result<T, Fault> {
        let word = match &node.value {
            Value::String(word) => word.as_str(),
            _ => "",
        };
        if let Some((_, value)) = self.0.iter().find(|(name, _)| *name == word) {
            return Ok(*value);
        }
        let names: Vec<_> = self.0.iter().map(|(name, _)| *name).collect();
        let hint = did_you_mean(word, names.iter().copied(), '"');
        fault(
            node,
            format!(
                "{node} is unknown.{hint} It can be \"{}\".",
                names.join("\", \"")
            ),
        )
    }

    fn write(&self, value: &T) -> Option<Value> {
        let (name, _) = self.0.iter().find(|(_, known)| known == value)?;
        Some(Value::String((*name).to_owned()))
    }
}

/// A rate that is one case of something else, whose other cases are words.
pub(super) struct RateOrWord<'a, T> {
    pub words: &'a [(&'a str, T)],
    pub of: fn(Rate) -> T,
    pub rate: fn(&T) -> Option<Rate>,
}

impl<T: Copy + PartialEq> Codec<T> for RateOrWord<'_, T> {
    fn read(&self, node: &Node) -> Result<T, Fault> {
        let mut words = self.words.iter();
        if let Value::String(word) = &node.value
            && let Some((_, value)) = words.find(|(name, _)| name == word)
        {
            return Ok(*value);
        }
        BitRate.read(node).map(self.of).map_err(|fault| {
            let words: Vec<_> = self.words.iter().map(|(name, _)| *name).collect();
            fault.and(&format!("; or one of \"{}\"", words.join("\", \"")))
        })
    }

    fn write(&self, value: &T) -> Option<Value> {
        match (self.rate)(value) {
            Some(rate) => BitRate.write(&rate),
            None => OneOf(self.words).write(value),
        }
    }
}

/// A value, or a word that stands for `None`.
pub(super) struct OrWord<C>(pub &'static str, pub C);

impl<T, C: Codec<T>> Codec<Option<T>> for OrWord<C> {
    fn read(&self, node: &Node) -> Result<Option<T>, Fault> {
        match &node.value {
            Value::String(word) if word == self.0 => Ok(None),
            _ => {
                let or = format!("; or write \"{}\"", self.0);
                self.1.read(node).map(Some).map_err(|fault| fault.and(&or))
            }
        }
    }

    fn write(&self, value: &Option<T>) -> Option<Value> {
        match value {
            Some(value) => self.1.write(value),
            None => Some(Value::String(self.0.to_owned())),
        }
    }
}

/// A key that may be left out.
pub(super) struct Optional<C>(pub C);

impl<T, C: Codec<T>> Codec<Option<T>> for Optional<C> {
    fn read(&self, node: &Node) -> Result<Option<T>, Fault> {
        self.0.read(node).map(Some)
    }

    fn write(&self, value: &Option<T>) -> Option<Value> {
        self.0.write(value.as_ref()?)
    }
}

/// One value or a list of them.
pub(super) struct ListOf<C>(pub C);

impl<T, C: Codec<T>> Codec<Vec<T>> for ListOf<C> {
    fn read(&self, node: &Node) -> Result<Vec<T>, Fault> {
        match &node.value {
            Value::Array(items) if items.is_empty() => fault(node, "the list is empty"),
            Value::Array(items) => items.iter().map(|item| self.0.read(item)).collect(),
            _ => Ok(vec![self.0.read(node)?]),
        }
    }

    fn write(&self, value: &Vec<T>) -> Option<Value> {
        let mut written = value.iter().filter_map(|item| self.0.write(item));
        match value.len() {
            0 => None,
            1 => written.next(),
            _ => Some(written.collect()),
        }
    }
}

/// A list of `{ at, KEY }` in order of time.
pub(super) struct Timeline<C>(pub &'static str, pub C);

impl<T: Default, C: Codec<T>> Codec<Vec<(Instant, T)>> for Timeline<C> {
    fn read(&self, node: &Node) -> Result<Vec<(Instant, T)>, Fault> {
        let entry = |node: &Node| {
            let (mut at, mut value) = (Instant::ZERO, T::default());
            read_table(node, "an entry", |f| {
                f.item("at", &mut at, Time);
                f.item(self.0, &mut value, &self.1);
            })?;
            Ok((at, value))
        };
        let entries: Vec<_> = node.list()?.iter().map(entry).collect::<Result<_, _>>()?;
        match entries.is_sorted_by(|a, b| a.0 < b.0) {
            true => Ok(entries),
            false => fault(node, "the times must ascend"),
        }
    }

    fn write(&self, value: &Vec<(Instant, T)>) -> Option<Value> {
        let entry = |(at, value): &(Instant, T)| {
            let mut entry = Table::default();
            entry.put("at", Time.write(at)?);
            entry.put(self.0, self.1.write(value)?);
            Some(Value::Table(entry))
        };
        (!value.is_empty()).then(|| value.iter().filter_map(entry).collect())
    }
}

/// One value from the beginning on, or a [`Timeline`] of them; the default one all the time is no entry.
pub(super) struct Varying<C>(pub &'static str, pub C);

impl<T: Default + PartialEq, C: Codec<T>> Codec<Vec<(Instant, T)>> for Varying<C> {
    fn read(&self, node: &Node) -> Result<Vec<(Instant, T)>, Fault> {
        if let Value::Array(_) = node.value {
            return Timeline(self.0, &self.1).read(node);
        }
        let value = self.1.read(node)?;
        let stated = (value != T::default()).then_some((Instant::ZERO, value));
        Ok(stated.into_iter().collect())
    }

    fn write(&self, value: &Vec<(Instant, T)>) -> Option<Value> {
        match value.as_slice() {
            [] => self.1.write(&T::default()),
            [(Instant::ZERO, single)] => self.1.write(single),
            _ => Timeline(self.0, &self.1).write(value),
        }
    }
}

/// A table within a table.
pub(super) struct Nested<T>(pub T, pub &'static str);

impl<T: Section> Codec<T> for Nested<T> {
    fn read(&self, node: &Node) -> Result<T, Fault> {
        self.0.clone().read(node, self.1)
    }

    fn write(&self, value: &T) -> Option<Value> {
        Some(Value::Table(value.write()))
    }
}

/// The fault of a node.
pub(super) fn fault<T>(node: &Node, message: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::new(node.place, message))
}

/// What was made of a node; its fault where that makes no sense.
pub(super) fn valid<T>(node: &Node, checked: Result<T, impl ToString>) -> Result<T, Fault> {
    checked.map_err(|why| Fault::new(node.place, why.to_string()))
}

/// Reads a quantity in one family of units; `example` is what would be right.
pub(super) fn quantity(node: &Node, units: Units, example: &str) -> Result<u64, Fault> {
    let wrong = |why: String| fault(node, format!("{why}: write for example \"{example}\""));
    let text = match &node.value {
        Value::String(text) => text,
        Value::Integer(_) | Value::Float(_) => return wrong(format!("{node} has no unit")),
        _ => return wrong(format!("{node} is {}", node.kind())),
    };
    let Some(quantity) = Quantity::parse(text) else {
        return wrong(format!("{node} is no number with a unit"));
    };
    if let Some(value) = quantity.within(units) {
        return Ok(value);
    }
    match quantity.family() {
        _ if quantity.unit.is_empty() => wrong(format!("{node} has no unit")),
        None => {
            let names: Vec<_> = units.iter().map(|(name, _)| *name).collect();
            let hint = nearest(quantity.unit, names.iter().copied())
                .map_or_else(String::new, |near| format!(", perhaps `{near}`"));
            let (unit, names) = (quantity.unit, names.join("`, `"));
            wrong(format!("`{unit}` is none of the units `{names}`{hint}"))
        }
        Some(_) if units.iter().any(|(name, _)| *name == quantity.unit) => {
            let why = if quantity.number < 0.0 {
                "negative"
            } else {
                "out of range"
            };
            wrong(format!("{node} is {why}"))
        }
        Some(family) => wrong(format!("{node} is {family}")),
    }
}
