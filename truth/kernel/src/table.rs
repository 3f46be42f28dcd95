//! Every assumption about the kernel, in one place.
//!
//! Some hold on every kernel because of how the programs in `ebpf/` are written, and need no choice
//! here:
//! * arguments of a module's tracepoints may be null (the verifier says so from 6.12 on):
//!   `ebpf/ext4.h` checks;
//! * `bpf_probe_read_user_str` gives 0 or 1 for an empty string: `ebpf/lookups.h` takes both;
//! * reading a field by a cast pointer needs `bpf_rdonly_cast` (6.2), else it is copied: `FIELD` in
//!   `ebpf/kernel.h`;
//! * old verifiers lose what is known of a length when it is spilled: `BOUNDED` in
//!   `ebpf/headers.h`;
//! * a program is at most a million verified instructions, and the largest here is held below a
//!   fifth of that by a test.

use crate::assumption::{Assumption, Feature, Program, Test, Way};

/// Something that a tracepoint shows, to the program of the same name.
macro_rules! by_tracepoint {
    ($feature:expr, $what:literal, $name:literal, $module:expr, $since:literal) => {
        Assumption {
            name: $what,
            feature: $feature,
            ways: &[Way {
                tests: &[Test::Tracepoint { name: $name, module: $module }],
                programs: &[Program::new($name)],
                since: $since,
            }],
        }
    };
}

/// The same, and where tasks are stopped in the middle of such a program, the event of perf at the
/// same place (`ebpf/events.h`).
macro_rules! by_event_too {
    ($feature:expr, $what:literal, $name:literal, $module:expr, $group:literal) => {
        by_event_too!(
            $feature,
            $what,
            $name,
            $module,
            $group,
            &[Program::new(concat!($name, "_event"))]
        )
    };
    (
        $feature:expr, $what:literal, $name:literal, $module:expr, $group:literal, $event:expr
    ) => {
        Assumption {
            name: $what,
            feature: $feature,
            ways: &[
                Way {
                    tests: &[
                        Test::WholeTracepoints,
                        Test::Tracepoint { name: $name, module: $module },
                    ],
                    programs: &[Program::new($name)],
                    since: "5.15",
                },
                Way {
                    tests: &[
                        Test::Tracepoint { name: $name, module: $module },
                        Test::Event { group: $group, name: $name },
                    ],
                    programs: $event,
                    since: "7.3",
                },
            ],
        }
    };
}

/// A program at the function of the same name, which only some kernels have.
const fn at(name: &'static str, module: Option<&'static str>) -> Program {
    Program { name, if_there: Some(Test::Function { name, module }) }
}

/// What `ebpf/calls.h` and `ebpf/vfs.h` cannot do without.
const FUNCTIONS_OF_CALLS: &[Test] = &[
    Test::Unpreempted,
    Test::Function { name: "do_sys_openat2", module: None },
    Test::Function { name: "filename_lookup", module: None },
    Test::Function { name: "inet_recvmsg", module: None },
    Test::Function { name: "unix_stream_recvmsg", module: None },
    Test::Function { name: "security_socket_sendmsg", module: None },
    Test::Function { name: "security_inode_setattr", module: None },
    Test::Function { name: "security_file_open", module: None },
    Test::Function { name: "notify_change", module: None },
    Test::Function { name: "security_inode_create", module: None },
    Test::Function { name: "security_inode_link", module: None },
    Test::Function { name: "security_inode_unlink", module: None },
    Test::Function { name: "security_inode_symlink", module: None },
    Test::Function { name: "security_inode_mkdir", module: None },
    Test::Function { name: "security_inode_rmdir", module: None },
    Test::Function { name: "security_inode_mknod", module: None },
    Test::Function { name: "security_inode_rename", module: None },
    Test::Function { name: "vfs_setxattr", module: None },
    Test::Function { name: "vfs_removexattr", module: None },
    Test::Function { name: "security_mmap_file", module: None },
    Test::Function { name: "generic_file_write_iter", module: None },
    Test::Function { name: "do_settimeofday64", module: None },
    Test::Function { name: "__x64_sys_mount", module: None },
];

