//! HTTP/1.x as the card needs it: strict request and reply heads, body framing, cache keys,
//! conditional requests and reply head templates.
//!
//! Read first: RFC 9112 (HTTP/1.1 messages), RFC 9110 sections 5 (fields), 8 (representation data)
//! and 13 (conditional requests), RFC 9111 section 5.2 (Cache-Control).
//!
//! The card stands between a client and a server that it must never mislead, so this crate answers
//! one question: *do all HTTP parsers agree about this message?* Only then is a request a candidate
//! for a hit ([`Request`]) or a reply a candidate for an entry ([`ReplyHead::shareable`]). Whatever
//! is legal but unusual passes with a counted reason ([`BypassReason`], [`NotShared`]). Whatever
//! leaves the end of the message in doubt makes the rest of the connection opaque
//! ([`Extent::Unknown`], [`ReplyOutcome::Malformed`]).
//!
//! Nothing here does I/O or reads a clock, nothing panics on hostile input, and nothing allocates
//! but [`HeadTemplate::new`] (once per fill) and the configuration.
//!
//! Ranges and preconditions are read in two ways: as the RFC says, for a server of our own
//! (`nicache serve`), and as far as servers agree.
//!
//! Deliberately absent: HTTP/2, normalisation of targets (another spelling is another key),
//! freshness (a hit is bound to its sources, not to an age).

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod body;
mod cache_control;
mod client_class;
mod coding;
mod conditional;
mod connection;
mod cookie;
mod date;
mod diagnose;
mod expiring;
mod forwarded;
mod framing;
mod head;
mod host;
mod identity;
mod if_range;
mod intermediary;
mod key;
mod length;
mod limits;
mod mask;
mod own_fields;
mod own_value;
mod partial;
mod path;
mod protocol;
mod proxy_protocol;
mod range;
mod reason;
mod recheck;
mod reply;
mod reply_field;
mod request;
mod request_field;
mod set_cookie;
mod signs;
mod siphash;
mod stranger;
mod target;
mod template;
mod tokens;
mod uri;
mod vary;

pub use body::{BodyFault, Followed, Follower};
pub use client_class::{ClientClass, Trait, class_key, client_class, trait_lines};
pub use conditional::{Conditional, Judgement, Verdict, evaluate, judge};
pub use connection::ConnectionClass;
pub use cookie::{ANALYTICS, ANALYTICS_COOKIES, is_analytics_cookie};
pub use date::{DateCache, HttpDate, IMF_FIXDATE_BYTES, parse_imf_fixdate};
pub use expiring::carries_expiry;
pub use framing::{Framing, ReplyFraming, parse_framing};
pub use httparse::Header;
pub use if_range::{IfRange, agreed_if_range, if_range_applies};
pub use key::{Key, KeyConfig, vary_key};
pub use limits::{
    CHUNK_EXTENSION_BYTES_MAX, HEAD_BYTES_MAX, HEADERS_MAX, SHARED_HEAD_BYTES_MAX,
    TEMPLATE_BYTES_MAX, TRAILER_BYTES_MAX, VARY_NAME_BYTES_MAX, VARY_NAMES_MAX,
};
pub use mask::{LITERAL_BYTES_MAX, MASKS_MAX, MaskError, Masks, PREFIX_BYTES_MIN, RUN_BYTES_MAX};
pub use own_fields::without_own_fields;
pub use own_value::own_address;
pub use partial::{PartFormat, PartialTemplate, PartsAsked};
pub use path::{PATTERN_BYTES_MAX, PATTERNS_MAX, PathMatch, PathPattern, PatternError};
pub use protocol::{Method, Version};
pub use proxy_protocol::{
    PREFACE_BYTES_MAX, Preface, ProxyHeader, ProxyVersion, parse_preface, proxy_header,
};
pub use range::{Agreed, ByteRange, RANGES_MAX, Ranges, Wanted, agreed, wanted};
pub use reason::{BypassReason, MalformedReply, NotShared};
pub use recheck::{recheck_head, with_class_headers};
pub use reply::{ReplyConfig, ReplyHead, ReplyOutcome, parse_reply, parse_reply_with};
pub use request::{
    Extent, HeaderScratch, Request, RequestOutcome, is_worth_parsing, parse_request,
};
pub use set_cookie::CookieNames;
pub use signs::Signs;
pub use stranger::{Stranger, strangers};
pub use template::HeadTemplate;
pub use tokens::Tokens;
pub use uri::{OriginKey, Resource, UriKey};
pub use vary::{Vary, VaryNames};
