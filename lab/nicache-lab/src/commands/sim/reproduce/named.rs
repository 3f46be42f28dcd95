//! Traces that a paper looks at one by one.

use std::path::PathBuf;

use anyhow::Result;
use nicache_study::{Room, Workload};

use crate::options::study::{
    ChangesOption, RepliesOption, RoomOption, TraceOptions, UnitOption, VariantsOption,
    WorkloadOptions,
};
use crate::study::input;

/// A trace of its own.
pub(super) struct Named {
    pub name: String,
    pub workload: Workload,
}

/// Each request is one for a whole object that never changes, as in both papers.
pub(super) fn load_each(traces: &[PathBuf], unit: UnitOption, room: Room) -> Result<Vec<Named>> {
    let load = |path: &PathBuf| {
        let options = TraceOptions {
            traces: vec![path.clone()],
            format: None,
            first: None,
            static_only: false,
        };
        let workload = WorkloadOptions {
            unit: Some(unit),
            room: RoomOption(room),
            replies: RepliesOption::Whole,
            changes: Some(ChangesOption::Never),
            variants: VariantsOption::None,
            writes: None,
            warm_up: 0.0,
        };
        let loaded = input::load(&options, &workload, None)?;
        Ok(Named { name: short(&loaded.read.traces.join(", ")), workload: loaded.workload })
    };
    traces.iter().map(load).collect()
}

/// A name without what tells how a file is packed and that it is a text.
fn short(name: &str) -> String {
    let mut name = name;
    for ending in [".zst", ".gz", ".txt", ".tsv", ".csv", ".log"] {
        name = name.strip_suffix(ending).unwrap_or(name);
    }
    name.to_owned()
}
