//! Replies with a part of an entry (206, RFC 9110 section 15.3.7) in the server's own words: its
//! head, and what it writes in front of each part of several (section 14.6), both learned from one
//! reply of the server, with other numbers in them.

use arrayvec::ArrayVec;

use crate::date::{HttpDate, IMF_FIXDATE_BYTES};
use crate::framing::Framing;
use crate::head::offset_in;
use crate::limits::TEMPLATE_BYTES_MAX;
use crate::protocol::Method;
use crate::range::ByteRange;
use crate::reply::{ReplyHead, ReplyOutcome, parse_reply};

/// Digits of a u64.
const DIGITS_MAX: usize = 20;
/// Longest `bytes first-last/length`.
const CONTENT_RANGE_BYTES_MAX: usize = 6 + 2 + 3 * DIGITS_MAX;
/// Longest text in front of a part that is learned, in bytes.
const PART_HEAD_BYTES_MAX: usize = 512;
/// Longest boundary (RFC 2046 section 5.1.1).
const BOUNDARY_BYTES_MAX: usize = 70;

type Number = ArrayVec<u8, CONTENT_RANGE_BYTES_MAX>;

/// The head of a 206, to be written again for another moment and other ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialTemplate {
    head: Box<[u8]>,
    date_at: Option<u16>,
    /// Expires, and seconds between it and Date.
    expires: Option<(u16, u64)>,
    length: Span,
    /// Content-Range; several parts have none in the head.
    range: Option<Span>,
}

/// A value in a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    at: u16,
    len: u16,
}

impl Span {
    fn of(head: &[u8], value: &[u8]) -> Self {
        // Heads are shorter than TEMPLATE_BYTES_MAX.
        Self { at: offset_in(head, value) as u16, len: value.len() as u16 }
    }
}

impl PartialTemplate {
    /// Learns from the head of a reply that is [`ReplyHead::learnable_206`]: `head` is all of its
    /// bytes. For one `range` of `len` bytes in all the head must say so in Content-Range, and its
    /// length; for several there is none. `None`: it is not what was asked for.
    pub fn learn(
        reply: &ReplyHead<'_>,
        head: &[u8],
        range: Option<ByteRange>,
        len: u64,
    ) -> Option<Self> {
        if !reply.learnable_206 || head.len() > TEMPLATE_BYTES_MAX {
            return None;
        }
        // Once more, so all values are slices of `head`.
        let ReplyOutcome::Complete(reply) = parse_reply(head, Method::Get) else { return None };
        let renewal = reply.renewal.ok()?;
        let Framing::Length(content) = reply.framing else { return None };
        match (range, reply.content_range) {
            (Some(range), Some(value))
                if value == content_range(range, len).as_slice() && content == range.len() => {}
            (None, None) => {}
            _ => return None,
        }
        Some(Self {
            head: head.into(),
            date_at: renewal.date_at.map(|at| at as u16),
            expires: renewal.expires.map(|(at, max_age_s)| (at as u16, max_age_s)),
            length: Span::of(head, reply.content_length?),
            range: reply.content_range.map(|value| Span::of(head, value)),
        })
    }

    /// A template whose Expires stands still, as that of the whole reply does, instead of moving
    /// with Date.
    pub fn pinned(mut self) -> Self {
        self.expires = None;
        self
    }

    /// Bytes of the head for content of `content` bytes, which are `range` of `len`, if there is
    /// one.
    pub fn len_for(&self, content: u64, range: Option<ByteRange>, len: u64) -> usize {
        let grown = |span: Span, new: usize| new as isize - span.len as isize;
        let mut bytes = self.head.len() as isize + grown(self.length, number(content).len());
        if let (Some(span), Some(range)) = (self.range, range) {
            bytes += grown(span, content_range(range, len).len());
        }
        bytes as usize
    }

