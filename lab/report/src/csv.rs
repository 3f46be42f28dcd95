//! Figures and tables as comma-separated values (RFC 4180), numbers in full and in their base unit.

use crate::unit::Unit;
use crate::{Cell, Figure, Table};

/// The points of a figure, one in a line: series, x, y, and where some point has them, low and
/// high. Points keep their order; what is not finite is empty.
pub fn figure_csv(figure: &Figure) -> String {
    let bounded = figure
        .series
        .iter()
        .flat_map(|series| &series.points)
        .any(|it| it.low.is_some() || it.high.is_some());
    let named = !figure.x.names.is_empty();
    let unit = if named { Unit::Number } else { figure.x.unit };
    let head = |label: &str, unit, other: &str| {
        with_unit(if label.trim().is_empty() { other } else { label }, unit)
    };
    let mut heads = vec![
        "series".to_owned(),
        head(&figure.x.label, unit, "x"),
        head(&figure.y.label, figure.y.unit, "y"),
    ];
    if bounded {
        heads.extend(["low".to_owned(), "high".to_owned()]);
    }
    let mut out = line(heads.into_iter());
    for series in &figure.series {
        for point in &series.points {
            let name = figure.x.names.get(point.x as usize).filter(|_| named && point.x >= 0.0);
            let mut fields = vec![
                series.name.clone(),
                name.cloned().unwrap_or_else(|| number(point.x)),
                number(point.y),
            ];
            if bounded {
                fields.extend([point.low, point.high].map(|end| end.map_or(String::new(), number)));
            }
            out += &line(fields.into_iter());
        }
    }
    out
}

/// A table with its heads; missing cells are empty.
pub fn table_csv(table: &Table) -> String {
    let mut out = line(table.columns.iter().map(|column| with_unit(&column.name, column.unit)));
    for row in &table.rows {
        out += &line((0..table.columns.len()).map(|index| match row.cells.get(index) {
            Some(Cell::Text(text)) => text.clone(),
            Some(Cell::Number(value)) => number(*value),
            Some(Cell::Missing) | None => String::new(),
        }));
    }
    out
}

fn with_unit(name: &str, unit: Unit) -> String {
    unit.word().map_or_else(|| name.to_owned(), |word| format!("{name} ({word})"))
}

fn number(value: f64) -> String {
    if value.is_finite() { value.to_string() } else { String::new() }
}

fn line(fields: impl Iterator<Item = String>) -> String {
    let quoted = fields.map(|field| {
        let plain = !field.contains([',', '"', '\n', '\r']) && field.trim() == field;
        if plain { field } else { format!("\"{}\"", field.replace('"', "\"\"")) }
    });
    quoted.collect::<Vec<_>>().join(",") + "\r\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Axis, Column, Point, Row, Scale, Series};

    #[test]
    fn points_are_lines() {
        let mut series =
            Series::line("LRU, \"sampled\"", [(1_048_576.0, 71.25), (2_097_152.0, f64::NAN)]);
        series.points.push(Point::between(4_194_304.0, 60.0, 59.5, 61.0));
        let figure = Figure {
            x: Axis::new("Size", Unit::Bytes, Scale::Log2),
            y: Axis::new("Miss ratio", Unit::Percent, Scale::Linear),
            series: vec![series],
            ..Figure::default()
        };
        assert_eq!(
            figure_csv(&figure),
            "series,Size (bytes),Miss ratio (percent),low,high\r\n\
             \"LRU, \"\"sampled\"\"\",1048576,71.25,,\r\n\
             \"LRU, \"\"sampled\"\"\",2097152,,,\r\n\
             \"LRU, \"\"sampled\"\"\",4194304,60,59.5,61\r\n"
        );
    }

    #[test]
    fn rows_are_lines_of_all_columns() {
        let table = Table {
            title: "t".into(),
            columns: vec![Column::new("Policy", Unit::Number), Column::new("Time", Unit::Seconds)],
            rows: vec![
                Row::new(["a\nb".into(), 0.0015.into(), 9.0.into()]),
                Row::new(["c".into()]),
            ],
        };
        assert_eq!(table_csv(&table), "Policy,Time (seconds)\r\n\"a\nb\",0.0015\r\nc,\r\n");
    }
}
