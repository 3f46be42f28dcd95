//! What a request is answered with.

use std::fs::File;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nicache_host::server::listing::{KIND, encode, error_page};
use nicache_host::server::reply::{Body, Head, Manner, kind_of};
use nicache_host::server::request::Asked;
use nicache_host::server::validator::{Validators, judge, range_applies};
use nicache_http::{ByteRange, HttpDate, Judgement, Wanted, wanted};
use nicache_payload::{Extent, FileId, Payload};
use rustix::fs::fstat;

use crate::revisions::Revisions;
use crate::site::{Found, Page, Site, changed_ns};

/// How often a file that changes meanwhile is looked at again, a millisecond apart at first, and no
/// longer than two seconds together.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// A reply whose first part is there.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    /// References to content, or a page of the server's own.
    pub(crate) first: Vec<Extent>,
    /// What follows.
    pub(crate) rest: Option<Rest>,
}

/// The rest of a file that is longer than one piece.
#[derive(Debug)]
pub(crate) struct Rest {
    file: File,
    id: FileId,
    following: Following,
}

/// From where to where, and of which revision.
#[derive(Debug)]
struct Following {
    revision: u64,
    at: u64,
    to: u64,
}

/// Why a reply cannot be completed.
#[derive(Debug)]
pub(crate) enum Cut {
    /// The file is another version by now.
    Changed,
    /// The file cannot be read.
    Failed(io::Error),
}

/// Where content comes from.
pub(crate) struct Source<'s> {
    pub(crate) site: &'s Site,
    pub(crate) payload: &'s dyn Payload,
    pub(crate) revisions: &'s Revisions,
    /// Content that is referred to at once.
    pub(crate) piece_bytes: u32,
}

