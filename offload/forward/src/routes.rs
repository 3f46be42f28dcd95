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
    /// `None`: nothing leads there, whatever shorter prefixes say.
    routes: HashMap<(u8, IpAddr), Option<Route>, foldhash::fast::FixedState>,
}

impl Routes {
    /// Makes a table from a list. Of two routes with the same prefix the later one counts.
    pub fn new(list: impl IntoIterator<Item = Route>) -> Self {
        let mut routes = Self::default();
        list.into_iter().for_each(|route| routes.add(route));
        routes
    }

    /// A route, in place of what the table says of the same prefix.
    pub fn add(&mut self, route: Route) {
        self.put(route.to, Some(route));
    }

    /// Nothing leads to the addresses of a prefix, though there may be a route to a shorter one. In
    /// place of what the table says of the same prefix.
    pub fn add_nowhere(&mut self, to: Prefix) {
        self.put(to, None);
    }

    fn put(&mut self, to: Prefix, route: Option<Route>) {
        self.routes.insert((to.len(), to.address()), route);
        let len = (to.address().is_ipv4(), to.len());
        let order = |(is_v4, len): &(bool, u8)| (std::cmp::Reverse(*len), *is_v4);
        if let Err(place) = self.lens.binary_search_by_key(&order(&len), order) {
            self.lens.insert(place, len);
        }
    }

    /// The way to an address.
    pub fn find(&self, address: IpAddr) -> Option<&Route> {
        let is_v4 = address.is_ipv4();
        let mut lens = self.lens.iter().filter(|(is_for_v4, _)| *is_for_v4 == is_v4);
        lens.find_map(|(_, len)| self.routes.get(&(*len, mask(address, *len))))?.as_ref()
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.routes.values().flatten()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_leads_nowhere_hides_shorter_prefixes() {
        let prefix = |text: &str| text.parse::<Prefix>().unwrap();
        let route = |to: &str| Route { to: prefix(to), interface: 0, gateway: None };
        let mut routes = Routes::new([route("0.0.0.0/0"), route("10.9.9.0/24"), route("::/0")]);
        routes.add_nowhere(prefix("10.9.0.0/16"));
        routes.add_nowhere(prefix("::/0"));
        let found = |routes: &Routes, address: &str| {
            routes.find(address.parse().unwrap()).map(|route| route.to.to_string())
        };
        assert_eq!(found(&routes, "10.9.0.1"), None);
        assert_eq!(found(&routes, "10.9.9.1").as_deref(), Some("10.9.9.0/24"));
        assert_eq!(found(&routes, "10.8.0.1").as_deref(), Some("0.0.0.0/0"));
        assert_eq!((found(&routes, "fd00::1"), routes.iter().count()), (None, 2));
        routes.add(route("10.9.0.0/16"));
        assert_eq!(found(&routes, "10.9.0.1").as_deref(), Some("10.9.0.0/16"));
    }

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
