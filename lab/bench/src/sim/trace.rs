//! The trace: independent requests by Zipf's law, as a file for both programs and in memory for the
//! loops.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use nicache_study::{Access, Workload};

use super::plan::{Plan, ROOM};

/// Requests in a second of the trace.
const PER_SECOND: u64 = 2000;

/// Writes the file, and gives the same as a workload.
pub(super) fn make(plan: &Plan, path: &Path) -> Result<Workload> {
    let mut total = 0.0;
    let cumulated: Vec<f64> = (1..=plan.objects)
        .map(|rank| {
            total += f64::from(rank).powf(-plan.exponent);
            total
        })
        .collect();
    let failed = || format!("cannot write {}", path.display());
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path).with_context(failed)?);
    let mut numbers = vec![u32::MAX; plan.objects as usize];
    let mut accesses = Vec::with_capacity(plan.requests as usize);
    let mut names = Vec::with_capacity(plan.objects as usize);
    for at in 0..u64::from(plan.requests) {
        let unit = (mix(at) >> 11) as f64 / (1u64 << 53) as f64;
        let rank = cumulated.partition_point(|&sum| sum <= unit * total).min(cumulated.len() - 1);
        if numbers[rank] == u32::MAX {
            numbers[rank] = names.len() as u32;
            names.push(mix(rank as u64 + (1 << 40)).max(1));
        }
        accesses.push(Access::new(numbers[rank], 1).ending(true));
    }
    let mut next_of = vec![-1i64; names.len()];
    let mut next = vec![0; accesses.len()];
    for (at, access) in accesses.iter().enumerate().rev() {
        // Requests count from 1.
        next[at] = std::mem::replace(&mut next_of[access.object() as usize], at as i64 + 1);
    }
    for (at, (access, next)) in accesses.iter().zip(next).enumerate() {
        let mut record = [0; 24];
        record[..4].copy_from_slice(&((at as u64 / PER_SECOND) as u32).to_le_bytes());
        record[4..12].copy_from_slice(&names[access.object() as usize].to_le_bytes());
        record[12..16].copy_from_slice(&4096u32.to_le_bytes());
        record[16..].copy_from_slice(&next.to_le_bytes());
        file.write_all(&record).with_context(failed)?;
    }
    file.flush().with_context(failed)?;
    Ok(Workload::of(accesses, ROOM))
}

/// A number of its own for each number, as if by lot.
fn mix(number: u64) -> u64 {
    nicache_random::mix(number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}
