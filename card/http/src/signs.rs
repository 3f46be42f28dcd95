//! Signs of a proxy in a request: what of the fields that it adds counts in the key, and what in
//! the client's class.

use core::net::IpAddr;

use crate::forwarded::elements;
use crate::identity::{addresses, is_private, parse_address};
use crate::intermediary::{Added, added, meaning};
use crate::key::{Key, KeyConfig};
use crate::proxy_protocol::ProxyVersion;
use crate::siphash::SipHash;

/// Which fields of proxies a request has, without their values.
///
/// A server believes them, or not, by who sent it. So the class of their sender ([`Signs::class`])
/// holds that address: what the server has said to a client who has made them up is not an answer
/// for those behind its proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signs {
    names: u32,
    is_of_proxy: bool,
}

/// How many addresses of a list are told apart.
const COUNT_MAX: usize = 4;

const TAG_SIGN: u64 = 10;
const TAG_SENDER: u64 = 11;
const TAG_MORE: u64 = 12;
const TAG_FIELD: u64 = 13;

impl Signs {
    /// There are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The class of a client who connects from `peer`; 0 if there is no sign of a proxy. `preface`:
    /// the connection began with a header of the PROXY protocol, and whether that names a client.
    #[inline]
    pub fn class(
        &self,
        peer: IpAddr,
        preface: Option<(ProxyVersion, bool)>,
        keys: &KeyConfig,
    ) -> u32 {
        if self.is_empty() && preface.is_none() {
            0
        } else {
            self.class_of_sender(peer, preface, keys)
        }
    }

    /// Does the class hold the sender's address?
    pub fn tells_sender(&self) -> bool {
        self.is_of_proxy
    }

    fn class_of_sender(
        &self,
        peer: IpAddr,
        preface: Option<(ProxyVersion, bool)>,
        keys: &KeyConfig,
    ) -> u32 {
        let mut hash = keys.keyed();
        let version =
            preface.map_or(0, |(version, is_named)| 1 + 2 * version as u64 + u64::from(is_named));
        hash.word(TAG_SENDER | version << 8 | u64::from(self.names) << 32);
        if self.is_of_proxy || preface.is_some() {
            let octets = match peer {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            hash.padded(&octets.octets());
        }
        let hash = hash.finish();
        u32::from_le_bytes([hash[0], hash[1], hash[2], hash[3]]).max(1)
    }

    fn note(&mut self, name: &[u8], kind: u64, keys: &KeyConfig) {
        let mut hash = keys.keyed();
        hash.word(TAG_SIGN | (name.len() as u64) << 8 | kind << 32);
        hash.padded_lower(name);
        let hash = hash.finish();
        // In any order.
        self.names =
            self.names.wrapping_add(u32::from_le_bytes([hash[0], hash[1], hash[2], hash[3]]));
    }
}

/// What the fields of proxies in one request come to.
#[derive(Default)]
pub(crate) struct ProxyFields {
    pub(crate) signs: Signs,
    /// Takes what counts in the key.
    more: Option<SipHash>,
}

impl ProxyFields {
    /// Takes a field that is not one which every client sends. False: it is not known.
    #[inline(never)]
    pub(crate) fn take(&mut self, name: &[u8], value: &[u8], keys: &KeyConfig) -> bool {
        if keys.is_harmless_header(name) {
            return true;
        }
        let Some(added) = added(name) else { return keys.separating().has(name) };
        match meaning(added, value) {
            Added::Agent | Added::Fetch => {}
            Added::Exact | Added::Baggage => self.count(name, value, keys),
            Added::Route => {
                self.signs.is_of_proxy = true;
                self.count(name, value, keys);
            }
            Added::Mark => self.signs.note(name, 0, keys),
            Added::Address => {
                self.signs.is_of_proxy = true;
                self.signs.note(name, kind_of(addresses(value)), keys);
            }
            Added::Forwarded => {
                self.signs.is_of_proxy = true;
                let Some(pairs) = elements(value) else {
                    self.count(name, value, keys);
                    return true;
                };
                let mut said_for = 0;
                for (pair, value) in pairs {
                    if pair.eq_ignore_ascii_case(b"for") {
                        said_for += 1;
                    } else {
                        self.count(pair, value, keys);
                    }
                }
                self.signs.note(name, said_for.min(COUNT_MAX as u64), keys);
            }
        }
        true
    }

    fn count(&mut self, name: &[u8], value: &[u8], keys: &KeyConfig) {
        let more = self.more.get_or_insert_with(|| {
            let mut hash = keys.keyed();
            hash.word(TAG_MORE);
            hash
        });
        more.word(TAG_FIELD | (name.len() as u64) << 8 | (value.len() as u64) << 32);
        more.padded_lower(name);
        more.padded(value);
    }

    /// The key with what counts of these fields.
    #[inline]
    pub(crate) fn complete(&self, key: Key) -> Key {
        match self.more {
            None => key,
            Some(mut more) => {
                more.padded(&key.0);
                Key(more.finish())
            }
        }
    }
}

/// How many addresses, and whether the first and the last one are of a private network: servers let
/// those in whom they do not let others.
fn kind_of<'a>(addresses: impl Iterator<Item = &'a [u8]>) -> u64 {
    let (mut count, mut first, mut last) = (0, 0, 0);
    for address in addresses {
        last = parse_address(address).map_or(1, |address| if is_private(address) { 2 } else { 3 });
        if count == 0 {
            first = last;
        }
        count += 1;
    }
    (count.min(COUNT_MAX) | first << 4 | last << 8) as u64
}

/// The field as it is to be in another request for the same key; `None` if it does not count there.
pub(crate) fn keyed_value<'a>(
    name: &[u8],
    value: &'a [u8],
    own_address: &str,
) -> Option<std::borrow::Cow<'a, [u8]>> {
    match meaning(added(name)?, value) {
        Added::Exact | Added::Route | Added::Baggage => Some(value.into()),
        Added::Forwarded if elements(value).is_none() => Some(value.into()),
        Added::Forwarded => {
            let mut own = Vec::new();
            crate::forwarded::with_own_address(value, own_address, &mut own);
            Some(own.into())
        }
        Added::Address | Added::Mark | Added::Agent | Added::Fetch => None,
    }
}
