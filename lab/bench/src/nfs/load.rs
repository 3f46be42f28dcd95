//! Clients: a few connections with several calls under way on each, as fast as answers come.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use nicache_nfs::caller::{Caller, User, commit, create, object, place, read, status_of, write};
use nicache_nfs::protocol::{Procedure, Status};
use nicache_nfs::xdr::put;

use super::workload::{HOT_BYTES, MIX_FILE_BYTES, MIX_FILES, NAMES, Workload, cold_file};

/// Connections.
const CONNECTIONS: u32 = 2;
/// Calls under way on each.
const UNDER_WAY: usize = 8;
const TIMEOUT: Duration = Duration::from_secs(120);
/// Largest WRITE while files are made.
const WRITE_BYTES: usize = 256 << 10;

/// What was asked and answered.
pub(super) struct Answers {
    /// Calls.
    pub calls: u64,
    /// Payload that was read and written, in bytes.
    pub payload_bytes: u64,
    /// From sending to the reply, in nanoseconds.
    pub latency_ns: Histogram<u64>,
    /// How long it took.
    pub elapsed: Duration,
}

/// The handles of the files.
pub(super) struct Files {
    root: Vec<u8>,
    names: Vec<u8>,
    hot: Vec<u8>,
    cold: HashMap<u32, Vec<u8>>,
    cold_bytes: u64,
    mix: Vec<Vec<u8>>,
}

/// Makes the files, on a unit that is empty.
pub(super) fn prepare(address: SocketAddr, cold_sizes: &[u32], cold_bytes: u64) -> Result<()> {
    let mut caller = connect(address)?;
    let root = caller.mount("/data")?;
    let fill = |caller: &mut Caller, name: &str, bytes: u64| -> Result<()> {
        let file = caller.create(&root, name)?;
        let data: Vec<u8> = (0..WRITE_BYTES as u32).map(|i| (i ^ i >> 9) as u8).collect();
        for at in (0..bytes).step_by(WRITE_BYTES) {
            let len = data.len().min((bytes - at) as usize);
            let written = caller.write(&file, at, &data[..len], 0)?;
            if written.status != 0 {
                bail!("{name} cannot be written: status {}", written.status);
            }
        }
        if caller.commit(&file)?.status != 0 {
            bail!("{name} cannot be committed");
        }
        Ok(())
    };
    fill(&mut caller, "hot", HOT_BYTES)?;
    for &size in cold_sizes {
        fill(&mut caller, &cold_file(size), cold_bytes)?;
    }
    for number in 0..MIX_FILES {
        fill(&mut caller, &format!("mix-{number}"), MIX_FILE_BYTES)?;
    }
    let mut directory = place(&root, "names");
    [1, 0o755, 0, 0, 0, 0, 0].iter().for_each(|&word| put::u32(&mut directory, word));
    status_of(caller.call(Procedure::MkDir, &directory)?)?;
    let names = caller
        .look_up(&root, "names")?
        .map_err(|status| anyhow::anyhow!("names: status {status}"))?;
    for number in 0..NAMES {
        caller.create(&names, &format!("name-{number}"))?;
    }
    Ok(())
}

/// Looks the files up.
pub(super) fn find(
    address: SocketAddr,
    mount: SocketAddr,
    export: &str,
    cold_sizes: &[u32],
    cold_bytes: u64,
) -> Result<Files> {
    let root = connect(mount)?.mount(export)?;
    let mut caller = connect(address)?;
    let mut of = |name: &str| -> Result<Vec<u8>> {
        caller
            .look_up(&root, name)?
            .map_err(|status| anyhow::anyhow!("{name} is not there: status {status}"))
    };
    let (names, hot) = (of("names")?, of("hot")?);
    let cold =
        cold_sizes.iter().map(|&size| Ok((size, of(&cold_file(size))?))).collect::<Result<_>>()?;
    let mix = (0..MIX_FILES).map(|number| of(&format!("mix-{number}"))).collect::<Result<_>>()?;
    Ok(Files { root, names, hot, cold, cold_bytes, mix })
}

