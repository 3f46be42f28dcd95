//! A whole report as text.

use unicode_width::UnicodeWidthStr;

use crate::grid;
use crate::plot::figure_text;
use crate::terminal::{Charset, Terminal, WIDTH_MIN, paragraph};
use crate::{Report, Table};

/// A report: facts, then sections with their figures and tables.
pub fn report_text(report: &Report, terminal: &Terminal) -> String {
    let width = terminal.width.max(WIDTH_MIN);
    let charset = terminal.charset;
    let mut out = heading(&report.title, '=', width, charset);
    out += &paragraph(&report.subtitle, width, charset);
    if !report.facts.is_empty() {
        let rows = report
            .facts
            .iter()
            .map(|fact| [&fact.label, &fact.value, &fact.note].map(std::string::String::as_str));
        out += "\n";
        out += &grid::facts(rows, width, charset);
    }
    for section in &report.sections {
        out += "\n";
        out += &heading(&section.title, '-', width, charset);
        for text in &section.paragraphs {
            out += &paragraph(text, width, charset);
        }
        for figure in &section.figures {
            out += "\n";
            out += &figure_text(figure, terminal);
        }
        for table in &section.tables {
            out += "\n";
            out += &table_text(table, terminal);
        }
    }
    if !report.footer.trim().is_empty() {
        out += "\n";
        out += &paragraph(&report.footer, width, charset);
    }
    out
}

/// A table in aligned columns, its title first; records of "column: value" lines where the columns
/// do not fit.
pub fn table_text(table: &Table, terminal: &Terminal) -> String {
    let width = terminal.width.max(WIDTH_MIN);
    let title = paragraph(&table.title, width, terminal.charset);
    title + &grid::table(table, width, terminal.charset)
}

fn heading(text: &str, under: char, width: usize, charset: Charset) -> String {
    let text = paragraph(text, width, charset);
    let under = match (charset, under) {
        (Charset::Unicode, '=') => '━',
        (Charset::Unicode, _) => '─',
        (Charset::Ascii, under) => under,
    };
    let widest = text.lines().map(UnicodeWidthStr::width).max().unwrap_or(0);
    if widest == 0 { text } else { text + &under.to_string().repeat(widest) + "\n" }
}
