//! Loads and attaches the kernel's witnesses.
//!
//! Everything hangs on descriptors: a link that nobody holds open is detached, and a map that
//! nobody holds or has mapped is freed. Nothing is pinned, so nothing outlives the processes that
//! it was made for.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use libbpf_rs::{ErrorKind, MapCore, MapHandle, ObjectBuilder, OpenObject, PrintLevel};
use nicache_clock::monotonic_ns;
use nicache_coherence::{RevisionTable, SourceSlot, Stamp};
use nicache_kernel::{ASSUMPTIONS, Feature, Findings, Kernel, NoTypes, verified_instructions};

use crate::databases::processes::DatabaseProcesses;
use crate::witnesses::event::{Identity, LookupEvent, split_changed_ns};
use crate::witnesses::gaps;
use crate::witnesses::mappings::Mappings;
use crate::witnesses::members::Members;
use crate::witnesses::notes::{self, Notes, NotesOf};
use crate::witnesses::overseer::{Blindness, Loaded, Overseer};
use crate::witnesses::ring::LookupRing;
use crate::witnesses::tracefs::with_tracefs;
use crate::witnesses::witness::{Coverage, Drained, UntoldFile, Witness};

/// Why the witnesses could not be put in place.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The process may not load programs into the kernel.
    #[error("not allowed to watch the kernel: run as root, or with CAP_BPF and CAP_PERFMON ({0})")]
    NoPrivilege(String),
    /// The kernel does not describe its types.
    #[error(transparent)]
    NoTypes(#[from] NoTypes),
    /// Without these nothing can be watched on any file system.
    #[error("nothing can be watched: {}", .0.join("; "))]
    Lacking(Vec<String>),
    /// The kernel refused a program that it should take.
    #[error("the kernel refused a witness: {0}")]
    Refused(String),
    /// A system call failed.
    #[error("cannot set up the watcher: {0}")]
    Io(#[from] io::Error),
}

/// The attached witnesses: descriptors only, to be passed on or dropped.
#[derive(Debug)]
pub struct KernelWatcher {
    control: OwnedFd,
    revisions: OwnedFd,
    ring: OwnedFd,
    links: Vec<OwnedFd>,
    programs: Vec<WitnessProgram>,
    functions_refused: Option<String>,
    at_functions: bool,
    has_gaps: bool,
    loaded: Vec<Loaded>,
    coverage: Coverage,
    databases: DatabaseProcesses,
    untold_files: Arc<MapHandle>,
    request_processes: Arc<MapHandle>,
    mappings: Mappings,
    members: Members,
}

/// A program of the witness that is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessProgram {
    /// The program's name in `ebpf/witness.bpf.c`.
    pub name: String,
    /// Instructions that the verifier went through; 0: unknown.
    pub verified: u32,
}

/// What the kernel tells the registrar.
pub struct KernelWitness {
    ring: LookupRing,
    sees_rings: bool,
    untold_files: Arc<MapHandle>,
    request_processes: Arc<MapHandle>,
    mappings: Mappings,
    coverage: Coverage,
    overseer: Overseer,
}

impl Witness for KernelWitness {
    fn drain(&mut self, handle: &mut dyn FnMut(LookupEvent)) -> Drained {
        tell(self.overseer.handle_gaps());
        match self.overseer.is_blind() {
            true => Drained::Corrupt,
            false => self.ring.drain(handle),
        }
    }

    fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    fn sees_everybody(&self) -> bool {
        true
    }

    /// The kernel has them in a map, each until its process ends. With a map that is full, or that
    /// changes so fast that its end is not found, any process may be one.
    fn takers(&self) -> Option<HashSet<u32>> {
        let room = self.request_processes.max_entries() as usize;
        let keys: Vec<Vec<u8>> = self.request_processes.keys().take(room).collect();
        let process = |key: Vec<u8>| Some(u32::from_ne_bytes(*key.first_chunk()?));
        (keys.len() < room).then(|| keys.into_iter().filter_map(process).collect())
    }

    fn sees_rings(&self) -> bool {
        self.sees_rings
    }

    fn handle_time(&mut self, _table: &RevisionTable, now_ns: u64) {
        tell(self.overseer.handle_time(now_ns));
    }

    fn is_blind(&self) -> bool {
        self.overseer.is_blind()
    }

    fn sees_writers_of(&self, file: Identity) -> bool {
        self.mappings.has_none_of(file)
    }

