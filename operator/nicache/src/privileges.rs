//! What the card's process gives up once it has what it needs, and the watcher's. Strangers'
//! packets reach the one; their paths and SQL, as the server passes them on, the other.
//!
//! Capabilities belong to threads: they are given up before others are started. The filter of
//! system calls comes last and is for all threads. The card may make those of a list only; one that
//! is not there fails with EPERM, so a library's new habit costs a feature and not the
//! service. The watcher starts clients of databases, which inherit its filter, so it is the other
//! way round there: a list of what none of them needs.
//!
//! The supervisor keeps what it has: it starts the server, which may need anything, and cards and
//! watchers again. Its systemd units bound it.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// What a card at work asks of the kernel: frames, time, memory, other threads; the connections of
/// its own client.
const CALLS: &[i64] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_socket,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_time,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_getcpu,
    libc::SYS_sched_getaffinity,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_getrandom,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_tgkill,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// A card's threads change their own niceness ([`crate::engine::precedence`]), and nobody else's.
const NICENESS_OF_ITSELF: [(u8, u64); 2] = [(0, libc::PRIO_PROCESS as u64), (1, 0)];

/// What gives power over the machine or other processes, and is not for a watcher at work, nor for
/// a client of a database.
const CALLS_OF_NO_WATCHER: &[i64] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_open_by_handle_at,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_mknod,
    libc::SYS_mknodat,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_acct,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
];

/// Of bpf(2), looking at, changing and walking through maps; the next command loads programs. And
/// running one that is loaded already, and being told of it whether it was passed over.
const BPF_MAP_GET_NEXT_KEY: u64 = 4;
const BPF_PROG_TEST_RUN: u64 = 10;
const BPF_OBJ_GET_INFO_BY_FD: u64 = 15;

/// What a watcher at work needs: to read any file without a trace of it (`O_NOATIME`) and to lease
/// it (`F_SETLEASE`), to look at the server's and the databases' processes and at its own maps, and
/// to start a database's client as the user that the database trusts, and end it.
pub(crate) const OF_A_WATCHER: CapabilitySet = CapabilitySet::DAC_READ_SEARCH
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::LEASE)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::KILL);

/// What a card at work needs: to go first again after it has not ([`crate::engine::precedence`]);
/// and the kernel asks for `CAP_NET_ADMIN` whenever the `steering` of a TAP's frames follows a
/// thread to another CPU.
pub(crate) fn of_a_card(steering: bool) -> CapabilitySet {
    let for_steering = if steering { CapabilitySet::NET_ADMIN } else { CapabilitySet::empty() };
    CapabilitySet::SYS_NICE | for_steering
}

/// Keeps these capabilities only, in this thread and those that it starts, and no program that is
/// executed gets any.
pub(crate) fn keep_capabilities(kept: CapabilitySet) -> Result<()> {
    rustix::thread::set_no_new_privs(true).context("cannot give up privileges")?;
    let all = rustix::thread::capabilities(None)?;
    let left = all.permitted & kept;
    let sets =
        CapabilitySets { effective: left, permitted: left, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets).context("cannot give up capabilities")
}

/// Lets all threads of the process make the calls of a card at work only.
pub(crate) fn filter_calls() -> Result<()> {
    let mut rules: Rules = CALLS.iter().map(|&call| (call, Vec::new())).collect();
    let equal = |(argument, value)| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
    };
    let own = NICENESS_OF_ITSELF.map(equal).into_iter().collect::<Result<Vec<_>, _>>()?;
    rules.insert(libc::SYS_setpriority, vec![SeccompRule::new(own)?]);
    apply(rules, refused(), SeccompAction::Allow)
}

/// Refuses all threads of the process, and the programs that it starts, what is not for a watcher
/// at work.
pub(crate) fn refuse_calls() -> Result<()> {
    let mut rules: Rules = CALLS_OF_NO_WATCHER.iter().map(|&call| (call, Vec::new())).collect();
    let command =
        |operator, value| SeccompCondition::new(0, SeccompCmpArgLen::Dword, operator, value);
    let others = vec![
        command(SeccompCmpOp::Gt, BPF_MAP_GET_NEXT_KEY)?,
        command(SeccompCmpOp::Ne, BPF_PROG_TEST_RUN)?,
        command(SeccompCmpOp::Ne, BPF_OBJ_GET_INFO_BY_FD)?,
    ];
    rules.insert(libc::SYS_bpf, vec![SeccompRule::new(others)?]);
    apply(rules, SeccompAction::Allow, refused())
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn refused() -> SeccompAction {
    SeccompAction::Errno(libc::EPERM as u32)
}

fn apply(rules: Rules, otherwise: SeccompAction, matching: SeccompAction) -> Result<()> {
    let filter =
        SeccompFilter::new(rules, otherwise, matching, std::env::consts::ARCH.try_into()?)?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter_all_threads(&program).context("cannot filter system calls")
}
