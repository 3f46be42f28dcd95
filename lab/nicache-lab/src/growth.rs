//! What a running nicache counts while something is tried.

use std::collections::BTreeMap;

use anyhow::Result;
use nicache::control::{Counters, Status, ask_server_status};

/// Growth of counters, by name.
pub(crate) type Grown = BTreeMap<String, u64>;

/// The counters of one nicache from a moment on.
pub(crate) struct Growth {
    name: String,
    pid: u32,
    before: Counters,
}

impl Growth {
    /// From now on. `name`: of which nicache; `None`: of the only one that runs a server.
    ///
    /// # Errors
    /// None runs, several do, or it does not answer.
    pub(crate) fn begin(name: Option<&str>) -> Result<Self> {
        let Status { name, pid, counters, .. } = ask_server_status(name)?;
        Ok(Self { name, pid, before: counters })
    }

    /// What was counted. `None`: it has ended, and one that has its name now counts its own.
    pub(crate) fn end(self) -> Option<Grown> {
        let now = ask_server_status(Some(&self.name)).ok()?;
        (now.pid == self.pid).then(|| now.counters.since(&self.before))
    }
}
