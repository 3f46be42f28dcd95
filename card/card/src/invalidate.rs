//! Requests that change something (RFC 9111 section 4.4): what they name is not served any longer
//! once they have been answered without an error.
//!
//! A resource is a source like any other: it has a slot in the revision table, which each of its
//! entries and fills depends on. The stamp is there before the first byte of the reply goes to the
//! client, so clients that have the reply never get what was true before (I1), whichever card of
//! the server they ask, also from servers whose changes no witness sees. On a connection that the
//! card does not follow (opaque, untracked), and of a head in pieces for which there is no buffer,
//! only what begins a segment is seen.

use nicache_http::{
    HeaderScratch, Method, ReplyHead, ReplyOutcome, RequestOutcome, UriKey, parse_reply,
    parse_request,
};
use nicache_port::Port;

use crate::card::Card;
use crate::flow::Flow;
use crate::flow::ReplyTracking;
use crate::flow::changing::Changing;
use crate::host::ends_head;

impl<W: Port, H: Port> Card<W, H> {
    /// Bytes of the reply are about to go to the client; `next` are those that come next in order,
    /// none if some are missing before them. An error (RFC 9110 sections 15.5 and 15.6) changes
    /// nothing; where the status is not certain, it counts as changed. What a head refers to that
    /// comes in pieces changes with the piece that ends it.
    pub(crate) fn invalidate_before(&mut self, flow: &mut Flow, next: &[u8]) {
        let Some(changing) = flow.changing else { return };
        let Some(mut head) = flow.reply_head.take_if(|_| !next.is_empty()) else {
            self.invalidate_by_head(flow, next);
            return;
        };
        let known = head.len();
        // What stands behind the head need not fit.
        head.append(next);
        if ends_head(head.bytes(), known) {
            self.invalidate_by_head(flow, head.bytes());
        } else {
            self.invalidate(changing.uri);
        }
        // The piece is taken when it has been passed on.
        head.truncate(known);
        flow.reply_head = Some(head);
    }

    /// The same by the bytes of the head that are known, from its first.
    fn invalidate_by_head(&mut self, flow: &mut Flow, bytes: &[u8]) {
        let Some(changing) = flow.changing else { return };
        let mut at = 0;
        while at < bytes.len() {
            match parse_reply(&bytes[at..], Method::Get) {
                ReplyOutcome::Complete(reply) if reply.interim => at += reply.head_len,
                ReplyOutcome::Complete(reply) if reply.status >= 400 => {
                    flow.changing = None;
                    return;
                }
                ReplyOutcome::Complete(reply) => {
                    self.invalidate_references(changing, &reply);
                    break;
                }
                ReplyOutcome::Partial => {
                    // It is asked about again when there is more of it.
                    self.invalidate(changing.uri);
                    return;
                }
                ReplyOutcome::Malformed(_) => break,
            }
        }
        if at == bytes.len() && at > 0 {
            // Interim replies and nothing else.
            return;
        }
        flow.changing = None;
        self.invalidate(changing.uri);
    }

    /// Bytes of the answer to a request that may change something are about to go to the client. It
    /// has the answer with the first of them, or with the last: before either, what rests on a
    /// program's memory ends. `next`: those that come next in order, none if some are missing
    /// before them; `is_end`: the host ends the connection.
    pub(crate) fn note_answer(&mut self, flow: &Flow, next: &[u8], is_end: bool) {
        let answers = match &flow.reply {
            // Not even the beginning of replies is known, but by its looks.
            ReplyTracking::Idle => next.starts_with(b"HTTP/1."),
            ReplyTracking::Head { .. } => true,
            ReplyTracking::Body(follower) => {
                let followed = follower.clone().follow(next, |_| {});
                let is_over = followed.finished_at.is_some() || followed.fault.is_some();
                next.is_empty() || is_over
            }
        };
        if answers || is_end {
            self.store.note_unsafe_request();
            self.sync_l0();
        }
    }

    /// The host's work on what may change something has ended, one way or the other.
    pub(crate) fn invalidate_at_end(&mut self, flow: &mut Flow) {
        if let Some(changing) = flow.changing.take() {
            self.invalidate(changing.uri);
        }
    }

    /// A segment of a client whose requests the card does not follow: one that begins with the
    /// whole head of a request is read nevertheless, so most changes are seen.
    pub(crate) fn note_unfollowed(&mut self, flow: &mut Flow, payload: &[u8]) {
        let is_safe = [&b"GET "[..], b"HEAD "].iter().any(|safe| payload.starts_with(safe));
        if is_safe && flow.unsafe_request {
            // Whoever asks on has had the answer.
            self.end_unsafe_request(flow);
        }
        if is_safe || !payload.first().is_some_and(u8::is_ascii_alphabetic) {
            return;
        }
        let mut scratch = HeaderScratch::new();
        if let RequestOutcome::Bypass { changes: Some(resource), .. } =
            parse_request(payload, &mut scratch, &self.config.keys)
        {
            let origin = self.config.keys.origin_of(resource.host);
            flow.changing =
                Some(Changing { origin, uri: self.config.keys.uri_of(origin, resource.path) });
            self.begin_unsafe_request(flow);
        }
    }

    /// Bytes for such a client are about to go out; they may be those of an earlier reply.
    pub(crate) fn invalidate_unfollowed(&mut self, flow: &Flow, payload: &[u8]) {
        if let Some(changing) = flow.changing
            && payload.starts_with(b"HTTP/1.")
        {
            if let ReplyOutcome::Complete(reply) = parse_reply(payload, Method::Get) {
                self.invalidate_references(changing, &reply);
            }
            self.invalidate(changing.uri);
        }
    }

    fn invalidate_references(&mut self, changing: Changing, reply: &ReplyHead<'_>) {
        for reference in [reply.location, reply.content_location].into_iter().flatten() {
            if let Some(uri) = self.config.keys.reference_of(changing.origin, reference) {
                self.invalidate(uri);
            }
        }
    }

    fn invalidate(&mut self, uri: UriKey) {
        self.counters.invalidations += 1;
        self.store.note_change_by_request(uri);
    }
}
