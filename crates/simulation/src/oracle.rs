//! Judges every reply by what was true at the server while it was on the way.
//!
//! A reply whose serial number belongs to this very request came from the host, and must be what the host wrote, byte for byte. Any other
//! came from card memory: then it must be one whole version of the file that the invariants allow.

use crate::client_reply::Reply;
use crate::events::Events;
use crate::files::{SharedFiles, unix_s};
use crate::host_log::{Peer, SharedLog};
use crate::request::{Asked, Expect};
use crate::server_reply::http_date;

/// The oracle of one run.
pub struct Oracle {
    files: SharedFiles,
    log: SharedLog,
    /// When look-up events were lost.
    pub lost_ns: Vec<u64>,
    /// When no lease held.
    pub lapses: Vec<(u64, u64)>,
    /// What it saw.
    pub events: Events,
}

impl Oracle {
    /// Knows everything.
    pub fn new(files: SharedFiles, log: SharedLog) -> Oracle {
        Oracle { files, log, lost_ns: Vec::new(), lapses: Vec::new(), events: Events::default() }
    }

    /// Judges the reply to `asked` that was whole at `now_ns`. `history`: which earlier replies of the connection were hits.
    pub fn judge(&mut self, asked: &Asked, reply: &Reply, peer: Peer, now_ns: u64, history: &mut Vec<bool>) {
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

    fn verdict(&self, asked: &Asked, reply: &Reply, peer: Peer, now_ns: u64) -> Result<bool, String> {
        let log = self.log.borrow();
        let source =
            reply.serial().and_then(|serial| log.replies.get(serial)).ok_or("I2: a reply that nobody wrote")?;
        let own = if asked.garbage { source.request.is_none() } else { source.request == Some(asked.number) };
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
            return Ok(false);
        }
        if source.private {
            return Err("I5: somebody else's private reply".into());
        }
        let finished = source.finished_ns.ok_or("I2: a hit from a reply that the host never finished")?;
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
            Expect::Private | Expect::Anything => return Err("I5: a hit for what cannot be shared".into()),
        };
        self.allowed(asked, reply, file, now_ns)?;
        Ok(true)
    }

    /// The head is the server's own, but for the date, which is today's.
    fn same_head(&self, asked: &Asked, reply: &Reply, source: &[u8], now_ns: u64) -> Result<(), String> {
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
        let (theirs, ours) = (&source[..source_len + 4], head);
        let theirs = theirs.split(|&byte| byte == b'\n');
        let ours = ours.split(|&byte| byte == b'\n');
        for (theirs, ours) in theirs.zip(ours) {
            if theirs != ours && !(theirs.starts_with(b"Date: ") && ours.starts_with(b"Date: ")) {
                return Err("I5: a hit with another head".into());
            }
        }
        if head.len() != source_len + 4 {
            return Err("I5: a hit with a head of another length".into());
        }
        let date = reply.header("date").unwrap_or_default();
        if !(unix_s(asked.begun_ns)..=unix_s(now_ns)).any(|second| http_date(second) == date) {
            return Err(format!("I5: a hit dated {date}"));
        }
        Ok(())
    }

    fn allowed(&self, asked: &Asked, reply: &Reply, file: usize, now_ns: u64) -> Result<(), String> {
        let files = self.files.borrow();
        let mut allowed = files.allowed(file, asked.sent_ns, now_ns);
        match reply.status {
            200 => {
                let version = allowed
                    .find(|version| reply.header("etag") == Some(version.etag.as_str()))
                    .ok_or("I1: stale, by its validator")?;
                let bytes = version.bytes.as_ref().ok_or("I1: a file that is not there")?;
                if reply.header("content-length").is_some_and(|len| *len != bytes.len().to_string()) {
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
                if asked.since.is_none() && asked.tag.as_deref() == Some(version.etag.as_str()) {
                    return Err("I5: 200 where the server would say 304".into());
                }
                Ok(())
            }
            304 => {
                let fits = |version: &crate::files::Version| {
                    let tag = asked.tag.as_ref().map(|tag| *tag == version.etag);
                    let since = asked.since.as_ref().map(|since| *since == http_date(version.modified_s));
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
        events.add("hits_http10", u64::from(asked.http10));
        events.add("vary_hits", u64::from(matches!(asked.expect, Expect::Vary(_))));
        if let Expect::File(file) | Expect::Vary(file) = asked.expect {
            let files = self.files.borrow();
            let current = files.current(file);
            let replaced = current.visible_ns <= now_ns && reply.header("etag") != Some(current.etag.as_str());
            events.add("hits_while_purged", u64::from(replaced));
        }
    }
}
