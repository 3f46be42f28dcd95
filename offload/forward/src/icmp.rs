//! Errors of ICMP: those of others translated inside and outside, and our own.
//!
//! Read first: RFC 5508 sections 4 and 7 (what a translator does with errors), RFC 1812 section
//! 4.3.2 and RFC 4443 section 2.4 (when a router sends one), RFC 1191 and RFC 8201.

use std::net::IpAddr;

use arrayvec::ArrayVec;
use nicache_tcp::checksum::{add, finish, sum};
use nicache_tcp::frame::{ETHERNET_BYTES, Mac};

use crate::rewrite::{change_icmp, readdress, translate};
use crate::tuple::Tuple;
use crate::view::{ICMP, ICMPV6, IcmpError, Transport, View, ViewError};

const ICMP_BYTES: usize = 8;
/// Bytes of a packet with an error of IPv4 at most (RFC 1812 section 4.3.2.3).
const ERROR_BYTES_MAX_V4: usize = 576;
/// What each link takes (RFC 791 section 3.2, RFC 8200 section 5).
const MTU_MIN_V4: u16 = 68;
const MTU_MIN_V6: u16 = 1280;
/// Hops that are left to errors of ours.
const HOPS: u8 = 64;
/// Bytes of a frame with an error of ours at most: of the packet it quotes what is at hand.
pub const ERROR_FRAME_BYTES_MAX: usize = ETHERNET_BYTES + 40 + ICMP_BYTES + 512;

/// Looks at the packet that an error quotes.
///
/// # Errors
/// See [`ViewError`].
pub fn quoted(bytes: &[u8], view: &View) -> Result<View, ViewError> {
    let end = view.end.min(bytes.len());
    let inner = View::parse_quoted(&bytes[..end], view.transport_at + ICMP_BYTES)?;
    // An error about an error is never sent (RFC 1122 section 3.2.2), and both are of one version.
    if matches!(inner.transport, Transport::Error(_))
        || inner.source.is_ipv4() != view.source.is_ipv4()
    {
        return Err(ViewError::Malformed);
    }
    Ok(inner)
}

/// Translates an error: outside it comes from `source` and goes to `destination`, inside it quotes
/// a packet between the ends of `quote`. Checksums of both follow.
pub fn translate_error(
    bytes: &mut [u8],
    view: &View,
    inner: &View,
    (source, destination): (IpAddr, IpAddr),
    quote: &Tuple,
) {
    let range = inner.network_at..inner.headers_end.min(bytes.len());
    let old = sum(&bytes[range.clone()]);
    let end = view.end.min(bytes.len());
    translate(&mut bytes[..end], inner, quote, false);
    let new = sum(&bytes[range]);
    change_icmp(bytes, view, old, new);
    let addresses = readdress(bytes, view, source, destination);
    if view.source.is_ipv6() {
        change_icmp(bytes, view, addresses.0, addresses.1);
    }
}

/// Makes the path MTU that an error tells shorter, for a sender whose packets become longer here.
pub fn shorten_path(bytes: &mut [u8], view: &View, less: u16) {
    let Transport::Error(IcmpError::TooBig { .. }) = view.transport else { return };
    // The lower half of the field alone has what a link takes (RFC 1191 section 4, RFC 4443 section
    // 3.2).
    let at = view.transport_at + 6;
    let Some(field) = bytes.get_mut(at..at + 2) else { return };
    let (old, least) = (sum(field), if view.source.is_ipv6() { MTU_MIN_V6 } else { MTU_MIN_V4 });
    // 0: its router knows nothing of path MTUs.
    if old <= least {
        return;
    }
    let new = (old - less.min(old)).max(least);
    field.copy_from_slice(&new.to_be_bytes());
    change_icmp(bytes, view, old, new);
}

/// What we say about a packet that we do not pass on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Complaint {
    /// It is longer than the next link takes, which takes so many bytes of IP.
    TooBig(u32),
    /// It has passed too many routers.
    HopsExceeded,
    /// There is no way to its destination.
    NoRoute,
    /// Its destination does not answer.
    Unreachable,
}

