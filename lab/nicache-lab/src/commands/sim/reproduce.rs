//! `nicache sim reproduce`: the papers' studies.

mod bos_fig4;
mod kim_fig3;
mod koch_table1;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use nicache_study::{Room, Workload};

use crate::cli::{SimReproduceArgs, StudyOption};
use crate::options::study::{RepliesOption, RoomOption, TraceOptions, UnitOption, VariantsOption, WorkloadOptions};
use crate::study::{input, output};

/// Repeats a study.
pub fn execute(arguments: &SimReproduceArgs) -> Result<ExitCode> {
    let (report, json) = match arguments.study {
        StudyOption::KimFig3 => kim_fig3::reproduce(&load_each(&arguments.traces, UnitOption::Blocks, Room::Bytes)?),
        StudyOption::BosFig4 => {
            let slots = Room::Slots(bos_fig4::SLOT_BYTES);
            bos_fig4::reproduce(&load_each(&arguments.traces, UnitOption::Objects, slots)?)
        }
        StudyOption::KochTable1 => koch_table1::reproduce(arguments.seeds)?,
    };
    output::write(&report, &json, &arguments.output)?;
    Ok(ExitCode::SUCCESS)
}

/// A trace of its own.
struct Named {
    name: String,
    workload: Workload,
}

/// Each request is one for a whole object that never changes, as in both papers.
fn load_each(traces: &[PathBuf], unit: UnitOption, room: Room) -> Result<Vec<Named>> {
    let load = |path: &PathBuf| {
        let options = TraceOptions { traces: vec![path.clone()], format: None, first: None, static_only: false };
        let workload = WorkloadOptions {
            unit: Some(unit),
            room: RoomOption(room),
            replies: RepliesOption::Whole,
            changes: Some(crate::options::study::ChangesOption::Never),
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