/// The programs in `ebpf/calls.h`. A system call whose function is not there is one that this
/// kernel does not have.
const PROGRAMS_OF_CALLS: &[Program] = &[
    Program::new("do_sys_openat2"),
    Program::new("filename_lookup"),
    Program::new("inet_recvmsg"),
    Program::new("unix_stream_recvmsg"),
    Program::new("security_socket_sendmsg"),
    Program::new("security_mmap_file"),
    Program::new("generic_file_write_iter"),
    Program::new("do_settimeofday64"),
    at("inet6_recvmsg", Some("ipv6")),
    at("unix_dgram_recvmsg", None),
    at("unix_seqpacket_recvmsg", None),
    at("do_adjtimex", None),
    at("inet_csk_listen_start", None),
    at("ext4_file_write_iter", EXT4),
    at("xfs_file_write_iter", XFS),
    at("btrfs_file_write_iter", BTRFS),
    at("shmem_file_write_iter", None),
    at("ovl_write_iter", Some("overlay")),
    at("fuse_file_write_iter", Some("fuse")),
    at("nfs_file_write", Some("nfs")),
    Program::new("security_inode_create"),
    Program::new("security_inode_link"),
    Program::new("security_inode_unlink"),
    Program::new("security_inode_symlink"),
    Program::new("security_inode_mkdir"),
    Program::new("security_inode_rmdir"),
    Program::new("security_inode_mknod"),
    Program::new("security_inode_rename"),
    Program::new("security_inode_setattr"),
    Program::new("vfs_setxattr"),
    Program::new("vfs_removexattr"),
    at("vfs_set_acl", None),
    at("vfs_remove_acl", None),
    at("set_posix_acl", None),
    at("__x64_sys_accept", None),
    at("__x64_sys_accept4", None),
    at("__x64_sys_getdents", None),
    at("__x64_sys_getdents64", None),
    at("__x64_sys_sendfile64", None),
    at("__x64_sys_splice", None),
    at("__x64_sys_copy_file_range", None),
    at("__x64_sys_chdir", None),
    at("__x64_sys_fchdir", None),
    at("__x64_sys_chroot", None),
    at("__x64_sys_setns", None),
    at("__x64_sys_unshare", None),
    at("__x64_sys_listen", None),
    at("__x64_sys_io_uring_setup", None),
    at("__x64_sys_shutdown", None),
    at("__x64_sys_open_by_handle_at", None),
    at("__ia32_compat_sys_open_by_handle_at", None),
    at("__x64_sys_mount", None),
    at("__x64_sys_umount", None),
    at("__x64_sys_pivot_root", None),
    at("__x64_sys_move_mount", None),
    at("__x64_sys_fsconfig", None),
    at("__x64_sys_mount_setattr", None),
    at("__x64_sys_open_tree_attr", None),
    at("__ia32_sys_mount", None),
    at("__ia32_sys_umount", None),
    at("__ia32_sys_oldumount", None),
    at("__ia32_sys_pivot_root", None),
    at("__ia32_sys_move_mount", None),
    at("__ia32_sys_fsconfig", None),
    at("__ia32_sys_mount_setattr", None),
    at("__ia32_sys_open_tree_attr", None),
];

/// Change times that are set, moved, or stay what they are (`ebpf/times.h`).
const TIMES: &[Test] = &[
    Test::Tracepoint { name: "inode_set_ctime_to_ts", module: None },
    Test::Tracepoint { name: "ctime_ns_xchg", module: None },
    Test::Tracepoint { name: "ctime_xchg_skip", module: None },
];
const PROGRAMS_OF_TIMES: &[Program] = &[
    Program::new("inode_set_ctime_to_ts"),
    Program::new("ctime_ns_xchg"),
    Program::new("ctime_xchg_skip"),
];

/// The programs in `ebpf/vfs.h` that only this way needs.
const PROGRAMS_OF_VFS: &[Program] = &[
    Program::new("security_file_open"),
    Program::new("notify_change"),
    at("xfs_forget_acl", XFS),
    at("btrfs_ioctl", BTRFS),
];

const EXT4: Option<&str> = Some("ext4");
const XFS: Option<&str> = Some("xfs");
const BTRFS: Option<&str> = Some("btrfs");

