//! Tables as CSV (RFC 4180): a header line, then a line for each row; a missing cell is empty.

use std::fs::File;
use std::io::{BufReader, Write};

use super::super::table::{Cell, Table};

/// Reads a table; the kinds of its columns follow from its cells.
pub fn read(file: File) -> Result<Table, csv::Error> {
    let mut reader = csv::Reader::from_reader(BufReader::new(file));
    let mut table = Table::untyped(reader.headers()?);
    for record in reader.records() {
        table.push(record?.iter().map(Cell::parse).collect());
    }
    Ok(table)
}

/// Writes a table.
pub fn write(file: impl Write, table: &Table) -> anyhow::Result<()> {
    let mut writer = csv::Writer::from_writer(file);
    writer.write_record(table.columns().iter().map(|column| &column.name))?;
    for row in table.rows() {
        writer.write_record(row.iter().map(ToString::to_string))?;
    }
    Ok(writer.flush()?)
}
