//! libiscsi 1.19 (Debian: libiscsi-dev), as far as it is used here: all of this crate's unsafe
//! code.
//!
//! A [`Context`] is one session. It owns the bytes of every command from [`Context::issue`] to the
//! [`Answer`], so libiscsi can neither read nor write memory that has gone. Everything of a context
//! happens on one thread: it is neither `Send` nor `Sync`, and its callbacks put answers into a
//! list of that thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_uint, c_void};
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use bytes::BytesMut;

use crate::proof::{LOGIN_REPLIES, is_proof};
use crate::queue::Operation;
use crate::sense::{CANCELLED, GOOD, Sense};

/// libiscsi's other transport is RDMA, which is not used here. Without this, its static form would
/// need the RDMA libraries.
// SAFETY: no other object of the program defines this name: libiscsi's own is in a member of its
// archive that nothing else asks for.
#[unsafe(no_mangle)]
extern "C" fn iscsi_init_iser_transport(_: *mut raw::IscsiContext) -> c_int {
    -1
}

mod raw {
    use super::*;

    #[repr(C)]
    pub(super) struct IscsiContext {
        _private: [u8; 0],
    }

    /// `struct scsi_task` up to what is read here (scsi-lowlevel.h).
    #[repr(C)]
    pub(super) struct ScsiTask {
        pub(super) status: c_int,
        cdb_size: c_int,
        xfer_dir: c_int,
        expxferlen: c_int,
        cdb: [c_uchar; 16],
        pub(super) residual_status: c_uint,
        pub(super) residual: usize,
        /// The response code.
        pub(super) sense_error_type: c_uchar,
        pub(super) sense_key: c_int,
        pub(super) sense_ascq: c_int,
    }

    const _: () = assert!(
        std::mem::offset_of!(ScsiTask, residual) == 40
            && std::mem::offset_of!(ScsiTask, sense_error_type) == 48
            && std::mem::offset_of!(ScsiTask, sense_ascq) == 56
    );

    #[repr(C)]
    pub(super) struct TargetPortal {
        pub(super) next: *mut Self,
        pub(super) portal: *const c_char,
    }

    #[repr(C)]
    pub(super) struct DiscoveryAddress {
        pub(super) next: *mut Self,
        pub(super) target_name: *const c_char,
        pub(super) portals: *mut TargetPortal,
    }

    pub(super) type Callback =
        unsafe extern "C" fn(*mut IscsiContext, c_int, *mut c_void, *mut c_void);

    pub(super) type Log = unsafe extern "C" fn(c_int, *const c_char);

