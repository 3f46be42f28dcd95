//! Columns of text: tables, and the facts of a report.

use unicode_width::UnicodeWidthStr;

use crate::terminal::{Charset, clean, padded, paragraph, shortened};
use crate::unit::MISSING;
use crate::{Cell, Table};

/// Between columns.
const GAP: usize = 2;
/// Text is never cut to less.
const TEXT_MIN: usize = 8;

/// The cells of a table as they are written; and which columns are numbers.
pub(crate) struct Written {
    pub(crate) heads: Vec<String>,
    pub(crate) numeric: Vec<bool>,
    /// Rows of cells.
    pub(crate) rows: Vec<Vec<String>>,
}

impl Written {
    pub(crate) fn of(table: &Table) -> Self {
        let mut rows = vec![Vec::with_capacity(table.columns.len()); table.rows.len()];
        let mut numeric = Vec::with_capacity(table.columns.len());
        for (index, column) in table.columns.iter().enumerate() {
            let cells =
                || table.rows.iter().map(|row| row.cells.get(index).unwrap_or(&Cell::Missing));
            let numbers: Vec<Option<f64>> = cells()
                .map(|cell| if let Cell::Number(value) = cell { Some(*value) } else { None })
                .collect();
            let texts = column.unit.format_column(&numbers);
            let has_text = cells().any(|cell| matches!(cell, Cell::Text(_)));
            numeric.push(index > 0 && numbers.iter().any(Option::is_some) && !has_text);
            for ((row, cell), text) in rows.iter_mut().zip(cells()).zip(texts) {
                row.push(match cell {
                    Cell::Text(text) => text.clone(),
                    Cell::Number(_) => text,
                    Cell::Missing => MISSING.to_owned(),
                });
            }
        }
        Self {
            heads: table.columns.iter().map(|column| column.name.clone()).collect(),
            numeric,
            rows,
        }
    }
}

/// A table without its title.
pub(crate) fn table(table: &Table, width: usize, charset: Charset) -> String {
    let mut written = Written::of(table);
    let all = written.rows.iter_mut().flatten().chain(&mut written.heads);
    all.for_each(|text| *text = clean(text, charset));
    if written.heads.is_empty() {
        return String::new();
    }
    let highlights: Vec<bool> = table.rows.iter().map(|row| row.highlight).collect();
    let marked = highlights.iter().any(|highlight| *highlight);
    let room = width - if marked { 2 } else { 0 };
    let Some(widths) = column_widths(&written, room) else {
        return records(&written, &highlights, width, charset);
    };
    let (rule, arrow) = if charset == Charset::Unicode { ("─", "▸ ") } else { ("-", "> ") };
    let mark = |highlight: bool| {
        if !marked {
            ""
        } else if highlight {
            arrow
        } else {
            "  "
        }
    };
    let mut out = String::new();
    let wrapped: Vec<Vec<String>> = written
        .heads
        .iter()
        .zip(&widths)
        .map(|(head, width)| lines(head, *width, charset))
        .collect();
    let height = wrapped.iter().map(Vec::len).max().unwrap_or(0);
    for line in 0..height {
        // Heads stand at the bottom of their lines.
        let cells = wrapped.iter().map(|lines| {
            (line + lines.len()).checked_sub(height).map_or("", |at| lines[at].as_str())
        });
        out += mark(false);
        out += &joined(cells, &widths, &written.numeric, charset);
    }
    let total = widths.iter().sum::<usize>() + GAP * (widths.len() - 1) + mark(false).width();
    out += &rule.repeat(total);
    out.push('\n');
    for (row, highlight) in written.rows.iter().zip(highlights) {
        out += mark(highlight);
        out += &joined(row.iter().map(String::as_str), &widths, &written.numeric, charset);
    }
    out
}

/// The facts of a report: label, value, note.
pub(crate) fn facts<'a>(
    rows: impl Iterator<Item = [&'a str; 3]>,
    width: usize,
    charset: Charset,
) -> String {
    let rows: Vec<[String; 3]> = rows.map(|row| row.map(|text| clean(text, charset))).collect();
    let widest = |index: usize| rows.iter().map(|row| row[index].width()).max().unwrap_or(0);
    let label = widest(0).min(width / 2);
    let value = widest(1).min(width.saturating_sub(label + GAP));
    let note = width.saturating_sub(label + value + 2 * GAP);
    let one = |row: &[String; 3]| {
        let line = [padded(&row[0], label, false, charset), padded(&row[1], value, true, charset)]
            .join("  ");
        let note = if note >= TEXT_MIN { shortened(&row[2], note, charset) } else { String::new() };
        format!("{line}  {note}").trim_end().to_owned() + "\n"
    };
    rows.iter().map(one).collect()
}

fn joined<'a>(
    cells: impl Iterator<Item = &'a str>,
    widths: &[usize],
    numeric: &[bool],
    charset: Charset,
) -> String {
    let parts: Vec<String> = cells
        .zip(widths)
        .zip(numeric)
        .map(|((cell, width), right)| padded(cell, *width, *right, charset))
        .collect();
    parts.join(&" ".repeat(GAP)).trim_end().to_owned() + "\n"
}

