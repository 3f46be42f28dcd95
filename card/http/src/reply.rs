//! Reply heads (RFC 9112 sections 4 to 6): where the reply ends, and whether others may have it,
//! too.
//!
//! A head that leaves the reply's end in doubt is [`ReplyOutcome::Malformed`], and the card stops
//! tracking the connection. A head that is certain but unusual carries in [`ReplyHead::shareable`]
//! the reason why it is not stored.

use crate::cache_control::{CacheControl, Lifted, check_targeted};
use crate::date::parse_imf_fixdate;
use crate::framing::{Framing, FramingFields, Slots, Tokens};
use crate::head::{Spacing, is_name, offset_in};
use crate::limits::TEMPLATE_BYTES_MAX;
use crate::protocol::{Method, Version};
use crate::reason::{MalformedReply, NotShared};
use crate::reply_field::{ReplyField, classify};
use crate::vary::Vary;
use httparse::Header;

/// What the bytes at the start of a reply are.
#[derive(Clone, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "lives on the stack for a moment; a box would allocate per reply"
)]
pub enum ReplyOutcome<'a> {
    /// The head is not complete yet; nothing is wrong with it so far.
    Partial,
    /// A head whose framing is certain.
    Complete(ReplyHead<'a>),
    /// Where the reply ends is in doubt: the rest of the connection is opaque.
    Malformed(MalformedReply),
}

/// A reply head whose framing is certain.
#[derive(Clone, Copy, Debug)]
pub struct ReplyHead<'a> {
    /// Status code, 100 to 599.
    pub status: u16,
    /// HTTP version.
    pub version: Version,
    /// Bytes of the head.
    pub head_len: usize,
    /// How its content ends.
    pub framing: Framing,
    /// Is the reply one that may become an entry? Only a plain 200 to GET is. The card must besides
    /// find that `keep_alive` is equal to the request's, as a server that is about to close says so
    /// to one client; or that the server [always closes](ReplyHead::always_closes).
    pub shareable: Result<(), NotShared>,
    /// Is this a 304 to GET as plain as a shareable 200, so a template may be made of it?
    pub learnable_304: bool,
    /// Is this a 206 to GET as plain as a shareable 200, so a template for other ranges may be
    /// made of it?
    pub learnable_206: bool,
    /// Value of Content-Length.
    pub content_length: Option<&'a [u8]>,
    /// Value of Content-Type.
    pub content_type: Option<&'a [u8]>,
    /// Value of Content-Range.
    pub content_range: Option<&'a [u8]>,
    /// Does the head have fields for [`without_own_fields`](crate::without_own_fields)?
    pub has_own_fields: bool,
    /// Does the server say that it serves no ranges (RFC 9110 section 14.3)?
    pub refuses_ranges: bool,
    /// Value of Location.
    pub location: Option<&'a [u8]>,
    /// Value of Content-Location.
    pub content_location: Option<&'a [u8]>,
    /// Value of Last-Modified, if it can be read: whether it is later than another date only the
    /// server knows otherwise.
    pub last_modified: Option<&'a [u8]>,
    /// Value of ETag.
    pub etag: Option<&'a [u8]>,
    /// Value of Date.
    pub date: Option<&'a [u8]>,
    /// The request fields that chose this variant.
    pub vary: Vary,
    /// Does the connection outlive the reply (RFC 9112 section 9.3)?
    pub keep_alive: bool,
    /// Does the real reply follow (1xx, RFC 9110 section 15.2)?
    pub interim: bool,
    /// What a template renews, or why it cannot.
    pub(crate) renewal: Result<Renewal, NotShared>,
}

impl ReplyHead<'_> {
    /// May the reply be repeated to others if it turns out that the server says the same, head and
    /// all, to two clients? Then a header that a server of files would not send is not an obstacle,
    /// nor is a Last-Modified in another form.
    pub fn shareable_if_agreed(&self) -> Result<(), NotShared> {
        match self.shareable {
            Err(reason) if is_lifted_by_agreement(reason) => Ok(()),
            other => other,
        }
    }

    /// Does the server end the connection after any such reply, and not only this one? HTTP/1.0
    /// does unless it says otherwise, and there is no other end to a body without length.
    pub fn always_closes(&self) -> bool {
        !self.keep_alive && (self.version == Version::Http10 || self.framing == Framing::Close)
    }
}

/// Where the renewable values of a head are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Renewal {
    /// Offset of the Date value. Not every server sends one (RFC 9110 section 6.6.1: one without a
    /// clock does not; Puma never does), and then the card does not either.
    pub(crate) date_at: Option<usize>,
    /// Offset of the Expires value and seconds between Date and Expires, if it seems to move with
    /// Date.
    pub(crate) expires: Option<(usize, u64)>,
}