    unsafe extern "C" {
        pub(super) fn iscsi_create_context(initiator: *const c_char) -> *mut IscsiContext;
        pub(super) fn iscsi_destroy_context(iscsi: *mut IscsiContext) -> c_int;
        pub(super) fn iscsi_get_error(iscsi: *mut IscsiContext) -> *const c_char;
        pub(super) fn iscsi_set_targetname(iscsi: *mut IscsiContext, name: *const c_char) -> c_int;
        pub(super) fn iscsi_set_session_type(iscsi: *mut IscsiContext, kind: c_int) -> c_int;
        pub(super) fn iscsi_set_header_digest(iscsi: *mut IscsiContext, digest: c_int) -> c_int;
        pub(super) fn iscsi_set_initiator_username_pwd(
            iscsi: *mut IscsiContext,
            user: *const c_char,
            password: *const c_char,
        ) -> c_int;
        pub(super) fn iscsi_set_target_username_pwd(
            iscsi: *mut IscsiContext,
            user: *const c_char,
            password: *const c_char,
        ) -> c_int;
        pub(super) fn iscsi_set_isid_random(
            iscsi: *mut IscsiContext,
            random: u32,
            qualifier: u32,
        ) -> c_int;
        pub(super) fn iscsi_set_noautoreconnect(iscsi: *mut IscsiContext, state: c_int);
        pub(super) fn iscsi_set_log_level(iscsi: *mut IscsiContext, level: c_int);
        pub(super) fn iscsi_set_log_fn(iscsi: *mut IscsiContext, log: Log);
        pub(super) fn iscsi_full_connect_async(
            iscsi: *mut IscsiContext,
            portal: *const c_char,
            lun: c_int,
            callback: Callback,
            private: *mut c_void,
        ) -> c_int;
        pub(super) fn iscsi_discovery_async(
            iscsi: *mut IscsiContext,
            callback: Callback,
            private: *mut c_void,
        ) -> c_int;
        pub(super) fn iscsi_logout_async(
            iscsi: *mut IscsiContext,
            callback: Callback,
            private: *mut c_void,
        ) -> c_int;
        pub(super) fn iscsi_nop_out_async(
            iscsi: *mut IscsiContext,
            callback: Callback,
            data: *mut c_uchar,
            bytes: c_int,
            private: *mut c_void,
        ) -> c_int;
        pub(super) fn iscsi_get_fd(iscsi: *mut IscsiContext) -> c_int;
        pub(super) fn iscsi_which_events(iscsi: *mut IscsiContext) -> c_int;
        pub(super) fn iscsi_service(iscsi: *mut IscsiContext, events: c_int) -> c_int;
        pub(super) fn iscsi_scsi_command_async(
            iscsi: *mut IscsiContext,
            lun: c_int,
            task: *mut ScsiTask,
            callback: Callback,
            data: *mut c_void,
            private: *mut c_void,
        ) -> c_int;
        pub(super) fn scsi_cdb_read16(
            lba: u64,
            bytes: u32,
            block: c_int,
            protect: c_int,
            dpo: c_int,
            fua: c_int,
            fua_nv: c_int,
            group: c_int,
        ) -> *mut ScsiTask;
        pub(super) fn scsi_cdb_write16(
            lba: u64,
            bytes: u32,
            block: c_int,
            protect: c_int,
            dpo: c_int,
            fua: c_int,
            fua_nv: c_int,
            group: c_int,
        ) -> *mut ScsiTask;
        pub(super) fn scsi_cdb_synchronizecache10(
            lba: c_int,
            blocks: c_int,
            sync_nv: c_int,
            immediate: c_int,
        ) -> *mut ScsiTask;
        pub(super) fn scsi_cdb_readcapacity16() -> *mut ScsiTask;
        pub(super) fn scsi_create_task(
            cdb_bytes: c_int,
            cdb: *mut c_uchar,
            direction: c_int,
            bytes: c_int,
        ) -> *mut ScsiTask;
        pub(super) fn scsi_task_set_iov_in(
            task: *mut ScsiTask,
            iov: *mut libc::iovec,
            count: c_int,
        );
        pub(super) fn scsi_task_set_iov_out(
            task: *mut ScsiTask,
            iov: *mut libc::iovec,
            count: c_int,
        );
        pub(super) fn scsi_free_scsi_task(task: *mut ScsiTask);
    }
}

/// A target that a portal knows, and its portals.
pub(crate) type Found = (String, Vec<String>);

#[derive(Debug)]
enum Event {
    Command { tag: u64, status: c_int },
    Connected { status: c_int },
    Proven,
    LoggedOut,
    Alive,
    Discovered { targets: Option<Vec<Found>> },
}

thread_local! {
    /// What the callbacks of this thread's contexts were told.
    static EVENTS: RefCell<Vec<Event>> = const { RefCell::new(Vec::new()) };
}

/// libiscsi makes its messages in one place for the whole process, so one context at a time may
/// log.
static LOGGING: Mutex<()> = Mutex::new(());

unsafe extern "C" fn logged(level: c_int, message: *const c_char) {
    if message.is_null() {
        return;
    }
    // SAFETY: the message is a text that ends in a NUL and stays until this returns: whoever has a
    // context log holds `LOGGING`.
    if is_proof(level, unsafe { CStr::from_ptr(message) }.to_bytes()) {
        EVENTS.with_borrow_mut(|events| events.push(Event::Proven));
    }
}

/// Tags of commands fit into a pointer, because they travel as one.
const _: () = assert!(size_of::<usize>() >= size_of::<u64>());

unsafe extern "C" fn command_answered(
    _: *mut raw::IscsiContext,
    status: c_int,
    _: *mut c_void,
    private: *mut c_void,
) {
    EVENTS.with_borrow_mut(|events| {
        events.push(Event::Command { tag: private.addr() as u64, status });
    });
}

unsafe extern "C" fn connected(
    _: *mut raw::IscsiContext,
    status: c_int,
    _: *mut c_void,
    _: *mut c_void,
) {
    EVENTS.with_borrow_mut(|events| events.push(Event::Connected { status }));
}

unsafe extern "C" fn logged_out(
    _: *mut raw::IscsiContext,
    _: c_int,
    _: *mut c_void,
    _: *mut c_void,
) {
    EVENTS.with_borrow_mut(|events| events.push(Event::LoggedOut));
}

