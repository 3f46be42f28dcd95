//! What two executions are compared by: digests of whole replies, with and without what may differ.

use nicache_http::{HeadTemplate, HttpDate, parse_imf_fixdate};

use crate::path::PathSettings;

/// Bodies longer than this are not masked: they are equal or they are not.
pub const MASKED_BYTES_MAX: u64 = 1 << 20;

/// An execution begins so long before its Date at most, for a Last-Modified that tells when.
const BEGUN_S: u64 = 2;

/// What two executions are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digests {
    /// Of the whole reply but for its date.
    pub exact: [u8; 32],
    /// BLAKE3 of the whole reply without its date and without what the path's settings mask; equal
    /// to `exact` if they mask nothing.
    pub masked: [u8; 32],
    /// Of the whole reply if its Expires stands still instead of moving with Date; equal to `exact`
    /// if there is none.
    pub pinned: [u8; 32],
    /// Of the whole reply without its Last-Modified, if that may be the moment of the execution; an
    /// Expires that moves counts from there.
    pub undated: Option<[u8; 32]>,
    /// Of its Content-Encoding.
    pub coding: u32,
    /// Of its Content-Type.
    pub kind: u32,
}

/// How two executions are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sameness {
    /// The replies are equal, byte for byte, but for their dates.
    Exact,
    /// The replies are equal but for their dates, and their Expires stands still instead of moving
    /// with Date.
    Pinned,
    /// The replies are equal but for their dates, and the server gives the moment of an execution
    /// for Last-Modified.
    Undated,
    /// The replies are equal but for what the path's settings mask.
    Masked,
}

impl Sameness {
    /// Are the replies equal in all that is said of the page?
    pub(crate) fn is_whole(self) -> bool {
        self != Self::Masked
    }
}

impl Digests {
    /// How this one and a later one are the same; `None`: they differ.
    pub fn sameness(&self, later: &Self) -> Option<Sameness> {
        if self.exact == later.exact {
            Some(Sameness::Exact)
        } else if self.pinned == later.pinned {
            Some(Sameness::Pinned)
        } else if self.undated.is_some() && self.undated == later.undated {
            Some(Sameness::Undated)
        } else {
            (self.masked == later.masked).then_some(Sameness::Masked)
        }
    }
}

/// A whole reply.
pub(crate) struct WholeReply<'a> {
    /// The head of the reply.
    pub template: &'a HeadTemplate,
    /// The connection ends after it.
    pub closes: bool,
    /// Bytes of its body.
    pub body_len: u64,
    /// Hash of its body.
    pub body_hash: [u8; 32],
}

