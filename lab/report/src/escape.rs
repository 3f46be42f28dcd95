//! Text as HTML and XML want it, and names as addresses and file names want them.

/// Text between tags and in double-quoted attributes, of HTML and of XML. Characters that XML
/// forbids become U+FFFD.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(' '),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            _ if character.is_control() => out.push('\u{fffd}'),
            _ => out.push(character),
        }
    }
    out
}

/// A name of ASCII letters, digits and hyphens, which begins with a letter.
pub(crate) fn slug(name: &str) -> String {
    let mut out: String =
        name.chars()
            .take(64)
            .map(|character| {
                if character.is_ascii_alphanumeric() { character.to_ascii_lowercase() } else { '-' }
            })
            .collect();
    out = out.trim_matches('-').to_owned();
    if out.starts_with(|first: char| first.is_ascii_alphabetic()) {
        out
    } else {
        format!("figure-{out}").trim_end_matches('-').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_end_text_or_attribute_is_escaped() {
        assert_eq!(
            escape("<a href='x' id=\"y\">&\u{1b}\0"),
            "&lt;a href=&#39;x&#39; id=&quot;y&quot;&gt;&amp;\u{fffd}\u{fffd}"
        );
    }

    #[test]
    fn slugs_are_names_of_files_and_fragments() {
        assert_eq!(slug("../Miss ratio (%)"), "miss-ratio");
        assert_eq!(slug("\"><script>"), "script");
        assert_eq!(slug("9"), "figure-9");
        assert_eq!(slug(""), "figure");
    }
}
