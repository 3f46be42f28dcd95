//! How proxies spell whose request it is: addresses, and identifiers of requests.

use core::net::IpAddr;

/// An identifier has so many letters and digits in a row, and a digit among them.
const IDENTIFIER_BYTES_MIN: usize = 3;

/// The members of a list of addresses, without what is around them.
pub(crate) fn addresses(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| *byte == b',').map(bare_address).filter(|address| !address.is_empty())
}

/// An address without quotes and white space.
pub(crate) fn bare_address(text: &[u8]) -> &[u8] {
    let text = text.trim_ascii();
    text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")).unwrap_or(text).trim_ascii()
}

/// An address, maybe with brackets and a port.
pub(crate) fn parse_address(text: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(text).ok()?;
    if let Some(rest) = text.strip_prefix('[') {
        return rest.split(']').next()?.parse().ok().map(IpAddr::V6);
    }
    let alone = text.parse().ok();
    alone.or_else(|| {
        text.split_once(':').and_then(|(address, _port)| address.parse().ok().map(IpAddr::V4))
    })
}

/// Runs of letters and digits that may name a request.
pub(crate) fn identifiers(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| !byte.is_ascii_alphanumeric()).filter(|run| is_identifier(run))
}

pub(crate) fn is_identifier(run: &[u8]) -> bool {
    run.len() >= IDENTIFIER_BYTES_MIN && run.iter().any(u8::is_ascii_digit)
}

/// Is it an address of a private network, or of the machine itself?
pub(crate) fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            address.is_private() || address.is_loopback() || address.is_link_local()
        }
        IpAddr::V6(address) => {
            address.is_unique_local() || address.is_loopback() || address.is_unicast_link_local()
        }
    }
}