/// Which replies may be shared beyond the built-in rules.
#[derive(Clone, Debug, Default)]
pub struct ReplyConfig {
    usual_headers: Vec<Box<[u8]>>,
    lifted: Lifted,
}

impl ReplyConfig {
    /// Only the built-in list of usual headers.
    pub const fn new() -> Self {
        Self { usual_headers: Vec::new(), lifted: Lifted { private: false, no_store: false } }
    }

    /// Declares a reply header usual: the same in each reply for the same file. Danger: a value
    /// that differs by client or by request is repeated to others.
    pub fn allow_header(mut self, name: &str) -> Self {
        self.usual_headers.push(name.as_bytes().into());
        self
    }

    /// Lifts `Cache-Control: private`, or `no-store`, for servers that say so on pages that are the
    /// same for everybody. Danger: what is someone's own is then kept from others only by its
    /// cookies, and by two replies that differ.
    pub fn lift(mut self, private: bool, no_store: bool) -> Self {
        self.lifted = Lifted { private, no_store };
        self
    }

    fn is_usual(&self, name: &[u8]) -> bool {
        self.usual_headers.iter().any(|usual| usual.eq_ignore_ascii_case(name))
    }
}

/// Parses the reply head that begins at `bytes[0]`, the answer to a request with `method`. Never
/// panics. See [`crate::is_worth_parsing`] for when to call it again after
/// [`ReplyOutcome::Partial`].
pub fn parse_reply(bytes: &[u8], method: Method) -> ReplyOutcome<'_> {
    parse_reply_with(bytes, method, &ReplyConfig::new())
}

/// Parses the reply head that begins at `bytes[0]`, the answer to a request with `method`, and lets
/// pass what the operator has added in `config`. Never panics. See [`crate::is_worth_parsing`] for
/// when to call it again after [`ReplyOutcome::Partial`].
pub fn parse_reply_with<'a>(
    bytes: &'a [u8],
    method: Method,
    config: &ReplyConfig,
) -> ReplyOutcome<'a> {
    let mut slots = Slots::new();
    let tokens = match Tokens::of(bytes, &mut slots) {
        Ok(Some(tokens)) => tokens,
        Ok(None) => return ReplyOutcome::Partial,
        Err(reason) => return ReplyOutcome::Malformed(reason),
    };
    match Fields::take_all(&tokens, config).and_then(|fields| fields.decide(&tokens, method)) {
        Ok(head) => ReplyOutcome::Complete(head),
        Err(reason) => ReplyOutcome::Malformed(reason),
    }
}

/// What the header fields of a reply say.
struct Fields<'b> {
    head: &'b [u8],
    framing: FramingFields,
    length_value: Option<&'b [u8]>,
    content_type: Option<&'b [u8]>,
    connection_fields: u8,
    has_own_fields: bool,
    upgrade_fields: u8,
    cache_control: CacheControl,
    vary: Vary,
    date: Option<&'b [u8]>,
    expires: Option<&'b [u8]>,
    last_modified: Option<&'b [u8]>,
    etag: Option<&'b [u8]>,
    content_range: Option<&'b [u8]>,
    accept_ranges: Option<&'b [u8]>,
    location: Option<&'b [u8]>,
    content_location: Option<&'b [u8]>,
    reason: Option<NotShared>,
}

impl<'b> Fields<'b> {
    fn take_all(tokens: &Tokens<'_, 'b>, config: &ReplyConfig) -> Result<Self, MalformedReply> {
        let &Tokens { head, headers, .. } = tokens;
        let mut lines = tokens.lines()?;
        let mut fields = Fields {
            head,
            framing: FramingFields::default(),
            length_value: None,
            content_type: None,
            connection_fields: 0,
            has_own_fields: false,
            upgrade_fields: 0,
            cache_control: CacheControl::default(),
            vary: Vary::default(),
            date: None,
            expires: None,
            last_modified: None,
            etag: None,
            content_range: None,
            accept_ranges: None,
            location: None,
            content_location: None,
            reason: None,
        };
        // RFC 9112 section 4: the space stays even if the reason is empty.
        if head.get(STATUS_BYTES) != Some(&b' ') {
            fields.note(NotShared::StatusLine);
        }
        for (index, header) in headers.iter().enumerate() {
            let spacing = lines.field(header)?;
            fields.take(header, spacing, &headers[..index], config)?;
        }
        lines.finish()?;
        Ok(fields)
    }

