//! `nicache trace convert`: a trace in another format.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use nicache_study::Workload;
use nicache_trace::{Format, KeyWriter, Record, TsvWriter, write_oracle_general};

use crate::cli::TraceConvertArgs;
use crate::study::input;

/// Reads and writes.
pub(super) fn execute(arguments: &TraceConvertArgs) -> Result<ExitCode> {
    let failed = || format!("cannot write {}", arguments.output.display());
    let written = match arguments.to {
        Format::OracleGeneral => {
            let loaded = input::load(&arguments.trace, &arguments.workload, None)?;
            let records: Vec<Record> = records(&loaded.workload).collect();
            let mut output = create(&arguments.output).with_context(failed)?;
            write_oracle_general(&mut output, &records)
                .and_then(|()| output.flush())
                .with_context(failed)?;
            records.len() as u64
        }
        Format::Keys => {
            let loaded = input::load(&arguments.trace, &arguments.workload, None)?;
            let mut writer = KeyWriter::new(create(&arguments.output).with_context(failed)?);
            for record in records(&loaded.workload) {
                writer.write(&record).with_context(failed)?;
            }
            writer.into_inner().flush().with_context(failed)?;
            loaded.workload.accesses.len() as u64
        }
        Format::Tsv => {
            let mut writer = TsvWriter::new(create(&arguments.output).with_context(failed)?)
                .with_context(failed)?;
            let mut written = 0;
            input::named_records(&arguments.trace, |record, target| {
                written += 1;
                writer.write(record, target).with_context(failed)
            })?;
            writer.into_inner().flush().with_context(failed)?;
            written
        }
        other => {
            bail!("nothing is written as {}; choose oracle-general, tsv or keys", other.name())
        }
    };
    eprintln!("{written} requests written to {}", arguments.output.display());
    Ok(ExitCode::SUCCESS)
}

/// What a cache is asked for: objects, or blocks, by number, and what each takes.
fn records(workload: &Workload) -> impl Iterator<Item = Record> {
    workload.accesses.iter().enumerate().map(|(at, access)| Record {
        time_us: u64::from(workload.seconds.get(at).copied().unwrap_or(0)) * 1_000_000,
        client: u64::from(workload.clients.get(at).copied().unwrap_or(0)),
        // 0 is not an object to some readers.
        object: u64::from(access.object()) + 1,
        bytes: Some(workload.room.of(access.bytes())),
        ..Record::default()
    })
}

fn create(path: &Path) -> std::io::Result<Box<dyn Write>> {
    Ok(if path == Path::new("-") {
        Box::new(BufWriter::new(std::io::stdout()))
    } else {
        Box::new(BufWriter::with_capacity(1 << 20, File::create(path)?))
    })
}
