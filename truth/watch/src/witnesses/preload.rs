//! The witness that needs no privilege: a library in the server's programs, and in those of its
//! editors, that tells what they look at and stamps what they change (`preload/`).
//!
//! Read first: `preload/start.c`; section 2.3 of the CacheCard paper, whose way this is.
//!
//! What it cannot promise. A change by a program without the library is seen by nobody, so no
//! entry may live longer than what nobody can see may be old. The server's own programs must all
//! have it: each that starts one without it says so, and here `/proc` is looked at for processes of
//! the server's network namespace that have not mapped the shared memory. While there is one,
//! nothing is kept. A process that is killed cannot say what it was about to change: its end voids
//! everything.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nicache_clock::monotonic_ns;
use nicache_coherence::{CONTROL_BYTES, REVISIONS_BYTES, RevisionTable, SourceSlot};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::witnesses::event::{EventKind, LookupEvent, Peer, Sent};
use crate::witnesses::shared_ring::SharedRing;
use crate::witnesses::witness::{Coverage, Drained, Witness};

/// The library, to be written to a file that the programs may load.
pub static PRELOAD_LIBRARY: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/libnicache-preload.so"));

/// The environment variable that tells the library where the shared memory is: `server:FOLDER`, or
/// `writer:FOLDER` for a program whose changes are to be seen, but not its look-ups.
pub const PRELOAD_VARIABLE: &str = "NICACHE_PRELOAD";

/// How often it is looked at whether processes have been killed.
const LOOK_NS: u64 = 25_000_000;
/// How often processes are looked for that do not have the library.
const SCAN_NS: u64 = 250_000_000;
/// Processes of the server followed at most; with more of them nothing is kept.
const PROCESSES_MAX: usize = 4096;

/// The shared memory: three files in a folder.
#[derive(Debug)]
pub struct PreloadMemory {
    control: File,
    revisions: File,
    ring: File,
    folder: PathBuf,
}

impl PreloadMemory {
    /// Makes the files in an empty folder. Whoever may enter it may change them, so its name is to
    /// be told to the server's programs alone.
    ///
    /// `server_netns` is the inode number of the server's network namespace.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(folder: &Path, server_netns: u32) -> io::Result<Self> {
        let file = |name: &str| {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .open(folder.join(name))?;
            // Programs of the server run as other users.
            file.set_permissions(std::fs::Permissions::from_mode(0o666))?;
            io::Result::Ok(file)
        };
        let memory = Self {
            control: file("control")?,
            revisions: file("revisions")?,
            ring: file("ring")?,
            folder: folder.to_owned(),
        };
        memory.control.set_len(CONTROL_BYTES as u64)?;
        memory.revisions.set_len(REVISIONS_BYTES as u64)?;
        let table = memory.table()?;
        table.set_server_netns(server_netns);
        for slot in [SourceSlot::EVERYTHING, SourceSlot::DYNAMIC, SourceSlot::DATABASES] {
            table.watch(slot);
        }
        Ok(memory)
    }

    /// Maps the revision table.
    ///
    /// # Errors
    /// What `mmap` says.
    pub fn table(&self) -> io::Result<RevisionTable> {
        RevisionTable::map(self.control.as_fd(), self.revisions.as_fd())
    }

    /// The two files of the table, for [`RevisionTable::map`].
    pub fn table_fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.control.as_fd(), self.revisions.as_fd()]
    }

    /// What a registrar reads. To be made once, before any program has the library.
    ///
    /// # Errors
    /// What the system says.
    pub fn witness(&self) -> io::Result<PreloadWitness> {
        let ring = SharedRing::create(&self.ring)?;
        let mapped = self.ring.metadata()?;
        let own = std::fs::metadata("/proc/self/exe")?;
        let table = Arc::new(self.table()?);
        Ok(PreloadWitness {
            ring,
            group: Group {
                server_netns: table.server_netns(),
                marker: (mapped.dev(), mapped.ino()),
                own_program: (own.dev(), own.ino()),
                processes: HashMap::new(),
                overflowed: false,
            },
            table,
            coverage: Coverage { local: true, ..Coverage::default() },
            next_look_ns: 0,
            next_scan_ns: 0,
            doubtful_until_ns: 0,
            blind_until_ns: 0,
        })
    }

    /// Where the files are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// What the library tells the registrar.
pub struct PreloadWitness {
    ring: SharedRing,
    group: Group,
    table: Arc<RevisionTable>,
    coverage: Coverage,
    next_look_ns: u64,
    next_scan_ns: u64,
    /// A program without the library may be about to start until then.
    doubtful_until_ns: u64,
    blind_until_ns: u64,
}

impl Witness for PreloadWitness {
    fn drain(&mut self, handle: &mut dyn FnMut(LookupEvent)) -> Drained {
        let (group, table) = (&mut self.group, &self.table);
        let (doubtful_until_ns, blind_until_ns) =
            (&mut self.doubtful_until_ns, &mut self.blind_until_ns);
        let mut take = |mut event: LookupEvent| {
            match event.kind {
                EventKind::Ended => return group.forget(event.tgid),
                EventKind::Sent(sent) => {
                    if let Peer::Local(inner) = sent.to {
                        event.kind =
                            EventKind::Sent(Sent { to: Peer::Local(group.outer(inner)), ..sent });
                    }
                }
                EventKind::Unseen if i64::from(event.nr) == libc::SYS_execve => {
                    *doubtful_until_ns = event.time_ns + 2 * SCAN_NS;
                    *blind_until_ns = u64::MAX;
                }
                _ => {}
            }
            group.note(event.tgid, event.inner_pid);
            if event.kind != EventKind::Started {
                handle(event);
            }
        };
        self.ring.drain(monotonic_ns(), &mut take, &mut || table.record_lost())
    }

    fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    fn sees_everybody(&self) -> bool {
        false
    }

    fn handle_time(&mut self, table: &RevisionTable, now_ns: u64) {
        if now_ns >= self.next_look_ns {
            self.next_look_ns = now_ns + LOOK_NS;
            if self.group.collect_dead() {
                table.record_change(SourceSlot::EVERYTHING);
            }
        }
        if now_ns >= self.next_scan_ns {
            self.next_scan_ns = now_ns + SCAN_NS;
            if let Some(process) = self.group.find_stranger() {
                tracing::debug!(process, "a program of the server does not have the library");
                self.blind_until_ns = u64::MAX;
            } else if now_ns >= self.doubtful_until_ns && self.blind_until_ns == u64::MAX {
                self.blind_until_ns = now_ns;
            }
        }
    }

    fn blind_until_ns(&self) -> u64 {
        self.blind_until_ns
    }
}

/// The server's processes.
struct Group {
    server_netns: u32,
    /// Device and inode number of what each of them has mapped.
    marker: (u64, u64),
    /// This program's own: its processes look after the server's.
    own_program: (u64, u64),
    /// By their numbers here.
    processes: HashMap<u32, Process>,
    overflowed: bool,
}

struct Process {
    /// Its number in its own PID namespace, 0: unknown.
    inner: u32,
    /// Readable when it has ended; `None`: it had when it was first heard of.
    pidfd: Option<OwnedFd>,
    /// The program in which the memory was found mapped.
    program: Option<(u64, u64)>,
}

impl Group {
    /// A process was heard of.
    fn note(&mut self, process: u32, inner: u32) {
        if let Some(known) = self.processes.get_mut(&process) {
            known.inner = inner;
            return;
        }
        if self.processes.len() >= PROCESSES_MAX {
            self.overflowed = true;
            return;
        }
        let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
        let pidfd = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        self.processes.insert(process, Process { inner, pidfd, program: None });
    }

    fn forget(&mut self, process: u32) {
        self.processes.remove(&process);
    }

    /// Forgets processes that have ended without a word; true if there are some.
    fn collect_dead(&mut self) -> bool {
        let before = self.processes.len();
        self.processes.retain(|_, process| {
            let Some(pidfd) = &process.pidfd else { return false };
            let mut files = [PollFd::new(pidfd, PollFlags::IN)];
            let ended = retry_on_intr(|| poll(&mut files, Some(&Timespec::default())));
            matches!(ended, Ok(0))
        });
        self.processes.len() != before
    }

    /// The number here of a process that others of the group know by `inner`; 0 if there is none.
    fn outer(&self, inner: u32) -> u32 {
        if inner == 0 {
            return 0;
        }
        let known = self.processes.iter().find(|(_, process)| process.inner == inner);
        let found = known.map(|(process, _)| *process);
        found
            .or_else(|| self.members().find(|process| inner_number(*process) == Some(inner)))
            .unwrap_or(0)
    }

    /// Processes in the server's network namespace.
    fn members(&self) -> impl Iterator<Item = u32> {
        let netns = format!("net:[{}]", self.server_netns);
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        processes.filter(move |process| {
            std::fs::read_link(format!("/proc/{process}/ns/net"))
                .is_ok_and(|link| link.as_os_str() == &*netns)
        })
    }

    /// A process of the group that does not have the library.
    fn find_stranger(&mut self) -> Option<u32> {
        if self.overflowed {
            self.overflowed = self.processes.len() >= PROCESSES_MAX;
            return Some(0);
        }
        let members: Vec<u32> = self.members().collect();
        members.into_iter().find(|&process| {
            let program = match std::fs::metadata(format!("/proc/{process}/exe")) {
                Ok(exe) => (exe.dev(), exe.ino()),
                // It has ended, but for its exit status.
                Err(error) => return error.kind() == io::ErrorKind::PermissionDenied,
            };
            if program == self.own_program {
                return false;
            }
            let known = self.processes.get_mut(&process);
            if known.as_ref().is_some_and(|known| known.program == Some(program)) {
                return false;
            }
            let has = has_mapped(process, self.marker);
            if let (true, Some(known)) = (has, known) {
                known.program = Some(program);
            }
            !has
        })
    }
}

/// The innermost of a process's numbers.
fn inner_number(process: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().last()?.parse().ok()
}

fn has_mapped(process: u32, (dev, ino): (u64, u64)) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    let wanted =
        [format!("{:02x}:{:02x}", rustix::fs::major(dev), rustix::fs::minor(dev)), ino.to_string()];
    // Range, permissions, offset, device, inode, path.
    maps.lines().any(|line| {
        line.split_ascii_whitespace().skip(3).take(2).eq(wanted.iter().map(String::as_str))
    })
}
