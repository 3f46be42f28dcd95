//! Request heads (RFC 9112 sections 2, 3, 5 and 6).
//!
//! The tokeniser finds lines, names and values; this file adds what it leaves open: exact line
//! ends, one Host, no doubt about the framing, no field that might change the reply. Order of
//! severity: while the head is incomplete it is [`RequestOutcome::Partial`]; once its end or its
//! content's end is in doubt the rest of the connection is opaque; otherwise the first unusual
//! thing names the bypass, and the request's extent is known.

use crate::conditional::Conditional;
use crate::connection::{ConnectionClass, ConnectionOptions};
use crate::cookie::may_be_read;
use crate::diagnose::diagnose;
use crate::head::{Lines, Spacing, is_name, list};
use crate::host::is_plain_host;
use crate::key::{Key, KeyConfig, KeyParts, key, vary_key};
use crate::length::parse_content_length;
use crate::limits::{HEAD_BYTES_MAX, HEADERS_MAX, SHARED_HEAD_BYTES_MAX};
use crate::protocol::{Method, Version};
use crate::reason::BypassReason;
use crate::request_field::{RequestField, classify};
use crate::signs::{ProxyFields, Signs};
use crate::target::check_target;
use crate::uri::Resource;
use httparse::{Header, Status};
use std::mem::MaybeUninit;

/// What the bytes at the start of a request are.
#[derive(Clone, Debug)]
pub enum RequestOutcome<'a> {
    /// The head is not complete yet; nothing is wrong with it so far.
    Partial,
    /// A plain GET or HEAD that all parsers read alike: a candidate for a hit.
    Complete(Request<'a>),
    /// To be passed to the server.
    Bypass {
        /// Why the card does not answer it.
        reason: BypassReason,
        /// Where the request ends.
        extent: Extent,
        /// What it may change: of a method that is not known to be safe (RFC 9110 section 9.2.1),
        /// if all servers agree what it is for.
        changes: Option<Resource<'a>>,
    },
}

/// Where a request that bypasses the card ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The framing is certain.
    Head {
        /// Bytes of the head.
        len: usize,
        /// Bytes of content behind the head.
        body: u64,
        /// The method, which the reply's framing depends on.
        method: Method,
        /// Whether the client may send another request behind this one (RFC 9112 section 9.3). If
        /// not, whatever follows is not answered by anybody and must not be parsed as a request.
        keep_alive: bool,
        /// Whether the content is sent may depend on an interim reply (RFC 9110 section 10.1.1).
        expects_continue: bool,
    },
    /// The framing is lost: the rest of the connection is opaque.
    Unknown,
}

/// A GET or HEAD without content, in origin form, with nothing in it that could change the reply
/// beyond its key.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Bytes of the head, which is the whole request.
    pub head_len: usize,
    /// [`Method::Get`] or [`Method::Head`].
    pub method: Method,
    /// HTTP version.
    pub version: Version,
    /// Target in origin form, as spelled.
    pub target: &'a [u8],
    /// Host as spelled; empty if absent (HTTP/1.0 only).
    pub host: &'a [u8],
    /// What the request says about the connection.
    pub connection: ConnectionClass,
    /// Does the connection outlive the reply? If not, whatever follows must not be parsed as a
    /// request.
    pub keep_alive: bool,
    /// Identifies the reply that it asks for, the same for GET and HEAD.
    pub key: Key,
    /// The request's preconditions, if any.
    pub conditional: Conditional<'a>,
    /// The value of Range.
    pub range: Option<&'a [u8]>,
    /// The value of If-Range.
    pub if_range: Option<&'a [u8]>,
    /// The request has cookies, all of them harmless, and some that a server might read
    /// ([`ANALYTICS_COOKIES`](crate::ANALYTICS_COOKIES)).
    pub bears_cookies: bool,
    /// What proxies have added to it.
    pub signs: Signs,
    /// All header fields, for [`crate::vary_key`].
    pub headers: &'a [Header<'a>],
}