impl WholeReply<'_> {
    /// Its digests. `body` gives the body's bytes, and is asked only if they are to be masked.
    pub(crate) fn digests(
        &self,
        settings: &PathSettings,
        body: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Digests {
        let head = rendered(self.template);
        let exact = self.exact(&head);
        let masked =
            if settings.masks_anything() { self.masked(settings, &head, body) } else { exact };
        let is_moving = self.template.moves_expires();
        let pinned =
            if is_moving { self.exact(&rendered(&self.template.clone().pinned())) } else { exact };
        let undated = moment_told(self.template.original()).map(|moment| {
            let is_moment = |line: &&[u8]| {
                is_field(line, LAST_MODIFIED) || is_moving && is_field(line, EXPIRES)
            };
            let others = head.split_inclusive(is_end).filter(|line| !is_moment(line));
            let mut others = others.collect::<Vec<_>>().concat();
            if is_moving {
                let expires = date_of(self.template.original(), EXPIRES).unwrap_or_default();
                others.extend(expires.wrapping_sub(moment).to_le_bytes());
            }
            self.exact(&others)
        });
        let of = |name: &[u8]| value_digest(&head, name);
        Digests {
            exact,
            masked,
            pinned,
            undated,
            coding: of(b"content-encoding"),
            kind: of(b"content-type"),
        }
    }

    fn exact(&self, head: &[u8]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        for line in lines(head) {
            hasher.update(&(line.len() as u64).to_le_bytes()).update(line);
        }
        hasher
            .update(&[u8::from(self.closes)])
            .update(&self.body_len.to_le_bytes())
            .update(&self.body_hash);
        hasher.finalize().into()
    }

    fn masked(
        &self,
        settings: &PathSettings,
        head: &[u8],
        body: impl FnOnce() -> Option<Vec<u8>>,
    ) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        let body = if settings.masks.is_empty() || self.body_len > MASKED_BYTES_MAX {
            None
        } else {
            body()
        };
        let tells_moment = moment_told(self.template.original()).is_some();
        for line in lines(head) {
            let name = &line[..name_len(line)];
            let is_moment = tells_moment && is_field(line, LAST_MODIFIED);
            let counted = if is_moment || settings.is_masked_header(name) { name } else { line };
            hasher.update(&(counted.len() as u64).to_le_bytes()).update(counted);
        }
        hasher.update(&[u8::from(self.closes), u8::from(body.is_some())]);
        match body {
            Some(body) => {
                settings.masks.apply(&body, |piece| {
                    hasher.update(&(piece.len() as u64).to_le_bytes()).update(piece);
                });
            }
            None => {
                hasher.update(&self.body_len.to_le_bytes()).update(&self.body_hash);
            }
        }
        hasher.finalize().into()
    }
}

/// The lines of a head but for those that say where the body ends: a server that has the whole body
/// in time says how long it is, and sends it in chunks otherwise (Apache with what a CGI program
/// says). The body itself is compared.
fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_framing =
        |line: &&[u8]| is_field(line, b"content-length") || is_field(line, b"transfer-encoding");
    head.split_inclusive(is_end).filter(move |line| !is_framing(line))
}

/// A digest of the lines of one field; 0 where there are none.
fn value_digest(head: &[u8], name: &[u8]) -> u32 {
    let mut of_name = head.split_inclusive(is_end).filter(|line| is_field(line, name)).peekable();
    if of_name.peek().is_none() {
        return 0;
    }
    let mut hasher = blake3::Hasher::new();
    for line in of_name {
        hasher.update(line);
    }
    u32::from_le_bytes(std::array::from_fn(|at| hasher.finalize().as_bytes()[at]))
}

const LAST_MODIFIED: &[u8] = b"last-modified";
const EXPIRES: &[u8] = b"expires";

/// Its Last-Modified, if that may be the moment of the execution. Many applications say so of each
/// page. In one reply alone the page may as well have just changed; in two of different moments it
/// has not, or their bodies would differ.
fn moment_told(head: &[u8]) -> Option<u64> {
    let modified = date_of(head, LAST_MODIFIED)?;
    let before = date_of(head, b"date")?.checked_sub(modified)?;
    (before <= BEGUN_S).then_some(modified)
}

/// The date that a field says, in seconds since 1970.
fn date_of(head: &[u8], name: &[u8]) -> Option<u64> {
    let line = head.split_inclusive(is_end).find(|line| is_field(line, name))?;
    parse_imf_fixdate(line[name_len(line) + 1..].trim_ascii())
}

fn is_end(byte: &u8) -> bool {
    *byte == b'\n'
}

fn is_field(line: &[u8], name: &[u8]) -> bool {
    line[..name_len(line)].eq_ignore_ascii_case(name)
}

fn name_len(line: &[u8]) -> usize {
    line.iter().position(|byte| *byte == b':').unwrap_or(0)
}

/// The head at some moment that is the same for all.
fn rendered(template: &HeadTemplate) -> Vec<u8> {
    let mut head = vec![0; template.len()];
    template.render(&HttpDate::from_unix_s(0), &mut head);
    head
}

#[cfg(test)]
mod tests {
    use nicache_http::Masks;

    use super::*;

