//! Writes a report in the forms that were asked for.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nicache_report::{Figure, Report, Size, Terminal};

use crate::options::study::OutputOptions;

/// Prints the JSON value or the report, and writes the files.
pub(crate) fn write(
    report: &Report,
    json: &serde_json::Value,
    options: &OutputOptions,
) -> Result<()> {
    if let Some(path) = &options.report {
        save(path, nicache_report::html(report).as_bytes())?;
    }
    let figures: Vec<&Figure> =
        report.sections.iter().flat_map(|section| &section.figures).collect();
    for (at, figure) in figures.iter().enumerate() {
        let file = |path: &PathBuf| {
            if figures.len() > 1 { with_name(path, &figure.id, at) } else { path.clone() }
        };
        if let Some(path) = &options.svg {
            save(&file(path), nicache_report::svg(figure, Size::PAGE).as_bytes())?;
        }
        if let Some(path) = &options.png {
            save(&file(path), &nicache_report::png(figure, Size::PAGE, 2.0)?)?;
        }
        if let Some(path) = &options.csv {
            save(&file(path), nicache_report::figure_csv(figure).as_bytes())?;
        }
    }
    if options.json {
        println!("{json}");
    } else {
        print!("{}", nicache_report::report_text(report, &terminal()));
    }
    Ok(())
}

/// The width for text: the terminal's; without one, enough for most tables.
fn terminal() -> Terminal {
    let stdout = std::io::stdout();
    let size = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout).ok()).flatten();
    Terminal { width: size.map_or(120, |size| usize::from(size.ws_col)), ..Terminal::default() }
}

fn save(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// `curve.svg` becomes `curve-requests.svg`.
fn with_name(path: &Path, id: &str, at: usize) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let id: String = id.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    let id = if id.is_empty() { at.to_string() } else { id };
    match path.extension() {
        Some(extension) => {
            path.with_file_name(format!("{stem}-{id}.{}", extension.to_string_lossy()))
        }
        None => path.with_file_name(format!("{stem}-{id}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_files_of_their_own() {
        assert_eq!(
            with_name(Path::new("out/curve.svg"), "requests", 0),
            Path::new("out/curve-requests.svg")
        );
        assert_eq!(with_name(Path::new("curve"), "../x", 1), Path::new("curve-x"));
    }
}