/// Every assumption about the kernel, with the ways by which it can be met. Each program of the
/// witness is named exactly once.
pub static ASSUMPTIONS: &[Assumption] = &[
    Assumption {
        name: "system calls",
        feature: Feature::Watching,
        ways: &[
            Way { tests: FUNCTIONS_OF_CALLS, programs: PROGRAMS_OF_CALLS, since: "6.1" },
            Way {
                tests: &[
                    Test::WholeTracepoints,
                    Test::Tracepoint { name: "sys_exit", module: None },
                ],
                programs: &[Program::new("sys_exit")],
                since: "5.15",
            },
            Way {
                tests: &[
                    Test::Tracepoint { name: "sys_exit", module: None },
                    Test::Event { group: "raw_syscalls", name: "sys_exit" },
                ],
                programs: &[Program::new("sys_exit_event")],
                since: "7.3",
            },
        ],
    },
    Assumption {
        name: "programs that are run on demand",
        feature: Feature::Watching,
        ways: &[Way {
            tests: &[Test::Value { enumeration: "bpf_prog_type", value: "BPF_PROG_TYPE_SYSCALL" }],
            programs: &[Program::new("find_note")],
            since: "5.15",
        }],
    },
    Assumption {
        name: "witnesses that are stopped in the middle",
        feature: Feature::Watching,
        ways: &[
            // There are none. (The kernel is looked after where programs are at functions.)
            Way { tests: &[Test::WholeTracepoints], programs: &[], since: "5.15" },
            Way {
                tests: &[
                    Test::Tracepoint { name: "sched_switch", module: None },
                    Test::Field { structure: "bpf_prog", field: "active" },
                    Test::Field { structure: "bpf_array", field: "index_mask" },
                ],
                programs: &[Program::new("see_gaps"), Program::new("guard_programs")],
                since: "7.3",
            },
        ],
    },
    by_event_too!(Feature::Watching, "processes that start", "sched_process_fork", None, "sched"),
    by_event_too!(
        Feature::Watching,
        "programs that are executed",
        "sched_process_exec",
        None,
        "sched",
        &[Program::new("sched_prepare_exec_event"), Program::new("sched_process_exec_event")]
    ),
    by_event_too!(Feature::Watching, "processes that end", "sched_process_exit", None, "sched"),
    Assumption {
        name: "access control lists that are set through io_uring",
        feature: Feature::Watching,
        ways: &[
            // vfs_setxattr() is among them.
            Way { tests: FUNCTIONS_OF_CALLS, programs: &[], since: "6.1" },
            Way {
                tests: &[
                    Test::Tracepoint { name: "io_uring_queue_async_work", module: None },
                    Test::Tracepoint { name: "io_uring_complete", module: None },
                ],
                programs: &[
                    Program::new("io_uring_queue_async_work"),
                    Program::new("io_uring_complete"),
                ],
                since: "6.0",
            },
            // A kernel without io_uring.
            Way { tests: &[], programs: &[], since: "5.15" },
        ],
    },
    Assumption {
        name: "what programs ask for by io_uring",
        feature: Feature::Watching,
        ways: &[
            Way {
                tests: &[
                    Test::WholeTracepoints,
                    Test::Tracepoint { name: "io_uring_submit_req", module: None },
                ],
                programs: &[Program::new("io_uring_submit_req")],
                since: "6.5",
            },
            Way {
                tests: &[
                    Test::WholeTracepoints,
                    Test::Tracepoint { name: "io_uring_submit_sqe", module: None },
                ],
                programs: &[Program::new("io_uring_submit_sqe")],
                since: "6.0",
            },
            // Then whoever has a ring may ask for anything.
            Way { tests: &[], programs: &[], since: "5.15" },
        ],
    },
    by_event_too!(Feature::Ext4, "writes", "ext4_da_write_end", EXT4, "ext4"),
    by_event_too!(
        Feature::Ext4,
        "writes without delayed allocation",
        "ext4_write_end",
        EXT4,
        "ext4"
    ),
    by_event_too!(
        Feature::Ext4,
        "writes with data=journal",
        "ext4_journalled_write_end",
        EXT4,
        "ext4"
    ),
    by_event_too!(
        Feature::Ext4,
        "changes of names and attributes",
        "ext4_mark_inode_dirty",
        EXT4,
        "ext4"
    ),
    by_event_too!(Feature::Ext4, "truncation", "ext4_truncate_exit", EXT4, "ext4"),
    by_event_too!(Feature::Ext4, "fallocate", "ext4_fallocate_exit", EXT4, "ext4"),
    Assumption {
        name: "access control lists that no system call sets",
        feature: Feature::Ext4,
        ways: &[
            // vfs_set_acl() is among them.
            Way { tests: FUNCTIONS_OF_CALLS, programs: &[], since: "6.1" },
            Way {
                tests: &[Test::Tracepoint { name: "jbd2_handle_stats", module: Some("jbd2") }],
                programs: &[Program::new("jbd2_handle_stats")],
                since: "5.15",
            },
        ],
    },
    by_event_too!(Feature::Ext4, "unlink", "ext4_unlink_exit", EXT4, "ext4"),
    by_tracepoint!(Feature::Ext4, "stores through mappings", "writeback_dirty_folio", None, "5.18"),
    Assumption {
        name: "writes with O_DIRECT",
        feature: Feature::Ext4,
        ways: &[
            Way {
                tests: &[Test::Tracepoint { name: "iomap_dio_complete", module: None }],
                programs: &[Program::new("iomap_dio_complete")],
                since: "6.6",
            },
            Way {
                tests: &[Test::Function { name: "iomap_dio_complete", module: None }],
                programs: &[Program::new("iomap_dio_complete_entry")],
                since: "6.1",
            },
        ],
    },
    Assumption {
        name: "changes of contents, names and attributes",
        feature: Feature::ChangeTimes,
        ways: &[
            Way { tests: TIMES, programs: PROGRAMS_OF_TIMES, since: "6.13" },
            // Names and access control lists are seen by programs of `ebpf/calls.h`, which the same
            // tests take.
            Way { tests: FUNCTIONS_OF_CALLS, programs: PROGRAMS_OF_VFS, since: "6.1" },
        ],
    },
    Assumption {
        name: "which subvolume a file is in",
        feature: Feature::Btrfs,
        ways: &[Way {
            tests: &[Test::Structure { name: "btrfs_inode", module: BTRFS }],
            programs: &[],
            since: "5.15",
        }],
    },
    by_tracepoint!(Feature::Xfs, "writes that leave the times alone", "xfs_iunlock", XFS, "5.15"),
    Assumption {
        name: "change times of files",
        feature: Feature::Dynamic,
        ways: &[
            Way {
                tests: &[Test::Field { structure: "inode", field: "i_ctime_sec" }],
                programs: &[],
                since: "6.11",
            },
            Way {
                tests: &[Test::Field { structure: "inode", field: "__i_ctime" }],
                programs: &[],
                since: "6.6",
            },
            Way {
                tests: &[Test::Field { structure: "inode", field: "i_ctime" }],
                programs: &[],
                since: "5.15",
            },
        ],
    },
    Assumption {
        name: "who writes to the upper layer of an overlay",
        feature: Feature::Dynamic,
        ways: &[
            Way {
                tests: &[Test::Structure { name: "ovl_inode", module: Some("overlay") }],
                programs: &[],
                since: "5.15",
            },
            // Then everybody may, and no page is kept that a program makes of files there.
            Way { tests: &[], programs: &[], since: "5.15" },
        ],
    },
    Assumption {
        name: "the time of day in the kernel",
        feature: Feature::Dynamic,
        ways: &[Way {
            tests: &[Test::Value {
                enumeration: "bpf_func_id",
                value: "BPF_FUNC_ktime_get_tai_ns",
            }],
            programs: &[],
            since: "6.1",
        }],
    },
    Assumption {
        name: "programs at a TAP's egress (tcx)",
        feature: Feature::L0AtTap,
        ways: &[Way {
            tests: &[Test::Value { enumeration: "bpf_attach_type", value: "BPF_TCX_EGRESS" }],
            programs: &[],
            since: "6.6",
        }],
    },
    Assumption {
        name: "XDP programs for frames in fragments",
        feature: Feature::L0AtDriver,
        ways: &[Way {
            tests: &[Test::Value { enumeration: "bpf_func_id", value: "BPF_FUNC_xdp_load_bytes" }],
            programs: &[],
            since: "5.18",
        }],
    },
    Assumption {
        name: "AF_XDP sockets",
        feature: Feature::Xdp,
        ways: &[Way {
            tests: &[Test::Value { enumeration: "bpf_map_type", value: "BPF_MAP_TYPE_XSKMAP" }],
            programs: &[],
            since: "5.15",
        }],
    },
    Assumption {
        name: "programs at an interface's ingress",
        feature: Feature::FastPath,
        ways: &[
            Way {
                tests: &[Test::Value { enumeration: "bpf_attach_type", value: "BPF_TCX_INGRESS" }],
                programs: &[],
                since: "6.6",
            },
            // A filter of clsact.
            Way {
                tests: &[Test::Value {
                    enumeration: "bpf_prog_type",
                    value: "BPF_PROG_TYPE_SCHED_CLS",
                }],
                programs: &[],
                since: "5.15",
            },
        ],
    },
];
