//! The live page: one HTML text with its style and script inside, which fetches nothing but
//! samples.
//!
//! What clients choose (hosts, targets) reaches it as JSON and is only ever set as text. Its policy
//! (Content Security Policy Level 3) allows the one script and the one style by their hashes, and
//! connections to where it came from.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

const FRAME: &str = include_str!("page/dashboard.html");
const STYLE: &str = include_str!("page/dashboard.css");
const SCRIPT: [&str; 3] = [
    include_str!("page/format.js"),
    include_str!("page/chart.js"),
    include_str!("page/dashboard.js"),
];

/// A page and what it may do.
#[derive(Debug, Clone)]
pub struct Page {
    /// The text.
    pub html: String,
    /// Value of its `Content-Security-Policy` header.
    pub policy: String,
}

/// The page. It is the same for every nicache; what it shows comes from `/api/history` and
/// `/api/events`.
pub fn page() -> Page {
    let script = format!("\"use strict\";\n(() => {{\n{}}})();\n", SCRIPT.concat());
    let policy = format!(
        "default-src 'none'; style-src '{}'; script-src '{}'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        hash(STYLE),
        hash(&script)
    );
    let html = FRAME.replace("/*STYLE*/", STYLE).replace("/*SCRIPT*/", &script);
    Page { html, policy }
}

fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_asks_nobody_else() {
        let Page { html, policy } = page();
        for part in ["<style>", "</style>", "<script>", "</script>"] {
            assert_eq!(html.matches(part).count(), 1, "{part}");
        }
        let inside = |from: &str, to: &str| {
            html.split_once(from).unwrap().1.split_once(to).unwrap().0.to_owned()
        };
        for text in [inside("<style>", "</style>"), inside("<script>", "</script>")] {
            assert!(policy.contains(&hash(&text)));
        }
        assert!(
            !html.contains("https://") && !html.contains(" on") || !html.contains("onclick"),
            "{html}"
        );
        // The only address is a name of a namespace.
        let addresses: Vec<&str> =
            html.match_indices("http://").map(|(at, _)| &html[at..at + 26]).collect();
        assert_eq!(addresses, ["http://www.w3.org/2000/svg"]);
        for unsafe_way in
            ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style=\""]
        {
            assert!(!html.contains(unsafe_way), "{unsafe_way}");
        }
    }
}
