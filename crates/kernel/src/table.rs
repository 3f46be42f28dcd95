//! Every assumption about the kernel, in one place.
//!
//! Some hold on every kernel because of how the programs in `ebpf/` are written, and need no choice here:
//! * arguments of a module's tracepoints may be null (the verifier says so from 6.12 on): `ebpf/ext4.h` checks;
//! * `bpf_probe_read_user_str` gives 0 or 1 for an empty string: `ebpf/lookups.h` takes both;
//! * reading a field by a cast pointer needs `bpf_rdonly_cast` (6.2), else it is copied: `FIELD` in `ebpf/kernel.h`;
//! * old verifiers lose what is known of a length when it is spilled: `BOUNDED` in `ebpf/headers.h`;
//! * a program is at most a million verified instructions, and the largest here is held below a fifth of that by a test.

use crate::assumption::{Assumption, Feature, Test, Way};

/// Something that a tracepoint shows, to the program of the same name.
macro_rules! by_tracepoint {
    ($feature:expr, $what:literal, $name:literal, $module:expr, $since:literal) => {
        Assumption {
            name: $what,
            feature: $feature,
            ways: &[Way {
                tests: &[Test::Tracepoint { name: $name, module: $module }],
                program: Some($name),
                since: $since,
            }],
        }
    };
}

const EXT4: Option<&str> = Some("ext4");
const XFS: Option<&str> = Some("xfs");
const BTRFS: Option<&str> = Some("btrfs");

/// See the module's head. Each program of the witness is named exactly once.
pub static ASSUMPTIONS: &[Assumption] = &[
    by_tracepoint!(Feature::Watching, "system calls", "sys_exit", None, "5.15"),
    by_tracepoint!(Feature::Watching, "processes that start", "sched_process_fork", None, "5.15"),
    by_tracepoint!(Feature::Watching, "programs that are executed", "sched_process_exec", None, "5.15"),
    by_tracepoint!(Feature::Watching, "processes that end", "sched_process_exit", None, "5.15"),
    by_tracepoint!(Feature::Ext4, "writes", "ext4_da_write_end", EXT4, "5.15"),
    by_tracepoint!(Feature::Ext4, "writes without delayed allocation", "ext4_write_end", EXT4, "5.15"),
    by_tracepoint!(Feature::Ext4, "writes with data=journal", "ext4_journalled_write_end", EXT4, "5.15"),
    by_tracepoint!(Feature::Ext4, "changes of names and attributes", "ext4_mark_inode_dirty", EXT4, "5.15"),
    by_tracepoint!(Feature::Ext4, "truncation", "ext4_truncate_exit", EXT4, "5.15"),
    by_tracepoint!(Feature::Ext4, "fallocate", "ext4_fallocate_exit", EXT4, "5.15"),
    by_tracepoint!(Feature::Ext4, "unlink", "ext4_unlink_exit", EXT4, "5.15"),
    by_tracepoint!(Feature::Ext4, "stores through mappings", "writeback_dirty_folio", None, "5.18"),
    Assumption {
        name: "writes with O_DIRECT",
        feature: Feature::Ext4,
        ways: &[
            Way {
                tests: &[Test::Tracepoint { name: "iomap_dio_complete", module: None }],
                program: Some("iomap_dio_complete"),
                since: "6.6",
            },
            Way {
                tests: &[Test::Function { name: "iomap_dio_complete", module: None }],
                program: Some("iomap_dio_complete_entry"),
                since: "6.1",
            },
        ],
    },
    by_tracepoint!(Feature::ChangeTimes, "change times that are set", "inode_set_ctime_to_ts", None, "6.13"),
    by_tracepoint!(Feature::ChangeTimes, "change times that are moved", "ctime_ns_xchg", None, "6.13"),
    by_tracepoint!(Feature::ChangeTimes, "change times that stay", "ctime_xchg_skip", None, "6.13"),
    Assumption {
        name: "which subvolume a file is in",
        feature: Feature::Btrfs,
        ways: &[Way { tests: &[Test::Structure { name: "btrfs_inode", module: BTRFS }], program: None, since: "5.15" }],
    },
    by_tracepoint!(Feature::Xfs, "writes that leave the times alone", "xfs_iunlock", XFS, "5.15"),
    Assumption {
        name: "change times of files",
        feature: Feature::Dynamic,
        ways: &[
            Way { tests: &[Test::Field { structure: "inode", field: "i_ctime_sec" }], program: None, since: "6.11" },
            Way { tests: &[Test::Field { structure: "inode", field: "__i_ctime" }], program: None, since: "6.6" },
            Way { tests: &[Test::Field { structure: "inode", field: "i_ctime" }], program: None, since: "5.15" },
        ],
    },
    Assumption {
        name: "the time of day in the kernel",
        feature: Feature::Dynamic,
        ways: &[Way {
            tests: &[Test::Value { enumeration: "bpf_func_id", value: "BPF_FUNC_ktime_get_tai_ns" }],
            program: None,
            since: "6.1",
        }],
    },
    Assumption {
        name: "programs at a TAP's egress (tcx)",
        feature: Feature::L0AtTap,
        ways: &[Way {
            tests: &[Test::Value { enumeration: "bpf_attach_type", value: "BPF_TCX_EGRESS" }],
            program: None,
            since: "6.6",
        }],
    },
    Assumption {
        name: "XDP programs for frames in fragments",
        feature: Feature::L0AtDriver,
        ways: &[Way {
            tests: &[Test::Value { enumeration: "bpf_func_id", value: "BPF_FUNC_xdp_load_bytes" }],
            program: None,
            since: "5.18",
        }],
    },
    Assumption {
        name: "AF_XDP sockets",
        feature: Feature::Xdp,
        ways: &[Way {
            tests: &[Test::Value { enumeration: "bpf_map_type", value: "BPF_MAP_TYPE_XSKMAP" }],
            program: None,
            since: "5.15",
        }],
    },
];
