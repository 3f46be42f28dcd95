//! The MAC addresses of those on our links (RFC 826, RFC 4861 section 7.3).
//!
//! Whoever is asked for is asked again while traffic for it comes, once a second, and after half a
//! minute without a word from it.
//!
//! A known neighbour with another MAC address counts at once, but what is said within a second
//! after that, by whomever, counts at the end of it: whoever changes its address all the time keeps
//! nobody busy.

use std::net::IpAddr;
use std::time::Duration;

use arrayvec::ArrayVec;
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
/// Between two changes of MAC addresses that were known.
const MOVE_AGAIN: Duration = Duration::from_secs(1);
/// Neighbours that are told one by one.
const MOVED_MAX: usize = 16;

/// Neighbours with another MAC address than before, and those that were forgotten.
#[derive(Clone, Debug, Default)]
pub struct Moved {
    /// Each with its interface.
    pub who: ArrayVec<(usize, IpAddr), MOVED_MAX>,
    /// There are more of them.
    pub are_more: bool,
    /// When the last one was.
    pub at: Time,
}

impl Moved {
    /// Whether there is nobody.
    pub fn is_empty(&self) -> bool {
        self.who.is_empty() && !self.are_more
    }

    fn add(&mut self, key: (usize, IpAddr), now: Time) {
        self.at = now;
        self.are_more |= !self.who.contains(&key) && self.who.try_push(key).is_err();
    }
}

#[derive(Clone, Copy, Debug)]
struct Neighbour {
    mac: Option<Mac>,
    /// The last one that it had, if it is silent for too long to have one now.
    before: Option<Mac>,
    /// Another one that it has told, and when: it does not count yet.
    told: Option<(Mac, Time)>,
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
    moved: Moved,
    /// When a known one has last changed.
    changed: Option<Time>,
    /// Some have told what does not count yet.
    is_any_told: bool,
    /// Some that had one made room for others, which does not count yet.
    is_any_lost: bool,
}

impl Neighbour {
    fn new(mac: Option<Mac>, confirmed: Time) -> Self {
        Self { mac, before: None, told: None, confirmed, asked: None, is_permanent: false }
    }
}

impl Neighbours {
    /// Nobody is known; so many may be.
    pub fn new(most: usize, seed: u64) -> Self {
        let known =
            HashMap::with_capacity_and_hasher(most, foldhash::fast::FixedState::with_seed(seed));
        Self {
            known,
            most,
            learned: 0,
            moved: Moved::default(),
            changed: None,
            is_any_told: false,
            is_any_lost: false,
        }
    }

    /// A neighbour that is known for good.
    pub fn set(&mut self, interface: usize, address: IpAddr, mac: Mac) {
        let neighbour = Neighbour { is_permanent: true, ..Neighbour::new(Some(mac), Time::ZERO) };
        let before = self.known.insert((interface, address), neighbour);
        let before = before.and_then(|before| before.mac.or(before.before));
        self.moved.are_more |= before.is_some_and(|before| before != mac);
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
        self.settle(now);
        let may_move = self.may_move(now);
        let (key, fresh) = ((interface, address), Neighbour::new(Some(mac), now));
        match self.known.get_mut(&key) {
            Some(known) if known.is_permanent => {}
            Some(known) => {
                let is_moved = known.mac.or(known.before).is_some_and(|before| before != mac);
                if is_moved && !may_move {
                    known.told = Some((mac, now));
                    self.is_any_told = true;
                    return;
                }
                self.learned += u64::from(known.mac != Some(mac));
                *known = fresh;
                if is_moved {
                    self.moved.add(key, now);
                    self.changed = Some(now);
                }
            }
            None if is_to_us => self.insert(key, fresh, now),
            None => {}
        }
    }

    /// What was too soon after another change counts, if it is time. To be called about once a
    /// second.
    pub fn settle(&mut self, now: Time) {
        if !(self.is_any_told || self.is_any_lost) || !self.may_move(now) {
            return;
        }
        self.moved.are_more |= self.is_any_lost;
        (self.is_any_told, self.is_any_lost) = (false, false);
        self.changed = Some(now);
        for (key, known) in &mut self.known {
            let Some((mac, at)) = known.told.take() else { continue };
            self.learned += u64::from(known.mac != Some(mac));
            *known = Neighbour::new(Some(mac), at);
            self.moved.add(*key, now);
        }
    }

    fn may_move(&self, now: Time) -> bool {
        self.changed.is_none_or(|changed| now.since(changed) >= MOVE_AGAIN)
    }

