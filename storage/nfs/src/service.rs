//! What all connections share.

use std::sync::{Arc, Mutex};

use nicache_payload::Payload;

use crate::chunk::ChunkPool;
use crate::client::ClientRule;
use crate::export::Export;
use crate::handle::{ExportId, HandleKey};
use crate::mounts::Mounts;
use crate::node::Nodes;
use crate::portmap::Mapping;

/// The exports, their open files, and where payload comes from.
pub(crate) struct Service {
    /// What is exported.
    pub exports: Vec<Export>,
    /// Files that are open.
    pub nodes: Nodes,
    /// What handles are proven with.
    pub key: HandleKey,
    /// Where payload comes from and goes.
    pub payload: Arc<dyn Payload>,
    /// Memory for received payload.
    pub chunks: Arc<ChunkPool>,
    /// Who has mounted what, as far as anybody said so.
    pub mounts: Mutex<Mounts>,
    /// What the port mapper answers.
    pub mappings: Vec<Mapping>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("exports", &self.exports).finish_non_exhaustive()
    }
}

impl Service {
    /// The export of a handle, and its place.
    #[must_use]
    pub(crate) fn export(&self, id: ExportId) -> Option<(usize, &Export)> {
        self.exports.iter().enumerate().find(|(_, export)| export.id == id)
    }
}

/// Which of the exports a client may use, and how: a rule or none for each.
pub(crate) type ClientRules = Box<[Option<ClientRule>]>;