unsafe extern "C" fn alive(
    _: *mut raw::IscsiContext,
    status: c_int,
    _: *mut c_void,
    _: *mut c_void,
) {
    if status == GOOD {
        EVENTS.with_borrow_mut(|events| events.push(Event::Alive));
    }
}

unsafe extern "C" fn discovered(
    _: *mut raw::IscsiContext,
    status: c_int,
    data: *mut c_void,
    _: *mut c_void,
) {
    let targets = (status == GOOD).then(|| {
        let mut targets = Vec::new();
        let mut address = data.cast::<raw::DiscoveryAddress>();
        // SAFETY: after GOOD, libiscsi passes a list of addresses that lives until this callback
        // returns; every pointer in it is null or valid, and every text ends in a NUL.
        while let Some(found) = unsafe { address.as_ref() } {
            let mut portals = Vec::new();
            let mut portal = found.portals;
            // SAFETY: as above.
            while let Some(one) = unsafe { portal.as_ref() } {
                // SAFETY: as above.
                portals.push(unsafe { text(one.portal) });
                portal = one.next;
            }
            // SAFETY: as above.
            targets.push((unsafe { text(found.target_name) }, portals));
            address = found.next;
        }
        targets
    });
    EVENTS.with_borrow_mut(|events| events.push(Event::Discovered { targets }));
}

/// # Safety
///
/// `text` is null or points to a text that ends in a NUL.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// What a command is for the target.
#[derive(Debug)]
pub(crate) enum Request {
    /// A read, write or flush; `block` is the target's block in bytes.
    Transfer { operation: Operation, block: u32 },
    /// READ CAPACITY (16), whose 32 bytes go into the buffer.
    Capacity(BytesMut),
    /// A command as it is, and its data: those that the target gives, or gets.
    Raw { command: [u8; 10], data: BytesMut, direction: Direction },
}

/// Where a command's data go (`enum scsi_xfer_dir`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    FromTarget = 1,
    ToTarget = 2,
}

/// The end of a command.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) tag: u64,
    pub(crate) request: Request,
    pub(crate) status: i32,
    pub(crate) sense: Sense,
    /// Whether fewer or more bytes moved than were asked for.
    pub(crate) is_short: bool,
}

struct InFlight {
    task: NonNull<raw::ScsiTask>,
    request: Request,
    /// What libiscsi scatters to or gathers from: pieces of `request`'s bytes.
    _pieces: Box<[libc::iovec]>,
}

/// A session, from before its login to its end.
pub(crate) struct Context {
    iscsi: NonNull<raw::IscsiContext>,
    in_flight: HashMap<u64, InFlight>,
    /// Whether the target has to prove who it is, until it is logged in.
    needs_proof: bool,
    is_destroyed: bool,
}

/// Normal sessions and those that only ask for targets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SessionType {
    Discovery = 1,
    Normal = 2,
}

fn c_string(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| format!("{text:?} has a NUL in it"))
}

impl Context {
    /// `isid` tells this gateway's sessions from others of the same initiator; a new session of the
    /// same number ends the older one with all its commands (RFC 7143, section 6.3.5).
    pub(crate) fn new(
        initiator: &str,
        kind: SessionType,
        isid: (u32, u16),
    ) -> Result<Self, String> {
        let initiator = c_string(initiator)?;
        // SAFETY: the name is a valid C string, which libiscsi copies.
        let iscsi = NonNull::new(unsafe { raw::iscsi_create_context(initiator.as_ptr()) })
            .ok_or("out of memory")?;
        let context =
            Self { iscsi, in_flight: HashMap::new(), needs_proof: false, is_destroyed: false };
        // SAFETY: the context is valid; these calls set numbers in it. 0 is "no digest of headers".
        unsafe {
            raw::iscsi_set_session_type(iscsi.as_ptr(), kind as c_int);
            raw::iscsi_set_header_digest(iscsi.as_ptr(), 0);
            raw::iscsi_set_isid_random(iscsi.as_ptr(), isid.0 & 0x00FF_FFFF, u32::from(isid.1));
            raw::iscsi_set_noautoreconnect(iscsi.as_ptr(), 1);
        }
        Ok(context)
    }

    pub(crate) fn set_target(&mut self, name: &str) -> Result<(), String> {
        let name = c_string(name)?;
        // SAFETY: the context and the C string are valid; libiscsi copies it.
        self.check(unsafe { raw::iscsi_set_targetname(self.iscsi.as_ptr(), name.as_ptr()) })
    }

