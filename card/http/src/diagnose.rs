//! Names the fault of a request head that the tokeniser refused. Only for metrics: whatever the
//! name, the framing is lost.

use crate::reason::BypassReason;

/// The most telling fault in `bytes`, which the tokeniser refused with `error`.
#[cold]
pub(crate) fn diagnose(bytes: &[u8], error: httparse::Error) -> BypassReason {
    match error {
        httparse::Error::TooManyHeaders => BypassReason::TooManyHeaders,
        httparse::Error::Version => BypassReason::HttpVersion,
        httparse::Error::NewLine => BypassReason::BareLineBreak,
        httparse::Error::Token | httparse::Error::Status => BypassReason::RequestLine,
        httparse::Error::HeaderName | httparse::Error::HeaderValue => field_fault(bytes),
    }
}

fn field_fault(bytes: &[u8]) -> BypassReason {
    for line in bytes.split(|b| *b == b'\n').skip(1) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let name = line.split(|b| *b == b':').next().unwrap_or(line);
        match line {
            [] => break,
            [b' ' | b'\t', ..] => return BypassReason::ObsFold,
            _ if line.contains(&b'\r') => return BypassReason::BareLineBreak,
            _ if line.iter().any(|b| b.is_ascii_control() && *b != b'\t') => {
                return BypassReason::ControlByte;
            }
            _ if name.len() < line.len() && name.ends_with(b" ") | name.ends_with(b"\t") => {
                return BypassReason::SpaceBeforeColon;
            }
            _ => {}
        }
    }
    BypassReason::HeaderName
}
