//! Judges every reply by what was true at the server while it was on the way.
//!
//! A reply whose serial number belongs to this very request came from the host, and must be what
//! the host wrote, byte for byte. Any other came from card memory: then it must be one whole
//! version of the file that the invariants allow.

use std::collections::HashSet;

use crate::client_reply::Reply;
use crate::events::Events;
use crate::files::{SharedFiles, Version, unix_s};
use crate::host_log::{Peer, SharedLog};
use crate::range::{content_range, is_multipart_of, read};
use crate::request::{Asked, Expect};
use crate::server_reply::{http_date, http_date_s};

/// The oracle of one run.
pub struct Oracle {
    files: SharedFiles,
    log: SharedLog,
    /// When look-up events were lost.
    pub lost_ns: Vec<u64>,
    /// When no lease held.
    pub lapses: Vec<(u64, u64)>,
    /// The card says in its replies that they are its own.
    cache_status: bool,
    /// Clients whose requests the card follows.
    pub followed: HashSet<Peer>,
    /// What it saw.
    pub events: Events,
}

impl Oracle {
    /// An oracle that knows every version of the files and everything that the host has sent.
    pub fn new(files: SharedFiles, log: SharedLog, cache_status: bool) -> Self {
        Self {
            files,
            log,
            cache_status,
            followed: HashSet::new(),
            lost_ns: Vec::new(),
            lapses: Vec::new(),
            events: Events::default(),
        }
    }

    /// Judges the reply to `asked` that was whole at `now_ns`. `history`: which earlier replies of
    /// the connection were hits.
    pub fn judge(
        &mut self,
        asked: &Asked,
        reply: &Reply,
        peer: Peer,
        now_ns: u64,
        history: &mut Vec<bool>,
    ) {
        let verdict = self.verdict(asked, reply, peer, now_ns);
        match verdict {
            Ok(hit) => {
                self.count(asked, reply, hit, history, now_ns);
                history.push(hit);
            }
            Err(what) => {
                let text = format!(
                    "{what}: #{} of {peer:x?}, sent {} ns, whole {now_ns} ns, {:?}, reply {:?}",
                    asked.number,
                    asked.sent_ns,
                    String::from_utf8_lossy(&asked.bytes[..asked.bytes.len().min(200)]),
                    String::from_utf8_lossy(&reply.raw[..reply.raw.len().min(320)]),
                );
                self.log.borrow_mut().violation(text);
                history.push(false);
            }
        }
    }

    fn verdict(
        &self,
        asked: &Asked,
        reply: &Reply,
        peer: Peer,
        now_ns: u64,
    ) -> Result<bool, String> {
        let log = self.log.borrow();
        let source = reply
            .serial()
            .and_then(|serial| log.replies.get(serial))
            .ok_or("I2: a reply that nobody wrote")?;
        let own = if asked.garbage {
            source.request.is_none()
        } else {
            source.request == Some(asked.number)
        };
        if own {
            if source.peer != peer {
                return Err("I5: another client's reply".into());
            }
            if source.bytes != reply.raw {
                let at = source.bytes.iter().zip(&reply.raw).position(|(wrote, got)| wrote != got);
                return Err(format!(
                    "I2: not what the host wrote ({} bytes, got {}, first difference {at:?})",
                    source.bytes.len(),
                    reply.raw.len()
                ));
            }
            if let Expect::Change(file) = asked.expect
                && let Some(etag) = reply.header("x-made")
                && self.followed.contains(&peer)
            {
                self.files.borrow_mut().return_of(file, etag, now_ns);
            }
            return Ok(false);
        }
        if source.private {
            return Err("I5: somebody else's private reply".into());
        }
        // Of a 206 the card has the head alone.
        let finished = match source.finished_ns {
            None if reply.status != 206 => {
                return Err("I2: a hit from a reply that the host never finished".into());
            }
            finished => finished.unwrap_or(source.started_ns),
        };
        if self.lapses.iter().any(|&(from, to)| from < asked.sent_ns && now_ns < to) {
            return Err("I3: a hit without a lease".into());
        }
        if self.lost_ns.iter().any(|&at| source.started_ns < at && at < finished) {
            return Err("I3: a hit from a reply during which events were lost".into());
        }
        self.same_head(asked, reply, &source.bytes, now_ns)?;
        if reply.last != asked.last {
            return Err("I5: a hit with another fate of the connection".into());
        }
        let file = match asked.expect {
            Expect::File(file) | Expect::Vary(file) => file,
            Expect::Private | Expect::Change(_) | Expect::Anything => {
                return Err("I5: a hit for what cannot be shared".into());
            }
        };
        self.allowed(asked, reply, file, now_ns)?;
        Ok(true)
    }

