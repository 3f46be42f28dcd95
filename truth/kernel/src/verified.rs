//! What the kernel says of a loaded program.

use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Instructions that the verifier went through before it took this program (at most a million);
/// `None`: the kernel does not say (before 5.16), or it is not a program.
pub fn verified_instructions(program: BorrowedFd<'_>) -> Option<u32> {
    info(program).map(|info| info.verified_insns).filter(|verified| *verified != 0)
}

/// How often the kernel has passed over this program because it was running on that processor
/// already; `None`: it is not a program.
pub fn missed_runs(program: BorrowedFd<'_>) -> Option<u64> {
    info(program).map(|info| info.recursion_misses)
}

/// How often a program has run, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runs {
    /// The program's name, cut after 15 bytes.
    pub name: String,
    /// Runs since it was loaded, while the kernel counted them (sysctl kernel.bpf_stats_enabled).
    pub runs: u64,
    /// Nanoseconds that all of them took.
    pub ns: u64,
}

/// What the kernel has counted of this program; `None`: it is not a program.
pub fn runs(program: BorrowedFd<'_>) -> Option<Runs> {
    let info = info(program)?;
    let name = info
        .name
        .iter()
        .take_while(|&&byte| byte != 0)
        .map(|&byte| char::from(byte as u8))
        .collect();
    Some(Runs { name, runs: info.run_cnt, ns: info.run_time_ns })
}

fn info(program: BorrowedFd<'_>) -> Option<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut bytes = u32::try_from(mem::size_of_val(&info)).ok()?;
    // SAFETY: the kernel writes at most `bytes` bytes of plain numbers into `info`, whose pointers
    // to arrays are all null.
    let result = unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut bytes)
    };
    (result == 0).then_some(info)
}
