//! The bytes of a reply from card memory: texts that are rendered (heads, and what stands around
//! parts) and ranges of the body, by reference.

use std::ops::Range;

use nicache_cache::{Entry, Store};
use nicache_http::{ByteRange, HttpDate};
use nicache_memory::BodyId;
use nicache_tcp::Seq;

use crate::flow::Flow;
use crate::flow::parts::PartSets;
use crate::flow::reply::{Reply, ReplyKind};
use crate::limits::RENDERED_HEAD_BYTES_MAX;

/// What of a reply lies in a segment.
pub(crate) enum Piece<'a> {
    /// Rendered text.
    Head(&'a [u8]),
    /// A range of a body.
    Body(BodyId, Range<u64>),
}

/// One stretch of a reply.
enum Stretch {
    Text(u32),
    Body(ByteRange),
}

/// What a reply draws from.
#[derive(Clone, Copy)]
pub(crate) struct Sources<'a> {
    /// Entries and bodies.
    pub store: &'a Store,
    /// Ranges of replies with several parts.
    pub parts: &'a PartSets,
}

/// Bytes of the head of a reply of that kind with `body_len` bytes of content behind it, without a
/// Cache-Status; the chunk-size line counts with the head. `None`: the entry has no such form.
pub(crate) fn head_len(
    entry: &Entry,
    kind: ReplyKind,
    range: ByteRange,
    body_len: u64,
) -> Option<usize> {
    Some(match kind {
        ReplyKind::Full => entry.template.len() + entry.prefix.len(),
        ReplyKind::HeadOnly => entry.template.len(),
        ReplyKind::NotModified => entry.learned.not_modified.as_ref()?.len(),
        ReplyKind::Range => {
            entry.learned.range.as_ref()?.len_for(body_len, Some(range), entry.body_len)
        }
        ReplyKind::Parts => {
            entry.learned.parts.as_ref()?.template.len_for(body_len, None, entry.body_len)
        }
    })
}

/// Renders the texts of all replies that lie in `len` bytes from `seq`, each into a place of its
/// own. A retransmission renders the same bytes again, with the date of the first time.
pub(crate) fn render(
    flow: &Flow,
    from: Sources<'_>,
    now: &HttpDate,
    seq: Seq,
    len: u32,
    places: &mut [u8],
) {
    for (reply, place) in flow.replies.iter().zip(places.chunks_exact_mut(RENDERED_HEAD_BYTES_MAX))
    {
        let Some((first, _)) = overlap(reply, seq, len) else { continue };
        if first >= reply.head_len && reply.kind != ReplyKind::Parts {
            continue;
        }
        let Some(entry) = from.store.get(reply.entry) else { continue };
        if reply.date == now.unix_s() {
            render_reply(reply, entry, from.parts, now, place);
        } else {
            render_reply(reply, entry, from.parts, &HttpDate::from_unix_s(reply.date), place);
        }
    }
}

/// Renders the text of a whole reply, head and prefix, with today's date.
#[inline]
pub(crate) fn render_whole(reply: &Reply, entry: &Entry, date: &HttpDate, place: &mut [u8]) {
    let filled = entry.template.render(date, place);
    let at = put_status(reply, place, filled);
    if !entry.prefix.is_empty()
        && let Some(rest) = place.get_mut(at..at + entry.prefix.len())
    {
        rest.copy_from_slice(&entry.prefix);
    }
}

fn render_reply(reply: &Reply, entry: &Entry, parts: &PartSets, date: &HttpDate, place: &mut [u8]) {
    let (content, range) = (u64::from(reply.body_len), reply.range());
    let learned = &entry.learned;
    let filled = match reply.kind {
        ReplyKind::Full | ReplyKind::HeadOnly => entry.template.render(date, place),
        ReplyKind::NotModified => {
            learned.not_modified.as_ref().map_or(0, |template| template.render(date, place))
        }
        ReplyKind::Range => {
            let template = learned.range.as_ref();
            template.map_or(0, |template| {
                template.render(date, content, Some(range), entry.body_len, place)
            })
        }
        ReplyKind::Parts => {
            let parts = learned.parts.as_ref();
            parts.map_or(0, |parts| {
                parts.template.render(date, content, None, entry.body_len, place)
            })
        }
    };
    let mut at = put_status(reply, place, filled);
    match reply.kind {
        ReplyKind::Full => {
            if let Some(rest) = place.get_mut(at..at + entry.prefix.len()) {
                rest.copy_from_slice(&entry.prefix);
            }
        }
        ReplyKind::Parts => {
            let Some(format) = learned.parts.as_ref().map(|parts| &parts.format) else { return };
            for (index, part) in parts.get(reply.parts).iter().enumerate() {
                at += format.render_head(*part, entry.body_len, index == 0, &mut place[at..]);
            }
            format.render_end(&mut place[at..]);
        }
        ReplyKind::HeadOnly | ReplyKind::NotModified | ReplyKind::Range => {}
    }
}

