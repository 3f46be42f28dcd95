//! The MAC addresses of those on our links (RFC 826, RFC 4861 section 7.3).
//!
//! Whoever is asked for is asked again while traffic for it comes, once a second, and after half a
//! minute without a word from it.

use std::net::IpAddr;
use std::time::Duration;

use hashbrown::HashMap;
use nicache_tcp::Time;
use nicache_tcp::frame::Mac;

/// Between two questions for one neighbour.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How long a word of a neighbour is believed before it is asked again (RFC 4861 section 10:
/// REACHABLE_TIME).
const REACHABLE: Duration = Duration::from_secs(30);
/// How long it is used without a word.
const LAPSES: Duration = Duration::from_secs(90);

#[derive(Clone, Copy, Debug)]
struct Neighbour {
    mac: Option<Mac>,
    confirmed: Time,
    asked: Option<Time>,
    is_permanent: bool,
}

/// What is known of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Its address, if it is known.
    pub mac: Option<Mac>,
    /// It is to be asked for.
    pub ask: bool,
}

/// The MAC addresses of those on our links (RFC 826, RFC 4861 section 7.3), and whom to ask for
/// again.
#[derive(Debug)]
pub struct Neighbours {
    known: HashMap<(usize, IpAddr), Neighbour, foldhash::fast::FixedState>,
    most: usize,
    learned: u64,
    moved: u64,
}

impl Neighbours {
    /// Nobody is known; so many may be.
    pub fn new(most: usize, seed: u64) -> Self {
        let known =
            HashMap::with_capacity_and_hasher(most, foldhash::fast::FixedState::with_seed(seed));
        Self { known, most, learned: 0, moved: 0 }
    }

    /// A neighbour that is known for good.
    pub fn set(&mut self, interface: usize, address: IpAddr, mac: Mac) {
        let neighbour =
            Neighbour { mac: Some(mac), confirmed: Time::ZERO, asked: None, is_permanent: true };
        let before = self.known.insert((interface, address), neighbour);
        self.moved +=
            u64::from(before.is_some_and(|before| before.mac.is_some_and(|before| before != mac)));
    }

    /// A neighbour has said its address. One that nobody asked for is remembered only if
    /// `is_to_us`, so noise on the link fills nothing.
    pub fn learn(
        &mut self,
        interface: usize,
        address: IpAddr,
        mac: Mac,
        is_to_us: bool,
        now: Time,
    ) {
        let fresh = Neighbour { mac: Some(mac), confirmed: now, asked: None, is_permanent: false };
        match self.known.get_mut(&(interface, address)) {
            Some(known) if known.is_permanent => {}
            Some(known) => {
                self.learned += u64::from(known.mac != Some(mac));
                self.moved += u64::from(known.mac.is_some_and(|before| before != mac));
                *known = fresh;
            }
            None if is_to_us => self.insert((interface, address), fresh, now),
            None => {}
        }
    }

    /// Somebody else on this machine has heard of a neighbour, some time ago. That counts only if
    /// nothing is known, and whoever needs it asks.
    pub fn hint(&mut self, interface: usize, address: IpAddr, mac: Mac, now: Time) {
        let key = (interface, address);
        if !self.known.contains_key(&key) {
            let confirmed = now - (REACHABLE + ASK_AGAIN);
            let old = Neighbour { mac: Some(mac), confirmed, asked: None, is_permanent: false };
            self.insert(key, old, now);
        }
    }

    /// The MAC address of a neighbour that a packet is for.
    pub fn resolve(&mut self, interface: usize, address: IpAddr, now: Time) -> Resolved {
        let key = (interface, address);
        if !self.known.contains_key(&key) {
            let asked = Neighbour { mac: None, confirmed: now, asked: None, is_permanent: false };
            self.insert(key, asked, now);
        }
        let Some(known) = self.known.get_mut(&key) else {
            return Resolved { mac: None, ask: false };
        };
        if known.is_permanent {
            return Resolved { mac: known.mac, ask: false };
        }
        let silent = now.since(known.confirmed);
        if silent > LAPSES {
            known.mac = None;
        }
        let is_due = known.asked.is_none_or(|asked| now.since(asked) >= ASK_AGAIN);
        let ask = is_due && (known.mac.is_none() || silent > REACHABLE);
        if ask {
            known.asked = Some(now);
        }
        Resolved { mac: known.mac, ask }
    }