    fn take_untold_files(&mut self) -> Vec<UntoldFile> {
        let keys: Vec<Vec<u8>> = self.untold_files.keys().collect();
        let take =
            |key: Vec<u8>| Some((key.clone(), self.untold_files.lookup_and_delete(&key).ok()??));
        keys.into_iter()
            .filter_map(take)
            .filter_map(|(key, value)| untold_file(&key, &value))
            .collect()
    }
}

fn tell(blindness: Option<Blindness>) {
    if let Some(blindness) = blindness {
        tracing::warn!("{blindness}. Nothing is cached until another watcher is there");
    }
}

/// `struct inode_key` and `struct untold_file` of `ebpf/witness.bpf.c`.
fn untold_file(key: &[u8], value: &[u8]) -> Option<UntoldFile> {
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 8)?.first_chunk().map(|word| u64::from_ne_bytes(*word))
    };
    let inode = Identity { ino: word(key, 0)?, dev: u32::try_from(word(key, 8)?).ok()? };
    let (changed_ns, stillness) = split_changed_ns(word(value, 8)?);
    Some(UntoldFile { inode, clock: Stamp(word(value, 0)?), changed_ns, stillness })
}

/// libelf wants its memory aligned.
#[repr(align(16))]
struct Aligned<T: ?Sized>(T);

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/witness.bpf.o")));

impl KernelWatcher {
    /// Loads and attaches all witnesses that this kernel has a place for. Takes some 100 ms.
    ///
    /// `server_netns` is the inode number of the server's network namespace; 0 = none yet, see
    /// [`RevisionTable::set_server_netns`].
    ///
    /// # Errors
    /// See [`WatchError`]. Nothing stays behind.
    pub fn load(server_netns: u32) -> Result<Self, WatchError> {
        check_capabilities()?;
        Self::load_on(Kernel::read(ASSUMPTIONS)?, server_netns)
    }

    /// The same, in the way for a kernel that stops tasks in the middle of witnesses (Linux 7.3),
    /// which runs on others, too.
    ///
    /// # Errors
    /// See [`WatchError`]. Nothing stays behind.
    pub fn load_expecting_stops(server_netns: u32) -> Result<Self, WatchError> {
        check_capabilities()?;
        let mut kernel = Kernel::read(ASSUMPTIONS)?;
        kernel.expect_stops();
        Self::load_on(kernel, server_netns)
    }

    fn load_on(mut kernel: Kernel, server_netns: u32) -> Result<Self, WatchError> {
        for _ in 0..LOADS_MAX {
            let watcher = Self::load_once(&mut kernel, server_netns)?;
            // What is there already was taken up by system calls that may blind the witnesses
            // (`ebpf/notes.h`); and one may have been under way when they were attached.
            if !watcher.overseer()?.has_missed() {
                return Ok(watcher);
            }
        }
        Err(WatchError::Refused("it passes over witnesses again and again".into()))
    }

    fn load_once(kernel: &mut Kernel, server_netns: u32) -> Result<Self, WatchError> {
        let findings = kernel.findings(ASSUMPTIONS);
        let (mut watcher, mut log) = with_log(|| attach(&findings, coverage_of(&findings)?));
        let mut functions_refused = None;
        if let Err(error @ (AttachError::Libbpf(_) | AttachError::Io(_))) = &watcher
            && !findings.unpreempted.is_empty()
        {
            tracing::warn!(
                "the kernel takes no programs at its functions ({error}): system calls are seen at their end, and what needs these functions is not kept"
            );
            functions_refused = Some(format!("{error}\n{log}"));
            kernel.take_no_functions();
            let findings = kernel.findings(ASSUMPTIONS);
            (watcher, log) = with_log(|| attach(&findings, coverage_of(&findings)?));
        }
        let mut watcher = watcher.map_err(|error| error.into_watch_error(log))?;
        watcher.functions_refused = functions_refused;
        let table = watcher.table()?;
        table.set_server_netns(server_netns);
        for slot in [SourceSlot::EVERYTHING, SourceSlot::DYNAMIC, SourceSlot::DATABASES] {
            table.watch(slot);
        }
        // From here on those that are there already are seen, too.
        watcher.databases.adopt_running(&table)?;
        watcher.mappings.adopt()?;
        if watcher.sees_listening() {
            table.tell_of_listening(monotonic_ns());
        }
        Ok(watcher)
    }

