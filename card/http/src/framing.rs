//! Where a reply ends by its head (RFC 9112 sections 6 and 9.3), and whether another may follow.
//!
//! Whoever only reads replies to their end asks [`parse_framing`]. It takes and refuses the very
//! heads that [`parse_reply`](crate::parse_reply) does, which looks at all other fields besides.

use std::mem::MaybeUninit;

use httparse::{Header, Status};

use crate::connection::ConnectionOptions;
use crate::head::{BareLineBreak, Lines, Spacing, is_name};
use crate::length::parse_content_length;
use crate::limits::{HEAD_BYTES_MAX, HEADERS_MAX};
use crate::protocol::{Method, Version};
use crate::reason::MalformedReply;

/// How a reply's content ends (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is none: the reply to HEAD, 1xx, 204, 304.
    None,
    /// After this many bytes.
    Length(u64),
    /// With the last chunk.
    Chunked,
    /// With the connection.
    Close,
}

/// What a head whose framing is certain says of the reply's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyFraming {
    /// Status code, 100 to 599.
    pub status: u16,
    /// Bytes of the head.
    pub head_len: usize,
    /// How its content ends.
    pub framing: Framing,
    /// Value of Content-Length, with which a reply without content can come, too.
    pub content_length: Option<u64>,
    /// Does the connection outlive the reply (RFC 9112 section 9.3)?
    pub keep_alive: bool,
}

/// Finds where the reply ends whose head begins at `bytes[0]`, the answer to a request with
/// `method`. `None`: the head is not complete yet.
///
/// # Errors
/// Where the reply ends is in doubt, for the same reason as in
/// [`ReplyOutcome::Malformed`](crate::ReplyOutcome::Malformed).
pub fn parse_framing(bytes: &[u8], method: Method) -> Result<Option<ReplyFraming>, MalformedReply> {
    let mut slots = Slots::new();
    let Some(tokens) = Tokens::of(bytes, &mut slots)? else { return Ok(None) };
    let (mut fields, mut lines) = (FramingFields::default(), tokens.lines()?);
    for header in tokens.headers {
        let spacing = lines.field(header)?;
        let (name, value) = (header.name.as_bytes(), header.value);
        if is_name(name, b"content-length") {
            fields.take_length(value, spacing)?;
        } else if is_name(name, b"transfer-encoding") {
            fields.take_encoding(value, spacing)?;
        } else if is_name(name, b"connection") {
            fields.connection.add(value);
        }
    }
    lines.finish()?;
    let Tokens { status, version, head_len, .. } = tokens;
    let framing = fields.framing(status, version, method)?;
    let (content_length, keep_alive) = (fields.content_length, fields.keep_alive(framing, version));
    Ok(Some(ReplyFraming { status, head_len, framing, content_length, keep_alive }))
}

impl From<BareLineBreak> for MalformedReply {
    fn from(_: BareLineBreak) -> Self {
        Self::BareLineBreak
    }
}

/// Room for the fields of a head.
pub(crate) struct Slots<'b>([MaybeUninit<Header<'b>>; HEADERS_MAX]);

impl Slots<'_> {
    #[inline]
    pub(crate) fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; HEADERS_MAX])
    }
}

/// A complete head in tokens, whose line ends are still to be looked at ([`Tokens::lines`]).
pub(crate) struct Tokens<'t, 'b> {
    pub(crate) head: &'b [u8],
    pub(crate) head_len: usize,
    pub(crate) status: u16,
    pub(crate) version: Version,
    pub(crate) headers: &'t [Header<'b>],
}

