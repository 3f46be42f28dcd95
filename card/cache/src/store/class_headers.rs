//! What clients of each class have said about themselves, so the card can ask for a page as
//! one of them would.

use nicache_http::{ClientClass, Trait, trait_lines};

use super::remembered::{Name, Remembered};
use super::who::Proxy;

/// Classes remembered.
const CLASSES_MAX: usize = 1024;
/// Longest header lines of one class, in bytes. The card does not send longer ones.
const LINES_BYTES_MAX: usize = 512;

#[derive(Clone, Copy, PartialEq)]
struct Class(Trait, u32);

impl Name for Class {
    fn hash(&self) -> u64 {
        // The class is a keyed hash.
        (u64::from(self.1) << 8 | self.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Header lines of one client of each class, and what it came through.
pub(super) struct ClassHeaders {
    lines: Remembered<Class, (Box<[u8]>, Proxy)>,
}

impl ClassHeaders {
    pub(super) fn new() -> Self {
        Self { lines: Remembered::new(CLASSES_MAX) }
    }

    /// A client of this class has sent a request with this head.
    pub(super) fn note(&mut self, class: ClientClass, head: &[u8], proxy: Proxy) {
        for of in Trait::ALL {
            let name = Class(of, class.of(of));
            if name.1 != 0 && self.lines.get(&name).is_none() {
                let lines = trait_lines(head, of);
                if lines.len() <= LINES_BYTES_MAX {
                    self.lines.get_or_insert(name, || (lines.into(), proxy));
                }
            }
        }
    }

    /// What a client of this class says about itself, as far as it is known: whole lines. And the
    /// proxy that it comes through.
    pub(super) fn of(&self, class: ClientClass) -> (Vec<u8>, Proxy) {
        let known = |of: Trait| self.lines.get(&Class(of, class.of(of)));
        let lines = Trait::ALL
            .into_iter()
            .filter_map(known)
            .flat_map(|(lines, _)| lines.iter().copied())
            .collect();
        (lines, known(Trait::Proxy).map(|(_, proxy)| *proxy).unwrap_or_default())
    }
}
