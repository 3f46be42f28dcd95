//! What the programs are told, and what they tell.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nicache_forward::fast_path::{Arrival, FastPath, Numbers, Passed, Way};
use nicache_tcp::Time;
use serde::{Deserialize, Serialize};

use crate::error::FastPathError;
use crate::layout::{self, Interface, LAYOUT, NUMBERS_BYTES, PASSED_BYTES};

/// The kernel empties the map of its owner a moment after the one before has ended: looked for so
/// often, and with so long between.
const EMPTIED_TRIES: u32 = 1000;
const EMPTIED_STEP: Duration = Duration::from_millis(1);

/// The kernel's numbers of the maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handles {
    /// How keys and values look: [`LAYOUT`].
    pub(crate) layout: u32,
    pub(crate) connections: u32,
    pub(crate) ways: u32,
    pub(crate) numbers: u32,
    pub(crate) told: u32,
    pub(crate) passed: u32,
    pub(crate) control: u32,
    pub(crate) unsent: u32,
    pub(crate) owner: u32,
}

/// The maps. When this is dropped, or its process ends in whatever way, nothing is forwarded by
/// what it has entered.
#[derive(Debug)]
pub struct Maps {
    connections: u32,
    /// How often each place was told something, so the program takes it in once.
    tellings: Box<[u32]>,
    interfaces: Vec<Option<Interface>>,
    ways: MapHandle,
    numbers: MapHandle,
    /// Written here alone, as the one above is by the program alone once a place is begun.
    told: MapHandle,
    passed: MapHandle,
    control: MapHandle,
    unsent: MapHandle,
    /// Dropped with the value: the kernel empties it then.
    owner: MapHandle,
    take: OwnedFd,
}

impl Maps {
    /// Opens the maps, which have no entry then. `take` came with the handles. `interfaces`: the
    /// kernel's number and the VLAN of each one of the forwarder's, in their order; `None` for one
    /// by which nothing is forwarded in the kernel.
    ///
    /// # Errors
    /// See [`FastPathError`].
    pub fn open(
        handles: &Handles,
        take: OwnedFd,
        interfaces: impl IntoIterator<Item = Option<(u32, Option<u16>)>>,
    ) -> Result<Self, FastPathError> {
        if handles.layout != LAYOUT {
            return Err(FastPathError::Layout);
        }
        let open =
            |id: u32| MapHandle::from_map_id(id).map_err(step("opening a map of the fast path"));
        let interface = |known: Option<(u32, Option<u16>)>| {
            known.map(|(index, vlan)| Interface { index, vlan: vlan.unwrap_or(0) })
        };
        let maps = Self {
            connections: handles.connections,
            tellings: vec![0; handles.connections as usize].into(),
            interfaces: interfaces.into_iter().map(interface).collect(),
            ways: open(handles.ways)?,
            numbers: open(handles.numbers)?,
            told: open(handles.told)?,
            passed: open(handles.passed)?,
            control: open(handles.control)?,
            unsent: open(handles.unsent)?,
            owner: open(handles.owner)?,
            take,
        };
        // What is there will be removed: by whom has it still, if that takes longer.
        for _ in 0..EMPTIED_TRIES {
            if !maps.is_owned().map_err(|error| FastPathError::Io { step: BEGINNING, error })? {
                break;
            }
            std::thread::sleep(EMPTIED_STEP);
        }
        // What another process has left is gone before anything is reached again.
        let left: Vec<Vec<u8>> = maps.ways.keys().collect();
        for key in left {
            maps.ways.delete(&key).map_err(step("emptying a map of the fast path"))?;
        }
        maps.set(&maps.control, 0, &[0; 16])
            .map_err(|error| FastPathError::Io { step: "voiding all ways", error })?;
        maps.own().map_err(|error| FastPathError::Io { step: BEGINNING, error })?;
        Ok(maps)
    }

    /// Does the first program lead to the next one?
    fn is_owned(&self) -> io::Result<bool> {
        let mut id = [0; 4];
        self.owner
            .lookup_into(&0u32.to_ne_bytes(), &mut id, MapFlags::ANY)
            .map_err(io::Error::other)
    }

    fn own(&self) -> io::Result<()> {
        self.set(&self.owner, 0, &self.take.as_raw_fd().to_ne_bytes())
    }

    fn next_telling(&mut self, place: u32) -> io::Result<u32> {
        let telling = self.tellings.get_mut(place as usize).ok_or(io::ErrorKind::NotFound)?;
        *telling = telling.wrapping_add(1);
        Ok(*telling)
    }

    fn set(&self, map: &MapHandle, place: u32, value: &[u8]) -> io::Result<()> {
        map.update(&place.to_ne_bytes(), value, MapFlags::ANY).map_err(io::Error::other)
    }

