//! What to measure.

use std::path::PathBuf;

use nicache_study::{PolicyName, Room};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// This program.
    pub nicache: PathBuf,
    /// libCacheSim's `cachesim`; None: nicache alone.
    pub peer: Option<PathBuf>,
    /// Requests of the trace.
    pub requests: u32,
    /// Objects that are asked for.
    pub objects: u32,
    /// Exponent of Zipf's law.
    pub exponent: f64,
    /// Objects that the caches hold.
    pub cache_objects: u32,
    /// How often everything is measured.
    pub rounds: u32,
    /// Folder for the trace (24 bytes for each request).
    pub folder: PathBuf,
    /// Which policies.
    pub policies: Vec<PolicyName>,
}

/// What an access is charged here.
pub(super) const ROOM: Room = Room::One;
