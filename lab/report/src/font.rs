//! The font that figures are drawn and measured with: Roboto, reduced to what European labels need.

use skrifa::instance::{LocationRef, Size};
use skrifa::{FontRef, MetadataProvider};
use unicode_width::UnicodeWidthChar;

/// Roboto Regular (weight 400), a TrueType file.
pub(crate) const REGULAR: &[u8] = include_bytes!("../font/Roboto-Regular-subset.ttf");
/// Roboto Medium (weight 500), a TrueType file.
pub(crate) const MEDIUM: &[u8] = include_bytes!("../font/Roboto-Medium-subset.ttf");

/// Where text is cut.
const ELLIPSIS: &str = "…";

/// The width of text at a size, in the size's unit. Browsers may have a wider font; callers leave a
/// fifth free where labels would leave the paper.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    let Ok(font) = FontRef::new(REGULAR) else { return text.chars().count() as f64 * size * 0.6 };
    let (map, metrics) =
        (font.charmap(), font.glyph_metrics(Size::new(1000.0), LocationRef::default()));
    let of_one = |character: char| -> f64 {
        let known = map.map(character).and_then(|glyph| metrics.advance_width(glyph));
        known.map_or_else(
            || 0.6 * character.width().unwrap_or(1) as f64,
            |width| f64::from(width) / 1000.0,
        )
    };
    text.chars().map(of_one).sum::<f64>() * size
}

/// The text, or as much of its beginning as has room.
pub(crate) fn cut(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut left = room - width(ELLIPSIS, size);
    for character in text.chars() {
        left -= width(character.encode_utf8(&mut [0; 4]), size);
        if left < 0.0 {
            break;
        }
        kept.push(character);
    }
    kept.trim_end().to_owned() + ELLIPSIS
}

/// The text in lines that have room, at most `lines_max`; the last is cut.
pub(crate) fn wrap(text: &str, size: f64, room: f64, lines_max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let full = lines
            .last()
            .is_none_or(|line| lines_full(line, word, size, room) && lines.len() < lines_max);
        match lines.last_mut() {
            Some(line) if !full => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| cut(line, size, room)).collect()
}

fn lines_full(line: &str, word: &str, size: f64, room: f64) -> bool {
    width(line, size) + width(" ", size) + width(word, size) > room
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_the_fonts() {
        // Advance widths of Roboto 2.138 in its 2,048 units: digits 1151, i 498, W 1817.
        assert!((width("0123456789", 2048.0) - 11_510.0).abs() < 1.0);
        assert!(width("iiii", 12.0) < width("WWWW", 12.0) / 3.0);
    }

    #[test]
    fn cut_text_has_room() {
        for room in [0.0, 5.0, 20.0, 50.0, 80.0] {
            let text = cut("a rather long label", 12.0, room);
            assert!(text == "…" || width(&text, 12.0) <= room, "{text}");
        }
        assert_eq!(cut("short", 12.0, 100.0), "short");
    }

    #[test]
    fn lines_have_room() {
        let lines = wrap("one two three four five six seven", 12.0, 60.0, 3);
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| width(line, 12.0) <= 60.0), "{lines:?}");
        assert!(lines[2].ends_with('…'));
    }
}
