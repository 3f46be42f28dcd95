//! Links that carry their own end or their own permission: what a server answers to them depends on
//! the time, by rules that nobody else sees (nginx' secure_link, lighttpd's mod_secdownload, links
//! signed for object stores).

/// Words of a query parameter's name that say so, as a whole word.
const WORDS: [&[u8]; 27] = [
    b"auth",
    b"deadline",
    b"digest",
    b"e",
    b"end",
    b"exp",
    b"hash",
    b"hmac",
    b"jwt",
    b"key",
    b"mac",
    b"md5",
    b"nonce",
    b"policy",
    b"sha1",
    b"sha256",
    b"sig",
    b"sign",
    b"signed",
    b"st",
    b"ticket",
    b"ts",
    b"ttl",
    b"until",
    b"valid",
    b"validto",
    b"verify",
];
/// Parts of its name that say so wherever they stand.
const PARTS: [&[u8]; 6] = [b"expir", b"hmac", b"secret", b"signature", b"timestamp", b"token"];

/// Seconds in ten years.
const LATEST_S: u64 = 10 * 366 * 86_400;
/// Bytes of the shortest digest that stands in a path: 128 bits in base64.
const DIGEST_BYTES_MIN: usize = 20;

/// Does the server's answer to a request target depend on the time, or on a permission that the
/// link carries, by what the link says? `now_s`: seconds since 1970. Where it is not certain, it
/// does.
pub fn carries_expiry(target: &[u8], now_s: u64) -> bool {
    let (path, query) = match target.iter().position(|byte| *byte == b'?') {
        Some(at) => (&target[..at], &target[at + 1..]),
        None => (target, &target[..0]),
    };
    let parameters = || query.split(|byte| matches!(byte, b'&' | b';'));
    let name_of = |parameter: &'_ [u8]| {
        parameter.iter().position(|byte| *byte == b'=').unwrap_or(parameter.len())
    };
    parameters().any(|parameter| is_telling(&parameter[..name_of(parameter)]))
        || numbers(target).any(|number| is_coming(number, now_s))
        || has_digest_beside_time(path)
}

/// Does a parameter's name say so? Spelled in any case, or percent-encoded: then it is not looked
/// through.
fn is_telling(name: &[u8]) -> bool {
    let mut lower = [0; 64];
    let Some(lower) = lower.get_mut(..name.len()) else { return true };
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let mut words = lower.split(|byte| !byte.is_ascii_alphanumeric());
    lower.contains(&b'%')
        || words.any(|word| WORDS.contains(&word))
        || PARTS.iter().any(|part| lower.windows(part.len()).any(|window| window == *part))
}

/// Decimal numbers, each as long as it is.
fn numbers(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| !byte.is_ascii_digit()).filter(|digits| !digits.is_empty())
}

/// A time of seconds or milliseconds that is to come.
fn is_coming(digits: &[u8], now_s: u64) -> bool {
    let Some(number) =
        std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u64>().ok())
    else {
        return false;
    };
    let is_near = |time_s: u64| time_s > now_s && time_s - now_s <= LATEST_S;
    match digits.len() {
        10 => is_near(number),
        13 => is_near(number / 1000),
        _ => false,
    }
}

/// A part of the path that is a digest, beside one that is a time, as in /DIGEST/TIME/file.
fn has_digest_beside_time(path: &[u8]) -> bool {
    let mut before: &[u8] = b"";
    path.split(|byte| *byte == b'/').any(|part| {
        let found = is_digest(before) && is_time(part) || is_time(before) && is_digest(part);
        before = part;
        found
    })
}

fn is_digest(part: &[u8]) -> bool {
    part.len() >= DIGEST_BYTES_MIN
        && part.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_=%".contains(byte))
        && part.iter().any(u8::is_ascii_digit)
}

/// Seconds since 1970 as ten decimal or eight hexadecimal digits.
fn is_time(part: &[u8]) -> bool {
    part.len() == 10 && part.iter().all(u8::is_ascii_digit)
        || part.len() == 8 && part.iter().all(u8::is_ascii_hexdigit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW_S: u64 = 1_790_000_000;

    #[test]
    fn what_ends_by_itself_is_told_by_its_link() {
        for target in [
            "/f?md5=abc&expires=1",
            "/f?EXPIRES=2",
            "/f?a=b&X-Amz-Expires=300&X-Amz-Signature=00",
            "/f?Key-Pair-Id=A",
            "/f?access_token=1",
            "/f?exp",
            "/f?e=1&st=xyz",
            "/f?sv=2020&se=2030-01-01&sig=x",
            "/f;x?a=1;sig=2",
            "/f?%65xpires=1",
            "/1790000001/f",
            "/f?t=1790000060000",
            "/s/3f786850e387550fdab836ed7e6dc881/6ab1c2d3/film.mp4",
            "/s/P4ZoUOOHVQ_auDbtfm3IgQ/1789999999/film.mp4",
        ] {
            assert!(carries_expiry(target.as_bytes(), NOW_S), "{target}");
        }
        for target in [
            "/",
            "/style.css?ver=6.1.1",
            "/style.css?1789999999",
            "/style.css?v=1700000000",
            "/article?page=2&sort=price",
            "/2026/11/title",
            "/a/12345678901/b",
            "/cache/3f786850e387550fdab836ed7e6dc881/s/h/shoe.jpg",
            "/app.3f786850e387550fdab836ed7e6dc881.js",
            "/f?monkey=1&design=2&expo=3",
        ] {
            assert!(!carries_expiry(target.as_bytes(), NOW_S), "{target}");
        }
    }

    proptest! {
        #[test]
        fn any_target_is_looked_at(
            target in prop::collection::vec(any::<u8>(), 0..200),
            now_s in any::<u64>(),
        ) {
            carries_expiry(&target, now_s);
        }
    }
}
