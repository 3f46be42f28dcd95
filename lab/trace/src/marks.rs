//! What a target and a reply's `Cache-Control` tell.

use memchr::{memchr, memchr2_iter};

use crate::record::Marks;

/// Endings of programs' names.
const PROGRAMS: [&[u8]; 6] = [b"php", b"cgi", b"asp", b"aspx", b"jsp", b"pl"];
const PROGRAM_FOLDER: &[u8] = b"cgi-bin";
/// Directives of a reply that no shared cache may answer with again unasked (RFC 9111, 5.2.2.3,
/// 5.2.2.5, 5.2.2.7).
const PRIVATE: [&[u8]; 3] = [b"private", b"no-store", b"no-cache"];

/// The marks of a target, which may have a scheme and a host.
pub(crate) fn of_target(target: &[u8]) -> Marks {
    let mut marks = Marks::empty();
    let mut path = target;
    if let Some(end) = memchr(b'?', target) {
        marks |= Marks::QUERY;
        path = &target[..end];
    }
    if !path.starts_with(b"/") {
        // In absolute form the dots of the host are none of a name.
        let authority = path.windows(3).position(|scheme| scheme == b"://").map_or(0, |at| at + 3);
        path = &path[memchr(b'/', &path[authority..]).map_or(path.len(), |at| authority + at)..];
    }
    for at in memchr2_iter(b'.', b'/', path) {
        let rest = &path[at + 1..];
        let is_program = if path[at] == b'.' {
            PROGRAMS.iter().any(|name| is_whole(rest, name))
        } else {
            is_whole(rest, PROGRAM_FOLDER)
        };
        if is_program {
            return marks | Marks::DYNAMIC;
        }
    }
    marks
}

/// [`Marks::PRIVATE`] if a `Cache-Control` has one of its directives, with an argument or without.
pub(crate) fn of_cache_control(value: &[u8]) -> Marks {
    let is_private = value.split(|&byte| byte == b',').any(|directive| {
        let name = directive.split(|&byte| byte == b'=').next().unwrap_or_default().trim_ascii();
        PRIVATE.iter().any(|private| name.eq_ignore_ascii_case(private))
    });
    if is_private { Marks::PRIVATE } else { Marks::empty() }
}

/// Whether a path goes on with this name and then ends, or has another segment.
fn is_whole(path: &[u8], name: &[u8]) -> bool {
    path.len() >= name.len()
        && path.get(name.len()).is_none_or(|&byte| byte == b'/')
        && path[..name.len()].eq_ignore_ascii_case(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let program = Marks::DYNAMIC;
        for (target, marks) in [
            ("/", Marks::empty()),
            ("/a.html?b.php", Marks::QUERY),
            ("/index.php", program),
            ("/index.PHP/path/info", program),
            ("/x.php?p=1", program | Marks::QUERY),
            ("/cgi-bin/imagemap/a?1,2", program | Marks::QUERY),
            ("/cgi-bin", program),
            ("/cgi-binary/x", Marks::empty()),
            ("/a.plist", Marks::empty()),
            ("/a.pl", program),
            ("/a.asp", program),
            ("/a.aspx", program),
            ("/dot./.", Marks::empty()),
            ("http://news.pl/a.html", Marks::empty()),
            ("http://news.pl/a.jsp", program),
            ("http://news.pl", Marks::empty()),
            ("*", Marks::empty()),
            ("", Marks::empty()),
        ] {
            assert_eq!(of_target(target.as_bytes()), marks, "{target}");
        }
    }

    #[test]
    fn directives() {
        for private in
            ["private", "max-age=0, No-Store", "no-cache=\"set-cookie\"", "public ,private"]
        {
            assert_eq!(of_cache_control(private.as_bytes()), Marks::PRIVATE, "{private}");
        }
        for public in ["", "public, max-age=60", "privately", "x=private"] {
            assert_eq!(of_cache_control(public.as_bytes()), Marks::empty(), "{public}");
        }
    }
}