/// Writes a whole reply with head and body, whose date is `now`'s, into `out`, which is as long as
/// it; false if something is missing.
pub(crate) fn copy(reply: &Reply, store: &Store, now: &HttpDate, out: &mut [u8]) -> bool {
    let (Some(entry), ReplyKind::Full) = (store.get(reply.entry), reply.kind) else { return false };
    if out.len() != reply.len() as usize || reply.date != now.unix_s() {
        return false;
    }
    let (text, mut rest) = out.split_at_mut(reply.head_len as usize);
    let filled = entry.template.render(now, text);
    if text.len() != filled + reply.status.line().len() + entry.prefix.len() {
        return false;
    }
    let at = put_status(reply, text, filled);
    text[at..].copy_from_slice(&entry.prefix);
    let Ok(extents) =
        store.memory().extents(entry.body, reply.from..reply.from + u64::from(reply.body_len))
    else {
        return false;
    };
    for extent in extents {
        let (to, behind) = std::mem::take(&mut rest).split_at_mut(extent.len());
        to.copy_from_slice(extent);
        rest = behind;
    }
    rest.is_empty()
}

/// Puts the Cache-Status in front of the empty line that ends the first `filled` bytes; gives the
/// new number.
fn put_status(reply: &Reply, place: &mut [u8], filled: usize) -> usize {
    let line = reply.status.line();
    if line.is_empty() || filled < 2 {
        return filled;
    }
    if let Some(rest) = place.get_mut(filled - 2..filled + line.len()) {
        rest[..line.len()].copy_from_slice(line);
        rest[line.len()..].copy_from_slice(b"\r\n");
    }
    filled + line.len()
}

/// Calls `visit` with the pieces of `len` bytes from `seq`, in order. `places` are what [`render`]
/// has filled.
pub(crate) fn visit<'a>(
    flow: &Flow,
    from: Sources<'_>,
    seq: Seq,
    len: u32,
    places: &'a [u8],
    mut visit: impl FnMut(Piece<'a>),
) {
    for (reply, place) in flow.replies.iter().zip(places.chunks_exact(RENDERED_HEAD_BYTES_MAX)) {
        let Some((first, end)) = overlap(reply, seq, len) else { continue };
        let Some(entry) = from.store.get(reply.entry) else { continue };
        let (mut at, mut text_at) = (0u32, 0usize);
        stretches(reply, entry, from.parts, |stretch| {
            let len = match &stretch {
                Stretch::Text(len) => *len,
                Stretch::Body(range) => range.len() as u32,
            };
            let (skipped, taken) =
                (first.saturating_sub(at).min(len), end.saturating_sub(at).min(len));
            if skipped < taken {
                visit(match &stretch {
                    Stretch::Text(_) => {
                        Piece::Head(&place[text_at + skipped as usize..text_at + taken as usize])
                    }
                    Stretch::Body(range) => Piece::Body(
                        entry.body,
                        range.from + u64::from(skipped)..range.from + u64::from(taken),
                    ),
                });
            }
            if let Stretch::Text(len) = stretch {
                text_at += len as usize;
            }
            at += len;
        });
    }
}

fn stretches(reply: &Reply, entry: &Entry, parts: &PartSets, mut each: impl FnMut(Stretch)) {
    each(Stretch::Text(reply.head_len));
    if reply.kind != ReplyKind::Parts {
        each(Stretch::Body(reply.range()));
        return;
    }
    let Some(format) = entry.learned.parts.as_ref().map(|parts| &parts.format) else { return };
    for (index, part) in parts.get(reply.parts).iter().enumerate() {
        each(Stretch::Text(format.head_len(*part, entry.body_len, index == 0) as u32));
        each(Stretch::Body(*part));
    }
    each(Stretch::Text(format.end_len() as u32));
}

/// The part of `reply` that lies in `len` bytes from `seq`: first and last byte, counted from the
/// reply's start.
fn overlap(reply: &Reply, seq: Seq, len: u32) -> Option<(u32, u32)> {
    let from = seq.saturating_since(reply.start);
    let to = (seq + len).saturating_since(reply.start).min(reply.len());
    (from < to).then_some((from, to))
}
