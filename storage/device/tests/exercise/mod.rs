//! What the fuzz targets do with an input.

use nicache_device::Superblock;

/// The beginning of a unit: whatever is accepted fits the unit.
pub(crate) fn superblock(bytes: &[u8]) {
    if let Ok(superblock) = Superblock::parse(bytes) {
        assert!(superblock.check(0).is_err(), "nothing fits an empty unit");
        let _ = superblock.check(u64::MAX);
    }
}