    #[test]
    fn where_the_body_ends_may_be_told_in_another_way() {
        let digests = |fields: &str, body_len: u64, settings: &PathSettings| {
            let head =
                format!("HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n{fields}\r\n");
            let template = HeadTemplate::new(head.as_bytes()).unwrap();
            let reply =
                WholeReply { template: &template, closes: false, body_len, body_hash: [7; 32] };
            reply.digests(settings, || None)
        };
        let masking = PathSettings {
            masked_headers: vec![Box::from(&b"x-id"[..])],
            ..PathSettings::default()
        };
        for settings in [&PathSettings::default(), &masking] {
            let known = digests("A: b\r\nContent-Length: 5\r\n", 5, settings);
            let chunked = digests("A: b\r\nTransfer-Encoding: chunked\r\n", 5, settings);
            assert_eq!(known.sameness(&chunked), Some(Sameness::Exact));
            assert_eq!(
                known.sameness(&digests("A: c\r\nTransfer-Encoding: chunked\r\n", 5, settings)),
                None
            );
            assert_eq!(
                known.sameness(&digests("A: b\r\nTransfer-Encoding: chunked\r\n", 6, settings)),
                None
            );
        }
    }

    /// Two executions whose dates are 10 s apart.
    #[test]
    fn expires_moves_or_stands_still() {
        let digests = |second: u64, expires: &str, more: &str| {
            let head = format!(
                "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:{second}1 GMT\r\nExpires: {expires}\r\n{more}\r\n"
            );
            let template = HeadTemplate::new(head.as_bytes()).unwrap();
            let reply =
                WholeReply { template: &template, closes: false, body_len: 0, body_hash: [0; 32] };
            reply.digests(&PathSettings::default(), || None)
        };
        for (one, other, more, sameness) in [
            // Date + 10 s, with max-age and without.
            ("08:49:11", "08:49:21", "Cache-Control: max-age=10\r\n", Some(Sameness::Exact)),
            ("08:49:11", "08:49:21", "", Some(Sameness::Exact)),
            // At a time of day.
            ("08:55:00", "08:55:00", "", Some(Sameness::Pinned)),
            ("07:00:00", "07:00:00", "", Some(Sameness::Exact)),
            ("08:55:00", "08:56:00", "", None),
        ] {
            let at = |second: u64, time: &str| {
                digests(second, &format!("Sun, 06 Nov 1994 {time} GMT"), more)
            };
            let (one, other) = (at(0, one), at(1, other));
            assert_eq!(one.sameness(&other), sameness);
        }
    }

    /// Two executions whose dates are 10 s apart.
    #[test]
    fn last_modified_is_the_moment_of_the_execution() {
        let digests = |second: u64, modified: &str, body_len: u64| {
            let head = format!(
                "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:{second}1 GMT\r\nLast-modified: {modified}\r\n\r\n"
            );
            let template = HeadTemplate::new(head.as_bytes()).unwrap();
            let reply =
                WholeReply { template: &template, closes: false, body_len, body_hash: [0; 32] };
            reply.digests(&PathSettings::default(), || None)
        };
        for (one, other, sameness) in [
            ("08:49:01", "08:49:11", Some(Sameness::Undated)),
            // Before it.
            ("08:49:00", "08:49:09", Some(Sameness::Undated)),
            ("08:48:58", "08:49:11", None),
            ("08:49:01", "08:49:08", None),
            // Not by this machine's clock.
            ("08:49:02", "08:49:12", None),
            ("08:49:01", "08:49:12", None),
            // When it was changed.
            ("08:49:01", "08:49:01", Some(Sameness::Exact)),
            ("08:40:00", "08:40:00", Some(Sameness::Exact)),
            ("08:40:00", "08:40:10", None),
        ] {
            let at = |second, time: &str, len| {
                digests(second, &format!("Sun, 06 Nov 1994 {time} GMT"), len)
            };
            assert_eq!(at(0, one, 5).sameness(&at(1, other, 5)), sameness, "{one} {other}");
            assert_eq!(at(0, one, 5).sameness(&at(1, other, 6)), None, "{one} {other}");
        }
        // Expires counts from the same moment.
        let with_expires = |second, modified: &str, expires: &str| {
            let time = |of: &str| format!("Sun, 06 Nov 1994 {of} GMT");
            let fields = format!("{}\r\nExpires: {}", time(modified), time(expires));
            digests(second, &fields, 5)
        };
        for (modified, expires, sameness) in [
            ("08:49:11", "08:54:11", Some(Sameness::Undated)),
            ("08:49:10", "08:54:10", Some(Sameness::Undated)),
            ("08:49:10", "08:54:11", None),
        ] {
            let first = with_expires(0, "08:49:01", "08:54:01");
            assert_eq!(first.sameness(&with_expires(1, modified, expires)), sameness, "{expires}");
        }
        // One that stands at the beginning of time.
        let still = digests(0, "Thu, 01 Jan 1970 00:00:00 GMT", 5);
        assert_eq!(still.sameness(&digests(1, "Sun, 06 Nov 1994 08:49:11 GMT", 5)), None);
    }

