//! What the card tells an operator about a page: what it has of it, and why it has no more.

use std::time::Duration;

use nicache_coherence::RecordNumber;
use nicache_http::{BypassReason, HeaderScratch, Key, RequestOutcome, parse_request};
use nicache_port::Port;
use nicache_tcp::Time;

use crate::card::Card;
use crate::outcomes::Outcome;
use crate::store::{Entry, EntryState};
use crate::strangers::StrangeName;

/// What there is of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageState {
    /// The key of a plain GET, in which no header but Host counts.
    pub key: Option<Key>,
    /// Why such a request is not for the card, if it is not.
    pub bypass: Option<BypassReason>,
    /// What last became of a reply to it, and when its request was forwarded.
    pub last: Option<(Outcome, Time)>,
    /// Its executions differ, so that it is left alone until then.
    pub left_alone_until: Option<Time>,
    /// What last kept a request for it from the card.
    pub stranger: Option<StrangeName>,
    /// Names of the headers by which the server chooses among variants.
    pub vary: Vec<String>,
}

/// One entry as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryView {
    /// Under what it is found.
    pub key: Key,
    /// The request target that filled it.
    pub target: Box<[u8]>,
    /// The host that the request named.
    pub host: Box<[u8]>,
    /// Bytes of its body.
    pub body_len: u64,
    /// The watcher's number for what it was judged by.
    pub record: RecordNumber,
    /// Is it a reply that the server computed?
    pub is_dynamic: bool,
    /// May it be served?
    pub state: EntryState,
    /// From then on it is not served.
    pub expires: Time,
    /// T, as it has earned it: how old what nobody can see may be in it.
    pub earned: Duration,
    /// Classes of clients that the server has given it to, in all traits together.
    pub classes: usize,
}

impl<W: Port, H: Port> Card<W, H> {
    /// What the card knows of the page that a plain GET would get. `host` and `target` as in a request.
    pub fn page_state(&self, host: &str, target: &str, now: Time) -> PageState {
        let head = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let mut scratch = HeaderScratch::new();
        let origin = self.config.keys.origin_of(host.as_bytes());
        let stranger = self.strangers.of_page(self.config.keys.uri_of(origin, target.as_bytes())).cloned();
        let mut state =
            PageState { key: None, bypass: None, last: None, left_alone_until: None, stranger, vary: Vec::new() };
        match parse_request(head.as_bytes(), &mut scratch, &self.config.keys) {
            RequestOutcome::Complete(request) => {
                let key = request.key;
                state.key = Some(key);
                state.last = self.fills.last_outcome(&key);
                state.left_alone_until = self.store.left_alone_until(&key).filter(|until| now < *until);
                let names = self.store.vary.names(&key).into_iter().flat_map(nicache_http::VaryNames::iter);
                state.vary = names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
                state.vary.extend(self.store.traits_of(&key).iter().map(|of| of.label().to_owned()));
            }
            RequestOutcome::Bypass { reason, .. } => state.bypass = Some(reason),
            RequestOutcome::Partial => {}
        }
        state
    }

    /// Names of headers and cookies that keep requests from the card, with counts that are not too low.
    pub fn strangers(&self) -> &[(StrangeName, u64)] {
        self.strangers.names()
    }

    /// One of these that is new. Each is told once.
    pub fn take_new_stranger(&mut self) -> Option<StrangeName> {
        self.strangers.take_new()
    }

    /// The entries that `chosen` says, at most `max`, and how many there are.
    pub fn entries_where(&self, chosen: impl Fn(&Entry) -> bool, max: usize, now: Time) -> (Vec<EntryView>, usize) {
        let (mut views, mut count) = (Vec::new(), 0);
        for entry in self.store.entries().filter(|entry| chosen(entry)) {
            count += 1;
            if views.len() < max {
                views.push(EntryView {
                    key: entry.key,
                    target: entry.target.clone(),
                    host: entry.host.clone(),
                    body_len: entry.body_len,
                    record: entry.record(),
                    is_dynamic: entry.is_dynamic(),
                    state: self.store.state_of(entry, now),
                    expires: entry.expires(),
                    earned: entry.earned(),
                    classes: entry.classes(),
                });
            }
        }
        (views, count)
    }
}