    /// The programs of the other way, without any at the kernel's functions, once the kernel has
    /// taken them: root may turn its function tracer off at any time. `None`: there is no other way
    /// here than that of [`KernelWatcher::load`].
    ///
    /// # Errors
    /// See [`WatchError`]. Nothing stays behind in any case.
    pub fn verify_without_functions() -> Result<Option<Vec<WitnessProgram>>, WatchError> {
        check_capabilities()?;
        let mut kernel = Kernel::read(ASSUMPTIONS)?;
        if kernel.findings(ASSUMPTIONS).unpreempted.is_empty() {
            return Ok(None);
        }
        kernel.take_no_functions();
        let findings = kernel.findings(ASSUMPTIONS);
        let (watcher, log) = with_log(|| attach(&findings, coverage_of(&findings)?));
        watcher.map(|watcher| Some(watcher.programs)).map_err(|error| error.into_watch_error(log))
    }

    /// Maps the revision table.
    ///
    /// # Errors
    /// What `mmap` says.
    pub fn table(&self) -> io::Result<RevisionTable> {
        RevisionTable::map(self.control.as_fd(), self.revisions.as_fd())
    }

    /// What a registrar reads. To be made once: the ring has one reader.
    ///
    /// # Errors
    /// What `mmap` says.
    pub fn witness(&self) -> io::Result<KernelWitness> {
        Ok(KernelWitness {
            ring: LookupRing::map(self.ring_fd())?,
            sees_rings: self.has_any(&SEE_RINGS),
            untold_files: Arc::clone(&self.untold_files),
            request_processes: Arc::clone(&self.request_processes),
            mappings: self.mappings.clone(),
            coverage: self.coverage.clone(),
            overseer: self.overseer()?,
        })
    }

    /// Is one of these programs there?
    fn has_any(&self, names: &[&str]) -> bool {
        self.programs.iter().any(|program| names.contains(&program.name.as_str()))
    }

    /// Does it tell of each TCP socket that begins to listen?
    fn sees_listening(&self) -> bool {
        self.has_any(&[SEES_LISTENING]) || (self.has_any(&SEE_CALLS) && self.has_any(&SEE_RINGS))
    }

    /// Who looks after the programs, for whoever has no [`KernelWatcher::witness`].
    ///
    /// # Errors
    /// What `mmap` says.
    pub fn overseer(&self) -> io::Result<Overseer> {
        let copy = |(name, program): &Loaded| Ok((name.clone(), program.try_clone()?));
        let programs = self.loaded.iter().map(copy).collect::<io::Result<_>>()?;
        Ok(Overseer::new(self.table()?, programs, self.at_functions, self.has_gaps))
    }

    /// The control page, for [`RevisionTable::map`].
    pub fn control_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// The revision words, for [`RevisionTable::map`].
    pub fn revisions_fd(&self) -> BorrowedFd<'_> {
        self.revisions.as_fd()
    }

    /// The ring of look-up events, for [`crate::LookupRing::map`]. One reader only.
    pub fn ring_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }

    /// The links: the witnesses live as long as one process holds them all.
    pub fn link_fds(&self) -> impl ExactSizeIterator<Item = BorrowedFd<'_>> {
        self.links.iter().map(AsFd::as_fd)
    }

    /// The programs that are attached.
    pub fn programs(&self) -> &[WitnessProgram] {
        &self.programs
    }

    /// What the kernel said, if it refused the programs at its functions. Then system calls are
    /// seen at their end.
    pub fn functions_refused(&self) -> Option<&str> {
        self.functions_refused.as_deref()
    }

    /// The database servers whose statements are seen.
    pub fn databases(&self) -> &DatabaseProcesses {
        &self.databases
    }

    /// Programs outside the server's network that are followed, too.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// What is watched and what is missing.
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }
}

/// What can be watched by these.
fn coverage_of(findings: &Findings) -> Result<Coverage, AttachError> {
    let lacks = |feature| findings.lacks_of(feature).map(ToString::to_string);
    if !findings.has(Feature::Watching) {
        return Err(AttachError::Lacking(lacks(Feature::Watching).collect()));
    }
    // Other file systems are named when a page is on one (`unwatched.rs`).
    let missing = lacks(Feature::Ext4).chain(lacks(Feature::Dynamic)).collect();
    let tmpfs = findings.has(Feature::ChangeTimes);
    Ok(Coverage {
        ext4: findings.has(Feature::Ext4),
        xfs: tmpfs && findings.has(Feature::Xfs),
        btrfs: tmpfs && findings.has(Feature::Btrfs),
        tmpfs,
        local: false,
        missing,
    })
}