impl Complaint {
    fn code(self, is_v6: bool) -> [u8; 2] {
        match (self, is_v6) {
            (Self::TooBig(_), false) => [3, 4],
            (Self::TooBig(_), true) => [2, 0],
            (Self::HopsExceeded, false) => [11, 0],
            (Self::HopsExceeded, true) => [3, 0],
            (Self::NoRoute, false) => [3, 0],
            (Self::NoRoute, true) => [1, 0],
            (Self::Unreachable, false) => [3, 1],
            (Self::Unreachable, true) => [1, 3],
        }
    }
}

/// Whether a packet may be complained about (RFC 1122 section 3.2.2, RFC 4443 section 2.4): not an
/// error, not a later fragment, not one from or to many. `frame` begins with the destination's MAC
/// address.
pub fn may_complain(frame: &[u8], view: &View) -> bool {
    let is_one = |address: IpAddr| match address {
        IpAddr::V4(v4) => {
            !(v4.is_multicast() || v4.is_broadcast() || v4.is_unspecified() || v4.is_loopback())
        }
        IpAddr::V6(v6) => !(v6.is_multicast() || v6.is_unspecified() || v6.is_loopback()),
    };
    let is_unknown = view.transport == Transport::Other && matches!(view.protocol, ICMP | ICMPV6);
    frame.first().is_some_and(|byte| byte & 1 == 0)
        && is_one(view.source)
        && is_one(view.destination)
        && !is_unknown
        && !matches!(view.transport, Transport::Error(_) | Transport::Later)
}

/// A frame back to the sender of `frame`, from `source` and our MAC address. `frame` is as it came
/// in; of it, what is at hand is quoted.
pub fn complain(
    complaint: Complaint,
    frame: &[u8],
    view: &View,
    source: IpAddr,
    mac: Mac,
) -> ArrayVec<u8, ERROR_FRAME_BYTES_MAX> {
    let packet = &frame[view.network_at..view.end.min(frame.len())];
    let is_v6 = view.source.is_ipv6();
    let header = if is_v6 { 40 } else { 20 };
    let room = if is_v6 { 512 } else { ERROR_BYTES_MAX_V4 - header - ICMP_BYTES }.min(512);
    let quote = &packet[..packet.len().min(room)];
    let mut out = ArrayVec::new();
    let mut extend =
        |bytes: &[u8]| out.try_extend_from_slice(bytes).expect("room for headers and a quote");
    // Whoever sent it, with its tags, gets the answer.
    extend(&frame[6..12]);
    extend(&mac);
    extend(&frame[12..view.network_at]);
    let network_at = view.network_at;
    let [kind, code] = complaint.code(is_v6);
    let message_len = ICMP_BYTES + quote.len();
    let mut pseudo = 0;
    match (source, view.source) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let total = ((header + message_len) as u16).to_be_bytes();
            extend(&[0x45, 0xc0, total[0], total[1], 0, 0, 0, 0, HOPS, ICMP, 0, 0]);
            extend(&from.octets());
            extend(&to.octets());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let len = (message_len as u16).to_be_bytes();
            extend(&[0x60, 0, 0, 0, len[0], len[1], ICMPV6, HOPS]);
            extend(&from.octets());
            extend(&to.octets());
            pseudo = add(
                add(sum(&from.octets()), sum(&to.octets())),
                add(message_len as u16, u16::from(ICMPV6)),
            );
        }
        _ => panic!("addresses of two versions"),
    }
    let mtu = match complaint {
        Complaint::TooBig(mtu) if is_v6 => mtu.to_be_bytes(),
        Complaint::TooBig(mtu) => (mtu & 0xffff).to_be_bytes(),
        _ => [0; 4],
    };
    extend(&[kind, code, 0, 0]);
    extend(&mtu);
    extend(quote);
    if !is_v6 {
        let field = finish(sum(&out[network_at..network_at + header]));
        out[network_at + 10..network_at + 12].copy_from_slice(&field.to_be_bytes());
    }
    let icmp_at = network_at + header;
    let field = finish(add(pseudo, sum(&out[icmp_at..])));
    out[icmp_at + 2..icmp_at + 4].copy_from_slice(&field.to_be_bytes());
    out
}

/// What an error of another router says about a way: packets of so many bytes at most.
pub fn path_mtu(view: &View) -> Option<u32> {
    match view.transport {
        Transport::Error(IcmpError::TooBig { mtu }) if mtu > 0 => Some(mtu),
        _ => None,
    }
}
