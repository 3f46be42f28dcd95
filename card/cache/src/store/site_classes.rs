//! What kinds of clients come to a site: as these the card asks for a page before the first of them
//! comes to it.
//!
//! Only clients count whom the server has given a page that is shared, and of whose class two have
//! come lately.

use std::time::Duration;

use nicache_http::{ClientClass, Trait};
use nicache_tcp::Time;

/// Sites that are told apart, by the host that requests name.
const SITES_MAX: usize = 16;
/// Classes remembered for each site in each trait.
const CLASSES_MAX: usize = 8;
/// A class comes to a site if so many of it have come, the last of them within this time.
const VISITS_MIN: u32 = 2;
const LATELY: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Debug)]
struct SiteClass {
    class: u32,
    visits: u32,
    last: Time,
}

impl SiteClass {
    fn comes(&self, now: Time) -> bool {
        self.visits >= VISITS_MIN && now < self.last + LATELY
    }
}

/// The classes that come to one site.
#[derive(Debug, Default)]
pub(super) struct SiteClasses {
    of: [Vec<SiteClass>; Trait::ALL.len()],
}

impl SiteClasses {
    /// The server has given a client of this class a page.
    fn note(&mut self, class: ClientClass, now: Time) {
        for of in Trait::ALL {
            let (class, known) = (class.of(of), &mut self.of[of as usize]);
            if let Some(known_class) =
                known.iter_mut().find(|known_class| known_class.class == class)
            {
                (known_class.visits, known_class.last) =
                    (known_class.visits.saturating_add(1), now);
                continue;
            }
            if known.len() == CLASSES_MAX {
                // Those that come are the last to go.
                let Some(place) =
                    (0..CLASSES_MAX).min_by_key(|at| (known[*at].comes(now), known[*at].last))
                else {
                    continue;
                };
                known.swap_remove(place);
            }
            known.push(SiteClass { class, visits: 1, last: now });
        }
    }

    /// The part of those who come that is of this class, in thousandths, by whom the server has
    /// given a page; all of them, if nothing is known.
    pub(super) fn share(&self, of: Trait, class: u32, now: Time) -> u64 {
        let visits = |known_class: &SiteClass| u64::from(known_class.visits);
        let coming = || self.of[of as usize].iter().filter(|known_class| known_class.comes(now));
        let own = coming().find(|known_class| known_class.class == class).map_or(1, visits);
        1000 * own / coming().map(visits).sum::<u64>().max(own)
    }

    /// The classes that come, in one trait.
    pub(super) fn of(&self, of: Trait, now: Time) -> impl Iterator<Item = u32> {
        self.of[of as usize]
            .iter()
            .filter(move |known_class| known_class.comes(now))
            .map(|known_class| known_class.class)
    }
}

/// Which classes of clients come to each site, by its host name.
#[derive(Debug, Default)]
pub(super) struct Sites {
    /// The one that was noted last is the last.
    sites: Vec<(Box<[u8]>, SiteClasses)>,
    nobody: SiteClasses,
}

impl Sites {
    /// The server has given a client of this class a page of this host.
    pub(super) fn note(&mut self, host: &[u8], class: ClientClass, now: Time) {
        let (name, mut site_classes) = match self.sites.iter().position(|(name, _)| **name == *host)
        {
            Some(at) => self.sites.remove(at),
            None => (host.into(), SiteClasses::default()),
        };
        if self.sites.len() == SITES_MAX {
            self.sites.remove(0);
        }
        site_classes.note(class, now);
        self.sites.push((name, site_classes));
    }

    /// Who comes to a site.
    pub(super) fn of(&self, host: &[u8]) -> &SiteClasses {
        self.sites
            .iter()
            .find(|(name, _)| **name == *host)
            .map_or(&self.nobody, |(_, site_classes)| site_classes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn class(agent: u32) -> ClientClass {
        let mut class = ClientClass::default();
        class.0[Trait::Agent as usize] = agent;
        class
    }

    fn agents(sites: &Sites, host: &[u8], now: Time) -> Vec<u32> {
        let mut found: Vec<u32> = sites.of(host).of(Trait::Agent, now).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn who_has_come_twice_comes() {
        let mut sites = Sites::default();
        sites.note(b"a", class(1), at(1));
        assert_eq!(agents(&sites, b"a", at(1)), []);
        sites.note(b"a", class(1), at(2));
        sites.note(b"b", class(2), at(2));
        sites.note(b"b", class(2), at(3));
        assert_eq!((agents(&sites, b"a", at(3)), agents(&sites, b"b", at(3))), (vec![1], vec![2]));
        assert_eq!(agents(&sites, b"a", at(2) + LATELY), [], "it no longer comes");
        assert_eq!(agents(&sites, b"c", at(3)), []);
    }

    #[test]
    fn many_who_come_once_drive_nobody_out() {
        let mut sites = Sites::default();
        for agent in [7, 8, 7, 8] {
            sites.note(b"a", class(agent), at(1));
        }
        for number in 100..1000 {
            sites.note(b"a", class(number), at(2));
            sites.note(format!("host-{}", number % 12).as_bytes(), class(number), at(2));
            assert!(
                sites.sites.len() <= SITES_MAX
                    && sites.of(b"a").of[Trait::Agent as usize].len() <= CLASSES_MAX
            );
        }
        assert_eq!(agents(&sites, b"a", at(3)), [7, 8]);
    }
}