fn connect(address: SocketAddr) -> Result<Caller> {
    Caller::connect(address, User::default(), TIMEOUT)
        .with_context(|| format!("cannot connect to {address}"))
}

/// Asks for a workload for `time`; an all-miss one until its file is read.
pub(super) fn ask(
    address: SocketAddr,
    files: &Files,
    workload: Workload,
    time: Duration,
) -> Result<Answers> {
    let next_cold = AtomicU64::new(0);
    let begun = Instant::now();
    let parts: Vec<Result<Part>> = std::thread::scope(|scope| {
        let next_cold = &next_cold;
        let threads: Vec<_> = (0..CONNECTIONS)
            .map(|connection| {
                scope.spawn(move || {
                    of_connection(address, files, workload, connection, begun + time, next_cold)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a client's thread ended")))
            })
            .collect()
    });
    let mut answers =
        Answers { calls: 0, payload_bytes: 0, latency_ns: histogram(), elapsed: begun.elapsed() };
    for part in parts {
        let part = part?;
        answers.calls += part.calls;
        answers.payload_bytes += part.payload_bytes;
        answers.latency_ns += &part.latency_ns;
    }
    Ok(answers)
}

/// Brings into memory what a workload is to find there.
pub(super) fn warm(address: SocketAddr, files: &Files, workload: Workload) -> Result<()> {
    let mut caller = connect(address)?;
    let mut read_all = |file: &[u8], bytes: u64| -> Result<()> {
        for at in (0..bytes).step_by(1 << 20) {
            caller
                .read(file, at, 1 << 20)?
                .map_err(|status| anyhow::anyhow!("READ was answered with {status}"))?;
        }
        Ok(())
    };
    match workload {
        Workload::AllHit { .. } => read_all(&files.hot, HOT_BYTES),
        Workload::AllMiss { .. } => Ok(()),
        _ => files.mix.iter().try_for_each(|file| read_all(file, MIX_FILE_BYTES)),
    }
}

struct Part {
    calls: u64,
    payload_bytes: u64,
    latency_ns: Histogram<u64>,
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 1_000_000_000_000, 3).expect("bounds that are right")
}

fn of_connection(
    address: SocketAddr,
    files: &Files,
    workload: Workload,
    connection: u32,
    end: Instant,
    next_cold: &AtomicU64,
) -> Result<Part> {
    let mut caller = connect(address)?;
    let mut asker = Asker {
        files,
        workload,
        connection,
        round: 0,
        random: fastrand::Rng::with_seed(connection.into()),
        next_cold,
    };
    let mut part = Part { calls: 0, payload_bytes: 0, latency_ns: histogram() };
    let mut under_way: HashMap<u32, (Instant, Procedure, u32)> = HashMap::new();
    let mut is_over = false;
    loop {
        is_over |= !matches!(workload, Workload::AllMiss { .. }) && Instant::now() >= end;
        while !is_over && under_way.len() < UNDER_WAY {
            let Some((procedure, arguments, bytes)) = asker.next() else {
                is_over = true;
                break;
            };
            let xid = caller.put_call(procedure, &arguments);
            under_way.insert(xid, (Instant::now(), procedure, bytes));
        }
        if under_way.is_empty() {
            return Ok(part);
        }
        caller.flush()?;
        let (xid, results) = caller.receive()?;
        let status = status_of(results)?;
        let (sent, procedure, bytes) = under_way.remove(&xid).context("a reply to nothing")?;
        // CREATE and REMOVE overtake each other.
        let is_harmless =
            [Status::Ok, Status::Exist, Status::NoEnt].into_iter().any(|one| one as u32 == status);
        if !is_harmless {
            bail!("{} was answered with status {status}", procedure.name());
        }
        part.latency_ns.saturating_record(sent.elapsed().as_nanos() as u64);
        part.calls += 1;
        part.payload_bytes += u64::from(bytes);
    }
}

struct Asker<'a> {
    files: &'a Files,
    workload: Workload,
    connection: u32,
    round: u32,
    random: fastrand::Rng,
    next_cold: &'a AtomicU64,
}

