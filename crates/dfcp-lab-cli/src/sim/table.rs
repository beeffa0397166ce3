//! A small table: named columns of one kind each, any cell of which may be missing.
//!
//! Results travel in it between journal, CSV, Parquet and plots. Invariant: every cell is missing
//! or of its column's kind; a cell of another kind widens the column to a kind that holds both, and
//! a widened cell prints as it printed before, so that data split and joined again are the same
//! bytes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// True or false.
    Flag,
    /// Whole numbers.
    Integer,
    /// Numbers.
    Real,
    /// Anything else.
    Text,
}

impl Kind {
    /// The least kind that holds both.
    fn join(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b => a,
            (Self::Integer | Self::Real, Self::Integer | Self::Real) => Self::Real,
            _ => Self::Text,
        }
    }
}

/// A value, or none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// No value.
    #[default]
    Missing,
    /// Of a column of flags.
    Flag(bool),
    /// Of a column of whole numbers.
    Integer(i64),
    /// Of a column of numbers; finite.
    Real(f64),
    /// Of a column of text; not empty.
    Text(String),
}

impl Cell {
    /// What a field of a text file means.
    pub fn parse(text: &str) -> Self {
        match text {
            "" => Self::Missing,
            "true" => Self::Flag(true),
            "false" => Self::Flag(false),
            _ => text
                .parse()
                .map(Self::Integer)
                .or_else(|_| text.parse::<f64>().map(Self::from))
                .ok()
                // "inf" and "nan" are numbers to the parser, and words to us.
                .filter(|cell| *cell != Self::Missing)
                .unwrap_or_else(|| Self::Text(text.to_owned())),
        }
    }

    /// Its value as a number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Integer(value) => Some(*value as f64),
            Self::Real(value) => Some(*value),
            _ => None,
        }
    }

    /// The kind that holds it; none if it is missing.
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Self::Missing => None,
            Self::Flag(_) => Some(Kind::Flag),
            Self::Integer(_) => Some(Kind::Integer),
            Self::Real(_) => Some(Kind::Real),
            Self::Text(_) => Some(Kind::Text),
        }
    }

    fn widen(&mut self, kind: Kind) {
        match (&self, kind) {
            (Self::Missing, _) => {}
            (Self::Integer(value), Kind::Real) => *self = Self::Real(*value as f64),
            (Self::Flag(_) | Self::Integer(_) | Self::Real(_), Kind::Text) => {
                *self = Self::Text(self.to_string());
            }
            _ => {}
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => Ok(()),
            Self::Flag(value) => value.fmt(f),
            Self::Integer(value) => value.fmt(f),
            // As a whole number of the same value prints, as long as that is exact.
            Self::Real(value) if value.fract() == 0.0 && value.abs() < 1e15 => {
                (*value as i64).fmt(f)
            }
            Self::Real(value) if (1e-5..1e15).contains(&value.abs()) => write!(f, "{value}"),
            Self::Real(value) => write!(f, "{value:e}"),
            Self::Text(value) => value.fmt(f),
        }
    }
}

impl From<bool> for Cell {
    fn from(value: bool) -> Self {
        Self::Flag(value)
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        match value.is_finite() {
            true => Self::Real(value),
            false => Self::Missing,
        }
    }
}

impl From<i64> for Cell {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<u64> for Cell {
    fn from(value: u64) -> Self {
        i64::try_from(value).map_or(Self::Real(value as f64), Self::Integer)
    }
}

impl From<&str> for Cell {
    fn from(value: &str) -> Self {
        match value {
            "" => Self::Missing,
            _ => Self::Text(value.to_owned()),
        }
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Missing, Into::into)
    }
}

/// A column's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// What it holds; none as long as every cell is missing.
    pub kind: Option<Kind>,
}

