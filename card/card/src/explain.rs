//! What the card tells an operator about a page: what it has of it, and why it does not have more.

use std::time::Duration;

use nicache_cache::{Entry, EntryState, Outcome, PutAside, StrangeName, Traits};
use nicache_coherence::RecordNumber;
use nicache_http::{
    BypassReason, HeaderScratch, Key, RequestOutcome, client_class, parse_request, recheck_head,
};
use nicache_port::Port;
use nicache_tcp::Time;

use crate::card::Card;
use crate::counters::CardBypass;

/// What there is of a page, whoever asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageState {
    /// What last became of a reply to a client.
    pub last: Option<LastOfPage>,
    /// Why the last request for it was passed that was not looked up, and when.
    pub bypassed: Option<(BypassReason, Time)>,
    /// What last kept a request for it from the card.
    pub stranger: Option<StrangeName>,
}

/// What last became of a reply to a client for a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastOfPage {
    /// What became of it.
    pub outcome: Outcome,
    /// When the client's request was forwarded.
    pub at: Time,
    /// The head of the client's request as far as it chooses among replies: without anything else
    /// that the client has said.
    pub head: Box<[u8]>,
}

/// What a request meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// The request is not looked up.
    Bypass(BypassReason),
    /// Nothing is looked up at the moment.
    Off(CardBypass),
    /// The request is answered from card memory.
    Hit,
    /// There is a reply that the server has not given to a client of its class yet, in these
    /// traits. For [`Trait::Proxy`](nicache_http::Trait::Proxy) it is not known: the address that
    /// the proxy connects from is a part of the class.
    OtherClass(Traits),
    /// There is a reply that may have changed: the watcher is asked.
    Suspect,
    /// There is a reply that the server has to say again.
    Lapsed,
    /// The operator has excluded the page.
    Excluded,
    /// The page is put aside until then.
    PutAside(PutAside, Time),
    /// There is no reply for the request.
    Absent,
    /// The request's head is not whole.
    Partial,
}

/// A request, and what it meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// What it meets.
    pub meeting: Meeting,
    /// The key of its reply, with what the server chooses by.
    pub key: Option<Key>,
    /// What last became of a reply to such a request, and when it was forwarded.
    pub last: Option<(Outcome, Time)>,
    /// Names of the headers by which the server chooses among variants, and of traits of clients.
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
    /// Is the entry dynamic?
    pub is_dynamic: bool,
    /// May the entry be served?
    pub state: EntryState,
    /// From then on it is not served.
    pub expires: Time,
    /// T, as it has earned it: how old what nobody can see may be in it.
    pub earned: Duration,
    /// Classes of clients that the server has given it to, in all traits together.
    pub classes: usize,
    /// The head of the request that it is the answer to, as far as that chooses among replies, if
    /// it is remembered.
    pub request: Box<[u8]>,
}

impl<W: Port, H: Port> Card<W, H> {
    /// What the card knows of a page, whoever asks for it. `host` and `target` as in a request.
    pub fn page_state(&self, host: &str, target: &str) -> PageState {
        let page = self.page_of(host.as_bytes(), target.as_bytes());
        let last = self.fills.last_of_page(page).map(|last| {
            let mut scratch = HeaderScratch::new();
            let base = match parse_request(&last.head, &mut scratch, &self.config.keys) {
                RequestOutcome::Complete(request) => Some(request.key),
                _ => None,
            };
            let names = base.and_then(|base| self.store.vary.names(&base));
            let head = recheck_head(&last.head, names, &self.config.keys).unwrap_or_default();
            LastOfPage { outcome: last.outcome, at: last.at, head }
        });
        PageState {
            last,
            bypassed: self.bypassed.last(page),
            stranger: self.strangers.of_page(page).cloned(),
        }
    }

    /// What a request with this head would meet now, from a client that the card's server is
    /// reached by directly.
    pub fn meets(&self, head: &[u8], now: Time) -> Asked {
        let mut scratch = HeaderScratch::new();
        let keys = &self.config.keys;
        let alone = |meeting| Asked { meeting, key: None, last: None, vary: Vec::new() };
        let request = match parse_request(head, &mut scratch, keys) {
            RequestOutcome::Complete(request) => request,
            RequestOutcome::Bypass { reason, .. } => return alone(Meeting::Bypass(reason)),
            RequestOutcome::Partial => return alone(Meeting::Partial),
        };
        let base = request.key;
        let class = client_class(request.headers, request.host, keys);
        let key = self.store.key_of(&base, request.headers, class, keys);
        let names =
            self.store.vary.names(&base).into_iter().flat_map(nicache_http::VaryNames::iter);
        let mut vary: Vec<String> =
            names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        vary.extend(self.store.traits_of(&base).iter().map(|of| of.label().to_owned()));
        let has_proxy = !request.signs.is_empty();
        let meeting = match self.store.view(&key) {
            _ if self.bypass => Meeting::Off(CardBypass::Operator),
            _ if !self.lease => Meeting::Off(CardBypass::Lease),
            Some(entry) => {
                let missing = entry.missing(class, has_proxy, now);
                match self.store.state_of(entry, now) {
                    EntryState::Good | EntryState::Suspect if !missing.is_empty() => {
                        Meeting::OtherClass(missing)
                    }
                    EntryState::Good => Meeting::Hit,
                    EntryState::Suspect => Meeting::Suspect,
                    EntryState::Lapsed => Meeting::Lapsed,
                }
            }
            None if self.config.paths.of(keys, request.host, request.target).is_excluded => {
                Meeting::Excluded
            }
            None => match self.store.is_put_aside(&key, now) {
                Some(why) => {
                    Meeting::PutAside(why, self.store.put_aside_until(&key).unwrap_or(now))
                }
                None => Meeting::Absent,
            },
        };
        Asked { meeting, key: Some(key), last: self.fills.last_outcome(&base), vary }
    }

    /// Names of headers and cookies that keep requests from the card, with counts that are not too
    /// low.
    pub fn strangers(&self) -> &[(StrangeName, u64)] {
        self.strangers.names()
    }

    /// One of these that is new. Each is told once.
    pub fn take_new_stranger(&mut self) -> Option<StrangeName> {
        self.strangers.take_new()
    }

    /// The entries that `chosen` says, at most `max`, and how many there are.
    pub fn entries_where(
        &self,
        chosen: impl Fn(&Entry) -> bool,
        max: usize,
        now: Time,
    ) -> (Vec<EntryView>, usize) {
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
                    request: entry.request().into(),
                });
            }
        }
        (views, count)
    }
}