    /// Takes one field line. An error means that the framing is in doubt.
    fn take(
        &mut self,
        header: &Header<'b>,
        spacing: Spacing,
        before: &[Header<'b>],
        config: &ReplyConfig,
    ) -> Result<(), MalformedReply> {
        let (name, value) = (header.name.as_bytes(), header.value);
        match classify(name) {
            ReplyField::ContentLength => {
                self.framing.take_length(value, spacing)?;
                self.length_value = Some(value);
            }
            ReplyField::TransferEncoding => self.framing.take_encoding(value, spacing)?,
            ReplyField::Connection => {
                self.framing.connection.add(value);
                self.connection_fields = self.connection_fields.saturating_add(1);
            }
            ReplyField::Date => once(&mut self.date, value, &mut self.reason),
            ReplyField::Expires => once(&mut self.expires, value, &mut self.reason),
            ReplyField::LastModified => once(&mut self.last_modified, value, &mut self.reason),
            ReplyField::Etag => once(&mut self.etag, value, &mut self.reason),
            ReplyField::CacheControl => {
                let added = self.cache_control.add(value, config.lifted);
                self.note_error(added);
            }
            ReplyField::TargetedCacheControl => {
                self.note_error(check_targeted(value, config.lifted));
            }
            ReplyField::Vary => {
                let added = self.vary.add(value);
                self.note_error(added);
            }
            ReplyField::SetCookie => self.note(NotShared::SetCookie),
            ReplyField::ContentType => once(&mut self.content_type, value, &mut self.reason),
            ReplyField::ContentRange => once(&mut self.content_range, value, &mut self.reason),
            ReplyField::AcceptRanges => once(&mut self.accept_ranges, value, &mut self.reason),
            ReplyField::ContentLocation => {
                once(&mut self.content_location, value, &mut self.reason);
            }
            ReplyField::Location => {
                self.location = Some(value);
                self.note(NotShared::UnusualHeader);
            }
            ReplyField::Authentication => self.note(NotShared::Authentication),
            ReplyField::Trailer => self.note(NotShared::Trailer),
            ReplyField::SecurityPolicy => {
                if value.windows(6).any(|word| word.eq_ignore_ascii_case(b"nonce-")) {
                    self.note(NotShared::Nonce);
                }
            }
            ReplyField::Usual => {}
            ReplyField::Execution => self.has_own_fields = true,
            ReplyField::Upgrade => self.upgrade_fields = self.upgrade_fields.saturating_add(1),
            ReplyField::UsualOnce => {
                if before.iter().any(|other| other.name.eq_ignore_ascii_case(header.name)) {
                    self.note(NotShared::DuplicateHeader);
                }
            }
            ReplyField::Unusual => {
                if !config.is_usual(name) {
                    self.note(NotShared::UnusualHeader);
                }
            }
        }
        Ok(())
    }

    /// The first reason counts, but one that agreement lifts gives way to any other.
    fn note(&mut self, reason: NotShared) {
        if self.reason.is_none_or(is_lifted_by_agreement) {
            self.reason = Some(reason);
        }
    }

    fn note_error(&mut self, outcome: Result<(), NotShared>) {
        if let Err(reason) = outcome {
            self.note(reason);
        }
    }

    fn decide(
        mut self,
        tokens: &Tokens<'_, 'b>,
        method: Method,
    ) -> Result<ReplyHead<'b>, MalformedReply> {
        let &Tokens { head_len, status, version, .. } = tokens;
        let framing = self.framing.framing(status, version, method)?;
        let keep_alive = self.framing.keep_alive(framing, version);
        let renewal = self.renewal();
        let of_message = message_reason(status, version, method, keep_alive);
        self.check_values(head_len, version);
        if self.content_range.is_some() && status != 206 {
            self.note(NotShared::ContentRange);
        }
        let plain = self.reason.map_or(Ok(()), Err);
        let renewable = renewal.map(|_| ());
        let shareable = match (of_message, plain, renewable) {
            (Some(reason), _, _) => Err(reason),
            (None, Err(lifted), Err(reason)) if is_lifted_by_agreement(lifted) => Err(reason),
            (None, plain, renewable) => plain.and(renewable),
        };
        let is_learnable =
            method == Method::Get && version == Version::Http11 && plain.is_ok() && renewal.is_ok();
        let learnable_304 = status == 304 && is_learnable;
        let learnable_206 = status == 206 && is_learnable && matches!(framing, Framing::Length(_));
        Ok(ReplyHead {
            status,
            version,
            head_len,
            framing,
            shareable,
            learnable_304,
            learnable_206,
            content_length: self.length_value,
            content_type: self.content_type,
            content_range: self.content_range,
            refuses_ranges: self.accept_ranges.is_some_and(|value| !is_name(value, b"bytes")),
            has_own_fields: self.has_own_fields,
            location: self.location,
            content_location: self.content_location,
            last_modified: self.last_modified.filter(|date| parse_imf_fixdate(date).is_some()),
            etag: self.etag,
            date: self.date,
            vary: self.vary,
            keep_alive,
            interim: status < 200,
            renewal,
        })
    }