    /// Writes the head as of `date` to the front of `out` and gives its length: [`Self::len_for`],
    /// or 0 if `out` is shorter.
    pub fn render(
        &self,
        date: &HttpDate,
        content: u64,
        range: Option<ByteRange>,
        len: u64,
        out: &mut [u8],
    ) -> usize {
        let bytes = self.len_for(content, range, len);
        let Some(out) = out.get_mut(..bytes) else { return 0 };
        let mut edits: ArrayVec<(Span, Number), 4> = ArrayVec::new();
        if let Some(at) = self.date_at {
            edits.push((date_span(at), text(date.as_bytes())));
        }
        if let Some((at, max_age_s)) = self.expires {
            let expires = HttpDate::from_unix_s(date.unix_s().saturating_add(max_age_s));
            edits.push((date_span(at), text(expires.as_bytes())));
        }
        edits.push((self.length, number(content)));
        if let (Some(span), Some(range)) = (self.range, range) {
            edits.push((span, content_range(range, len)));
        }
        edits.sort_unstable_by_key(|(span, _)| span.at);
        let (mut from, mut to) = (0, 0);
        let mut put = |piece: &[u8]| {
            out[to..to + piece.len()].copy_from_slice(piece);
            to += piece.len();
        };
        for (span, value) in &edits {
            put(&self.head[from..usize::from(span.at)]);
            put(value);
            from = usize::from(span.at + span.len);
        }
        put(&self.head[from..]);
        bytes
    }
}

fn date_span(at: u16) -> Span {
    Span { at, len: IMF_FIXDATE_BYTES as u16 }
}

/// What a server writes around the parts of a multipart/byteranges body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartFormat {
    /// In front of a part, without the line break that ends the one before; ends with an empty
    /// line.
    head: Box<[u8]>,
    /// The value of Content-Range in it.
    range: Span,
    /// The first one has a line break in front, too.
    breaks_first: bool,
    boundary: Box<[u8]>,
}

/// Several ranges that were asked for, as far as their reply must agree with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartsAsked {
    /// How many ranges were asked for.
    pub count: u8,
    /// The first of them.
    pub first: ByteRange,
    /// Bytes of all together.
    pub content: u64,
    /// Bytes of all values of Content-Range together.
    pub values: u64,
}

impl PartsAsked {
    /// What is to be remembered of `parts` of `len` bytes.
    pub fn new(parts: &[ByteRange], len: u64) -> Self {
        Self {
            count: parts.len() as u8,
            first: parts.first().copied().unwrap_or_default(),
            content: parts.iter().map(ByteRange::len).sum(),
            values: parts.iter().map(|part| content_range(*part, len).len() as u64).sum(),
        }
    }
}

impl PartFormat {
    /// Learns from a reply to a request for several ranges of `len` bytes: its head, and the
    /// beginning of its body, in which the text in front of the first part must be whole. The
    /// length of the reply tells whether all of it is made like that. `None`: it is not.
    pub fn learn(
        reply: &ReplyHead<'_>,
        kind: &[u8],
        body: &[u8],
        asked: &PartsAsked,
        len: u64,
    ) -> Option<Self> {
        let Framing::Length(content) = reply.framing else { return None };
        let boundary = boundary(kind)?;
        let breaks_first = body.starts_with(b"\r\n");
        let body = if breaks_first { &body[2..] } else { body };
        let head_len =
            body.windows(4).take(PART_HEAD_BYTES_MAX).position(|window| window == b"\r\n\r\n")? + 4;
        let head = &body[..head_len];
        let rest = head.strip_prefix(b"--")?.strip_prefix(boundary)?;
        if !rest.starts_with(b"\r\n") {
            return None;
        }
        let value = content_range(asked.first, len);
        let at = rest.windows(value.len()).position(|window| window == value.as_slice())?;
        let is_field = rest[..at].to_ascii_lowercase().ends_with(b"\r\ncontent-range: ");
        if !is_field || !rest[at + value.len()..].starts_with(b"\r\n") {
            return None;
        }
        let range = Span { at: (head_len - rest.len() + at) as u16, len: value.len() as u16 };
        let format = Self { head: head.into(), range, breaks_first, boundary: boundary.into() };
        let fixed = u64::from(asked.count) * (format.head.len() + 2 - value.len()) as u64;
        let breaks = if breaks_first { 0 } else { 2 };
        let whole = fixed + asked.values + asked.content - breaks + format.end_len() as u64;
        (whole == content).then_some(format)
    }