    /// Somebody else on this machine has heard of a neighbour, some time ago. That counts only if
    /// nothing is known, and whoever needs it asks.
    pub fn hint(&mut self, interface: usize, address: IpAddr, mac: Mac, now: Time) {
        let key = (interface, address);
        if !self.known.contains_key(&key) {
            let confirmed = now - (REACHABLE + ASK_AGAIN);
            self.insert(key, Neighbour::new(Some(mac), confirmed), now);
        }
    }

    /// The MAC address of a neighbour that a packet is for.
    pub fn resolve(&mut self, interface: usize, address: IpAddr, now: Time) -> Resolved {
        let key = (interface, address);
        if !self.known.contains_key(&key) {
            self.insert(key, Neighbour::new(None, now), now);
        }
        let Some(known) = self.known.get_mut(&key) else {
            return Resolved { mac: None, ask: false };
        };
        if known.is_permanent {
            return Resolved { mac: known.mac, ask: false };
        }
        let silent = now.since(known.confirmed);
        if silent > LAPSES {
            known.before = known.mac.take().or(known.before);
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
        self.moved.are_more |= before.is_some_and(|before| before.mac.or(before.before).is_some());
    }

    /// The MAC address of a neighbour, without asking for it.
    pub fn find(&self, interface: usize, address: IpAddr) -> Option<Mac> {
        self.known.get(&(interface, address))?.mac
    }

    /// How often an address has become known that was asked for.
    pub fn learned(&self) -> u64 {
        self.learned
    }

    /// Who has moved since the last call.
    pub fn take_moved(&mut self) -> Moved {
        std::mem::take(&mut self.moved)
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
            self.forget_those(silent);
            if self.known.len() >= self.most {
                let lapsed =
                    |known: &Neighbour| !known.is_permanent && now.since(known.confirmed) > LAPSES;
                self.forget_those(lapsed);
            }
        }
        if self.known.len() < self.most {
            self.known.insert(key, neighbour);
        }
    }

    fn forget_those(&mut self, goes: impl Fn(&Neighbour) -> bool) {
        let mut had_mac = false;
        self.known.retain(|_, known| {
            let goes = goes(known);
            had_mac |= goes && known.mac.or(known.before).is_some();
            !goes
        });
        self.is_any_lost |= had_mac;
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

    /// A hint does not come from the neighbour itself, however often it comes.
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

    /// A host that says another MAC address all the time is heard once a second, and so is everyone
    /// who moves meanwhile; what was said last counts then.
    #[test]
    fn who_moves_all_the_time_is_heard_once_a_second() {
        let mut neighbours = Neighbours::new(8, 0);
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let at = Time::from_millis;
        for last in [1, 2] {
            neighbours.learn(0, address(last), [last; 6], true, at(0));
        }
        assert!(neighbours.take_moved().is_empty(), "nobody knew them");
        let mut heard = 0;
        for ms in 1..=5000 {
            let mac = [16 + (ms % 7) as u8; 6];
            neighbours.learn(0, address(1), mac, false, at(ms));
            let moved = neighbours.take_moved();
            assert!(!moved.are_more && moved.who.iter().all(|who| *who == (0, address(1))));
            heard += moved.who.len();
        }
        assert!((5..=6).contains(&heard), "{heard}");
        // Somebody else moves, and is heard when the second is over, though nobody says it again.
        neighbours.learn(0, address(2), [9; 6], false, at(5000));
        assert_eq!(neighbours.find(0, address(2)), Some([2; 6]));
        neighbours.settle(at(5000));
        assert!(neighbours.take_moved().is_empty());
        neighbours.settle(at(5001));
        assert_eq!(neighbours.find(0, address(2)), Some([9; 6]));
        assert!(neighbours.take_moved().who.contains(&(0, address(2))));
        // One that says its address again has not moved.
        neighbours.learn(0, address(2), [8; 6], false, at(5002));
        neighbours.learn(0, address(2), [9; 6], false, at(5003));
        neighbours.settle(at(8000));
        assert_eq!(neighbours.find(0, address(2)), Some([9; 6]));
    }

    /// One that was silent, and comes back with another MAC address, has moved: ways to its old one
    /// may still be in use.
    #[test]
    fn who_comes_back_with_another_address_has_moved() {
        let mut neighbours = Neighbours::new(8, 0);
        let address = IpAddr::from([10, 0, 0, 1]);
        let mut comes_back = |mac: u8, seconds: u64| {
            let now = Time::from_millis(seconds * 1000);
            let resolved = neighbours.resolve(0, address, now);
            neighbours.learn(0, address, [mac; 6], true, now);
            (resolved.mac, neighbours.take_moved().who.len())
        };
        assert_eq!(comes_back(1, 0), (None, 0));
        assert_eq!(comes_back(1, 100), (None, 0));
        assert_eq!(comes_back(2, 200), (None, 1));
    }
}