    fn digests(settings: &PathSettings, header: &str, body: &str) -> Digests {
        let head = format!(
            "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: {}\r\n{header}\r\n\r\n",
            body.len()
        );
        let reply = WholeReply {
            template: &HeadTemplate::new(head.as_bytes()).unwrap(),
            closes: false,
            body_len: body.len() as u64,
            body_hash: blake3::hash(body.as_bytes()).into(),
        };
        reply.digests(settings, || Some(body.as_bytes().to_vec()))
    }

    #[test]
    fn only_what_is_masked_may_differ() {
        let settings = PathSettings {
            masks: Masks::new(&["\"id\":\"*\""]).unwrap(),
            masked_headers: vec![(*b"X-Request-Id").into()],
            ..PathSettings::default()
        };
        let first = digests(&settings, "X-Request-ID: 1", "{\"id\":\"1\",\"a\":1}");
        let same = digests(&settings, "X-Request-ID: 22", "{\"id\":\"22\",\"a\":1}");
        assert!(first.exact != same.exact && first.masked == same.masked);
        for (header, body) in [
            ("X-Request-ID: 1", "{\"id\":\"1\",\"a\":2}"),
            ("X-Other: 1", "{\"id\":\"1\",\"a\":1}"),
            ("X-Request-ID: 1\r\nX-Other: 1", "{\"id\":\"1\",\"a\":1}"),
        ] {
            assert_ne!(digests(&settings, header, body).masked, first.masked, "{header} {body}");
        }
    }

    #[test]
    fn what_is_masked_beside_the_moment_of_the_execution() {
        let settings =
            PathSettings { masks: Masks::new(&["session=*;"]).unwrap(), ..PathSettings::default() };
        let at = |second: u64, body: &str| {
            let time = format!("Sun, 06 Nov 1994 08:49:{second} GMT");
            digests(&settings, &format!("Last-Modified: {time}"), body)
        };
        // Date is 08:49:37.
        assert_eq!(
            at(36, "session=1; a").sameness(&at(37, "session=2; a")),
            Some(Sameness::Masked)
        );
        assert_eq!(at(36, "session=1; a").sameness(&at(37, "session=2; b")), None);
        assert_eq!(at(30, "session=1; a").sameness(&at(37, "session=2; a")), None);
        assert_eq!(at(30, "session=1; a").sameness(&at(31, "session=2; a")), None);
        assert_eq!(
            at(30, "session=1; a").sameness(&at(30, "session=2; a")),
            Some(Sameness::Masked)
        );
    }

    #[test]
    fn without_masks_all_of_it_counts() {
        let settings = PathSettings::default();
        let first = digests(&settings, "X-Request-ID: 1", "text");
        assert_eq!(first.exact, first.masked);
        assert_ne!(digests(&settings, "X-Request-ID: 2", "text").masked, first.masked);
    }
}
