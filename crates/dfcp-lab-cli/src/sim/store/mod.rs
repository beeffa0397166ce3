//! Tables in files: CSV and Parquet, by the file's extension.
//!
//! A file is complete or absent: it is written beside its place, synced, and renamed.

mod csv;
mod parquet;

use std::fs::{File, Permissions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use dfcp_command::Failure;
use serde::{Deserialize, Serialize};

use super::table::Table;

/// Where results come from; Parquet files and journals carry it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// Version of the program that made them.
    pub dfcp_version: String,
    /// Hash of the scenario with its defaults.
    pub scenario_hash: String,
    /// The scenario with its defaults.
    pub scenario: String,
    /// Names of the parameters that the sweep varies.
    pub parameters: Vec<String>,
    /// Points of the whole sweep.
    pub points: usize,
}

/// A table, and what its file says of where it comes from.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The rows.
    pub table: Table,
    /// None in CSV, or in Parquet that others wrote.
    pub provenance: Option<Provenance>,
}

/// Formats of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated values (RFC 4180), a header line first.
    Csv,
    /// Apache Parquet.
    Parquet,
}

impl Format {
    /// The format of a file of this name.
    pub fn of(path: &Path) -> Result<Self, Failure> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => Ok(Self::Csv),
            Some("parquet") => Ok(Self::Parquet),
            _ => Err(Failure::usage(format!(
                "{}: a table's name must end in .csv or .parquet",
                path.display()
            ))),
        }
    }
}

/// Reads a table.
pub fn read(path: &Path) -> Result<Stored, Failure> {
    let format = Format::of(path)?;
    let file = File::open(path).map_err(|error| Failure::io(path, error))?;
    match format {
        Format::Csv => csv::read(file)
            .map(|table| Stored {
                table,
                provenance: None,
            })
            .map_err(|error| Failure::io(path, error)),
        Format::Parquet => parquet::read(file).map_err(|error| Failure::io(path, error)),
    }
}

/// Writes a table.
pub fn write(path: &Path, table: &Table, provenance: Option<&Provenance>) -> Result<(), Failure> {
    let format = Format::of(path)?;
    write_atomically(path, |file| match format {
        Format::Csv => csv::write(file, table),
        Format::Parquet => parquet::write(file, table, provenance),
    })
}

/// Writes a file that is complete or absent.
pub fn write_atomically(
    path: &Path,
    content: impl FnOnce(&mut (dyn Write + Send)) -> anyhow::Result<()>,
) -> Result<(), Failure> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let write = || -> anyhow::Result<()> {
        std::fs::create_dir_all(directory)?;
        let mut file = tempfile::Builder::new()
            .prefix(".dfcp-")
            .permissions(Permissions::from_mode(0o666)) // less the user's umask
            .tempfile_in(directory)?;
        let mut buffer = BufWriter::new(file.as_file_mut());
        content(&mut buffer)?;
        buffer.flush()?;
        drop(buffer);
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(|error| Failure::io(path, format!("{error:#}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::table::Cell;

    fn example() -> Table {
        let mut table = Table::untyped(["point", "loss", "finished", "flow, \"quoted\"", "none"]);
        table.push(vec![0i64.into(), 0.1.into(), true.into(), "a\nb".into()]);
        table.push(vec![1i64.into(), Cell::Missing, false.into(), "ε".into()]);
        table
    }

    #[test]
    fn both_formats_hold_the_same_rows() {
        let dir = tempfile::tempdir().unwrap();
        let table = example();
        let provenance = Provenance {
            dfcp_version: "0".into(),
            scenario_hash: "abc".into(),
            scenario: "schema = 1\n".into(),
            parameters: vec!["loss".into()],
            points: 2,
        };
        let read_back = |name: &str| {
            let path = dir.path().join(name);
            write(&path, &table, Some(&provenance)).unwrap();
            read(&path).unwrap()
        };
        let (csv, parquet) = (read_back("t.csv"), read_back("t.parquet"));
        assert_eq!(csv.table.rows(), table.rows());
        assert_eq!(parquet.table.rows(), table.rows());
        assert_eq!(csv.table.columns()[..4], table.columns()[..4]);
        assert_eq!(parquet.table.columns()[..4], table.columns()[..4]);
        assert_eq!(parquet.provenance, Some(provenance));
    }

    #[test]
    fn what_is_no_table_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.parquet");
        std::fs::write(&path, "PAR1 but not really PAR1").unwrap();
        assert!(read(&path).is_err());
        std::fs::write(dir.path().join("t.csv"), "a,b\n1\n").unwrap();
        assert!(read(&dir.path().join("t.csv")).is_err());
        assert!(read(&dir.path().join("t.xlsx")).is_err());
    }

    #[test]
    fn a_failed_write_leaves_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "before").unwrap();
        let failed = write_atomically(&path, |file| {
            file.write_all(b"half")?;
            anyhow::bail!("No space left on device")
        });
        assert!(failed.unwrap_err().message.contains("No space left"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "before");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
