//! A list of objects that knows their bytes.
//!
//! What the policies of queues keep of an object takes 20 bytes, so a node of the table takes
//! 32 and two of them a cache line: a simulation spends its time waiting for those.

use crate::{Linked, Links, List, Place, Table};

/// Where an object is, in policies of several queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Home {
    /// In memory, on its first visit.
    #[default]
    First,
    /// In memory, known to be wanted again.
    Main,
    /// Not in memory, remembered.
    Ghost,
    /// A ghost that is coming back: room is being made for it.
    Returning,
}

/// An object in memory, or a ghost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Object {
    links: Links,
    /// Low half, high half. As one number they would align the node to 8 bytes: 40 in place of 32.
    bytes: [u32; 2],
    /// Where it is.
    pub home: Home,
    /// Uses that count, as far as the policy counts.
    pub uses: u8,
}

impl Object {
    /// One of no uses, in the first queue.
    #[inline]
    pub fn new(bytes: u64) -> Self {
        Self { bytes: [bytes as u32, (bytes >> 32) as u32], ..Self::default() }
    }

    /// Bytes of the object.
    #[inline]
    pub fn bytes(&self) -> u64 {
        u64::from(self.bytes[0]) | u64::from(self.bytes[1]) << 32
    }
}

impl Linked for Object {
    #[inline]
    fn links(&self) -> &Links {
        &self.links
    }
    #[inline]
    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// The queue. New objects come in front. Sums of bytes wrap: senseless sizes do no harm beyond
/// their stay.
#[derive(Debug, Default)]
pub struct Queue {
    list: List,
    bytes: u64,
}

impl Queue {
    /// Objects in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Bytes of the objects in it.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The first object.
    #[inline]
    pub fn front(&self) -> Option<Place> {
        self.list.front()
    }

    /// The last object.
    #[inline]
    pub fn back(&self) -> Option<Place> {
        self.list.back()
    }

    /// Puts an object that is in no queue in front.
    #[inline]
    pub fn push_front(&mut self, table: &mut Table<Object>, place: Place) {
        self.bytes = self.bytes.wrapping_add(table.get(place).bytes());
        self.list.push_front(table, place);
    }

    /// Takes an object out that is in this queue.
    #[inline]
    pub fn remove(&mut self, table: &mut Table<Object>, place: Place) {
        self.bytes = self.bytes.wrapping_sub(table.get(place).bytes());
        self.list.remove(table, place);
    }

    /// Puts an object that is in this queue in front.
    #[inline]
    pub fn move_to_front(&mut self, table: &mut Table<Object>, place: Place) {
        self.list.move_to_front(table, place);
    }

    /// Gives an object that is in this queue a new size.
    pub fn resize(&mut self, table: &mut Table<Object>, place: Place, bytes: u64) {
        let object = table.get_mut(place);
        self.bytes = self.bytes.wrapping_sub(object.bytes()).wrapping_add(bytes);
        object.bytes = Object::new(bytes).bytes;
    }
}
