//! The last steps of a packet that is passed on: hops, route, size, next hop, and its head; or what
//! is said to its sender instead.

use std::net::IpAddr;

use nicache_port::{Checksum, Offload};
use nicache_tcp::checksum::sum;
use nicache_tcp::frame::ETHERNET_BYTES;
use nicache_tcp::{Time, rewrite};

use crate::counters::{Counters, Drop};
use crate::cutting;
use crate::decision::{Decision, HEAD_BYTES_MAX, Head, Outgoing};
use crate::icmp::{self, Complaint};
use crate::interface::Interface;
use crate::links::Links;
use crate::packet::Packet;
use crate::rewrite::{decrement_hops, readdress, translate};
use crate::segmenting;
use crate::switch::Spliced;
use crate::tuple::Tuple;
use crate::view::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, View};

/// What is changed in a packet.
pub(crate) enum Change<'a> {
    Nothing,
    Ends(Tuple),
    /// Its ends, numbers of TCP, and perhaps its options.
    Spliced(Tuple, Spliced),
    Addresses(IpAddr, IpAddr),
    Error {
        inner: &'a View,
        source: IpAddr,
        destination: IpAddr,
        quote: Tuple,
        seq_delta: u32,
        mtu_less: u16,
    },
}

impl Change<'_> {
    /// Where a packet comes from and goes to then.
    pub(crate) fn addresses(&self, view: &View) -> (IpAddr, IpAddr) {
        match self {
            Change::Nothing => (view.source, view.destination),
            Change::Ends(tuple) | Change::Spliced(tuple, _) => {
                (tuple.source.address, tuple.destination.address)
            }
            Change::Addresses(source, destination) => (*source, *destination),
            Change::Error { source, destination, .. } => (*source, *destination),
        }
    }
}

/// The last steps: hops, route, size, neighbour, and the head.
pub(crate) fn forward(
    links: &mut Links,
    packet: &Packet<'_>,
    change: &Change<'_>,
    head: &mut Head,
    counters: &mut Counters,
    now: Time,
) -> Result<Decision, Drop> {
    let view = &packet.view;
    let (source, destination) = change.addresses(view);
    if view.hops <= 1 {
        return complain(links, (Complaint::HopsExceeded, Drop::Hops), packet, head, counters, now);
    }
    let Some(route) = links.routes.find(destination).copied() else {
        return complain(links, (Complaint::NoRoute, Drop::NoRoute), packet, head, counters, now);
    };
    if !links.may_leave(route.interface, source) {
        return Err(Drop::Untranslated);
    }
    let len = match packet.offload.gso {
        Some(gso) => {
            usize::from(gso.header_len).saturating_sub(view.network_at) + usize::from(gso.size)
        }
        None => view.packet_len(),
    };
    let mtu = links.interfaces[route.interface].mtu;
    let (growth, segment_bytes) = match change {
        Change::Spliced(_, Spliced { options, takes, .. }) => {
            let growth = options.map_or(0, |options| options.growth);
            (growth, segmenting::segment_bytes(packet, len + growth, growth, *takes, mtu))
        }
        _ => (0, None),
    };
    let len = len + growth;
    let is_too_long = len > mtu as usize && segment_bytes.is_none();
    let may_cut =
        || packet.offload.gso.is_none() && cutting::may_cut(&packet.frame[view.network_at..]);
    if is_too_long && !may_cut() {
        return complain(
            links,
            (Complaint::TooBig(mtu - growth as u32), Drop::TooBig),
            packet,
            head,
            counters,
            now,
        );
    }
    let Some(mac) = links.resolve(&route, destination, now) else { return Ok(Decision::Wait) };
    let out = &links.interfaces[route.interface];
    let consumed = match change {
        Change::Error { inner, .. } => inner.headers_end.min(view.end),
        _ => view.headers_end,
    };
    if consumed - view.network_at + growth + ETHERNET_BYTES + out.tags.len() > HEAD_BYTES_MAX
        || consumed > packet.frame.len()
    {
        return Err(Drop::Malformed);
    }
    let extend =
        |head: &mut Head, bytes: &[u8]| head.try_extend_from_slice(bytes).expect("looked at above");
    extend(head, &mac);
    extend(head, &out.mac);
    extend(head, out.tags.bytes());
    let kind = if view.source.is_ipv4() { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 };
    extend(head, &kind.to_be_bytes());
    let network_at = head.len();
    extend(head, &packet.frame[view.network_at..consumed]);
    let moved = view.moved(network_at);
    decrement_hops(head, &moved);
    match change {
        Change::Nothing => {}
        Change::Ends(tuple) => translate(head, &moved, tuple, packet.is_partial()),
        Change::Addresses(source, destination) => {
            readdress(head, &moved, *source, *destination);
        }
        Change::Spliced(tuple, Spliced { numbers, options, .. }) => {
            translate(head, &moved, tuple, packet.is_partial());
            rewrite(&mut head[moved.transport_at..], numbers, !packet.is_partial());
            if let Some(options) = options
                && !options.write(head, &moved, packet.is_partial())
            {
                return Err(Drop::TooBig);
            }
        }
        Change::Error { inner, source, destination, quote, seq_delta, mtu_less } => {
            let inner = inner.moved(inner.network_at - view.network_at + network_at);
            icmp::translate_error(head, &moved, &inner, (*source, *destination), quote);
            if *seq_delta != 0 {
                quote_moved(head, &moved, inner.transport_at + 4, *seq_delta);
            }
            if *mtu_less != 0 {
                icmp::shorten_path(head, &moved, *mtu_less);
            }
        }
    }
    let mut offload =
        shifted(packet.offload, view.network_at, network_at).ok_or(Drop::Malformed)?;
    if let Some(gso) = &mut offload.gso {
        gso.header_len += growth as u16;
    }
    if let Some(bytes) = segment_bytes {
        offload = segmenting::cut(head, network_at, offload, bytes);
        counters.switch_cut += 1;
    }
    let whole = Outgoing { interface: route.interface, rest: consumed..view.end, offload };
    Ok(if segment_bytes.is_some() && !packet.is_partial() {
        Decision::Segment { whole, network_at }
    } else if is_too_long {
        Decision::Cut { whole, network_at, mtu }
    } else {
        Decision::Forward(whole)
    })
}

