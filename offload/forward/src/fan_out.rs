//! One datagram to many: each target gets its own headers, and the payload is sent from where it
//! is.

use crate::tuple::Endpoint;

/// A group, as it is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Where datagrams for it are sent to.
    pub address: Endpoint,
    /// Who gets them. All have the version of IP that the group's address has.
    pub targets: Vec<Endpoint>,
    /// What targets see as the sender; none: the one that it is.
    pub source: Option<Endpoint>,
}

/// All groups whose packets go to several targets.
#[derive(Debug, Default)]
pub struct FanOut {
    groups: Vec<Group>,
}

impl FanOut {
    /// Makes the groups of a list. Targets of the other version of IP are left out.
    pub fn new(mut groups: Vec<Group>) -> Self {
        for group in &mut groups {
            let is_v4 = group.address.address.is_ipv4();
            group.targets.retain(|target| target.address.is_ipv4() == is_v4);
        }
        Self { groups }
    }

    /// The group that a datagram is for.
    pub fn find(&self, destination: Endpoint) -> Option<usize> {
        self.groups.iter().position(|group| group.address == destination)
    }

    /// A group by its number.
    pub fn get(&self, group: usize) -> &Group {
        &self.groups[group]
    }

    /// Addresses of all groups.
    pub fn addresses(&self) -> impl Iterator<Item = Endpoint> + '_ {
        self.groups.iter().map(|group| group.address)
    }
}
