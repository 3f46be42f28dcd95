//! The revision table: memory shared by the kernel's witnesses (writers), the watcher and the
//! cards.
//!
//! Two BPF arrays with `BPF_F_MMAPABLE`; the same layout on the heap serves simulation and tests.
//!
//! ```text
//! control (4096 bytes), one u64 per 64-byte line, so a change of the clock does not take the epoch's line away:
//!      0 epoch           changes of watched sources                 kernel writes, cards read on every hit
//!     64 clock           forwards so far                            cards advance, and the kernel when the server reads a file that has just changed
//!    128 lost            look-up events that found no room          kernel writes
//!    192 lease_until_ns  CLOCK_BOOTTIME up to which all is well     watcher writes, cards read
//!    256 server_netns    inode number of the server's namespace     supervisor writes, kernel reads
//!    320 service_ports   up to four ports of the web server         watcher writes, kernel reads
//!    384 databases       bit n: one has process number n modulo 64  watcher and kernel write, kernel reads
//!    448 strict_sql      1: any SELECT may change something        watcher writes, kernel reads
//!    512 told            statements that may have made it so        kernel writes, watcher reads
//!    576 known           how many of them are in strict_sql         watcher writes, kernel reads
//!    640 members         bit n: a program outside has such a number kernel writes and reads
//!    704 gaps            witnesses that are stopped now             kernel writes, all read
//!    712 gaps_stamp      clock when the last one went on            kernel writes, all read
//!    720 gaps_begun      how many there were                        kernel writes, watcher reads
//!    768 unsafe_requests begun or answered, of all cards             cards write and read
//!    832 listened_ns     when a TCP socket last began to listen     kernel writes, watcher reads
//! revisions (2^20 x u64):
//!     bit 63 watched | bit 62 tracked: a change also changes the slot DYNAMIC
//!     bits 0..61 stamp: value of `clock` when the source last changed
//! ```
//!
//! Why no lock is needed. A writer does, before its call returns: raise the stamp to the clock,
//! until the stamp is at least as large as a clock that it has read afterwards; and *then*, if the
//! word had the watched bit, add 1 to `epoch`. A card that validates reads `epoch` *first* and the
//! stamps second, and remembers the epoch that it read. So it either sees the stamp, or the epoch
//! that it remembers is one that the writer has yet to leave behind, and the next hit looks again.
//! A fill sets the watched bit before it reads the stamp: a writer that came before is seen in the
//! stamp, a writer that comes after sees the bit.
//!
//! Why the clock is read after the stamp is there. Who advances the clock to `s`, finds no change,
//! and vouches for an entry from `s` on, must not be followed by a writer that raises the stamp to
//! a clock from before `s`: the change would count as an older one. A writer may be held up between
//! the two by an interrupt, or by the host of a virtual machine, for as long as the watcher needs.
//!
//! While a witness is stopped in the middle (a *gap*, `ebpf/gaps.h`), others may change something
//! that nobody tells of. Before they can, `gaps` is counted up and the epoch moves; from then on
//! every stamp counts as the largest there is. When the witness goes on, and others are seen again,
//! `gaps_stamp` is raised to the clock before `gaps` is counted down, and every stamp counts as at
//! least that. Who looks reads `gaps` first. The clock need not be read once more: `gaps` is still
//! up, and whoever advances the clock after it was read comes after all that was not seen.
//!
//! All words are hostile in so far as another process can write them; every value is valid, and a
//! wrong one can at worst void or keep entries, never break memory safety.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::rule::Rule;
use crate::source::{Epoch, SOURCE_SLOTS, SourceSlot, Stamp};

/// Size of the control page in bytes.
pub const CONTROL_BYTES: usize = 4096;
/// Size of the revision words in bytes.
pub const REVISIONS_BYTES: usize = SOURCE_SLOTS * size_of::<u64>();
/// How long a renewed lease lasts, in nanoseconds.
pub const LEASE_NS: u64 = 2_000_000_000;
/// How often the watcher renews its lease, in nanoseconds.
pub const LEASE_RENEWAL_NS: u64 = 250_000_000;

