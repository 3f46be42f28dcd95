//! A trace in memory, made for being played back many times: objects have numbers in the order of
//! their first accesses, so what a policy keeps of popular ones lies together.

use nicache_policy::Key;

use crate::{Access, Counts, Room, Size};

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
    /// If it has the accesses of a sample of the objects only.
    pub sampled: Option<Sampled>,
}

/// The trace that a sample is of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampled {
    /// Share of the objects that is in the sample, 0 to 1.
    pub rate: f64,
    /// Requests of all objects.
    pub requests: u64,
    /// Bytes of all objects.
    pub bytes: u128,
}

impl Sampled {
    /// What a cache would do for all objects, where one of `rate` times its size does this for the
    /// sample: misses are scaled, because it is a few very popular objects, all of them hits, that
    /// make a sample have more or fewer requests than its share (`SHARDS_adj`, Waldspurger et al.
    /// 2015, section 4.4).
    ///
    /// `counted` is the share of the requests that are counted.
    pub(crate) fn scale(&self, counts: &Counts, counted: f64) -> Counts {
        let scaled = |count: u64| (count as f64 / self.rate).round() as u64;
        let requests = (self.requests as f64 * counted).round() as u64;
        let request_hits = requests.saturating_sub(scaled(counts.requests - counts.request_hits));
        let accesses =
            if counts.accesses == counts.requests { requests } else { scaled(counts.accesses) };
        let bytes = (self.bytes as f64 * counted) as u64;
        Counts {
            accesses,
            hits: accesses.saturating_sub(scaled(counts.accesses - counts.hits)),
            requests,
            request_hits,
            bytes,
            hit_bytes: bytes.saturating_sub(scaled(counts.bytes - counts.hit_bytes)),
            purged: scaled(counts.purged),
            evicted: scaled(counts.evicted),
        }
    }
}

impl Workload {
    /// Accesses without times and clients.
    pub fn of(accesses: Vec<Access>, room: Room) -> Self {
        let objects = accesses.iter().map(|access| access.object() + 1).max().unwrap_or(0);
        Self {
            accesses,
            seconds: Vec::new(),
            clients: Vec::new(),
            objects,
            room,
            warm_up: 0,
            sampled: None,
        }
    }

    /// The name of an object towards policies.
    #[inline]
    pub fn key(object: u32) -> Key {
        Key::nth(u64::from(object))
    }

    /// Whether Belady's choice has the fewest misses here, so it is a bound: all objects take
    /// the same room and never change, each reply can become an entry, and each request is one
    /// access.
    pub fn has_optimum(&self) -> bool {
        let room = self.accesses.first().map_or(0, |access| self.room.of(access.bytes()));
        self.accesses.iter().all(|access| {
            self.room.of(access.bytes()) == room
                && !access.is_changed()
                && access.fills()
                && access.ends_request()
        })
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

    /// Room for all objects at their largest; of a sample, an estimate of it.
    pub fn footprint(&self) -> u64 {
        let sum: u64 = self.rooms(self.room).iter().sum();
        self.sampled.map_or(sum, |sampled| (sum as f64 / sampled.rate) as u64)
    }

    /// Number of all objects; of a sample, an estimate of it.
    pub fn objects_in_all(&self) -> u64 {
        self.sampled.map_or_else(
            || u64::from(self.objects),
            |sampled| (f64::from(self.objects) / sampled.rate) as u64,
        )
    }

    /// Least room of each object, ascending: how many can be in a memory at once at most is found
    /// in it.
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

/// The memory that does for a sample what one of this size does for all.
pub(crate) fn sampled_memory(workload: &Workload, size: Size) -> u64 {
    workload
        .sampled
        .map_or(size.0, |sampled| ((size.0 as f64 * sampled.rate).round() as u64).max(1))
}