/// Room for the header fields of one head. Costs nothing to make: 2 KiB that are not initialised.
pub struct HeaderScratch<'b> {
    slots: [MaybeUninit<Header<'b>>; HEADERS_MAX],
}

impl HeaderScratch<'_> {
    /// Room for the header fields of one request, empty at first.
    #[inline]
    pub const fn new() -> Self {
        HeaderScratch { slots: [const { MaybeUninit::uninit() }; HEADERS_MAX] }
    }
}

impl<'b> HeaderScratch<'b> {
    pub(crate) fn slots(&mut self) -> &mut [MaybeUninit<Header<'b>>] {
        &mut self.slots
    }
}

impl Default for HeaderScratch<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl core::fmt::Debug for HeaderScratch<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("HeaderScratch")
    }
}

/// Is it worth to call [`parse_request`] or [`crate::parse_reply`] again on `bytes`, whose first
/// `parsed` bytes were [`RequestOutcome::Partial`]? Only if a line ended since or the limit is
/// reached. With this test first, a peer that sends its head byte by byte causes at most one parse
/// per line.
#[inline]
pub fn is_worth_parsing(bytes: &[u8], parsed: usize) -> bool {
    parsed == 0
        || bytes.len() >= HEAD_BYTES_MAX
        || bytes.get(parsed..).is_some_and(|new| new.contains(&b'\n'))
}

/// Parses the request that begins at `bytes[0]`; more requests may follow in `bytes`.
///
/// Never panics. Adding bytes turns [`RequestOutcome::Partial`] into something else, and changes
/// nothing once the outcome is another one.
pub fn parse_request<'s, 'b: 's>(
    bytes: &'b [u8],
    scratch: &'s mut HeaderScratch<'b>,
    config: &KeyConfig,
) -> RequestOutcome<'s> {
    let window = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
    if let Some(b'\r' | b'\n') = window.first() {
        return lost(BypassReason::LeadingEmptyLine);
    }
    let mut tokens = httparse::Request::new(&mut []);
    let head_len = match tokens.parse_with_uninit_headers(window, &mut scratch.slots) {
        Ok(Status::Complete(head_len)) => head_len,
        Ok(Status::Partial) if window.len() == HEAD_BYTES_MAX => {
            return lost(BypassReason::HeadTooLong);
        }
        Ok(Status::Partial) => return RequestOutcome::Partial,
        Err(error) => return lost(diagnose(window, error)),
    };
    let httparse::Request { method: Some(method), path: Some(target), version, headers } = tokens
    else {
        return lost(BypassReason::RequestLine);
    };
    let version = Version::from_minor(version);
    let headers: &'s [Header<'b>] = headers;
    let mut fields = Fields::default();
    if let Err(reason) = fields.take_all(&window[..head_len], method, target, headers, config) {
        return lost(reason);
    }
    fields.decide(head_len, method, target.as_bytes(), version, headers, config)
}

#[cold]
fn lost<'a>(reason: BypassReason) -> RequestOutcome<'a> {
    RequestOutcome::Bypass { reason, extent: Extent::Unknown, changes: None }
}

/// Length of `HTTP/1.x`.
const VERSION_BYTES: usize = 8;

/// What the header fields of a request say.
#[derive(Default)]
struct Fields<'b> {
    host: Option<&'b [u8]>,
    content_length: Option<u64>,
    connection: ConnectionOptions,
    conditional: Conditional<'b>,
    // Only to see whether they come twice: they are traits of the client.
    accept_encoding: Option<&'b [u8]>,
    accept: Option<&'b [u8]>,
    origin: Option<&'b [u8]>,
    cookie: Option<&'b [u8]>,
    range: Option<&'b [u8]>,
    if_range: Option<&'b [u8]>,
    expects_continue: bool,
    is_chunked: bool,
    of_proxies: ProxyFields,
    reason: Option<BypassReason>,
}