    /// Bytes in front of a part, which is the first one or not.
    pub fn head_len(&self, part: ByteRange, len: u64, is_first: bool) -> usize {
        let value_len = content_range(part, len).len();
        let break_len = if is_first && !self.breaks_first { 0 } else { 2 };
        break_len + self.head.len() - usize::from(self.range.len) + value_len
    }

    /// Bytes behind the last part.
    pub fn end_len(&self) -> usize {
        self.boundary.len() + 8
    }

    /// Bytes of a body with these parts.
    pub fn body_len(&self, parts: &[ByteRange], len: u64) -> u64 {
        let heads =
            parts.iter().enumerate().map(|(at, part)| self.head_len(*part, len, at == 0) as u64);
        heads.sum::<u64>() + parts.iter().map(ByteRange::len).sum::<u64>() + self.end_len() as u64
    }

    /// Writes what stands in front of a part; gives its length, or 0 if `out` is too short.
    pub fn render_head(&self, part: ByteRange, len: u64, is_first: bool, out: &mut [u8]) -> usize {
        let bytes = self.head_len(part, len, is_first);
        let line_break: &[u8] = if is_first && !self.breaks_first { b"" } else { b"\r\n" };
        let (at, behind) =
            (usize::from(self.range.at), usize::from(self.range.at + self.range.len));
        put_all(
            out,
            bytes,
            &[line_break, &self.head[..at], &content_range(part, len), &self.head[behind..]],
        )
    }

    /// Writes what stands behind the last part; gives its length, or 0 if `out` is too short.
    pub fn render_end(&self, out: &mut [u8]) -> usize {
        put_all(out, self.end_len(), &[b"\r\n--", &self.boundary, b"--\r\n"])
    }
}

fn put_all(out: &mut [u8], bytes: usize, pieces: &[&[u8]]) -> usize {
    let Some(mut out) = out.get_mut(..bytes) else { return 0 };
    for piece in pieces {
        let (place, rest) = out.split_at_mut(piece.len());
        place.copy_from_slice(piece);
        out = rest;
    }
    bytes
}

/// The boundary of a multipart/byteranges media type without other parameters.
fn boundary(kind: &[u8]) -> Option<&[u8]> {
    const KIND: &[u8] = b"multipart/byteranges; boundary=";
    let (start, boundary) = kind.split_at_checked(KIND.len())?;
    let is_plain =
        boundary.iter().all(|byte| byte.is_ascii_alphanumeric() || b"'()+_-./:=?".contains(byte));
    let fits = (1..=BOUNDARY_BYTES_MAX).contains(&boundary.len());
    (start.eq_ignore_ascii_case(KIND) && is_plain && fits).then_some(boundary)
}

/// The value of Content-Range (RFC 9110 section 14.4).
fn content_range(range: ByteRange, len: u64) -> Number {
    let mut value = text(b"bytes ");
    value.extend(number(range.from));
    value.push(b'-');
    value.extend(number(range.to.saturating_sub(1)));
    value.push(b'/');
    value.extend(number(len));
    value
}

fn number(mut value: u64) -> Number {
    let mut digits = Number::new();
    loop {
        digits.push(b'0' + (value % 10) as u8);
        value /= 10;
        if value == 0 {
            break;
        }
    }
    digits.reverse();
    digits
}

fn text(bytes: &[u8]) -> Number {
    bytes.iter().copied().collect()
}
