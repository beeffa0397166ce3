//! Tables as Parquet: every column optional, one leaf type for each kind, no compression, so that
//! any reader opens them and the same rows are the same bytes.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::record::Field;
use parquet::schema::types::{Type, TypePtr};

use super::super::table::{Cell, Column, Kind, Table};
use super::{Provenance, Stored};

/// Rows of a row group: enough to compress well, few enough to read one into memory.
const GROUP: usize = 1 << 20;
/// Key of the file's metadata under which its provenance stands, as JSON.
const KEY: &str = "dfcp";

/// Writes a table.
pub fn write(
    file: impl Write + Send,
    table: &Table,
    provenance: Option<&Provenance>,
) -> anyhow::Result<()> {
    let metadata = match provenance {
        Some(provenance) => {
            let json = serde_json::to_string(provenance)?;
            Some(vec![KeyValue::new(KEY.to_owned(), json)])
        }
        None => None,
    };
    let properties = WriterProperties::builder()
        .set_created_by(concat!("dfcp ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(metadata)
        .build();
    let mut writer = SerializedFileWriter::new(file, schema(table)?, Arc::new(properties))?;
    for rows in table.rows().chunks(GROUP) {
        let mut group = writer.next_row_group()?;
        let mut index = 0;
        while let Some(mut column) = group.next_column()? {
            write_column(column.untyped(), rows.iter().map(|row| &row[index]))?;
            column.close()?;
            index += 1;
        }
        group.close()?;
    }
    writer.close()?;
    Ok(())
}

fn schema(table: &Table) -> Result<TypePtr> {
    let leaf = |column: &Column| {
        let (physical, logical) = match column.kind {
            Some(Kind::Flag) => (Physical::BOOLEAN, None),
            Some(Kind::Integer) => (Physical::INT64, None),
            Some(Kind::Real) => (Physical::DOUBLE, None),
            Some(Kind::Text) | None => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        Type::primitive_type_builder(&column.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .build()
            .map(Arc::new)
    };
    let leaves = table.columns().iter().map(leaf).collect::<Result<_>>()?;
    let group = Type::group_type_builder("rows").with_fields(leaves);
    group.build().map(Arc::new)
}

fn write_column<'a>(
    writer: &mut ColumnWriter<'_>,
    cells: impl Iterator<Item = &'a Cell> + Clone,
) -> Result<()> {
    let levels: Vec<i16> = cells
        .clone()
        .map(|cell| i16::from(*cell != Cell::Missing))
        .collect();
    let levels = Some(&levels[..]);
    // A column's cells are of its kind, by the table's invariant.
    match writer {
        ColumnWriter::BoolColumnWriter(writer) => {
            let value = |cell: &Cell| match cell {
                Cell::Flag(value) => Some(*value),
                _ => None,
            };
            let values: Vec<_> = cells.filter_map(value).collect();
            writer.write_batch(&values, levels, None)?;
        }
        ColumnWriter::Int64ColumnWriter(writer) => {
            let value = |cell: &Cell| match cell {
                Cell::Integer(value) => Some(*value),
                _ => None,
            };
            let values: Vec<_> = cells.filter_map(value).collect();
            writer.write_batch(&values, levels, None)?;
        }
        ColumnWriter::DoubleColumnWriter(writer) => {
            let values: Vec<_> = cells.filter_map(Cell::number).collect();
            writer.write_batch(&values, levels, None)?;
        }
        ColumnWriter::ByteArrayColumnWriter(writer) => {
            let value = |cell: &Cell| match cell {
                Cell::Text(value) => Some(ByteArray::from(value.as_str())),
                _ => None,
            };
            let values: Vec<_> = cells.filter_map(value).collect();
            writer.write_batch(&values, levels, None)?;
        }
        _ => return Err(ParquetError::NYI("a type that no kind maps to".into())),
    }
    Ok(())
}

/// Reads a table.
pub fn read(file: File) -> Result<Stored> {
    let reader = SerializedFileReader::new(file)?;
    let metadata = reader.metadata().file_metadata();
    let entries = metadata.key_value_metadata().into_iter().flatten();
    let provenance = entries
        .filter(|entry| entry.key == KEY)
        .filter_map(|entry| serde_json::from_str(entry.value.as_deref()?).ok())
        .next();
    let fields = metadata.schema_descr().root_schema().get_fields();
    let mut table = Table::new(fields.iter().map(column).collect());
    for row in reader.get_row_iter(None)? {
        table.push(row?.into_columns().into_iter().map(cell).collect());
    }
    Ok(Stored { table, provenance })
}

fn column(field: &TypePtr) -> Column {
    // Of a column without any value, only the schema knows the kind.
    let kind = match field.is_primitive().then(|| field.get_physical_type()) {
        Some(Physical::BOOLEAN) => Kind::Flag,
        Some(Physical::INT32 | Physical::INT64) => Kind::Integer,
        Some(Physical::FLOAT | Physical::DOUBLE) => Kind::Real,
        _ => Kind::Text,
    };
    Column {
        name: field.name().to_owned(),
        kind: Some(kind),
    }
}

fn cell((_, field): (String, Field)) -> Cell {
    match field {
        Field::Null => Cell::Missing,
        Field::Bool(value) => value.into(),
        Field::Byte(value) => i64::from(value).into(),
        Field::Short(value) => i64::from(value).into(),
        Field::Int(value) => i64::from(value).into(),
        Field::Long(value) => value.into(),
        Field::UByte(value) => u64::from(value).into(),
        Field::UShort(value) => u64::from(value).into(),
        Field::UInt(value) => u64::from(value).into(),
        Field::ULong(value) => value.into(),
        Field::Float(value) => f64::from(value).into(),
        Field::Double(value) => value.into(),
        Field::Str(value) => value.as_str().into(),
        other => other.to_string().as_str().into(),
    }
}
