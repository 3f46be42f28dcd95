//! What a request is answered with.

use std::sync::Arc;

use nicache_bus::BusClass;
use nicache_http::{ByteRange, HttpDate, Judgement, Wanted, wanted};

use super::listing::{KIND, encode, error_page, listing_page};
use super::output::{Output, Source};
use super::reply::{Body, Head, Manner, kind_of};
use super::request::Asked;
use super::service::{Service, forget, free};
use super::validator::{Validators, judge, range_applies};
use crate::files::{Found, LoadError, OpenFile};
use crate::mbuf::Mbuf;
use crate::places::PLACE_BYTES;
use crate::stack::ConnectionId;

/// How often a file that changes meanwhile is looked up again.
const TRIES: usize = 3;

impl Service {
    /// `None`: there is no room for the head.
    pub(super) fn reply(
        &mut self,
        id: ConnectionId,
        asked: &Asked<'_>,
        manner: Manner,
    ) -> Option<()> {
        if let Some(stream) = self.streams.iter().position(|stream| stream.path() == asked.path) {
            return self.reply_live(id, stream, &asked.path, manner);
        }
        // Each version that is served is also read.
        let now = self.now;
        let asked_for = self.playlists.iter_mut().filter(|playlist| playlist.path == asked.path);
        asked_for.for_each(|playlist| playlist.due = now);
        let mut tries = 0;
        loop {
            match self.site.find(&asked.path) {
                Found::File { file, since_ns } => {
                    self.choose_card(id, &file);
                    match self.reply_with_file(id, asked, &file, since_ns, manner) {
                        Ok(queued) => return queued,
                        Err(LoadError::Changed) if tries < TRIES => tries += 1,
                        // Others will have been sent theirs.
                        Err(LoadError::NoRoom) => return None,
                        Err(_) => return self.reply_with_page(id, 503, None, manner),
                    }
                }
                Found::Directory => {
                    let query = String::from_utf8_lossy(asked.query);
                    let location = format!("{}/{query}", encode(&asked.path));
                    // What looks like a host would lead to another one.
                    let location = format!("/{}", location.trim_start_matches('/'));
                    let mut head = Head::new(301, Body::Bytes { len: 0, kind: KIND }, manner);
                    head.location = Some(&location);
                    return match self.push_head(id, &head) {
                        Ok(queued) => queued,
                        Err(()) => self.reply_with_page(id, 404, None, manner),
                    };
                }
                Found::Listing(Some(names)) => {
                    let page = listing_page(&asked.path, &names);
                    return self.reply_with_text(id, 200, &page, None, manner);
                }
                Found::Missing => return self.reply_with_page(id, 404, None, manner),
                Found::Listing(None) | Found::Forbidden => {
                    return self.reply_with_page(id, 403, None, manner);
                }
            }
        }
    }

    fn reply_with_file(
        &mut self,
        id: ConnectionId,
        asked: &Asked<'_>,
        file: &Arc<OpenFile>,
        since_ns: i128,
        manner: Manner,
    ) -> Result<Option<()>, LoadError> {
        let validators = Validators::of(file, since_ns, self.unix_ns);
        match judge(&asked.conditional, &validators) {
            Judgement::Failed => {
                return Ok(self.reply_with_page(id, 412, None, manner));
            }
            Judgement::NotModified => {
                let mut head = Head::new(304, Body::None, manner);
                head.validators = Some(&validators);
                return Ok(self.push_head(id, &head).unwrap_or(None));
            }
            Judgement::Proceed => {}
        }
        let kind = kind_of(&asked.path);
        let wanted = match asked.range {
            Some(value) if range_applies(asked.if_range, &validators) => wanted(value, file.bytes),
            _ => Wanted::Whole,
        };
        match wanted {
            Wanted::Nothing => {
                let page = error_page(416);
                let mut head =
                    Head::new(416, Body::Bytes { len: page.len() as u64, kind: KIND }, manner);
                head.content_range = Some(format!("bytes */{}", file.bytes));
                Ok(self.push_head_and_text(id, &head, &page))
            }
            Wanted::Whole => {
                let mut head = Head::new(200, Body::Bytes { len: file.bytes, kind: &kind }, manner);
                head.validators = Some(&validators);
                self.push_file(id, &head, file, &[("", (0, file.bytes))], "")
            }
            Wanted::Parts(parts) => match parts.as_slice() {
                &[ByteRange { from, to }] => {
                    let mut head =
                        Head::new(206, Body::Bytes { len: to - from, kind: &kind }, manner);
                    head.validators = Some(&validators);
                    head.content_range = Some(format!("bytes {from}-{}/{}", to - 1, file.bytes));
                    self.push_file(id, &head, file, &[("", (from, to))], "")
                }
                parts => self.push_parts(id, file, &validators, &kind, parts, manner),
            },
        }
    }