/// Rows under named columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// No rows yet.
    pub fn new(columns: Vec<Column>) -> Self {
        Self {
            columns,
            rows: Vec::new(),
        }
    }

    /// No rows yet, and columns whose kinds will follow from their cells.
    pub fn untyped<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        let column = |name: S| Column {
            name: name.into(),
            kind: None,
        };
        Self::new(names.into_iter().map(column).collect())
    }

    /// The columns.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The rows; each has a cell for each column.
    pub fn rows(&self) -> &[Vec<Cell>] {
        &self.rows
    }

    /// Where a column is.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// Appends a row; missing cells fill it up, and cells without a column are dropped.
    pub fn push(&mut self, mut row: Vec<Cell>) {
        row.resize(self.columns.len(), Cell::Missing);
        for (index, cell) in row.iter_mut().enumerate() {
            let Some(kind) = cell.kind() else { continue };
            let joined = self.columns[index].kind.map_or(kind, |own| own.join(kind));
            cell.widen(joined);
            if self.columns[index].kind.replace(joined) != Some(joined) {
                for row in &mut self.rows {
                    row[index].widen(joined);
                }
            }
        }
        self.rows.push(row);
    }

    /// Appends the rows of a table, and those of its columns that this one has not.
    pub fn append(&mut self, other: Table) {
        let mut places = Vec::new();
        for column in other.columns {
            places.push(self.column(&column.name).unwrap_or_else(|| {
                self.columns.push(column.clone());
                self.rows.iter_mut().for_each(|row| row.push(Cell::Missing));
                self.columns.len() - 1
            }));
        }
        for from in other.rows {
            let mut row = vec![Cell::Missing; self.columns.len()];
            for (place, cell) in places.iter().zip(from) {
                row[*place] = cell;
            }
            self.push(row);
        }
    }

    /// Keeps the rows that `keep` wants.
    pub fn retain(&mut self, keep: impl FnMut(&Vec<Cell>) -> bool) {
        self.rows.retain(keep);
    }

    /// Appends a column with the same cell in every row.
    pub fn add_column(&mut self, name: &str, cell: &Cell) {
        self.columns.push(Column {
            name: name.to_owned(),
            kind: cell.kind(),
        });
        for row in &mut self.rows {
            row.push(cell.clone());
        }
    }

    /// Orders the rows by a column of whole numbers; rows of one number keep their order.
    pub fn sort_by_integer(&mut self, column: usize) {
        self.rows.sort_by_key(|row| match row.get(column) {
            Some(Cell::Integer(value)) => *value,
            _ => i64::MAX,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_widens_and_prints_the_same() {
        let mut table = Table::untyped(["loss"]);
        let cells = [Cell::Integer(0), Cell::Real(0.01), Cell::Text("5 %".into())];
        let printed: Vec<_> = cells.iter().map(ToString::to_string).collect();
        let kinds = [Kind::Integer, Kind::Real, Kind::Text];
        for (cell, kind) in cells.into_iter().zip(kinds) {
            table.push(vec![cell]);
            assert_eq!(table.columns()[0].kind, Some(kind));
            assert!(table.rows().iter().all(|row| row[0].kind() == Some(kind)));
        }
        let after: Vec<_> = table.rows().iter().map(|row| row[0].to_string()).collect();
        assert_eq!(after, printed);
    }

    #[test]
    fn what_is_printed_reads_back() {
        for value in [0.1, 1e-300, 1.5e300, -2.5, 1e15, 123456789.125, 0.1 + 0.2] {
            let text = Cell::Real(value).to_string();
            assert_eq!(Cell::parse(&text).number(), Some(value), "{text}");
        }
        assert_eq!(Cell::parse("inf"), Cell::Text("inf".into()));
        assert_eq!(Cell::from(f64::NAN), Cell::Missing);
    }

    #[test]
    fn joined_tables_have_the_columns_of_both() {
        let mut left = Table::untyped(["a", "b"]);
        left.push(vec![1i64.into(), 2i64.into()]);
        let mut right = Table::untyped(["b", "c"]);
        right.push(vec![0.5.into(), "x".into()]);
        left.append(right);
        let lines: Vec<_> = left
            .rows()
            .iter()
            .map(|row| {
                row.iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(",")
            })
            .collect();
        assert_eq!(lines, ["1,2,", ",0.5,x"]);
    }
}
