//! Addresses of what the kernel has no types for.
//!
//! Read first: kernel/kallsyms.c in Linux. libbpf could find them, too, but it reads the list anew
//! for each object, and slowly: a third of what it takes to load the witnesses.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::sync::OnceLock;

/// Variables and functions of the kernel whose addresses are of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbol {
    /// The first of the kernel's instructions. Every kernel has it.
    Stext,
    /// Which kind of preemption was chosen at boot, where that can be chosen.
    PreemptDynamicMode,
    /// There where the kernel stops tasks in the middle of its own work.
    PreemptSchedule,
    /// By processor, what is to be added to the address of a variable of its own.
    PerCpuOffset,
    /// How often a processor was told not to stop its task. One of its own variables.
    PreemptCount,
    /// How many programs on events of perf run on a processor. One of its own variables.
    BpfProgActive,
}

const NAMES: [&str; 6] = [
    "_stext",
    "preempt_dynamic_mode",
    "preempt_schedule",
    "__per_cpu_offset",
    "__preempt_count",
    "bpf_prog_active",
];

impl Symbol {
    /// Where it is; 0: the kernel has no such symbol, or does not show addresses to this process
    /// (that needs CAP_SYSLOG), or has two of that name. The list is read once, which takes some
    /// 50 ms.
    #[must_use]
    pub fn address(self) -> u64 {
        static ADDRESSES: OnceLock<[u64; NAMES.len()]> = OnceLock::new();
        let read = || {
            let list = File::open("/proc/kallsyms");
            list.map_or([0; NAMES.len()], |list| find(BufReader::with_capacity(1 << 16, list)))
        };
        ADDRESSES.get_or_init(read)[self as usize]
    }
}

/// Lines are `ffffffff81000000 T name`, and those of modules, which come last, have the module's
/// name behind a tab.
fn find(mut list: impl BufRead) -> [u64; NAMES.len()] {
    let mut found = [None; NAMES.len()];
    let mut line = Vec::new();
    loop {
        line.clear();
        match list.read_until(b'\n', &mut line) {
            Ok(bytes) if bytes > 0 && !line.contains(&b'\t') => {}
            _ => break,
        }
        let name = line.trim_ascii_end().rsplit(|&byte| byte == b' ').next().unwrap_or_default();
        let Some(at) = NAMES.iter().position(|known| known.as_bytes() == name) else { continue };
        let digits = line.split(|&byte| byte == b' ').next().unwrap_or_default();
        let address = std::str::from_utf8(digits)
            .ok()
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .unwrap_or(0);
        found[at] = Some(if found[at].is_none_or(|known| known == address) { address } else { 0 });
    }
    found.map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_found_by_their_whole_name_and_before_those_of_modules() {
        let list = "0000000000001000 A __per_cpu_offset\n\
             ffffffff81000000 T _stext\n\
             ffffffff81000010 T _stext_more\n\
             ffffffff81000020 t preempt_schedule\n\
             ffffffff81000030 t preempt_schedule\n\
             nonsense\n\
             \n\
             ffffffff81000040 D preempt_dynamic_mode\n\
             ffffffffc0000000 t bpf_prog_active\t[module]\n\
             ffffffffc0000010 t __preempt_count\n";
        let found = find(list.as_bytes());
        assert_eq!(found, [0xffff_ffff_8100_0000, 0xffff_ffff_8100_0040, 0, 0x1000, 0, 0]);
    }

    #[test]
    fn nothing_is_made_of_what_is_no_list() {
        for list in ["", "\n\n", "_stext", "zz T _stext\n", "\u{fffd} T _stext"] {
            assert_eq!(find(list.as_bytes()), [0; NAMES.len()], "{list:?}");
        }
    }

    #[test]
    fn the_running_kernel_has_a_beginning() {
        assert_ne!(Symbol::Stext.address(), 0, "this test needs CAP_SYSLOG");
    }
}
