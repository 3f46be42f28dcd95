//! `nicache sim reproduce`: the papers' studies.

mod bos_fig4;
mod kim_fig3;
mod koch_table1;
mod named;

use std::process::ExitCode;

use anyhow::Result;
use nicache_study::Room;

use crate::cli::{SimReproduceArgs, StudyOption};
use crate::options::study::UnitOption;
use crate::study::output;
use named::load_each;

/// Repeats a study.
pub(super) fn execute(arguments: &SimReproduceArgs) -> Result<ExitCode> {
    let (report, json) = match arguments.study {
        StudyOption::KimFig3 => {
            kim_fig3::reproduce(&load_each(&arguments.traces, UnitOption::Blocks, Room::Bytes)?)
        }
        StudyOption::BosFig4 => {
            let slots = Room::Slots(bos_fig4::SLOT_BYTES);
            bos_fig4::reproduce(&load_each(&arguments.traces, UnitOption::Objects, slots)?)
        }
        StudyOption::KochTable1 => koch_table1::reproduce(arguments.seeds)?,
    };
    output::write(&report, &json, &arguments.output)?;
    Ok(ExitCode::SUCCESS)
}
