//! A packet under consideration.

use nicache_port::{Checksum, Offload};

use crate::view::View;

/// A packet under consideration.
pub(crate) struct Packet<'a> {
    pub(crate) frame: &'a [u8],
    pub(crate) view: View,
    pub(crate) interface: usize,
    pub(crate) offload: Offload,
}

impl Packet<'_> {
    pub(crate) fn is_partial(&self) -> bool {
        matches!(self.offload.checksum, Checksum::Partial { .. })
    }

    /// Neither a fragment, nor with options or extension headers of IP.
    pub(crate) fn is_plain(&self) -> bool {
        let view = &self.view;
        let header = if view.source.is_ipv4() { 20 } else { 40 };
        view.fragment.is_none() && view.transport_at - view.network_at == header
    }
}
