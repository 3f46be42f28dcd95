//! Requests of the card's own, by which the server is asked again: what is to be asked, until
//! somebody sends it.

use nicache_http::{
    Key, KeyConfig, ProxyVersion, Trait, VaryNames, recheck_head, trait_lines, with_class_headers,
};

use crate::counters::Counters;
use crate::store::Proxy;

/// Requests that wait to be taken.
const RECHECKS_MAX: usize = 256;

/// A request that the server is to be asked again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recheck {
    /// TCP port of the service.
    pub port: u16,
    /// The header of the PROXY protocol that the connection begins with, if it is to.
    pub preface: Option<ProxyVersion>,
    /// Whether it is made from the address of this machine's proxies ([`Proxy::Here`]), not from
    /// the card's own.
    pub is_as_proxy: bool,
    /// The whole request: it has no body.
    pub head: Box<[u8]>,
}

/// A client's request, as an example for one of the card's.
pub struct Example<'a> {
    /// TCP port of the service.
    pub port: u16,
    /// The header of the PROXY protocol that its connection began with, if it did.
    pub preface: Option<ProxyVersion>,
    /// What the client came through.
    pub proxy: Proxy,
    /// The whole request.
    pub head: &'a [u8],
}

/// What is to be asked.
pub struct Rechecks {
    waiting: Vec<Recheck>,
    asked: u64,
}

/// What the card says of its own in its request number `number` for a page comes of it: as the key
/// is a secret, nobody can guess it.
pub(crate) fn seed(key: &Key, number: u64) -> u64 {
    key.low_u64().wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

impl Rechecks {
    /// Has nothing to ask for yet; takes the memory for all questions.
    pub fn new() -> Self {
        Self { waiting: Vec::with_capacity(RECHECKS_MAX), asked: 0 }
    }

    /// The card's request for what a client has just asked for, as one of its class; `None`: it
    /// cannot be made from that.
    pub fn of(
        &mut self,
        key: &Key,
        example: &Example<'_>,
        vary: Option<&VaryNames>,
        keys: &KeyConfig,
    ) -> Option<Recheck> {
        let Example { port, preface, proxy, head } = *example;
        let bare = recheck_head(head, vary, keys)?;
        let lines: Vec<u8> = Trait::ALL.into_iter().flat_map(|of| trait_lines(head, of)).collect();
        self.asked += 1;
        let head = with_class_headers(&bare, &lines, seed(key, self.asked));
        Some(Recheck { port, preface, is_as_proxy: proxy == Proxy::Here, head })
    }

    /// Asks for that.
    pub fn ask(&mut self, recheck: Recheck, counters: &mut Counters) {
        if self.waiting.len() < RECHECKS_MAX {
            counters.rechecks += 1;
            self.waiting.push(recheck);
        } else {
            counters.rechecks_dropped += 1;
        }
    }

    /// The next request that the server is to be asked, oldest first.
    pub fn poll(&mut self) -> Option<Recheck> {
        (!self.waiting.is_empty()).then(|| self.waiting.remove(0))
    }
}

impl Default for Rechecks {
    fn default() -> Self {
        Self::new()
    }
}
