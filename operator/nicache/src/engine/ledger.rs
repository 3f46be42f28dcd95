//! The ledger of connections in memory that outlives the card's process.

use std::sync::Arc;

use nicache_bus::Window;
use nicache_card::{Ledger, Orphan, RECORD_BYTES};

/// Bytes for the flows of so many shards with so many connections each.
pub(crate) fn ledger_bytes(shards: u16, connections: u32) -> usize {
    usize::from(shards) * connections as usize * RECORD_BYTES
}

/// The connections that are written down in a ledger for the flows of so many shards, with so many
/// connections each.
pub(crate) fn orphans(
    window: &Window,
    shards: u16,
    connections: u32,
) -> impl Iterator<Item = Orphan> + '_ {
    let places = u64::from(shards) * u64::from(connections);
    (0..places).filter_map(|place| {
        let mut record = [0; RECORD_BYTES];
        window.read(place * RECORD_BYTES as u64, &mut record).ok()?;
        Orphan::decode(&record)
    })
}

/// One shard's part of it.
pub(crate) struct SharedLedger {
    window: Arc<Window>,
    begin: u64,
    connections: u32,
}

impl SharedLedger {
    /// The part of the ledger that belongs to the shard with this number, of shards with so many
    /// connections each.
    pub(crate) fn of(window: &Arc<Window>, shard: usize, connections: u32) -> Self {
        let begin = (shard * connections as usize * RECORD_BYTES) as u64;
        Self { window: Arc::clone(window), begin, connections }
    }

    /// What the card before has left behind. The ledger is empty afterwards.
    pub(crate) fn take(&mut self) -> Vec<Orphan> {
        let mut orphans = Vec::new();
        for place in 0..self.connections {
            let mut record = [0; RECORD_BYTES];
            if self.window.read(self.at(place), &mut record).is_ok() && record != [0; RECORD_BYTES]
            {
                orphans.extend(Orphan::decode(&record));
                self.write(place, &[0; RECORD_BYTES]);
            }
        }
        orphans
    }

    fn at(&self, place: u32) -> u64 {
        self.begin + u64::from(place) * RECORD_BYTES as u64
    }
}

impl Ledger for SharedLedger {
    fn write(&mut self, place: u32, record: &[u8; RECORD_BYTES]) {
        // A place outside would be a fault of the card; its connection is not reset then, which is
        // no worse than without a ledger.
        let _ = self.window.write(self.at(place), record);
    }
}
