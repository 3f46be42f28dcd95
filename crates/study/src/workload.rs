//! A trace in memory, made for being played back many times: objects have numbers in the order of their first
//! accesses, so that what a policy keeps of popular ones lies together.

use nicache_policy::Key;

use crate::{Access, Room};

/// The accesses of a trace.
#[derive(Clone, Debug)]
pub struct Workload {
    /// In the order of the trace.
    pub accesses: Vec<Access>,
    /// When each was, in seconds after the first; empty if the trace does not tell.
    pub seconds: Vec<u32>,
    /// Who asked, numbered in the order of first requests; empty if the trace does not tell.
    pub clients: Vec<u32>,
    /// Number of objects (or blocks): all numbers in the accesses are less.
    pub objects: u32,
    /// What an entry is charged.
    pub room: Room,
    /// So many of the first accesses fill the caches and are not counted.
    pub warm_up: usize,
}

impl Workload {
    /// Accesses without times and clients.
    pub fn of(accesses: Vec<Access>, room: Room) -> Workload {
        let objects = accesses.iter().map(|access| access.object() + 1).max().unwrap_or(0);
        Workload { accesses, seconds: Vec::new(), clients: Vec::new(), objects, room, warm_up: 0 }
    }

    /// The name of an object towards policies.
    #[inline]
    pub fn key(object: u32) -> Key {
        Key::nth(u64::from(object))
    }

    /// Room for each object at its largest, by number.
    pub(crate) fn rooms(&self, room_of: Room) -> Vec<u64> {
        if room_of == Room::One {
            return vec![1; self.objects as usize];
        }
        let mut rooms = vec![0; self.objects as usize];
        for access in self.accesses.iter().filter(|access| access.fills()) {
            let room: &mut u64 = &mut rooms[access.object() as usize];
            *room = room_of.of(access.bytes()).max(*room);
        }
        rooms
    }

    /// Room for all objects at their largest.
    pub fn footprint(&self) -> u64 {
        self.rooms(self.room).iter().sum()
    }

    /// Least room of each object, ascending: how many can be in a memory at once at most is found in it.
    pub fn least_rooms(&self) -> Vec<u64> {
        if self.room == Room::One {
            return vec![1; self.objects as usize];
        }
        let mut rooms = vec![u64::MAX; self.objects as usize];
        for access in self.accesses.iter().filter(|access| access.fills()) {
            let room: &mut u64 = &mut rooms[access.object() as usize];
            *room = self.room.of(access.bytes()).min(*room);
        }
        rooms.retain(|room| *room != u64::MAX);
        rooms.sort_unstable();
        rooms
    }
}

/// How many objects fit into a memory at most, of objects with these rooms (ascending).
pub fn objects_max(least_rooms: &[u64], memory: u64) -> u32 {
    let mut left = memory;
    let fit = least_rooms.iter().take_while(|room| {
        let fits = **room <= left;
        left = left.saturating_sub(**room);
        fits
    });
    fit.count() as u32
}