    /// Forgets a neighbour; whoever needs it asks again.
    pub fn forget(&mut self, interface: usize, address: IpAddr) {
        let before = self.known.remove(&(interface, address));
        self.moved += u64::from(before.is_some_and(|before| before.mac.is_some()));
    }

    /// The MAC address of a neighbour, without asking for it.
    pub fn find(&self, interface: usize, address: IpAddr) -> Option<Mac> {
        self.known.get(&(interface, address))?.mac
    }

    /// How often an address has become known that was asked for.
    pub fn learned(&self) -> u64 {
        self.learned
    }

    /// How often one that was known had another address, or was forgotten.
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// How many are known.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether nobody is known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    fn insert(&mut self, key: (usize, IpAddr), neighbour: Neighbour, now: Time) {
        if self.known.len() >= self.most {
            // Those that do not answer go first: a scan of a whole network asks for thousands.
            let silent = |known: &Neighbour| !known.is_permanent && known.mac.is_none();
            self.known.retain(|_, known| !silent(known));
            if self.known.len() >= self.most {
                self.known
                    .retain(|_, known| known.is_permanent || now.since(known.confirmed) <= LAPSES);
            }
        }
        if self.known.len() < self.most {
            self.known.insert(key, neighbour);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asked_once_a_second_and_again_when_silent() {
        let mut neighbours = Neighbours::new(8, 0);
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        let at = Time::from_millis;
        let mut resolve = |ms| neighbours.resolve(0, address, at(ms));
        assert_eq!(resolve(0), Resolved { mac: None, ask: true });
        assert_eq!(resolve(500), Resolved { mac: None, ask: false });
        assert_eq!(resolve(1000), Resolved { mac: None, ask: true });
        neighbours.learn(0, address, [1; 6], false, at(1001));
        let mut resolve = |ms| neighbours.resolve(0, address, at(ms));
        assert_eq!(resolve(2000), Resolved { mac: Some([1; 6]), ask: false });
        assert_eq!(resolve(31_100), Resolved { mac: Some([1; 6]), ask: true });
        assert_eq!(resolve(91_100), Resolved { mac: None, ask: true });
    }

    /// A hint is no word of the neighbour itself, however often it comes.
    #[test]
    fn a_hint_fills_in_what_is_unknown_alone() {
        let mut neighbours = Neighbours::new(8, 0);
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        let at = |seconds: u64| Time::from_millis(100_000 + seconds * 1000);
        neighbours.hint(0, address, [1; 6], at(0));
        assert_eq!(
            neighbours.resolve(0, address, at(0)),
            Resolved { mac: Some([1; 6]), ask: true }
        );
        for seconds in 1..=100 {
            neighbours.hint(0, address, [1; 6], at(seconds));
            let mac = neighbours.resolve(0, address, at(seconds)).mac;
            assert_eq!(mac.is_some(), seconds < 60, "{seconds}");
        }
        neighbours.learn(0, address, [2; 6], false, at(100));
        neighbours.hint(0, address, [1; 6], at(100));
        let known = Resolved { mac: Some([2; 6]), ask: false };
        assert_eq!(neighbours.resolve(0, address, at(101)), known);
    }

    #[test]
    fn a_scan_pushes_out_nobody_who_answers() {
        let mut neighbours = Neighbours::new(8, 0);
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        neighbours.learn(0, address(1), [1; 6], true, Time::ZERO);
        neighbours.set(0, address(2), [2; 6]);
        for last in 3..=255 {
            neighbours.resolve(0, address(last), Time::ZERO);
            assert!(neighbours.len() <= 8);
        }
        assert_eq!(neighbours.resolve(0, address(1), Time::ZERO).mac, Some([1; 6]));
        assert_eq!(neighbours.resolve(0, address(2), Time::ZERO).mac, Some([2; 6]));
        neighbours.learn(0, address(9), [9; 6], false, Time::ZERO);
        assert_eq!(neighbours.resolve(0, address(77), Time::ZERO).mac, None);
    }
}