    /// CHAP, by which the initiator proves who it is.
    pub(crate) fn set_credentials(&mut self, user: &str, password: &str) -> Result<(), String> {
        let (user, password) = (c_string(user)?, c_string(password)?);
        // SAFETY: the context and the C strings are valid; libiscsi copies them.
        self.check(unsafe {
            raw::iscsi_set_initiator_username_pwd(
                self.iscsi.as_ptr(),
                user.as_ptr(),
                password.as_ptr(),
            )
        })
    }

    /// Mutual CHAP, by which the target proves who it is. libiscsi asks for the proof only if the
    /// target says that it is in the phase of a login in which it is due, and logs in whatever
    /// phase the target says it is in. So [`Context::poll_connected`] looks for it.
    pub(crate) fn set_target_credentials(
        &mut self,
        user: &str,
        password: &str,
    ) -> Result<(), String> {
        let (user, password) = (c_string(user)?, c_string(password)?);
        self.needs_proof = true;
        // SAFETY: the context is valid. The function takes no pointer of ours.
        unsafe { raw::iscsi_set_log_fn(self.iscsi.as_ptr(), logged) };
        // SAFETY: the context and the C strings are valid; libiscsi copies them.
        self.check(unsafe {
            raw::iscsi_set_target_username_pwd(
                self.iscsi.as_ptr(),
                user.as_ptr(),
                password.as_ptr(),
            )
        })
    }

    /// Begins to connect and to log in; [`Context::poll_connected`] says when it has. `lun` None:
    /// do not touch a unit.
    pub(crate) fn connect(&mut self, portal: &str, lun: Option<u16>) -> Result<(), String> {
        let portal = c_string(portal)?;
        let lun = lun.map_or(-1, c_int::from);
        // SAFETY: the context and the C string are valid. The callback takes no pointer of ours.
        self.check(unsafe {
            raw::iscsi_full_connect_async(
                self.iscsi.as_ptr(),
                portal.as_ptr(),
                lun,
                connected,
                std::ptr::null_mut(),
            )
        })
    }

    /// Begins to ask for targets.
    pub(crate) fn discover(&mut self) -> Result<(), String> {
        // SAFETY: the context is valid. The callback takes no pointer of ours.
        self.check(unsafe {
            raw::iscsi_discovery_async(self.iscsi.as_ptr(), discovered, std::ptr::null_mut())
        })
    }

    /// Begins to log out.
    pub(crate) fn log_out(&mut self) -> Result<(), String> {
        // SAFETY: the context is valid. The callback takes no pointer of ours.
        self.check(unsafe {
            raw::iscsi_logout_async(self.iscsi.as_ptr(), logged_out, std::ptr::null_mut())
        })
    }

    /// Asks the target for a sign of life, which no unit has to give (NOP-Out).
    pub(crate) fn ask_alive(&mut self) -> Result<(), String> {
        // SAFETY: the context is valid, and no bytes go along. The callback takes no pointer of
        // ours.
        self.check(unsafe {
            raw::iscsi_nop_out_async(
                self.iscsi.as_ptr(),
                alive,
                std::ptr::null_mut(),
                0,
                std::ptr::null_mut(),
            )
        })
    }

    /// Whether the target gave that sign.
    pub(crate) fn poll_alive(&mut self) -> bool {
        take(|event| matches!(event, Event::Alive).then_some(())).is_some()
    }

    /// The socket and the events of `poll` that the session waits for; None without a connection.
    pub(crate) fn interest(&self) -> Option<(BorrowedFd<'_>, i16)> {
        // SAFETY: the context is valid.
        let (fd, events): (RawFd, c_int) = unsafe {
            (raw::iscsi_get_fd(self.iscsi.as_ptr()), raw::iscsi_which_events(self.iscsi.as_ptr()))
        };
        // SAFETY: libiscsi keeps the socket open at least until the next call that changes the
        // context, which needs `&mut self`.
        (fd >= 0).then(|| (unsafe { BorrowedFd::borrow_raw(fd) }, events as i16))
    }

    /// Lets libiscsi read and write. An error ends the session.
    pub(crate) fn service(&mut self, events: i16) -> Result<(), String> {
        let (iscsi, events) = (self.iscsi.as_ptr(), c_int::from(events));
        if !self.needs_proof {
            // SAFETY: the context is valid. Every buffer that libiscsi may touch is in `in_flight`,
            // and callbacks only add to `EVENTS`.
            return self.check(unsafe { raw::iscsi_service(iscsi, events) });
        }
        let logging = LOGGING.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: as above; and only here does a context log, which the lock allows to one.
        let result = unsafe {
            raw::iscsi_set_log_level(iscsi, LOGIN_REPLIES);
            let result = raw::iscsi_service(iscsi, events);
            raw::iscsi_set_log_level(iscsi, 0);
            result
        };
        drop(logging);
        self.check(result)
    }