impl Asker<'_> {
    /// The next call, its arguments and its payload's bytes; None: there is nothing more to ask.
    fn next(&mut self) -> Option<(Procedure, Vec<u8>, u32)> {
        self.round += 1;
        let files = self.files;
        Some(match self.workload {
            Workload::AllMiss { bytes } => {
                let at = self.next_cold.fetch_add(bytes.into(), Ordering::Relaxed);
                if at >= files.cold_bytes {
                    return None;
                }
                (Procedure::Read, read(&files.cold[&bytes], at, bytes), bytes)
            }
            Workload::AllHit { bytes } => {
                let at = self.random.u64(..HOT_BYTES / u64::from(bytes)) * u64::from(bytes);
                (Procedure::Read, read(&files.hot, at, bytes), bytes)
            }
            Workload::GetAttr => (Procedure::GetAttr, object(self.mix_file()), 0),
            Workload::Lookup => (Procedure::Lookup, self.a_name(), 0),
            Workload::CreateRemove => self.create_or_remove(),
            Workload::ReadDirPlus => (Procedure::ReadDirPlus, self.list(64 << 10), 0),
            Workload::Mix { data_percent } => self.of_mix(data_percent),
        })
    }

    fn mix_file(&mut self) -> &[u8] {
        &self.files.mix[self.random.usize(..self.files.mix.len())]
    }

    fn a_name(&mut self) -> Vec<u8> {
        place(&self.files.names, &format!("name-{}", self.random.u32(..NAMES)))
    }

    /// Each name is made and, some calls later, removed.
    fn create_or_remove(&mut self) -> (Procedure, Vec<u8>, u32) {
        let name = |round: u32| format!("new-{}-{}", self.connection, round / 2);
        if self.round.is_multiple_of(2) {
            (Procedure::Create, create(&self.files.root, &name(self.round)), 0)
        } else {
            let earlier = self.round.saturating_sub(2 * UNDER_WAY as u32 + 1);
            (Procedure::Remove, place(&self.files.root, &name(earlier)), 0)
        }
    }

    fn list(&self, reply_bytes: u32) -> Vec<u8> {
        let mut out = object(&self.files.names);
        [0, 0, 0, 0, reply_bytes / 4, reply_bytes]
            .iter()
            .for_each(|&word| put::u32(&mut out, word));
        out
    }

    /// Of a hundred that are not data: 36 LOOKUP, 24 GETATTR, 20 ACCESS, 6 READDIRPLUS, 4 FSSTAT,
    /// 10 CREATE and REMOVE.
    fn of_mix(&mut self, data_percent: u8) -> (Procedure, Vec<u8>, u32) {
        if self.random.u8(..100) < data_percent {
            let bytes: u32 = match self.random.u8(..100) {
                0..50 => 4 << 10,
                50..75 => 8 << 10,
                75..90 => 16 << 10,
                _ => 32 << 10,
            };
            let at = self.random.u64(..MIX_FILE_BYTES / u64::from(bytes)) * u64::from(bytes);
            let is_write = self.random.u8(..6) == 0;
            let must_commit = is_write && self.random.u8(..16) == 0;
            let file = self.mix_file();
            return match (is_write, must_commit) {
                (_, true) => (Procedure::Commit, commit(file), 0),
                (true, _) => {
                    (Procedure::Write, write(file, at, &vec![0x5a; bytes as usize], 0), bytes)
                }
                (false, _) => (Procedure::Read, read(file, at, bytes), bytes),
            };
        }
        match self.random.u8(..100) {
            0..36 => (Procedure::Lookup, self.a_name(), 0),
            36..60 => (Procedure::GetAttr, object(self.mix_file()), 0),
            60..80 => {
                let mut out = object(self.mix_file());
                put::u32(&mut out, 0x3f);
                (Procedure::Access, out, 0)
            }
            80..86 => (Procedure::ReadDirPlus, self.list(8 << 10), 0),
            86..90 => (Procedure::FsStat, object(&self.files.root), 0),
            _ => self.create_or_remove(),
        }
    }
}