    /// The head is the server's own, but for the date, which is today's.
    fn same_head(
        &self,
        asked: &Asked,
        reply: &Reply,
        source: &[u8],
        now_ns: u64,
    ) -> Result<(), String> {
        let mut source = source;
        let source_len = loop {
            let Some(len) = source.windows(4).position(|window| window == b"\r\n\r\n") else {
                return Err("I5: a hit without a head".into());
            };
            if !source.starts_with(b"HTTP/1.1 1") {
                break len;
            }
            // An interim reply is not part of the entry.
            source = &source[len + 4..];
        };
        let head = &reply.raw[reply.head.0..reply.head.1];
        let own: Vec<u8>;
        let head = match self.cache_status {
            false => head,
            true => {
                own = without_status(head)
                    .ok_or("I5: a hit without the Cache-Status that was asked for")?;
                &own
            }
        };
        let (theirs, ours) = (&source[..source_len + 4], head);
        // The numbers of another range are other ones.
        let may_differ = |line: &[u8]| {
            line.starts_with(b"Date: ")
                || reply.status == 206
                    && (line.starts_with(b"Content-Length: ")
                        || line.starts_with(b"Content-Range: "))
        };
        let theirs = theirs.split(|&byte| byte == b'\n');
        let ours = ours.split(|&byte| byte == b'\n');
        for (theirs, ours) in theirs.zip(ours) {
            let name_len = theirs.iter().position(|byte| *byte == b':').unwrap_or(0);
            if theirs != ours && !(may_differ(theirs) && ours.starts_with(&theirs[..name_len + 1]))
            {
                return Err("I5: a hit with another head".into());
            }
        }
        if reply.status != 206 && head.len() != source_len + 4 {
            return Err("I5: a hit with a head of another length".into());
        }
        let date = reply.header("date").unwrap_or_default();
        if !(unix_s(asked.begun_ns)..=unix_s(now_ns)).any(|second| http_date(second) == date) {
            return Err(format!("I5: a hit dated {date}"));
        }
        Ok(())
    }