/// The sender is told why its packet is not passed on, if it may be.
pub(crate) fn complain(
    links: &mut Links,
    (complaint, why): (Complaint, Drop),
    packet: &Packet<'_>,
    head: &mut Head,
    counters: &mut Counters,
    now: Time,
) -> Result<Decision, Drop> {
    let Packet { frame, view, .. } = packet;
    let interface = &links.interfaces[packet.interface];
    let Some(source) =
        interface.address_for(view.source).filter(|_| icmp::may_complain(frame, view))
    else {
        return Err(why);
    };
    if links.is_sender_told {
        return Err(why);
    }
    if !links.complaints.take(now) {
        counters.errors_held_back += 1;
        return Err(why);
    }
    counters.dropped[why as usize] += 1;
    head.clear();
    let error = icmp::complain(complaint, frame, view, source, interface.mac);
    head.try_extend_from_slice(&error).expect("the head is as long");
    Ok(Decision::Answer { interface: packet.interface })
}

/// Our own answer to an echo request, whose payload goes back as it is.
pub(crate) fn echo(interface: &Interface, packet: &Packet<'_>, head: &mut Head) -> Decision {
    let Packet { frame, view, .. } = packet;
    let extend = |head: &mut Head, bytes: &[u8]| {
        head.try_extend_from_slice(bytes).expect("looked at before");
    };
    extend(head, &frame[6..12]);
    extend(head, &interface.mac);
    extend(head, &frame[12..view.headers_end]);
    readdress(head, view, view.destination, view.source);
    let kind: (u8, u8) = if view.source.is_ipv6() { (128, 129) } else { (8, 0) };
    head[view.transport_at] = kind.1;
    icmp_kind_changed(head, view, kind);
    Decision::Forward(Outgoing {
        interface: packet.interface,
        rest: view.headers_end..view.end,
        offload: packet.offload,
    })
}

/// Moves the number of a segment that an error quotes.
fn quote_moved(head: &mut Head, view: &View, at: usize, delta: u32) {
    let Some(field) = head.get_mut(at..at + 4) else { return };
    let old = sum(field);
    let seq = u32::from_be_bytes([field[0], field[1], field[2], field[3]]).wrapping_add(delta);
    field.copy_from_slice(&seq.to_be_bytes());
    crate::rewrite::change_icmp(head, view, old, sum(&seq.to_be_bytes()));
}

/// The metadata of a frame whose IP header was at `from` and is at `to`.
fn shifted(offload: Offload, from: usize, to: usize) -> Option<Offload> {
    if from == to {
        return Some(offload);
    }
    let shift = |at: u16| u16::try_from(usize::from(at).checked_sub(from)? + to).ok();
    let checksum = match offload.checksum {
        Checksum::Partial { start, offset } => Checksum::Partial { start: shift(start)?, offset },
        other => other,
    };
    let gso = match offload.gso {
        Some(gso) => Some(nicache_port::Gso { header_len: shift(gso.header_len)?, ..gso }),
        None => None,
    };
    Some(Offload { checksum, gso })
}

fn icmp_kind_changed(head: &mut Head, view: &View, (old, new): (u8, u8)) {
    crate::rewrite::change_icmp(head, view, u16::from(old) << 8, u16::from(new) << 8);
}