    /// Checks of values that stand for themselves.
    fn check_values(&mut self, head_len: usize, version: Version) {
        let connection = &self.framing.connection;
        if self.upgrade_fields == 1 && connection.offers_upgrade(version) {
            self.has_own_fields = true;
        } else if self.upgrade_fields > 0 {
            self.note(NotShared::UnusualHeader);
        } else if self.connection_fields > 1 || connection.class(version).is_none() {
            self.note(NotShared::ConnectionOdd);
        }
        if self.last_modified.is_some_and(|value| parse_imf_fixdate(value).is_none()) {
            self.note(NotShared::LastModifiedOdd);
        }
        if head_len > TEMPLATE_BYTES_MAX {
            self.note(NotShared::HeadTooLong);
        }
    }

    /// What a template must renew.
    ///
    /// If Expires equals Date + max-age, or comes without max-age and is not over, it moves with
    /// Date in most configurations. But some servers compute it from a time of day or from
    /// Last-Modified ("expires @15h", "expires modified +1h"), and then max-age shrinks from reply
    /// to reply. Such a base mostly shows as a whole number of minutes where Date would not. If it
    /// shows by chance (one reply in thirty), the reply is not stored, and the next one is. What
    /// does not show is found when two replies of different moments are compared
    /// ([`HeadTemplate::pinned`](crate::HeadTemplate::pinned)).
    fn renewal(&self) -> Result<Renewal, NotShared> {
        let Some(date) = self.date else {
            // From when an Expires counts is not known then.
            let renewal = Renewal { date_at: None, expires: None };
            let moves = self.expires.is_some_and(|expires| parse_imf_fixdate(expires).is_some());
            return if moves { Err(NotShared::Date) } else { Ok(renewal) };
        };
        let date_s = parse_imf_fixdate(date).ok_or(NotShared::Date)?;
        let date_at = Some(offset_in(self.head, date));
        let Some(expires) = self.expires else { return Ok(Renewal { date_at, expires: None }) };
        let lifetime_s = |expires_s: u64| expires_s.checked_sub(date_s);
        match (parse_imf_fixdate(expires), self.cache_control.max_age_s) {
            (Some(expires_s), None) => {
                let at = offset_in(self.head, expires);
                Ok(Renewal {
                    date_at,
                    expires: lifetime_s(expires_s).map(|lifetime_s| (at, lifetime_s)),
                })
            }
            (Some(expires_s), Some(max_age_s)) if lifetime_s(expires_s) == Some(max_age_s) => {
                let modified_s = self.last_modified.and_then(parse_imf_fixdate);
                let pinned_to_day = expires_s.is_multiple_of(60);
                let pinned_to_modified =
                    modified_s.is_some_and(|at| expires_s.abs_diff(at).is_multiple_of(60));
                if max_age_s > 0 && (pinned_to_day || pinned_to_modified) {
                    return Err(NotShared::ExpiresPinned);
                }
                Ok(Renewal { date_at, expires: Some((offset_in(self.head, expires), max_age_s)) })
            }
            _ => Ok(Renewal { date_at, expires: None }),
        }
    }
}

/// Length of `HTTP/1.x nnn`.
const STATUS_BYTES: usize = 12;

/// May a dynamic reply be kept that has this against it?
fn is_lifted_by_agreement(reason: NotShared) -> bool {
    matches!(reason, NotShared::UnusualHeader | NotShared::LastModifiedOdd)
}

/// Why a reply of this kind is not stored, whatever its fields say.
fn message_reason(
    status: u16,
    version: Version,
    method: Method,
    keep_alive: bool,
) -> Option<NotShared> {
    match version {
        _ if method != Method::Get => Some(NotShared::RequestMethod),
        _ if status != 200 => Some(NotShared::Status),
        Version::Http10 if keep_alive => Some(NotShared::HttpVersion),
        Version::Http10 | Version::Http11 => None,
    }
}

/// Stores a field that may come once (RFC 9110 section 5.3).
fn once<'b>(slot: &mut Option<&'b [u8]>, value: &'b [u8], reason: &mut Option<NotShared>) {
    if slot.replace(value).is_some() && reason.is_none_or(is_lifted_by_agreement) {
        *reason = Some(NotShared::DuplicateHeader);
    }
}