    /// Sends a command. What cannot be sent comes back.
    pub(crate) fn issue(
        &mut self,
        tag: u64,
        lun: u16,
        mut request: Request,
    ) -> Result<(), Request> {
        let (task, pieces, is_write) = match &mut request {
            Request::Transfer { operation: Operation::Read { offset, buffers }, block } => {
                let pieces: Box<[libc::iovec]> = buffers
                    .iter_mut()
                    .map(|buffer| libc::iovec {
                        iov_base: buffer.as_mut_ptr().cast(),
                        iov_len: buffer.len(),
                    })
                    .collect();
                // SAFETY: the call makes a task from numbers.
                let task = unsafe {
                    let bytes = total(&pieces);
                    raw::scsi_cdb_read16(
                        *offset / u64::from(*block),
                        bytes,
                        *block as c_int,
                        0,
                        0,
                        0,
                        0,
                        0,
                    )
                };
                (task, pieces, false)
            }
            Request::Transfer { operation: Operation::Write { offset, data }, block } => {
                let pieces: Box<[libc::iovec]> = data
                    .iter()
                    .map(|piece| libc::iovec {
                        iov_base: piece.as_ptr().cast_mut().cast(),
                        iov_len: piece.len(),
                    })
                    .collect();
                // SAFETY: the call makes a task from numbers.
                let task = unsafe {
                    let bytes = total(&pieces);
                    raw::scsi_cdb_write16(
                        *offset / u64::from(*block),
                        bytes,
                        *block as c_int,
                        0,
                        0,
                        0,
                        0,
                        0,
                    )
                };
                (task, pieces, true)
            }
            Request::Transfer { operation: Operation::Flush, .. } => {
                // SAFETY: the call makes a task from numbers; zeroes are "the whole unit" (SBC-3,
                // section 5.22).
                (unsafe { raw::scsi_cdb_synchronizecache10(0, 0, 0, 0) }, Box::default(), true)
            }
            Request::Capacity(buffer) => {
                let piece =
                    libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
                // SAFETY: the call makes a task.
                (
                    unsafe { raw::scsi_cdb_readcapacity16() },
                    Box::new([piece]) as Box<[libc::iovec]>,
                    false,
                )
            }
            Request::Raw { command, data, direction } => {
                let piece = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() };
                // SAFETY: the call copies the ten bytes of the command.
                let task = unsafe {
                    let (bytes, command_bytes) = (data.len() as c_int, command.len() as c_int);
                    raw::scsi_create_task(
                        command_bytes,
                        command.as_mut_ptr(),
                        *direction as c_int,
                        bytes,
                    )
                };
                (task, Box::new([piece]) as Box<[libc::iovec]>, *direction == Direction::ToTarget)
            }
        };
        let Some(task) = NonNull::new(task) else { return Err(request) };
        let mut pieces = pieces;
        if !pieces.is_empty() {
            let (first, count) = (pieces.as_mut_ptr(), pieces.len() as c_int);
            // SAFETY: the task is valid. The vector and the bytes that it names go into `in_flight`
            // below and stay in place until the answer: the vector is boxed, and the bytes of
            // `Bytes` and `BytesMut` do not move with their handles. What is written comes from
            // `Bytes`, which libiscsi only reads.
            unsafe {
                match is_write {
                    true => raw::scsi_task_set_iov_out(task.as_ptr(), first, count),
                    false => raw::scsi_task_set_iov_in(task.as_ptr(), first, count),
                }
            }
        }
        let private = std::ptr::without_provenance_mut::<c_void>(tag as usize);
        // SAFETY: the context and the task are valid. The callback takes the tag, not a pointer.
        let result = unsafe {
            raw::iscsi_scsi_command_async(
                self.iscsi.as_ptr(),
                c_int::from(lun),
                task.as_ptr(),
                command_answered,
                std::ptr::null_mut(),
                private,
            )
        };
        if result != 0 {
            // SAFETY: libiscsi did not take the task.
            unsafe { raw::scsi_free_scsi_task(task.as_ptr()) };
            return Err(request);
        }
        self.in_flight.insert(tag, InFlight { task, request, _pieces: pieces });
        Ok(())
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// A command that is over.
    pub(crate) fn poll_answer(&mut self) -> Option<Answer> {
        let (tag, status) = take(|event| match event {
            Event::Command { tag, status } => Some((*tag, *status)),
            _ => None,
        })?;
        let InFlight { task, request, .. } = self.in_flight.remove(&tag)?;
        // SAFETY: the task was made by libiscsi and is freed only here and in `drop`.
        let raw::ScsiTask {
            residual_status,
            residual,
            sense_error_type,
            sense_key,
            sense_ascq,
            ..
        } = unsafe { task.read() };
        // SAFETY: as above; libiscsi is done with a task whose callback it called.
        unsafe { raw::scsi_free_scsi_task(task.as_ptr()) };
        let sense = Sense {
            response: sense_error_type & 0x7F,
            key: (sense_key & 0xF) as u8,
            code: (sense_ascq & 0xFFFF) as u16,
        };
        Some(Answer {
            tag,
            request,
            status,
            sense,
            is_short: residual_status != 0 && residual != 0,
        })
    }

