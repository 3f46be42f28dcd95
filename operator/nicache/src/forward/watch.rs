//! The kernel's news of links, for the supervisor: which of its own are gone, which are there
//! again, and which addresses this machine has.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nicache_router::kernel::{Kernel, Link};

/// Between two looks at least: messages of the kernel rarely come alone.
const GATHER: Duration = Duration::from_millis(20);
/// Between two looks while a link is gone: its addresses may still come.
const AGAIN: Duration = Duration::from_secs(1);

/// The kernel's links, and the news that they have changed.
#[derive(Debug)]
pub(super) struct Watch {
    kernel: Kernel,
    /// When the next look is due.
    due: Option<Instant>,
}

impl Watch {
    /// Of the calling thread's network namespace.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self { kernel: Kernel::open_for_links()?, due: None })
    }

    /// When to look again, if there is no news before.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The links, if it is time to look at them.
    pub(super) fn look(&mut self, now: Instant) -> Option<Vec<Link>> {
        if self.kernel.has_news() {
            let soon = now + GATHER;
            self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
        }
        if self.due.is_none_or(|due| due > now) {
            return None;
        }
        match self.kernel.links() {
            Ok(links) => {
                self.due = None;
                Some(links)
            }
            Err(error) => {
                tracing::debug!("the kernel does not tell its links: {error}");
                self.look_again(now);
                None
            }
        }
    }

    /// Looks again after a while, also without news.
    pub(super) fn look_again(&mut self, now: Instant) {
        self.due = Some(now + AGAIN);
    }

    /// Looks at once.
    pub(super) fn look_now(&mut self, now: Instant) {
        self.due = Some(now);
    }
}

impl AsFd for Watch {
    /// Readable when there is news.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.kernel.news()
    }
}

/// What a link that is there again still lacks of what it was; `None`: nothing.
pub(super) fn lacks(now: &Link, before: &Link) -> Option<String> {
    if !now.is_up {
        return Some(format!("it is there again, but down: `ip link set {} up`", now.name));
    }
    // Each MAC address has its own of those.
    let is_of_link = |address: &IpAddr| match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let missing =
        before.addresses.iter().find(|own| !is_of_link(&own.0) && !now.addresses.contains(*own));
    missing.map(|(address, len)| {
        let name = &now.name;
        format!(
            "it is there again, without its address: `ip address add {address}/{len} dev {name}`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_back_when_it_is_up_with_its_addresses() {
        let before = Link {
            name: "a".to_owned(),
            index: 3,
            mac: [2; 6],
            mtu: 1500,
            is_up: true,
            is_ethernet: true,
            addresses: vec![([10, 1, 0, 1].into(), 24), ("fe80::1".parse().unwrap(), 64)],
        };
        let mut now = Link { index: 4, mac: [3; 6], addresses: Vec::new(), ..before.clone() };
        now.is_up = false;
        assert!(lacks(&now, &before).unwrap().contains("ip link set a up"));
        now.is_up = true;
        assert!(lacks(&now, &before).unwrap().contains("ip address add 10.1.0.1/24 dev a"));
        now.addresses = vec![([10, 9, 0, 1].into(), 24), ([10, 1, 0, 1].into(), 24)];
        assert_eq!(lacks(&now, &before), None);
    }
}
