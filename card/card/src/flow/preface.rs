//! What stands in front of a connection's first request: maybe a header of the PROXY protocol.
//!
//! The card takes it off the client's bytes and keeps it for as long as the connection lasts. Each
//! connection that it opens, or goes on with, at the host gets it in front of the first request
//! that is forwarded there; a hit does not wait for that.

use std::net::IpAddr;

use nicache_http::{PREFACE_BYTES_MAX, Preface, ProxyVersion, parse_preface};
use nicache_tcp::Time;

/// A client whose header is all that it has sent for so long waits for the host: this gets it then.
pub(crate) const PREFACE_PATIENCE: std::time::Duration = std::time::Duration::from_millis(200);

/// What a connection has begun with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FlowPreface {
    /// Nothing has come yet, or not enough.
    Unread,
    /// A request, or something else.
    Absent,
    /// A header of the PROXY protocol.
    Header(KeptPreface),
}

/// A header that is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeptPreface {
    /// The header's version.
    pub version: ProxyVersion,
    /// Does the header name a client?
    pub is_named: bool,
    /// When it came.
    pub since: Time,
    /// The host has yet to get it.
    pub is_owed: bool,
    place: u32,
}

impl FlowPreface {
    /// The header.
    #[inline]
    pub(crate) fn header(&self) -> Option<&KeptPreface> {
        if let Self::Header(kept) = self { Some(kept) } else { None }
    }

    /// What of it counts in the client's class.
    #[inline]
    pub(crate) fn of_class(&self) -> Option<(ProxyVersion, bool)> {
        self.header().map(|kept| (kept.version, kept.is_named))
    }

    /// The host's connection is another one from now on.
    pub(crate) fn owe(&mut self) {
        if let Self::Header(kept) = self {
            kept.is_owed = true;
        }
    }
}

/// The bytes of all headers that are kept, at most one for each connection.
pub(crate) struct Prefaces {
    /// Touched only where headers are kept.
    bytes: Box<[u8]>,
    lengths: Box<[u16]>,
    free: Vec<u32>,
}

impl Prefaces {
    /// Room for so many.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            bytes: vec![0; count * PREFACE_BYTES_MAX].into_boxed_slice(),
            lengths: vec![0; count].into_boxed_slice(),
            free: (0..count as u32).rev().collect(),
        }
    }

    /// Keeps a header; `None`: it is too long, or there is no room.
    pub(crate) fn keep(
        &mut self,
        header: &[u8],
        version: ProxyVersion,
        is_named: bool,
        since: Time,
    ) -> Option<KeptPreface> {
        if header.len() > PREFACE_BYTES_MAX {
            return None;
        }
        let place = self.free.pop()?;
        let from = place as usize * PREFACE_BYTES_MAX;
        self.bytes[from..from + header.len()].copy_from_slice(header);
        self.lengths[place as usize] = header.len() as u16;
        Some(KeptPreface { version, is_named, since, is_owed: true, place })
    }

    /// Its bytes.
    pub(crate) fn bytes(&self, kept: &KeptPreface) -> &[u8] {
        let from = kept.place as usize * PREFACE_BYTES_MAX;
        &self.bytes[from..from + usize::from(self.lengths[kept.place as usize])]
    }

    /// The address of the client that a connection's header names, if there is any.
    pub(crate) fn client(&self, preface: &FlowPreface) -> Option<IpAddr> {
        let kept = preface.header().filter(|kept| kept.is_named)?;
        match parse_preface(self.bytes(kept)) {
            Preface::Header(header) => header.client.map(|client| client.ip()),
            _ => None,
        }
    }

    /// The connection is over.
    pub(crate) fn give_up(&mut self, preface: &mut FlowPreface) {
        if let FlowPreface::Header(kept) = std::mem::replace(preface, FlowPreface::Absent) {
            self.free.push(kept.place);
        }
    }

    /// How many are kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lengths.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_keeps_its_bytes_and_room_is_bounded() {
        let mut prefaces = Prefaces::new(2);
        let mut keep = |bytes: &[u8]| prefaces.keep(bytes, ProxyVersion::V1, false, Time(0));
        assert!(keep(&[1; PREFACE_BYTES_MAX + 1]).is_none());
        let (first, second) = (keep(b"one").unwrap(), keep(&[2; PREFACE_BYTES_MAX]).unwrap());
        assert!(keep(b"three").is_none());
        assert_eq!(prefaces.bytes(&first), b"one");
        assert_eq!(prefaces.bytes(&second), [2; PREFACE_BYTES_MAX]);
        let mut flow = FlowPreface::Header(first);
        prefaces.give_up(&mut flow);
        prefaces.give_up(&mut flow);
        assert_eq!(prefaces.len(), 1);
        assert!(prefaces.keep(b"three", ProxyVersion::V2, false, Time(0)).is_some());
    }
}
