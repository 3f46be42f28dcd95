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
}
