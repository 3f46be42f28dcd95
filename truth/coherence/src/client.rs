//! How clients are called in messages and events: by 32 bits and a port.

use std::net::{IpAddr, Ipv4Addr};

/// An IPv4 address itself; an IPv6 address as the exclusive or of its four words, as
/// `ebpf/requests.h` folds it, too. Two addresses may have the same: whoever compares these must be
/// right then, too. A source set is: it gets larger if another client is taken for this one.
pub fn fold(address: IpAddr) -> Ipv4Addr {
    match address {
        IpAddr::V4(address) => address,
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            Ipv4Addr::from_bits((bits >> 96 ^ bits >> 64 ^ bits >> 32 ^ bits) as u32)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_folded() {
        let folded = |text: &str| fold(text.parse().unwrap());
        assert_eq!(folded("10.1.2.3"), Ipv4Addr::new(10, 1, 2, 3));
        assert_eq!(
            folded("1:2:3:4:5:6:7:8").to_bits(),
            0x0001_0002 ^ 0x0003_0004 ^ 0x0005_0006 ^ 0x0007_0008
        );
    }
}