impl Source<'_> {
    /// What is asked for, or the status that refuses it.
    pub(crate) fn reply(&self, asked: Result<Asked<'_>, u16>, manner: Manner) -> Reply {
        let asked = match asked {
            Ok(asked) => asked,
            Err(405) => return own_page(405, manner, |head| head.allow = Some("GET, HEAD")),
            Err(status) => return own_page(status, manner, |_| ()),
        };
        match self.site.find(&asked.path) {
            Found::File(page) => self.file(&asked, page, manner),
            Found::Folder => {
                let query = String::from_utf8_lossy(asked.query);
                let location = format!("{}/{query}", encode(&asked.path));
                // What looks like a host would lead to another one.
                let location = format!("/{}", location.trim_start_matches('/'));
                own_page(301, manner, |head| head.location = Some(location))
            }
            Found::Missing => own_page(404, manner, |_| ()),
            Found::Forbidden => own_page(403, manner, |_| ()),
            Found::Failed => own_page(500, manner, |_| ()),
        }
    }

    fn file(&self, asked: &Asked<'_>, page: Page, manner: Manner) -> Reply {
        let mut pause = PAUSE;
        for _ in 0..TRIES {
            match self.version(asked, &page, manner) {
                Ok(Some((mut reply, rest))) => {
                    let Page { file, id, .. } = page;
                    reply.rest = rest.map(|rest| Rest { file, id, following: rest });
                    return reply;
                }
                Ok(None) => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                Err(error) => {
                    tracing::warn!("inode {}: {error}", page.id.inode);
                    return own_page(500, manner, |_| ());
                }
            }
        }
        // It changes all the time.
        own_page(503, manner, |_| ())
    }

    /// Head and first piece of one version, and what follows it: the revision, and from where to
    /// where. None: it changed meanwhile.
    fn version(
        &self,
        asked: &Asked<'_>,
        page: &Page,
        manner: Manner,
    ) -> io::Result<Option<(Reply, Option<Following>)>> {
        let Some(revision) = self.revisions.now(page.id) else { return Ok(None) };
        let stat = fstat(&page.file)?;
        let bytes = stat.st_size as u64;
        let validators = Validators::new(
            (changed_ns(&stat), stat.st_ino, bytes),
            revision,
            page.since_ns,
            now_ns(),
        );
        let whole = |reply| {
            if self.revisions.is_still(page.id, revision) { Some((reply, None)) } else { None }
        };
        match judge(&asked.conditional, &validators) {
            Judgement::Failed => return Ok(whole(own_page(412, manner, |_| ()))),
            Judgement::NotModified => {
                let mut head = Head::new(304, Body::None, manner);
                head.validators = Some(&validators);
                return Ok(whole(Reply {
                    status: 304,
                    head: head.write(&date()),
                    first: Vec::new(),
                    rest: None,
                }));
            }
            Judgement::Proceed => {}
        }
        let wanted = match asked.range {
            Some(value) if range_applies(asked.if_range, &validators) => wanted(value, bytes),
            _ => Wanted::Whole,
        };
        let (status, from, to) = match &wanted {
            Wanted::Nothing => {
                return Ok(whole(own_page(416, manner, |head| {
                    head.content_range = Some(format!("bytes */{bytes}"));
                })));
            }
            Wanted::Parts(parts) => match parts.as_slice() {
                [ByteRange { from, to }] => (206, *from, *to),
                // A server may answer with all of it (RFC 9110 section 14.2).
                _ => (200, 0, bytes),
            },
            Wanted::Whole => (200, 0, bytes),
        };
        let kind = kind_of(&asked.path);
        let mut head = Head::new(status, Body::Bytes { len: to - from, kind: &kind }, manner);
        head.validators = Some(&validators);
        head.content_range = (status == 206).then(|| format!("bytes {from}-{}/{bytes}", to - 1));
        let mut reply = Reply { status, head: head.write(&date()), first: Vec::new(), rest: None };
        if manner.is_head || from == to {
            return Ok(whole(reply));
        }
        let end = to.min(from + u64::from(self.piece_bytes));
        reply.first = self.payload.read(&page.file, page.id, from, (end - from) as u32)?;
        let is_whole = reply.first.iter().map(Extent::len).sum::<usize>() as u64 == end - from;
        let rest = (end < to).then_some(Following { revision, at: end, to });
        Ok((is_whole && self.revisions.is_still(page.id, revision)).then_some((reply, rest)))
    }

    /// The next piece; None: that was all.
    pub(crate) fn next(&self, rest: &mut Rest) -> Result<Option<Vec<Extent>>, Cut> {
        let Rest { file, id, following: Following { revision, at, to } } = rest;
        if at == to {
            return Ok(None);
        }
        let len = (*to - *at).min(u64::from(self.piece_bytes));
        let piece = self.payload.read(file, *id, *at, len as u32).map_err(Cut::Failed)?;
        let is_whole = piece.iter().map(Extent::len).sum::<usize>() as u64 == len;
        if !is_whole || !self.revisions.is_still(*id, *revision) {
            return Err(Cut::Changed);
        }
        *at += len;
        Ok(Some(piece))
    }
}

/// What a head of the server's own may have beside its status.
#[derive(Default)]
pub(crate) struct Fields {
    allow: Option<&'static str>,
    location: Option<String>,
    content_range: Option<String>,
}

/// A page of the server's own.
pub(crate) fn own_page(status: u16, manner: Manner, set: impl FnOnce(&mut Fields)) -> Reply {
    let mut fields = Fields::default();
    set(&mut fields);
    let page = error_page(status);
    let mut head = Head::new(status, Body::Bytes { len: page.len() as u64, kind: KIND }, manner);
    (head.allow, head.location, head.content_range) =
        (fields.allow, fields.location.as_deref(), fields.content_range);
    let first = if manner.is_head { Vec::new() } else { vec![Extent::from(page)] };
    Reply { status, head: head.write(&date()), first, rest: None }
}

fn now_ns() -> i128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as i128)
}

fn date() -> HttpDate {
    HttpDate::from_unix_s((now_ns() / 1_000_000_000) as u64)
}