    fn allowed(
        &self,
        asked: &Asked,
        reply: &Reply,
        file: usize,
        now_ns: u64,
    ) -> Result<(), String> {
        let files = self.files.borrow();
        let mut allowed = files.allowed(file, asked.sent_ns, now_ns);
        match reply.status {
            200 => {
                let version = allowed
                    .find(|version| reply.header("etag") == Some(version.etag.as_str()))
                    .ok_or("I1: stale, by its validator")?;
                let bytes = version.bytes.as_ref().ok_or("I1: a file that is not there")?;
                if reply.header("content-length").is_some_and(|len| *len != bytes.len().to_string())
                {
                    return Err("I2: another length than the file's".into());
                }
                if asked.head && reply.header("content-length").is_none() {
                    return Err("I5: a HEAD answered by what has no length".into());
                }
                if !asked.head && *reply.body != **bytes {
                    return Err("I2: not the file's bytes".into());
                }
                if asked.head && !reply.body.is_empty() {
                    return Err("I2: a body for HEAD".into());
                }
                let modified = http_date(version.modified_s);
                let is_of_version = |value: &String| *value == version.etag || *value == modified;
                if asked.range.is_some() && asked.if_range.as_ref().is_none_or(is_of_version) {
                    return Err("I5: 200 where the server would say 206".into());
                }
                conditions_hold(asked, version)?;
                if asked.since.is_none()
                    && asked.tag.as_ref().is_some_and(|tag| tag == "*" || *tag == version.etag)
                {
                    return Err("I5: 200 where the server would say 304".into());
                }
                Ok(())
            }
            206 => {
                let version = allowed
                    .find(|version| reply.header("etag") == Some(version.etag.as_str()))
                    .ok_or("I1: a stale range, by its validator")?;
                let bytes =
                    version.bytes.as_ref().ok_or("I1: a range of a file that is not there")?;
                let modified = http_date(version.modified_s);
                if asked.head
                    || asked
                        .if_range
                        .as_ref()
                        .is_some_and(|value| *value != version.etag && *value != modified)
                {
                    return Err("I5: a range that was not asked for".into());
                }
                conditions_hold(asked, version)?;
                let ranges = asked.range.as_ref().and_then(|value| read(value, bytes.len()));
                let is_right = match ranges.as_deref() {
                    Some(&[range]) => {
                        reply.header("content-range")
                            == Some(content_range(range, bytes.len()).as_str())
                            && reply.body == bytes[range.0..=range.1]
                    }
                    Some(ranges) if ranges.len() > 1 => {
                        let kind = reply.header("content-type").unwrap_or_default();
                        reply.header("content-range").is_none()
                            && is_multipart_of(&reply.body, kind, bytes, ranges)
                    }
                    _ => false,
                };
                if is_right { Ok(()) } else { Err("I2: not the range that was asked for".into()) }
            }
            304 => {
                let fits = |version: &crate::files::Version| {
                    let tag = asked.tag.as_ref().map(|tag| tag == "*" || *tag == version.etag);
                    let since =
                        asked.since.as_ref().map(|since| *since == http_date(version.modified_s));
                    version.bytes.is_some()
                        && (tag.is_some() || since.is_some())
                        && tag != Some(false)
                        && since != Some(false)
                };
                if allowed.any(fits) { Ok(()) } else { Err("I1: 304 for what has changed".into()) }
            }
            status => Err(format!("I5: a hit with status {status}")),
        }
    }

    fn count(&mut self, asked: &Asked, reply: &Reply, hit: bool, history: &[bool], now_ns: u64) {
        let events = &mut self.events;
        if !hit {
            if history.last() == Some(&true) {
                events.count("miss_after_hit");
                events.add("miss_after_hit_after_miss", u64::from(history.contains(&false)));
            }
            return;
        }
        if reply.status == 200 && reply.header("content-length").is_none() {
            let chunked = reply.header("transfer-encoding").is_some();
            events.count(if chunked { "hits_chunked" } else { "hits_close_delimited" });
        }
        match history.last() {
            Some(true) => events.count("hit_after_hit"),
            Some(false) => events.count("hit_after_miss"),
            None => {}
        }
        if asked.behind > 0 {
            events.count(if history.last() == Some(&true) {
                "hits_pipelined_behind_hit"
            } else {
                "hits_pipelined_behind_miss"
            });
        }
        events.add("hits_split_over_segments", u64::from(asked.portions > 1));
        events.add("hits_with_status", u64::from(self.cache_status));
        events.add("hits_http10", u64::from(asked.http10));
        events.add("vary_hits", u64::from(matches!(asked.expect, Expect::Vary(_))));
        if let Expect::File(file) | Expect::Vary(file) = asked.expect {
            let files = self.files.borrow();
            let current = files.current(file);
            let replaced =
                current.visible_ns <= now_ns && reply.header("etag") != Some(current.etag.as_str());
            events.add("hits_while_purged", u64::from(replaced));
        }
    }
}

fn conditions_hold(asked: &Asked, version: &Version) -> Result<(), String> {
    let matches = asked.if_match.as_ref().is_none_or(|tag| tag == "*" || *tag == version.etag);
    let unmodified = asked
        .unmodified
        .as_deref()
        .and_then(http_date_s)
        .is_none_or(|date| version.modified_s <= date);
    if matches && unmodified {
        Ok(())
    } else {
        Err("I5: a hit where the server would say 412".into())
    }
}

/// The head without the line by which the card says that the reply is its own, which must be there.
fn without_status(head: &[u8]) -> Option<Vec<u8>> {
    const LINE: &[u8] = b"\r\nCache-Status: nicache; ";
    let at = head.windows(LINE.len()).position(|window| window == LINE)? + 2;
    let end = at + head[at..].windows(2).position(|window| window == b"\r\n")? + 2;
    Some([&head[..at], &head[end..]].concat())
}