impl<'t, 'b> Tokens<'t, 'b> {
    /// The tokens of the head that `bytes` begins with; `None` if it is not complete.
    #[inline]
    pub(crate) fn of(
        bytes: &'b [u8],
        slots: &'t mut Slots<'b>,
    ) -> Result<Option<Self>, MalformedReply> {
        let window = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
        if let Some(b'\r' | b'\n') = window.first() {
            return Err(MalformedReply::LeadingEmptyLine);
        }
        let mut tokens = httparse::Response::new(&mut []);
        let parser = httparse::ParserConfig::default();
        let parsed = parser.parse_response_with_uninit_headers(&mut tokens, window, &mut slots.0);
        let head_len = match parsed {
            Ok(Status::Complete(head_len)) => head_len,
            Ok(Status::Partial) if window.len() < HEAD_BYTES_MAX => return Ok(None),
            Ok(Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                return Err(MalformedReply::HeadTooLong);
            }
            Err(httparse::Error::NewLine) => return Err(MalformedReply::BareLineBreak),
            Err(_) => return Err(MalformedReply::Syntax),
        };
        Ok(Some(Self {
            head: &window[..head_len],
            head_len,
            status: tokens.code.unwrap_or(0),
            version: Version::from_minor(tokens.version),
            headers: tokens.headers,
        }))
    }

    /// The lines, of which the first has the right end.
    #[inline]
    pub(crate) fn lines(&self) -> Result<Lines<'b>, MalformedReply> {
        let start_line_len =
            self.head.iter().position(|byte| *byte == b'\r').unwrap_or(self.head.len());
        Ok(Lines::new(self.head, start_line_len)?)
    }
}

/// The fields that say where a reply ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FramingFields {
    pub(crate) content_length: Option<u64>,
    chunked: bool,
    pub(crate) connection: ConnectionOptions,
}

impl FramingFields {
    #[inline]
    pub(crate) fn take_length(
        &mut self,
        value: &[u8],
        spacing: Spacing,
    ) -> Result<(), MalformedReply> {
        // RFC 9112 section 6.3 rule 5.
        if self.content_length.is_some() || spacing == Spacing::Odd {
            return Err(MalformedReply::ContentLength);
        }
        self.content_length =
            Some(parse_content_length(value).ok_or(MalformedReply::ContentLength)?);
        Ok(())
    }

    #[inline]
    pub(crate) fn take_encoding(
        &mut self,
        value: &[u8],
        spacing: Spacing,
    ) -> Result<(), MalformedReply> {
        // RFC 9112 section 6.1: other codings, lists and repetitions are read in different ways.
        if self.chunked || spacing == Spacing::Odd || !is_name(value, b"chunked") {
            return Err(MalformedReply::TransferEncoding);
        }
        self.chunked = true;
        Ok(())
    }

    /// RFC 9112 section 6.3, but whatever it resolves by precedence is an error here.
    pub(crate) fn framing(
        &self,
        status: u16,
        version: Version,
        method: Method,
    ) -> Result<Framing, MalformedReply> {
        match status {
            101 => return Err(MalformedReply::SwitchingProtocols),
            100..=599 => {}
            _ => return Err(MalformedReply::Status),
        }
        if self.chunked && self.content_length.is_some() {
            return Err(MalformedReply::LengthAndEncoding);
        }
        // RFC 9112 section 6.1: HTTP/1.0 knows no Transfer-Encoding.
        if self.chunked && version == Version::Http10 {
            return Err(MalformedReply::TransferEncoding);
        }
        if matches!(status, 100..=199 | 204) {
            // RFC 9110 section 8.6 and RFC 9112 section 6.1 forbid both fields here; clients differ
            // in what they do.
            if self.chunked {
                return Err(MalformedReply::TransferEncoding);
            }
            if self.content_length.is_some() {
                return Err(MalformedReply::ContentLength);
            }
            return Ok(Framing::None);
        }
        Ok(match self.content_length {
            _ if status == 304 || method == Method::Head => Framing::None,
            Some(length) => Framing::Length(length),
            None if self.chunked => Framing::Chunked,
            None => Framing::Close,
        })
    }

    /// Does the connection outlive the reply?
    pub(crate) fn keep_alive(&self, framing: Framing, version: Version) -> bool {
        framing != Framing::Close && self.connection.is_keep_alive(version)
    }
}
