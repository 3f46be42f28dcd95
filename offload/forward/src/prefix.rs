//! Ranges of addresses by their first bits.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// All addresses of one version that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

impl Prefix {
    /// The first `len` bits of an address. `None`: it has not so many.
    pub fn new(address: IpAddr, len: u8) -> Option<Self> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        (len <= bits).then(|| Self { address: mask(address, len), len })
    }

    /// All addresses of the version of `like`.
    pub fn all(like: IpAddr) -> Self {
        Self { address: mask(like, 0), len: 0 }
    }

    /// How many leading bits of an address count.
    pub fn len(&self) -> u8 {
        self.len
    }

    /// Whether it has all addresses.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Whether it has an address.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4() && mask(address, self.len) == self.address
    }
}

/// The first bits of an address, with 0 behind them.
pub(crate) fn mask(address: IpAddr, len: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(len.min(32))).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(v4) & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(v6) & mask))
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

impl FromStr for Prefix {
    type Err = String;

    /// `10.0.0.0/8`, or an address alone.
    fn from_str(text: &str) -> Result<Self, String> {
        let odd = || format!("`{text}` is not a range of addresses such as 10.0.0.0/8");
        let (address, len) =
            text.split_once('/').map_or((text, None), |(address, len)| (address, Some(len)));
        let address: IpAddr = address.parse().map_err(|_| odd())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let len = len.map_or(Ok(bits), |len| len.parse().map_err(|_| odd()))?;
        Self::new(address, len).ok_or_else(odd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges() {
        let prefix = |text: &str| text.parse::<Prefix>().unwrap();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(
            prefix("0.0.0.0/0").contains(address("255.1.2.3"))
                && !prefix("0.0.0.0/0").contains(address("::1"))
        );
        assert!(
            prefix("10.1.2.3/8").contains(address("10.255.0.0"))
                && !prefix("10.0.0.0/8").contains(address("11.0.0.0"))
        );
        assert!(
            prefix("fd00::1").contains(address("fd00::1"))
                && !prefix("fd00::1").contains(address("fd00::2"))
        );
        assert!(prefix("::/0").contains(address("ff02::1")));
        for odd in ["10.0.0.0/33", "::/129", "x", "1.2.3.4/", ""] {
            assert!(odd.parse::<Prefix>().is_err(), "{odd}");
        }
    }
}
