//! Which way a packet goes on: the longest prefix wins (RFC 1812 section 5.2.4.3).

use std::net::IpAddr;

use hashbrown::HashMap;

use crate::prefix::{Prefix, mask};

/// A way to the addresses of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where it leads to.
    pub to: Prefix,
    /// The interface.
    pub interface: usize,
    /// The next router; none: the destinations are on the link.
    pub gateway: Option<IpAddr>,
}

/// A table of routes. A look costs one hash for each length of prefix in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    /// The longest first.
    lens: Vec<(bool, u8)>,
    routes: HashMap<(u8, IpAddr), Route, foldhash::fast::FixedState>,
}

impl Routes {
    /// Makes a table from a list. Of two routes with the same prefix the later one counts.
    pub fn new(list: impl IntoIterator<Item = Route>) -> Self {
        let mut routes = Self::default();
        for route in list {
            routes.routes.insert((route.to.len(), route.to.address()), route);
            let len = (route.to.address().is_ipv4(), route.to.len());
            if !routes.lens.contains(&len) {
                routes.lens.push(len);
            }
        }
        routes.lens.sort_by_key(|(is_v4, len)| (std::cmp::Reverse(*len), *is_v4));
        routes
    }

    /// The way to an address.
    pub fn find(&self, address: IpAddr) -> Option<&Route> {
        let is_v4 = address.is_ipv4();
        let lens = self.lens.iter().filter(|(is_for_v4, _)| *is_for_v4 == is_v4);
        lens.into_iter().find_map(|(_, len)| self.routes.get(&(*len, mask(address, *len))))
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.routes.values()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a look at all of them.
        #[test]
        fn the_longest_prefix(
            routes in proptest::collection::vec((0u32..4, 0u8..=32, any::<u8>()), 0..30),
            asked in 0u32..8,
        ) {
            let route = |(high, len, low): (u32, u8, u8)| {
                let to =
                    Prefix::new(IpAddr::V4((high << 30 | u32::from(low)).into()), len).unwrap();
                Route { to, interface: usize::from(low), gateway: None }
            };
            let list: Vec<Route> = routes.into_iter().map(route).collect();
            let asked = IpAddr::V4((asked << 29).into());
            let best = list
                .iter()
                .filter(|route| route.to.contains(asked))
                .max_by_key(|route| route.to.len());
            let found = Routes::new(list.clone()).find(asked).copied();
            prop_assert_eq!(found.map(|route| route.to), best.map(|route| route.to));
        }
    }
}