const WATCHED: u64 = 1 << 63;
const TRACKED: u64 = 1 << 62;
const STAMP_MASK: u64 = TRACKED - 1;

/// Position of a control word, in units of u64. `ebpf/witness.bpf.c` has the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum ControlWord {
    /// Changes of watched sources.
    Epoch = 0,
    /// Forwards so far.
    Clock = 8,
    /// Events that were lost, counted where they were lost.
    Lost = 16,
    /// Time up to which the watcher vouches for the table.
    LeaseUntilNs = 24,
    /// Inode number of the server's network namespace; 0 = none yet.
    ServerNetns = 32,
    /// Up to four ports on which the web server has its clients, 16 bits each.
    ServicePorts = 40,
    /// Bit n: a process of a database server may have number n modulo 64.
    Databases = 48,
    /// 1: a SELECT may change something, by a function that it calls.
    StrictSql = 56,
    /// Statements so far that may have made such a function, counted after they were told.
    DefinitionsTold = 64,
    /// How many of these `StrictSql` knows. As long as there are more, a SELECT may change
    /// something.
    DefinitionsKnown = 72,
    /// Witnesses that are stopped in the middle.
    Gaps = 88,
    /// The clock when the last of them went on.
    GapsStamp = 89,
    /// How many there were so far.
    GapsBegun = 90,
    /// Requests that may change something (RFC 9110 section 9.2.1), begun or answered, of all
    /// cards.
    UnsafeRequests = 96,
    /// When a TCP socket last began to listen (CLOCK_MONOTONIC); 0 or the largest: nobody tells
    /// of that.
    ListenedNs = 104,
}

/// The revision table: memory with the stamps of all sources, the clock, the epoch and the lease,
/// shared by the kernel's witnesses, the watcher and the cards. The [module](self) has layout and
/// protocol.
pub struct RevisionTable {
    control: NonNull<AtomicU64>,
    revisions: NonNull<AtomicU64>,
    backing: Backing,
}

enum Backing {
    /// Kept only to be freed; reached through the pointers.
    Heap {
        _control: Box<[AtomicU64]>,
        _revisions: Box<[AtomicU64]>,
    },
    Mapped,
}

// SAFETY: the pointers lead to atomics that live as long as the table (owned allocation or own
// mapping), and nothing in the table is bound to a thread.
unsafe impl Send for RevisionTable {}
// SAFETY: as above; all shared access goes through `AtomicU64`.
unsafe impl Sync for RevisionTable {}

impl RevisionTable {
    /// A table in private memory, for simulation and tests; 8 MiB, all zero, and without a lease.
    pub fn on_heap() -> Arc<Self> {
        let zeroes = |words: usize| -> Box<[AtomicU64]> {
            // SAFETY: all zeroes are a valid AtomicU64.
            unsafe { Box::new_zeroed_slice(words).assume_init() }
        };
        let control = zeroes(CONTROL_BYTES / size_of::<u64>());
        let revisions = zeroes(SOURCE_SLOTS);
        Arc::new(Self {
            control: first_word(&control),
            revisions: first_word(&revisions),
            backing: Backing::Heap { _control: control, _revisions: revisions },
        })
    }

    /// Maps the two BPF arrays. The descriptors may be closed afterwards.
    ///
    /// # Errors
    /// What `mmap` says: `EINVAL` or `EACCES` if a descriptor is not a mappable array of at least
    /// the right size.
    pub fn map(control: BorrowedFd<'_>, revisions: BorrowedFd<'_>) -> io::Result<Self> {
        let control = map_shared(control, CONTROL_BYTES)?;
        let revisions = match map_shared(revisions, REVISIONS_BYTES) {
            Ok(revisions) => revisions,
            Err(error) => {
                unmap(control, CONTROL_BYTES);
                return Err(error);
            }
        };
        Ok(Self { control, revisions, backing: Backing::Mapped })
    }