impl<'b> Fields<'b> {
    /// Walks over all field lines. An error means that the framing is lost.
    #[inline]
    fn take_all(
        &mut self,
        head: &[u8],
        method: &str,
        target: &str,
        headers: &[Header<'b>],
        config: &KeyConfig,
    ) -> Result<(), BypassReason> {
        let start_line_len = method.len() + 1 + target.len() + 1 + VERSION_BYTES;
        let mut lines =
            Lines::new(head, start_line_len).map_err(|_| BypassReason::BareLineBreak)?;
        for header in headers {
            let spacing = lines.field(header).map_err(|_| BypassReason::BareLineBreak)?;
            self.take(header, spacing, config)?;
        }
        lines.finish().map_err(|_| BypassReason::BareLineBreak)
    }

    /// Takes one field line.
    #[inline]
    fn take(
        &mut self,
        header: &Header<'b>,
        spacing: Spacing,
        config: &KeyConfig,
    ) -> Result<(), BypassReason> {
        let (name, value) = (header.name.as_bytes(), header.value);
        match classify(name) {
            RequestField::Harmless => {}
            // RFC 9112 section 3.2: a server must refuse a second Host.
            RequestField::Host if self.host.is_some() => return Err(BypassReason::HostDuplicate),
            RequestField::Host => self.host = Some(value),
            RequestField::Connection => self.connection.add(value),
            RequestField::AcceptEncoding => {
                once(&mut self.accept_encoding, value, &mut self.reason);
            }
            RequestField::Accept => once(&mut self.accept, value, &mut self.reason),
            RequestField::Origin => once(&mut self.origin, value, &mut self.reason),
            RequestField::IfNoneMatch => {
                once(&mut self.conditional.if_none_match, value, &mut self.reason);
            }
            RequestField::IfModifiedSince => {
                once(&mut self.conditional.if_modified_since, value, &mut self.reason);
            }
            // RFC 9112 section 6.3 rule 5, and no tolerance for whitespace that some parsers do not
            // strip.
            RequestField::ContentLength => {
                if self.content_length.is_some() || spacing == Spacing::Odd {
                    return Err(BypassReason::ContentLength);
                }
                self.content_length =
                    Some(parse_content_length(value).ok_or(BypassReason::ContentLength)?);
            }
            // RFC 9112 section 6.1: the card does not follow chunked requests, let alone disguised
            // ones. Of a plain one it is certain what it is for.
            RequestField::TransferEncoding => {
                if self.is_chunked || spacing == Spacing::Odd || !is_name(value, b"chunked") {
                    return Err(BypassReason::TransferEncoding);
                }
                self.is_chunked = true;
            }
            // RFC 9110 section 7.8: the connection may change its protocol.
            RequestField::Upgrade => return Err(BypassReason::Upgrade),
            // RFC 9110 section 10.1.1: whether the content is sent depends on an interim reply.
            RequestField::Expect => {
                if self.expects_continue
                    || spacing == Spacing::Odd
                    || !is_name(value, b"100-continue")
                {
                    return Err(BypassReason::Expect);
                }
                self.expects_continue = true;
                self.note(BypassReason::Expect);
            }
            RequestField::Range => once(&mut self.range, value, &mut self.reason),
            RequestField::IfRange => once(&mut self.if_range, value, &mut self.reason),
            RequestField::IfMatch => once(&mut self.conditional.if_match, value, &mut self.reason),
            RequestField::IfUnmodifiedSince => {
                once(&mut self.conditional.if_unmodified_since, value, &mut self.reason);
            }
            RequestField::CacheControl => {
                self.conditional.no_cache |=
                    list(value).any(|directive| is_name(directive, b"no-cache"));
            }
            RequestField::Authorization => self.note(BypassReason::Authorization),
            RequestField::Cookie => {
                // RFC 6265 section 5.4: a client sends one such field.
                if self.cookie.replace(value).is_some() {
                    self.note(BypassReason::Cookie);
                }
            }
            RequestField::Other => {
                if !self.of_proxies.take(name, value, config) {
                    self.note(BypassReason::UnknownHeader);
                }
            }
        }
        if spacing == Spacing::Odd {
            self.note(BypassReason::OddWhitespace);
        }
        Ok(())
    }

    /// Keeps the first reason.
    #[cold]
    fn note(&mut self, reason: BypassReason) {
        self.reason.get_or_insert(reason);
    }

    #[inline]
    fn decide<'s>(
        self,
        head_len: usize,
        method: &str,
        target: &'b [u8],
        version: Version,
        headers: &'s [Header<'b>],
        config: &KeyConfig,
    ) -> RequestOutcome<'s>
    where
        'b: 's,
    {
        let mut is_safe = true;
        let method = match method {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            // RFC 9110 section 9.3.6: a tunnel follows.
            "CONNECT" => return lost(BypassReason::Connect),
            name => {
                is_safe = matches!(name, "OPTIONS" | "TRACE");
                Method::Other
            }
        };
        // RFC 9112 section 3.2: a server must refuse these; what it does with the rest of the
        // connection is open.
        let host = match self.host {
            Some(host) if is_plain_host(host) => host,
            Some(_) => return lost(BypassReason::HostMalformed),
            None if version == Version::Http11 => return lost(BypassReason::HostMissing),
            None => b"",
        };
        if self.is_chunked {
            let is_plain = self.content_length.is_none() && version == Version::Http11;
            let changes = (!is_safe && method == Method::Other && is_plain)
                .then(|| Resource::of(host, target));
            return RequestOutcome::Bypass {
                reason: BypassReason::TransferEncoding,
                extent: Extent::Unknown,
                changes,
            };
        }
        let class = self.connection.class(version);
        // RFC 9110 section 10.1.1: it is for HTTP/1.1 alone.
        if self.expects_continue && version == Version::Http10 {
            return lost(BypassReason::Expect);
        }
        let reason = if method == Method::Other {
            Some(BypassReason::Method)
        } else if head_len > SHARED_HEAD_BYTES_MAX {
            Some(BypassReason::HeadTooLong)
        } else if self.content_length.is_some() {
            Some(BypassReason::Body)
        } else if let Err(reason) = check_target(target) {
            Some(reason)
        } else if let Some(cookie) = self.cookie
            && !config.are_cookies_harmless(cookie, host, target)
        {
            Some(self.reason.unwrap_or(BypassReason::Cookie))
        } else {
            self.reason
        };
        let (Some(connection), None) = (class, reason) else {
            let changes = (!is_safe).then(|| Resource::of(host, target));
            let reason = reason.unwrap_or(BypassReason::ConnectionOption);
            return self.bypass(reason, head_len, method, version, changes);
        };
        let parts = KeyParts { host, target, class: connection, origin: self.origin };
        let mut key = self.of_proxies.complete(key(config, &parts));
        if !config.separating().is_empty() {
            key = vary_key(key, config.separating(), headers, config);
        }
        RequestOutcome::Complete(Request {
            head_len,
            method,
            version,
            target,
            host,
            connection,
            keep_alive: connection.is_keep_alive(),
            key,
            conditional: self.conditional,
            range: self.range,
            if_range: self.if_range,
            bears_cookies: self.cookie.is_some_and(may_be_read),
            signs: self.of_proxies.signs,
            headers,
        })
    }

    /// RFC 9112 section 6.3 rule 7: without Content-Length and Transfer-Encoding a request has no
    /// content.
    #[cold]
    fn bypass<'s>(
        &self,
        reason: BypassReason,
        head_len: usize,
        method: Method,
        version: Version,
        changes: Option<Resource<'s>>,
    ) -> RequestOutcome<'s> {
        let body = self.content_length.unwrap_or(0);
        let keep_alive = self.connection.is_keep_alive(version);
        let expects_continue = self.expects_continue;
        let extent = Extent::Head { len: head_len, body, method, keep_alive, expects_continue };
        RequestOutcome::Bypass { reason, extent, changes }
    }
}

/// Stores a field that may come once (RFC 9110 section 5.3).
#[inline]
fn once<'b>(slot: &mut Option<&'b [u8]>, value: &'b [u8], reason: &mut Option<BypassReason>) {
    if slot.replace(value).is_some() {
        reason.get_or_insert(BypassReason::DuplicateHeader);
    }
}
