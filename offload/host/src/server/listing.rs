//! Pages that the server makes itself.

use std::fmt::Write;

use super::reply::reason;

/// Media type of these pages.
pub const KIND: &str = "text/html; charset=utf-8";

const STYLE: &str = "<meta name=viewport content=\"width=device-width\"><style>body{font:1rem/1.5 system-ui,sans-serif;\
margin:2rem auto;max-width:40rem;padding:0 1rem;color-scheme:light dark}</style>";

/// A page that says what went wrong.
pub fn error_page(status: u16) -> String {
    let reason = reason(status);
    format!(
        "<!doctype html><html lang=en><title>{status} {reason}</title>{STYLE}<h1>{status} {reason}</h1>\n"
    )
}

/// A page that lists the names in a directory.
pub fn listing_page(path: &[u8], names: &[String]) -> String {
    let path = escape(&String::from_utf8_lossy(path));
    let mut page =
        format!("<!doctype html><html lang=en><title>{path}</title>{STYLE}<h1>{path}</h1>\n<ul>\n");
    if path != "/" {
        page.push_str("<li><a href=\"../\">../</a>\n");
    }
    for name in names {
        // Writing to a string cannot fail.
        let _ = writeln!(page, "<li><a href=\"{}\">{}</a>", encode_name(name), escape(name));
    }
    page.push_str("</ul>\n");
    page
}

/// The text in a form that is safe in text and attributes of HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

/// A name as a relative reference (RFC 3986 section 4.2).
fn encode_name(name: &str) -> String {
    format!("./{}", encode(name.as_bytes()))
}

/// A path for a header or a reference: what is not a letter, a digit or `-._~/` is percent-encoded.
pub fn encode(path: &[u8]) -> String {
    let mut encoded = String::with_capacity(path.len());
    for &byte in path {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(byte as char);
            }
            byte => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_text_and_nothing_else() {
        let page = listing_page(
            b"/a<b/",
            &["\"><script>.html".into(), "javascript:x".into(), "ordner/".into()],
        );
        assert!(!page.contains("<script") && page.contains("href=\"./%22%3E%3Cscript%3E.html\""));
        assert!(page.contains("href=\"./javascript%3Ax\"") && page.contains("href=\"./ordner/\""));
        assert!(page.contains("/a&lt;b/") && page.contains("../"));
    }

    #[test]
    fn errors_have_pages() {
        assert!(error_page(404).contains("404 Not Found"));
    }
}