    /// RFC 9110 section 14.6.
    fn push_parts(
        &mut self,
        id: ConnectionId,
        file: &Arc<OpenFile>,
        validators: &Validators,
        kind: &str,
        parts: &[ByteRange],
        manner: Manner,
    ) -> Result<Option<()>, LoadError> {
        let boundary = format!("nicache-{:x}-{:x}", file.revision.0, self.unix_ns);
        let heads: Vec<String> = parts
            .iter()
            .map(|ByteRange { from, to }| {
                let range = format!("bytes {from}-{}/{}", to - 1, file.bytes);
                format!(
                    "\r\n--{boundary}\r\nContent-Type: {kind}\r\nContent-Range: {range}\r\n\r\n"
                )
            })
            .collect();
        let end = format!("\r\n--{boundary}--\r\n");
        let content: u64 = parts.iter().map(ByteRange::len).sum();
        let len =
            content + heads.iter().map(|head| head.len() as u64).sum::<u64>() + end.len() as u64;
        let kind = format!("multipart/byteranges; boundary={boundary}");
        let mut head = Head::new(206, Body::Bytes { len, kind: &kind }, manner);
        head.validators = Some(validators);
        let pieces: Vec<(&str, (u64, u64))> = heads
            .iter()
            .map(String::as_str)
            .zip(parts.iter().map(|part| (part.from, part.to)))
            .collect();
        self.push_file(id, &head, file, &pieces, &end)
    }

    /// A head, then pieces of a file each with what is in front of it, then what is behind them.
    /// Nothing is queued unless all of it is.
    fn push_file(
        &mut self,
        id: ConnectionId,
        head: &Head<'_>,
        file: &Arc<OpenFile>,
        pieces: &[(&str, (u64, u64))],
        end: &str,
    ) -> Result<Option<()>, LoadError> {
        let mut output = Output::default();
        let queued = (|| {
            let text = head.write(&self.date());
            let Some(buffer) = self.text_buffer(&text) else { return Ok(None) };
            output.push(buffer);
            if head.manner.is_head {
                return Ok(Some(()));
            }
            for (text, range) in pieces {
                if !text.is_empty() {
                    let Some(buffer) = self.text_buffer(text) else { return Ok(None) };
                    output.push(buffer);
                }
                let Self { pages, window, site, cards, limits, .. } = self;
                let mut source =
                    Source { pages, window, table: site.table().map(Arc::as_ref), limits: *limits };
                output.sendfile(file, *range, &mut source, |block, gone| {
                    forget(cards, block, gone);
                })?;
            }
            if !end.is_empty() {
                let Some(buffer) = self.text_buffer(end) else { return Ok(None) };
                output.push(buffer);
            }
            Ok(Some(()))
        })();
        if queued != Ok(Some(())) {
            let Self { pages, places, .. } = self;
            output.clear(pages, |pages, buffer| free(pages, places, buffer));
            return queued;
        }
        if !head.manner.is_head {
            let bytes: u64 = pieces.iter().map(|(_, (from, to))| to - from).sum();
            self.counters.content_bytes += bytes;
            self.counters.unkept_bytes += if file.is_kept { 0 } else { bytes };
        }
        self.count(head.status);
        if let Some(session) = self.session(id) {
            session.output.append(output);
        }
        Ok(Some(()))
    }

    pub(super) fn reply_with_page(
        &mut self,
        id: ConnectionId,
        status: u16,
        allow: Option<&str>,
        manner: Manner,
    ) -> Option<()> {
        self.reply_with_text(id, status, &error_page(status), allow, manner)
    }

    fn reply_with_text(
        &mut self,
        id: ConnectionId,
        status: u16,
        page: &str,
        allow: Option<&str>,
        manner: Manner,
    ) -> Option<()> {
        let mut head =
            Head::new(status, Body::Bytes { len: page.len() as u64, kind: KIND }, manner);
        head.allow = allow;
        self.push_head_and_text(id, &head, page)
    }

    fn push_head_and_text(&mut self, id: ConnectionId, head: &Head<'_>, page: &str) -> Option<()> {
        let places_of = |page: &str| 1 + (page.len() as u64).div_ceil(PLACE_BYTES) as usize;
        if places_of(page) > self.places.places() && head.status == 200 {
            // A list that is longer than all places together is not to be had.
            return self.reply_with_page(id, 503, None, head.manner);
        }
        if self.places.free_places() < places_of(page) {
            return None;
        }
        let text = head.write(&self.date());
        let head_buffer = self.text_buffer(&text)?;
        let mut buffers = vec![head_buffer];
        if !head.manner.is_head {
            for part in page.as_bytes().chunks(PLACE_BYTES as usize) {
                buffers.push(self.places.write(part, BusClass::Content, &self.window)?);
            }
        }
        self.count(head.status);
        let session = self.session(id)?;
        buffers.into_iter().for_each(|buffer| session.output.push(buffer));
        Some(())
    }

    /// `Err`: it is longer than a place.
    pub(super) fn push_head(
        &mut self,
        id: ConnectionId,
        head: &Head<'_>,
    ) -> Result<Option<()>, ()> {
        let text = head.write(&self.date());
        if text.len() as u64 > PLACE_BYTES {
            return Err(());
        }
        let Some(buffer) = self.text_buffer(&text) else { return Ok(None) };
        self.count(head.status);
        if let Some(session) = self.session(id) {
            session.output.push(buffer);
        }
        Ok(Some(()))
    }

    fn text_buffer(&mut self, text: &str) -> Option<Mbuf> {
        self.places.write(text.as_bytes(), BusClass::ApplicationHeaders, &self.window)
    }

    fn date(&mut self) -> HttpDate {
        *self.dates.at((self.unix_ns / 1_000_000_000) as u64)
    }

    fn count(&mut self, status: u16) {
        self.counters.requests += 1;
        self.counters.statuses[usize::from(status / 100).clamp(2, 5) - 2] += 1;
    }
}