fn lines(text: &str, width: usize, charset: Charset) -> Vec<String> {
    paragraph(text, width, charset).lines().map(str::to_owned).collect()
}

/// Widths that fit: heads may be broken between words, columns of text be cut, numbers never. None
/// if that is not enough.
fn column_widths(written: &Written, room: usize) -> Option<Vec<usize>> {
    let columns = written.heads.len();
    let cells =
        |index: usize| written.rows.iter().map(move |row| row[index].width()).max().unwrap_or(0);
    let word = |index: usize| {
        written.heads[index].split_whitespace().map(UnicodeWidthStr::width).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> =
        (0..columns).map(|index| cells(index).max(written.heads[index].width()).max(1)).collect();
    let over = |widths: &[usize]| {
        (widths.iter().sum::<usize>() + GAP * (columns - 1)).saturating_sub(room)
    };
    let least = |index: usize, text_too: bool| {
        let text = if text_too && !written.numeric[index] {
            cells(index).min(TEXT_MIN)
        } else {
            cells(index)
        };
        text.max(if text_too { word(index).min(TEXT_MIN) } else { word(index) }).max(1)
    };
    for text_too in [false, true] {
        while over(&widths) > 0 {
            let loose = (0..columns).filter(|index| widths[*index] > least(*index, text_too));
            let Some(widest) = loose.max_by_key(|index| widths[*index] - least(*index, text_too))
            else {
                break;
            };
            widths[widest] -= 1;
        }
    }
    (over(&widths) == 0).then_some(widths)
}

fn records(written: &Written, highlights: &[bool], width: usize, charset: Charset) -> String {
    let mut out = String::new();
    for (row, highlight) in written.rows.iter().zip(highlights) {
        out += &paragraph(
            &format!("{}{}", row[0], if *highlight { " *" } else { "" }),
            width,
            charset,
        );
        for (head, cell) in written.heads.iter().zip(row).skip(1) {
            out += &paragraph(&format!("{head}: {cell}"), width - 2, charset)
                .lines()
                .map(|line| format!("  {line}\n"))
                .collect::<String>();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Column, Row, Unit};

    fn sample() -> Table {
        Table {
            title: "t".into(),
            columns: vec![
                Column::new("Policy", Unit::Number),
                Column::new("Misses", Unit::Percent),
                Column::new("Card memory", Unit::Bytes),
                Column::new("Note", Unit::Number),
            ],
            rows: vec![
                Row::new(["LRU".into(), 71.3.into(), 25_165_824.0.into(), "the baseline".into()]),
                Row::highlighted([
                    "Popularity".into(),
                    8.05.into(),
                    Cell::Missing,
                    "the paper's".into(),
                ]),
            ],
        }
    }

    #[test]
    fn columns_are_aligned() {
        assert_eq!(
            table(&sample(), 60, Charset::Unicode),
            "  Policy      Misses  Card memory  Note\n\
             ───────────────────────────────────────────────\n\
             \u{20} LRU         71.3 %        24 MB  the baseline\n\
             ▸ Popularity   8.1 %            –  the paper's\n"
        );
        assert_eq!(
            table(&sample(), 40, Charset::Ascii),
            "                        Card\n  \
             Policy      Misses  memory  Note\n\
             ----------------------------------------\n  \
             LRU         71.3 %   24 MB  the basel~\n\
             > Popularity   8.1 %       -  the paper~\n"
        );
    }

    #[test]
    fn what_is_too_wide_becomes_records() {
        assert_eq!(
            table(&sample(), 20, Charset::Ascii),
            "LRU\n  Misses: 71.3 %\n  Card memory: 24 MB\n  Note: the baseline\n\
             Popularity *\n  Misses: 8.1 %\n  Card memory: -\n  Note: the paper's\n"
        );
    }

    proptest! {
        #[test]
        fn no_line_is_too_wide(
            names in prop::collection::vec("\\PC{0,20}", 1..6),
            texts in prop::collection::vec(prop::collection::vec("\\PC{0,30}", 0..7), 0..6),
            numbers in prop::collection::vec(any::<f64>(), 6),
            width in 20_usize..140, ascii in any::<bool>(),
        ) {
            let columns = names.into_iter().map(|name| Column::new(name, Unit::Count)).collect();
            let rows = texts.into_iter().map(|row| {
                let cell = |(index, text): (usize, String)| {
                    if index % 2 == 1 { numbers[index % 6].into() } else { text.into() }
                };
                Row {
                    highlight: row.len() == 3,
                    cells: row.into_iter().enumerate().map(cell).collect(),
                }
            });
            let charset = if ascii { Charset::Ascii } else { Charset::Unicode };
            let text = table(
                &Table { title: String::new(), columns, rows: rows.collect() },
                width,
                charset,
            );
            prop_assert!(text.lines().all(|line| line.width() <= width), "{width}\n{text}");
            prop_assert!(!ascii || text.is_ascii());
        }
    }
}
