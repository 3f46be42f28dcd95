//! Numbers for people, and texts that somebody else chose.

use std::time::Duration;

/// A rate: `0`, `0.3`, `12`, `4 321`, `101 k`.
pub(crate) fn rate(value: f64) -> String {
    match value {
        v if v < 0.05 => "0".to_owned(),
        v if v < 9.95 => format!("{v:.1}"),
        v if v < 99_999.5 => crate::numbers::grouped(v.round() as u64),
        v => scaled(v, &["", "k", "M", "G", "T"]),
    }
}

/// Bytes per second, or bytes: `0 B`, `12.3 kB`, `101 MB`.
pub(crate) fn bytes(value: f64) -> String {
    scaled(value, &["B", "kB", "MB", "GB", "TB", "PB"])
}

fn scaled(mut value: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 99.95 { 0 } else { 1 };
    format!("{value:.digits$} {}", units[unit])
}

/// A share: `92.8 %`, `–` if there is none.
pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// A time: `12 s`, `3 min 5 s`, `2 d 4 h`.
pub(crate) fn span(time: Duration) -> String {
    let mut rest = time.as_secs();
    let mut parts = Vec::new();
    for (length, unit) in [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")] {
        let times = rest / length;
        rest %= length;
        if times > 0 && parts.len() < 2 {
            parts.push(format!("{times} {unit}"));
        }
    }
    if parts.is_empty() { "0 s".to_owned() } else { parts.join(" ") }
}

/// A text that clients or files chose, so a terminal shows it and obeys nothing in it: control
/// characters, and those that turn the direction of writing or are not seen, are written as their
/// numbers.
pub(crate) fn shown(text: &str) -> String {
    let is_odd = |c: char| {
        c.is_control()
            || matches!(c,
                '\u{ad}' | '\u{61c}' | '\u{180e}'
                | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
            || matches!(c,
                '\u{2060}'..='\u{206f}' | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
    };
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_odd(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.0, 0.31, 12.4, 4321.0, 101_400.0].map(rate),
            ["0", "0.3", "12", "4 321", "101 k"]
        );
        assert_eq!(
            [0.0, 999.0, 12_345.0, 101e6, 999.6].map(bytes),
            ["0 B", "999 B", "12.3 kB", "101 MB", "1.0 kB"]
        );
        assert_eq!((percent(Some(0.9284)), percent(None)), ("92.8 %".into(), "–".into()));
        let spans = [0, 59, 185, 90_000].map(|seconds| span(Duration::from_secs(seconds)));
        assert_eq!(spans, ["0 s", "59 s", "3 min 5 s", "1 d 1 h"]);
    }

    #[test]
    fn a_terminal_obeys_nothing() {
        assert_eq!(shown("/a?b=ü 日本"), "/a?b=ü 日本");
        assert_eq!(shown("/\u{1b}[31m\u{7}\u{9b}\r\n"), r"/\u{1b}[31m\u{7}\u{9b}\u{d}\u{a}");
        assert_eq!(shown("/\u{202e}gpj.exe\u{200b}"), r"/\u{202e}gpj.exe\u{200b}");
    }
}