/// Where the kernel stops tasks in the middle of witnesses, one may be passed over at the start.
const LOADS_MAX: usize = 5;

const UNGUARDED: &str = "it stops tasks in the middle of witnesses, and does not show when (one with CONFIG_KALLSYMS_ALL does)";

enum AttachError {
    Lacking(Vec<String>),
    Libbpf(libbpf_rs::Error),
    Io(io::Error),
    Absent(&'static str),
    Unguarded,
}

impl From<libbpf_rs::Error> for AttachError {
    fn from(error: libbpf_rs::Error) -> Self {
        Self::Libbpf(error)
    }
}

impl From<io::Error> for AttachError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for AttachError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lacking(what) => write!(formatter, "{}", what.join("; ")),
            Self::Libbpf(error) => write!(formatter, "{error}"),
            Self::Io(error) => write!(formatter, "{error}"),
            Self::Absent(name) => write!(formatter, "{name} is not in the program"),
            Self::Unguarded => write!(formatter, "{UNGUARDED}"),
        }
    }
}

impl AttachError {
    fn into_watch_error(self, log: String) -> WatchError {
        match self {
            Self::Lacking(what) => WatchError::Lacking(what),
            Self::Io(error) => WatchError::Io(error),
            Self::Absent(name) => WatchError::Refused(format!("{name} is not in the program")),
            Self::Unguarded => WatchError::Refused(UNGUARDED.into()),
            // The verifier's own refusals are EACCES and come with a log, too; EPERM is about the
            // process.
            Self::Libbpf(error)
                if error.kind() == ErrorKind::PermissionDenied && !log.contains("processed") =>
            {
                WatchError::NoPrivilege(error.to_string())
            }
            Self::Libbpf(error) => WatchError::Refused(format!("{error:#}\n{log}")),
        }
    }
}

fn attach(findings: &Findings, coverage: Coverage) -> Result<KernelWatcher, AttachError> {
    match findings.stops_at_tracepoints {
        true => with_tracefs(|| attach_here(findings, coverage))?,
        false => attach_here(findings, coverage),
    }
}

fn attach_here(findings: &Findings, coverage: Coverage) -> Result<KernelWatcher, AttachError> {
    let mut open = ObjectBuilder::default().open_memory(&OBJECT.0)?;
    let is_taken = |name: &OsStr| name.to_str().is_some_and(|name| findings.takes(name));
    for mut program in open.progs_mut() {
        let is_taken = is_taken(program.name());
        program.set_autoload(is_taken);
    }
    set_constants(&mut open, findings)?;
    let object = open.load()?;
    gaps::guard(&object, findings).map_err(|gaps::Unguarded| AttachError::Unguarded)?;
    let (mut links, mut programs, mut loaded) = (Vec::new(), Vec::new(), Vec::new());
    let mut taken: Vec<_> = object.progs_mut().filter(|program| is_taken(program.name())).collect();
    taken.sort_by_key(|program| !program.name().to_str().is_some_and(gaps::comes_first));
    for program in taken {
        let verified = verified_instructions(program.as_fd()).unwrap_or(0);
        let name = program.name().to_string_lossy().into_owned();
        if gaps::is_attached(&name) {
            links.push(program.attach()?.as_fd().try_clone_to_owned()?);
            loaded.push((name.clone(), program.as_fd().try_clone_to_owned()?));
        }
        programs.push(WitnessProgram { name, verified });
    }
    let map = |name: &'static str| -> Result<OwnedFd, AttachError> {
        let map = object
            .maps()
            .find(|map| map.name() == OsStr::new(name))
            .ok_or(AttachError::Absent(name))?;
        Ok(map.as_fd().try_clone_to_owned()?)
    };
    let handle = |name: &'static str| -> Result<Arc<MapHandle>, AttachError> {
        let map = object
            .maps()
            .find(|map| map.name() == OsStr::new(name))
            .ok_or(AttachError::Absent(name))?;
        Ok(Arc::new(MapHandle::try_from(&map)?))
    };
    let reader = object
        .progs()
        .find(|program| program.name() == OsStr::new(notes::READER))
        .ok_or(AttachError::Absent(notes::READER))?;
    let reader = Arc::new(reader.as_fd().try_clone_to_owned()?);
    let notes = |name: &'static str, of: NotesOf| -> Result<Notes, AttachError> {
        Ok(Notes::new(handle(name)?, Arc::clone(&reader), of))
    };
    Ok(KernelWatcher {
        control: map("control")?,
        revisions: map("revisions")?,
        ring: map("lookups")?,
        links,
        programs,
        functions_refused: None,
        at_functions: !findings.unpreempted.is_empty(),
        has_gaps: findings.stops_at_tracepoints,
        loaded,
        coverage,
        databases: DatabaseProcesses { notes: notes("databases", NotesOf::Databases)? },
        untold_files: handle("untold_files")?,
        request_processes: handle("request_processes")?,
        mappings: Mappings { notes: notes("mapped_files", NotesOf::Mappings)? },
        members: Members {
            members: notes("members", NotesOf::Members)?,
            names: handle("member_names")?,
        },
    })
}

