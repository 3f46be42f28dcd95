//! TAPs that nicache makes: this machine is a station at the other end of each, and the forwarder
//! is one beside it.

use std::net::IpAddr;

use toml::Spanned;

use super::error::ConfigError;
use super::file::{File, InterfaceText};
use super::values::{LinkPortKind, Linked, Word};
use crate::kernel::Link;

/// Of a TAP, unless the file says otherwise.
const MTU: u32 = 1500;
/// What Ethernet cards take at most.
const MTU_MAX: u32 = 9216;
/// Bytes of an interface's name at most (`IFNAMSIZ`, less its end).
const NAME_BYTES_MAX: usize = 15;

/// What a TAP is to be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapPlan {
    /// Bytes of the longest IP packet.
    pub mtu: u32,
    /// What this machine gets there, each with the length of the link's prefix.
    pub addresses: Vec<(IpAddr, u8)>,
}

impl TapPlan {
    /// It, before it is made.
    pub(super) fn to_be_made(&self, name: &str) -> Link {
        let (name, mac, addresses) = (name.to_owned(), [2, 0, 0, 0, 0, 0], self.addresses.clone());
        Link { name, index: 0, mac, mtu: self.mtu, is_up: true, is_ethernet: true, addresses }
    }
}

/// The forwarder's MAC address beside that of a TAP's kernel side.
pub(super) fn beside(mut mac: [u8; 6]) -> [u8; 6] {
    mac[5] ^= 1;
    mac
}

/// The TAP that an `[[interface]]` is on. `None`: it is on another kind of port.
pub(super) fn tap_of(
    source: &str,
    text: &InterfaceText,
    file: &File,
) -> Result<Option<TapPlan>, ConfigError> {
    let error = |span, message: String| Err(ConfigError::at(source, span, message));
    let name = text.name.get_ref();
    let is_tap = |text: &InterfaceText| {
        text.port.as_ref().is_some_and(|port| port.get_ref().0 == LinkPortKind::Tap)
    };
    if !is_tap(text) {
        return match text.machine_addresses.first() {
            None => Ok(None),
            Some(address) => error(
                address.span(),
                "machine-addresses are for port = \"tap\"; others have what `ip address add` gives them".to_owned(),
            ),
        };
    }
    let is_odd = |c: char| c.is_whitespace() || matches!(c, '/' | ':' | '%' | '\0');
    if !(1..=NAME_BYTES_MAX).contains(&name.len())
        || name.contains(is_odd)
        || matches!(&**name, "." | "..")
    {
        let message =
            format!("a TAP's name has 1 to {NAME_BYTES_MAX} bytes, without blanks, /, : and %");
        return error(text.name.span(), message);
    }
    if let (Some(_), Some(address)) = (&text.vlan, text.machine_addresses.first()) {
        let message = "machine-addresses are those without a VLAN: `ip link add link ... type vlan` makes others";
        return error(address.span(), message.to_owned());
    }
    if !text.keep.is_empty() {
        let message = "keep is for links that this machine shares: it has its own end of a TAP, and all that comes there";
        return error(text.name.span(), message.to_owned());
    }
    let on_it = || {
        file.interfaces.iter().map(Spanned::get_ref).filter(|other| other.name.get_ref() == name)
    };
    let ours = || on_it().flat_map(|other| &other.addresses).map(|address| address.get_ref().0.0);
    if let Some(address) =
        text.machine_addresses.iter().find(|address| ours().any(|our| our == address.get_ref().0.0))
    {
        return error(
            address.span(),
            "the forwarder has this address: give this machine another one".to_owned(),
        );
    }
    let mut mtu = 0;
    for other in on_it() {
        match &other.mtu {
            Some(wanted) if *wanted.get_ref() > MTU_MAX => {
                return error(wanted.span(), format!("the mtu of a TAP is {MTU_MAX} at most"));
            }
            wanted => mtu = mtu.max(wanted.as_ref().map_or(MTU, |wanted| *wanted.get_ref())),
        }
    }
    let addresses = on_it().flat_map(|other| &other.machine_addresses);
    let addresses = addresses.map(|address| {
        let Word(Linked(address, len)) = *address.get_ref();
        (address, len)
    });
    Ok(Some(TapPlan { mtu, addresses: addresses.collect() }))
}