    /// The epoch: one load, the whole price of coherence for a hit.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        Epoch(self.control(ControlWord::Epoch).load(Ordering::Acquire))
    }

    /// Advances the clock and returns its new value: the stamp of the fill that is about to be
    /// forwarded.
    #[inline]
    pub fn advance_clock(&self) -> Stamp {
        Stamp(
            self.control(ControlWord::Clock).fetch_add(1, Ordering::SeqCst).wrapping_add(1)
                & STAMP_MASK,
        )
    }

    /// The clock's present value.
    pub fn clock(&self) -> Stamp {
        Stamp(self.control(ControlWord::Clock).load(Ordering::SeqCst) & STAMP_MASK)
    }

    /// Events lost so far. A fill during which this moved is refused.
    pub fn lost(&self) -> u64 {
        self.control(ControlWord::Lost).load(Ordering::SeqCst)
    }

    /// Counts an event that could not be kept.
    pub fn record_lost(&self) {
        self.control(ControlWord::Lost).fetch_add(1, Ordering::SeqCst);
    }

    /// Beginnings and ends so far of requests that may change something in the server's memory, at
    /// whichever card.
    #[inline]
    pub fn unsafe_requests(&self) -> u64 {
        self.control(ControlWord::UnsafeRequests).load(Ordering::SeqCst)
    }

    /// Counts one, and moves the epoch: whoever answers by it alone asks again.
    pub fn record_unsafe_request(&self) {
        self.control(ControlWord::UnsafeRequests).fetch_add(1, Ordering::SeqCst);
        self.control(ControlWord::Epoch).fetch_add(1, Ordering::SeqCst);
    }

    /// When a TCP socket last began to listen, in any network (CLOCK_MONOTONIC); `None`: nobody
    /// tells of that. The socket is in the kernel's tables before this moves.
    pub fn listened_ns(&self) -> Option<u64> {
        let listened_ns = self.control(ControlWord::ListenedNs).load(Ordering::SeqCst);
        (listened_ns != 0 && listened_ns != u64::MAX).then_some(listened_ns)
    }

    /// From now on (CLOCK_MONOTONIC), each TCP socket that begins to listen is told of.
    pub fn tell_of_listening(&self, now_ns: u64) {
        let word = self.control(ControlWord::ListenedNs);
        // Somebody may have begun since, or may begin at any time.
        let _ = word.compare_exchange(0, now_ns, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// A TCP socket has begun to listen. The kernel does the same (`ebpf/table.h`).
    pub fn record_listening(&self, now_ns: u64) {
        self.control(ControlWord::ListenedNs).store(now_ns, Ordering::SeqCst);
    }

    /// Does the watcher vouch for the table at `now_ns` (CLOCK_BOOTTIME, which goes on while the
    /// machine is suspended)? If not, nothing is served or stored.
    #[inline]
    pub fn lease_holds(&self, now_ns: u64) -> bool {
        now_ns <= self.control(ControlWord::LeaseUntilNs).load(Ordering::Acquire)
    }

    /// The watcher vouches for the table up to `until_ns` (CLOCK_BOOTTIME); 0 ends the lease at
    /// once.
    pub fn renew_lease(&self, until_ns: u64) {
        self.control(ControlWord::LeaseUntilNs).store(until_ns, Ordering::Release);
    }

    /// Inode number of the server's network namespace, 0 if none is set.
    pub fn server_netns(&self) -> u32 {
        self.control(ControlWord::ServerNetns).load(Ordering::SeqCst) as u32
    }

    /// From now on processes in the network namespace with this inode number are the server group.
    pub fn set_server_netns(&self, inum: u32) {
        self.control(ControlWord::ServerNetns).store(u64::from(inum), Ordering::SeqCst);
    }

    /// From now on what the server sends from these ports goes to its clients, and is not a
    /// question to anybody. The first four count; what goes out from a further one is taken for a
    /// question, which is safe.
    pub fn set_service_ports(&self, ports: &[u16]) {
        let word = ports.iter().take(4).rev().fold(0, |word, &port| word << 16 | u64::from(port));
        self.control(ControlWord::ServicePorts).store(word, Ordering::SeqCst);
    }

    /// The ports that [`RevisionTable::set_service_ports`] was told.
    pub fn service_ports(&self) -> Vec<u16> {
        let word = self.control(ControlWord::ServicePorts).load(Ordering::SeqCst);
        (0..4).map(|at| (word >> (at * 16)) as u16).filter(|port| *port != 0).collect()
    }

    /// Statements so far that may have made a function by which a SELECT changes something.
    pub fn definitions_told(&self) -> u64 {
        self.control(ControlWord::DefinitionsTold).load(Ordering::SeqCst)
    }

    /// May a SELECT change something, by a function that it calls? Then the kernel takes none for a
    /// mere question. `known`: what [`RevisionTable::definitions_told`] said before everything that
    /// had been told was read; `None` if not everything was.
    pub fn set_strict_sql(&self, strict: bool, known: Option<u64>) {
        self.control(ControlWord::StrictSql).store(u64::from(strict), Ordering::SeqCst);
        if let Some(known) = known {
            self.control(ControlWord::DefinitionsKnown).store(known, Ordering::SeqCst);
        }
    }

    /// From now on the kernel looks for what this process of a database server receives.
    pub fn announce_database(&self, process: u32) {
        self.control(ControlWord::Databases).fetch_or(1 << (process % 64), Ordering::SeqCst);
    }

    /// From now on a change of the slot moves the epoch. Must precede the check of the stamp in a
    /// fill.
    pub fn watch(&self, slot: SourceSlot) {
        self.revision(slot).fetch_or(WATCHED, Ordering::SeqCst);
    }

    /// From now on a change of the slot is one of [`SourceSlot::DYNAMIC`], too, and moves the
    /// epoch. Must precede the check of the stamp in a fill.
    pub fn track(&self, slot: SourceSlot) {
        self.revision(slot).fetch_or(WATCHED | TRACKED, Ordering::SeqCst);
    }

    /// Does a change of the slot move the epoch?
    pub fn is_watched(&self, slot: SourceSlot) -> bool {
        self.revision(slot).load(Ordering::SeqCst) & WATCHED != 0
    }

    /// Up to this clock anything may have changed unseen, because a witness was stopped in the
    /// middle; the largest stamp there is while one is.
    #[inline]
    pub fn unseen_until(&self) -> Stamp {
        if self.has_gap() {
            return Stamp(STAMP_MASK);
        }
        Stamp(self.control(ControlWord::GapsStamp).load(Ordering::SeqCst) & STAMP_MASK)
    }

    /// Is a witness stopped in the middle?
    #[inline]
    pub fn has_gap(&self) -> bool {
        self.control(ControlWord::Gaps).load(Ordering::SeqCst) != 0
    }

    /// How often a witness was stopped in the middle so far.
    pub fn gaps(&self) -> u64 {
        self.control(ControlWord::GapsBegun).load(Ordering::SeqCst)
    }

    /// The clock when the slot last changed, or may have changed.
    #[inline]
    pub fn stamp_of(&self, slot: SourceSlot) -> Stamp {
        self.own_stamp_of(slot).max(self.unseen_until())
    }

    /// The same, without what nobody has seen.
    #[inline]
    fn own_stamp_of(&self, slot: SourceSlot) -> Stamp {
        if slot == SourceSlot::EVERYTHING && !Rule::Processes.holds() {
            return Stamp(0);
        }
        Stamp(self.revision(slot).load(Ordering::SeqCst) & STAMP_MASK)
    }

    /// Has none of the slots changed since the clock was advanced to `since`?
    #[inline]
    pub fn is_unchanged(&self, slots: &[SourceSlot], since: Stamp) -> bool {
        self.unseen_until() < since && slots.iter().all(|&slot| self.own_stamp_of(slot) < since)
    }

    /// A witness is stopped in the middle, or has not seen everything for another reason; without
    /// [`RevisionTable::end_gap`], for good. The kernel does the same (`ebpf/gaps.h`).
    pub fn begin_gap(&self) {
        self.control(ControlWord::GapsBegun).fetch_add(1, Ordering::SeqCst);
        self.control(ControlWord::Gaps).fetch_add(1, Ordering::SeqCst);
        self.control(ControlWord::Epoch).fetch_add(1, Ordering::SeqCst);
    }

    /// The witness goes on.
    pub fn end_gap(&self) {
        let clock = self.control(ControlWord::Clock).load(Ordering::SeqCst) & STAMP_MASK;
        self.control(ControlWord::GapsStamp).fetch_max(clock, Ordering::SeqCst);
        self.control(ControlWord::Gaps).fetch_sub(1, Ordering::SeqCst);
    }

    /// The writer's side, in user space: the rule that the kernel's witnesses follow. Used by
    /// simulation, tests, and a purge of everything ([`SourceSlot::EVERYTHING`]).
    pub fn record_change(&self, slot: SourceSlot) {
        let word = self.raise_stamp(slot);
        if word & TRACKED != 0 {
            self.raise_stamp(SourceSlot::DYNAMIC);
        }
        // Also where the stamp stood already: whoever raised it may not have moved the epoch yet,
        // and this writer is about to return.
        if word & WATCHED != 0 {
            self.control(ControlWord::Epoch).fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Raises the slot's stamp to the clock, and returns the word with the flags that it has.
    fn raise_stamp(&self, slot: SourceSlot) -> u64 {
        let revision = self.revision(slot);
        let mut word = revision.load(Ordering::SeqCst);
        loop {
            // After the word: see the module's head.
            let clock = self.control(ControlWord::Clock).load(Ordering::SeqCst) & STAMP_MASK;
            if word & STAMP_MASK >= clock {
                return word;
            }
            let raised = word & !STAMP_MASK | clock;
            word = match revision.compare_exchange_weak(
                word,
                raised,
                Ordering::SeqCst,
                Ordering::SeqCst,
            ) {
                Ok(_) => raised,
                Err(now) => now,
            };
        }
    }

    #[inline]
    fn control(&self, word: ControlWord) -> &AtomicU64 {
        // SAFETY: the largest `ControlWord` is below CONTROL_BYTES / 8 (asserted below), the memory
        // is at least CONTROL_BYTES long, page- or u64-aligned, and lives as long as `self`.
        unsafe { self.control.add(word as usize).as_ref() }
    }

    #[inline]
    fn revision(&self, slot: SourceSlot) -> &AtomicU64 {
        // SAFETY: `index` is below SOURCE_SLOTS, the number of words; lifetime and alignment as in
        // `control`.
        unsafe { self.revisions.add(slot.index()).as_ref() }
    }
}

impl Drop for RevisionTable {
    fn drop(&mut self) {
        if let Backing::Mapped = self.backing {
            unmap(self.control, CONTROL_BYTES);
            unmap(self.revisions, REVISIONS_BYTES);
        }
    }
}

impl std::fmt::Debug for RevisionTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RevisionTable")
            .field("epoch", &self.epoch().0)
            .field("clock", &self.clock().0)
            .field("lost", &self.lost())
            .field("server_netns", &self.server_netns())
            .finish_non_exhaustive()
    }
}

/// The whole slice's provenance, not only the first word's.
fn first_word(words: &[AtomicU64]) -> NonNull<AtomicU64> {
    NonNull::from(words).cast()
}

fn map_shared(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<NonNull<AtomicU64>> {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    // SAFETY: a fresh mapping at an address of the kernel's choice; nothing else refers to it.
    let address = unsafe {
        mmap(
            std::ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            fd,
            0,
        )
    }?;
    NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mmap returned address 0"))
}

fn unmap(address: NonNull<AtomicU64>, bytes: usize) {
    // SAFETY: called once for each mapping made by `map_shared` with the same length, when no
    // reference is left.
    let unmapped = unsafe { rustix::mm::munmap(address.as_ptr().cast(), bytes) };
    debug_assert!(unmapped.is_ok());
}

const _: () = assert!((ControlWord::ListenedNs as usize) < CONTROL_BYTES / size_of::<u64>());
const _: () = assert!(LEASE_RENEWAL_NS * 4 <= LEASE_NS);
