//! What all text needs: the terminal's size and characters, and safe words.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Where text is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// Columns; less than 20 is taken as 20.
    pub width: usize,
    /// Rows of a figure with its axes; less than 6 is taken as 6, more than 200 as 200.
    pub height: usize,
    /// Which characters it knows.
    pub charset: Charset,
}

impl Default for Terminal {
    /// 80 columns, 18 rows for a figure, Unicode.
    fn default() -> Self {
        Self { width: 80, height: 18, charset: Charset::Unicode }
    }
}

/// The characters of a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Charset {
    /// All, braille patterns and box drawing too.
    #[default]
    Unicode,
    /// ASCII only; other letters become question marks.
    Ascii,
}

/// Narrower is not drawn.
pub(crate) const WIDTH_MIN: usize = 20;

/// What a terminal shows of text: no control characters, so no name can move the cursor or
/// change colours.
pub(crate) fn clean(text: &str, charset: Charset) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match (charset, character) {
            (_, '\t' | '\n' | '\r') => out.push(' '),
            (Charset::Unicode, _) if is_hidden(character) => out.push('\u{fffd}'),
            (Charset::Unicode, _) => out.push(character),
            (Charset::Ascii, ' '..='~') => out.push(character),
            (Charset::Ascii, '–' | '—' | '−' | '‐' | '‑') => out.push('-'),
            (Charset::Ascii, 'µ' | 'μ') => out.push('u'),
            (Charset::Ascii, '…') => out.push('~'),
            (Charset::Ascii, '·' | '•') => out.push('*'),
            (Charset::Ascii, '\u{a0}' | '\u{2009}' | '\u{202f}') => out.push(' '),
            (Charset::Ascii, '“' | '”') => out.push('"'),
            (Charset::Ascii, '‘' | '’') => out.push('\''),
            (Charset::Ascii, '×') => out.push('x'),
            (Charset::Ascii, _) => out.push('?'),
        }
    }
    out
}

/// Control characters, and those that turn the direction of what follows.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text, cut to what fits, with spaces after it (or before it) up to the width.
pub(crate) fn padded(text: &str, width: usize, right: bool, charset: Charset) -> String {
    let text = shortened(text, width, charset);
    let space = " ".repeat(width.saturating_sub(text.width()));
    if right { space + &text } else { text + &space }
}

/// The text, cut to what fits in so many columns.
pub(crate) fn shortened(text: &str, width: usize, charset: Charset) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 1;
    for character in text.chars() {
        used += character.width().unwrap_or(0);
        if used > width {
            break;
        }
        kept.push(character);
    }
    if width > 0 {
        kept.push(if charset == Charset::Unicode { '…' } else { '~' });
    }
    kept
}

/// Text in lines of at most `width`; nothing for empty text.
pub(crate) fn paragraph(text: &str, width: usize, charset: Charset) -> String {
    let text = clean(text, charset);
    let (mut out, mut used) = (String::new(), 0);
    for word in text.split_whitespace() {
        let word = shortened(word, width, charset);
        if used > 0 && used + 1 + word.width() > width {
            out.push('\n');
            used = 0;
        }
        if used > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(&word);
        used += word.width();
    }
    if used > 0 { out + "\n" } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_reaches_the_terminal_as_a_command() {
        let hostile = "\u{1b}[31mred\u{1b}]0;title\u{7}\u{202e}turned";
        for charset in [Charset::Unicode, Charset::Ascii] {
            let text = clean(hostile, charset);
            assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{text:?}");
        }
        assert!(clean("ärger – 3 µs", Charset::Ascii).is_ascii());
    }

    #[test]
    fn paragraphs_keep_the_width() {
        let text = paragraph(
            "a few words and one thatismuchlongerthanaline after it",
            16,
            Charset::Unicode,
        );
        assert!(text.lines().all(|line| line.width() <= 16), "{text}");
        assert_eq!(paragraph("  ", 16, Charset::Unicode), "");
    }
}
