//! Small places in the window, of equal size: for what is made for one connection, such as the head
//! of a reply.

use nicache_bus::{BusClass, Window};

use crate::mbuf::{Mbuf, Owner};

/// Bytes of a place.
pub const PLACE_BYTES: u64 = 512;

/// Small places in the window, of equal size, for what is made for one connection, such as the head
/// of a reply. A place is taken until the buffer that refers to it is [given back](Places::free).
#[derive(Debug)]
pub struct Places {
    mmaddr: u64,
    places: u32,
    free: Vec<u32>,
}

impl Places {
    /// So many places, from an address in the window on.
    pub fn new(mmaddr: u64, places: u32) -> Self {
        Self { mmaddr, places, free: (0..places).rev().collect() }
    }

    /// How many places there are.
    pub fn places(&self) -> usize {
        self.places as usize
    }

    /// Places that are free.
    pub fn free_places(&self) -> usize {
        self.free.len()
    }

    /// Writes bytes into a place. `None`: none is free, or there are more bytes than a place has.
    pub fn write(&mut self, bytes: &[u8], class: BusClass, window: &Window) -> Option<Mbuf> {
        if bytes.len() as u64 > PLACE_BYTES {
            return None;
        }
        let place = self.free.pop()?;
        let mmaddr = self.mmaddr + u64::from(place) * PLACE_BYTES;
        match window.write(mmaddr, bytes) {
            Ok(()) => Some(Mbuf::Bytes {
                mmaddr,
                len: bytes.len() as u32,
                class,
                owner: Owner::Place(place),
            }),
            Err(_) => {
                self.free.push(place);
                None
            }
        }
    }

    /// Nobody needs the place any longer.
    pub fn free(&mut self, place: u32) {
        debug_assert!(!self.free.contains(&place), "place {place} is free already");
        self.free.push(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back() {
        let window = Window::create("test", 4096).unwrap();
        let mut places = Places::new(1024, 2);
        let write = |places: &mut Places, text: &[u8]| {
            places.write(text, BusClass::ApplicationHeaders, &window)
        };
        let Some(Mbuf::Bytes { mmaddr, owner: Owner::Place(first), .. }) =
            write(&mut places, b"one")
        else {
            panic!()
        };
        assert!(
            mmaddr >= 1024
                && write(&mut places, b"two").is_some()
                && write(&mut places, b"three").is_none()
        );
        places.free(first);
        assert!(write(&mut places, &[0; 513]).is_none() && write(&mut places, &[0; 512]).is_some());
        assert_eq!(places.free_places(), 0);
    }
}