    fn get<const LEN: usize>(&self, map: &MapHandle, place: u32) -> io::Result<[u8; LEN]> {
        let mut value = [0; LEN];
        let there = map
            .lookup_into(&place.to_ne_bytes(), &mut value, MapFlags::ANY)
            .map_err(io::Error::other)?;
        if there { Ok(value) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn key(&self, arrival: &Arrival) -> io::Result<[u8; layout::KEY_BYTES]> {
        Ok(layout::key(self.interface(arrival.interface)?, &arrival.tuple))
    }

    fn interface(&self, number: usize) -> io::Result<Interface> {
        self.interfaces.get(number).copied().flatten().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl FastPath for Maps {
    fn places(&self) -> u32 {
        self.connections
    }

    fn has(&self, interface: usize) -> bool {
        self.interface(interface).is_ok()
    }

    fn begin(&mut self, place: u32, numbers: Option<[Numbers; 2]>) -> io::Result<()> {
        self.set(&self.passed, place, &[0; PASSED_BYTES])?;
        let telling = self.next_telling(place)?;
        let numbers =
            numbers.map_or([0; NUMBERS_BYTES], |numbers| layout::numbers(numbers, telling));
        self.set(&self.told, place, &numbers)?;
        self.set(&self.numbers, place, &numbers)
    }

    fn enter(&mut self, arrival: &Arrival, way: &Way) -> io::Result<()> {
        let value = layout::way(way, &arrival.tuple, self.interface(way.interface)?);
        self.ways.update(&self.key(arrival)?, &value, MapFlags::ANY).map_err(io::Error::other)
    }

    fn leave(&mut self, arrival: &Arrival) -> io::Result<()> {
        self.ways.delete(&self.key(arrival)?).map_err(io::Error::other)
    }

    fn look(&mut self, place: u32) -> io::Result<([Numbers; 2], [Passed; 2])> {
        let odd = || io::Error::from(io::ErrorKind::InvalidData);
        let numbers = layout::read_numbers(&self.get::<NUMBERS_BYTES>(&self.numbers, place)?)
            .ok_or_else(odd)?;
        let passed =
            layout::read_passed(&self.get::<PASSED_BYTES>(&self.passed, place)?).ok_or_else(odd)?;
        Ok((numbers, passed))
    }

    fn tell(&mut self, place: u32, numbers: [Numbers; 2]) -> io::Result<()> {
        let telling = self.next_telling(place)?;
        self.set(&self.told, place, &layout::numbers(numbers, telling))
    }

    fn keep(&mut self, edition: u32, until: Time) -> io::Result<()> {
        let mut value = [0; 16];
        value[..8].copy_from_slice(&until.0.to_ne_bytes());
        value[8..12].copy_from_slice(&edition.to_ne_bytes());
        self.set(&self.control, 0, &value)?;
        // The kernel has emptied it later than was waited for.
        if self.is_owned()? { Ok(()) } else { self.own() }
    }

    fn unsent(&self) -> u64 {
        self.get::<8>(&self.unsent, 0).map_or(0, u64::from_ne_bytes)
    }
}

const BEGINNING: &str = "beginning with the fast path";

fn step(step: &'static str) -> impl Fn(libbpf_rs::Error) -> FastPathError {
    move |error| FastPathError::Io { step, error: io::Error::other(format!("{error:#}")) }
}

#[cfg(test)]
mod tests {
    use nicache_namespaces::Namespace;
    use nicache_tcp::Seq;

    use super::*;
    use crate::Programs;

    /// The kernel empties the map some time after the forwarder before has ended.
    #[test]
    fn what_the_one_before_has_left_is_not_taken_from_the_next_one() {
        let Some(namespace) = Namespace::new() else { return };
        namespace.run(|| {
            let programs = Programs::load(4).unwrap();
            let (handles, take) = programs.handles();
            let open = || Maps::open(&handles, take.try_clone_to_owned().unwrap(), []).unwrap();
            for round in 0..100 {
                drop(open());
                let maps = open();
                std::thread::sleep(Duration::from_millis(2));
                assert!(maps.is_owned().unwrap(), "round {round}");
            }
            // And the last one leaves nothing by which anything would be forwarded.
            let owner = MapHandle::from_map_id(handles.owner).unwrap();
            let leads = || owner.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).unwrap().is_some();
            let begun = std::time::Instant::now();
            while leads() {
                assert!(begun.elapsed() < Duration::from_secs(60));
                std::thread::sleep(EMPTIED_STEP);
            }
        });
    }

    /// One that was emptied even later leads there again.
    #[test]
    fn the_next_sweep_repairs_what_was_emptied() {
        let Some(namespace) = Namespace::new() else { return };
        let mut maps = namespace.run(|| {
            let programs = Programs::load(4).unwrap();
            let (handles, take) = programs.handles();
            Maps::open(&handles, take.try_clone_to_owned().unwrap(), []).unwrap()
        });
        maps.owner.delete(&0u32.to_ne_bytes()).unwrap();
        assert!(!maps.is_owned().unwrap());
        maps.keep(1, Time(1)).unwrap();
        assert!(maps.is_owned().unwrap());
    }

    /// Packets go on being forwarded while one is judged up here, and what was seen of them stays.
    #[test]
    fn what_is_told_is_not_written_over_what_was_seen() {
        let Some(namespace) = Namespace::new() else { return };
        let mut maps = namespace.run(|| {
            let programs = Programs::load(4).unwrap();
            let (handles, take) = programs.handles();
            Maps::open(&handles, take.try_clone_to_owned().unwrap(), []).unwrap()
        });
        let numbers = |end: u32| {
            let end = Seq(end);
            [Numbers { end, max_end: end + 9, max_window: 9, acked: end, scale: 0 }; 2]
        };
        maps.begin(3, Some(numbers(100))).unwrap();
        assert_eq!(maps.look(3).unwrap().0, numbers(100));
        // As the program does.
        maps.set(&maps.numbers, 3, &layout::numbers(numbers(500), 1)).unwrap();
        maps.tell(3, numbers(200)).unwrap();
        assert_eq!(maps.look(3).unwrap().0, numbers(500));
        // The place is another connection's.
        maps.begin(3, Some(numbers(50))).unwrap();
        assert_eq!(maps.look(3).unwrap().0, numbers(50));
        for map in [&maps.told, &maps.numbers] {
            assert_eq!(maps.get(map, 3).unwrap(), layout::numbers(numbers(50), 3));
        }
    }
}