    /// Whether the attempt to log in is over, and how.
    pub(crate) fn poll_connected(&mut self) -> Option<Result<(), String>> {
        let status = take(|event| match event {
            Event::Connected { status } => Some(*status),
            _ => None,
        })?;
        let needs_proof = std::mem::replace(&mut self.needs_proof, false);
        let is_proven = take(|event| matches!(event, Event::Proven).then_some(())).is_some();
        Some(match status {
            GOOD if needs_proof && !is_proven => {
                Err("the target did not prove who it is".to_owned())
            }
            GOOD => Ok(()),
            _ => Err(self.last_error()),
        })
    }

    /// The targets, when they are known.
    pub(crate) fn poll_discovered(&mut self) -> Option<Result<Vec<Found>, String>> {
        let targets = take(|event| match event {
            Event::Discovered { targets } => Some(targets.take()),
            _ => None,
        })?;
        Some(targets.ok_or_else(|| self.last_error()))
    }

    pub(crate) fn poll_logged_out(&mut self) -> bool {
        take(|event| matches!(event, Event::LoggedOut).then_some(())).is_some()
    }

    /// Ends the session; what was at the target comes back as cancelled.
    pub(crate) fn end(mut self) -> Vec<Answer> {
        self.destroy()
    }

    /// After this, only `drop` may see the context.
    fn destroy(&mut self) -> Vec<Answer> {
        if std::mem::replace(&mut self.is_destroyed, true) {
            return Vec::new();
        }
        // SAFETY: the context is valid and is destroyed once. Callbacks that this calls only add to
        // `EVENTS`.
        unsafe { raw::iscsi_destroy_context(self.iscsi.as_ptr()) };
        EVENTS.with_borrow_mut(Vec::clear);
        self.in_flight
            .drain()
            .map(|(tag, InFlight { task, request, .. })| {
                // SAFETY: the context is gone, and with it whatever else knew the task.
                unsafe { raw::scsi_free_scsi_task(task.as_ptr()) };
                Answer { tag, request, status: CANCELLED, sense: Sense::default(), is_short: false }
            })
            .collect()
    }

    fn last_error(&self) -> String {
        // SAFETY: the context is valid; the text is its own, ends in a NUL, and is copied before
        // another call can change it.
        let error = unsafe { text(raw::iscsi_get_error(self.iscsi.as_ptr())) };
        match error.trim_end() {
            "" => "no reason given".to_owned(),
            // That hides the reason, which libiscsi does not keep.
            hidden if hidden.starts_with("iscsi_service_reconnect") => {
                "the portal refuses or closed the connection".to_owned()
            }
            told => told.to_owned(),
        }
    }

    fn check(&self, result: c_int) -> Result<(), String> {
        if result >= 0 { Ok(()) } else { Err(self.last_error()) }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.destroy();
    }
}

fn total(pieces: &[libc::iovec]) -> u32 {
    pieces.iter().map(|piece| piece.iov_len as u32).sum()
}

/// The first event of this thread that `pick` wants.
fn take<T>(mut pick: impl FnMut(&mut Event) -> Option<T>) -> Option<T> {
    EVENTS.with_borrow_mut(|events| {
        let mut found = None;
        let at = events.iter_mut().position(|event| {
            found = pick(event);
            found.is_some()
        })?;
        events.remove(at);
        found
    })
}