/// The programs that see the server write, and their bits in `ebpf/shared.h` (`WRITES_*`). tmpfs
/// has a function of its own only since 6.6.
const WRITERS: [(&str, u32); 7] = [
    ("ext4_file_write_iter", 1),
    ("xfs_file_write_iter", 2),
    ("btrfs_file_write_iter", 4),
    ("generic_file_write_iter", 8),
    ("ovl_write_iter", 16),
    ("fuse_file_write_iter", 32),
    ("nfs_file_write", 64),
];

/// The programs that tell what is asked for by io_uring (`ebpf/uring.h`).
const SEE_RINGS: [&str; 2] = ["io_uring_submit_req", "io_uring_submit_sqe"];

/// The programs that tell when a TCP socket begins to listen (`ebpf/table.h`): whoever asks for it,
/// and by a system call alone.
const SEES_LISTENING: &str = "inet_csk_listen_start";
const SEE_CALLS: [&str; 2] = ["sys_exit", "sys_exit_event"];

/// Tells the programs what they cannot see for themselves.
fn set_constants(object: &mut OpenObject, findings: &Findings) -> Result<(), AttachError> {
    let seen = WRITERS
        .iter()
        .filter(|(name, _)| findings.takes(name))
        .fold(0, |seen, (_, bit)| seen | bit);
    // `seen_writes` in `ebpf/calls.h`, `is_stoppable` in `ebpf/table.h`.
    set_constant(object, ".rodata.calls", seen)?;
    set_constant(object, ".rodata.gaps", u32::from(findings.stops_at_tracepoints))
}

fn set_constant(
    object: &mut OpenObject,
    section: &'static str,
    value: u32,
) -> Result<(), AttachError> {
    let mut map = object
        .maps_mut()
        .find(|map| map.name() == OsStr::new(section))
        .ok_or(AttachError::Absent(section))?;
    let place = map
        .initial_value_mut()
        .and_then(|place| place.first_chunk_mut())
        .ok_or(AttachError::Absent(section))?;
    *place = u32::to_ne_bytes(value);
    Ok(())
}

/// Asked beforehand, because the kernel's EPERM would come with no word about which capability it
/// missed.
fn check_capabilities() -> Result<(), WatchError> {
    use rustix::thread::CapabilitySet;
    let effective = rustix::thread::capabilities(None).map_err(io::Error::from)?.effective;
    let enough = effective.contains(CapabilitySet::SYS_ADMIN)
        || effective.contains(CapabilitySet::BPF.union(CapabilitySet::PERFMON));
    if enough {
        Ok(())
    } else {
        Err(WatchError::NoPrivilege("these capabilities are not effective".into()))
    }
}

/// libbpf explains itself only through a process-wide callback.
static LOG: Mutex<String> = Mutex::new(String::new());

fn with_log<T>(run: impl FnOnce() -> T) -> (T, String) {
    fn keep(_: PrintLevel, line: String) {
        LOG.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push_str(&line);
    }
    let before = libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
    let result = run();
    libbpf_rs::set_print(before);
    (result, std::mem::take(&mut *LOG.lock().unwrap_or_else(std::sync::PoisonError::into_inner)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_table_of_assumptions_names_each_program_once() {
        let object = ObjectBuilder::default().open_memory(&OBJECT.0).unwrap();
        let programs: BTreeSet<String> =
            object.progs().map(|program| program.name().to_string_lossy().into_owned()).collect();
        let ways = ASSUMPTIONS.iter().flat_map(|assumption| assumption.ways);
        let named: Vec<String> =
            ways.flat_map(|way| way.programs).map(|program| program.name.to_owned()).collect();
        assert_eq!(programs, named.iter().cloned().collect::<BTreeSet<_>>());
        assert_eq!(programs.len(), named.len(), "one is named twice");
    }
}
