//! The terms of the table.

use std::fmt;

/// What a kernel must have for a feature to work.
#[derive(Debug)]
pub struct Assumption {
    /// What is seen or done by it, as an operator is told: "writes with O_DIRECT".
    pub name: &'static str,
    /// What is lost if none of the ways is available.
    pub feature: Feature,
    /// How it is had, the best first. The first one that this kernel has is taken.
    pub ways: &'static [Way],
}

/// One way to have something.
#[derive(Debug)]
pub struct Way {
    /// What the kernel must have for it; all of these.
    pub tests: &'static [Test],
    /// The eBPF programs that are attached then; none: something else asks for the same (CO-RE in a
    /// program, a socket option).
    pub programs: &'static [Program],
    /// The first kernel release that has it, as far as it was seen to run.
    pub since: &'static str,
}

/// An eBPF program of the witness.
#[derive(Debug)]
pub struct Program {
    /// The program's name in `ebpf/`.
    pub name: &'static str,
    /// The program is attached only if the kernel has that; where it does not, there is nothing
    /// that the program could miss (a system call of newer kernels, a file system whose module is
    /// not loaded).
    pub if_there: Option<Test>,
}

impl Program {
    /// One that is always attached.
    pub const fn new(name: &'static str) -> Self {
        Self { name, if_there: None }
    }
}

/// Something that the kernel shows: nearly all of it in its own description of its types (BTF).
#[derive(Debug)]
pub enum Test {
    /// A tracepoint. `module`: it is in the kernel itself, or in this module, as the kernel was
    /// built.
    Tracepoint {
        /// Its name, without the subsystem.
        name: &'static str,
        /// The module that may have it.
        module: Option<&'static str>,
    },
    /// A function whose entry or exit a program can be attached to (needs ftrace, and that the
    /// function was not inlined).
    Function {
        /// Its name.
        name: &'static str,
        /// The module that may have it.
        module: Option<&'static str>,
    },
    /// A field of a structure.
    Field {
        /// `struct` by this name.
        structure: &'static str,
        /// The field's name.
        field: &'static str,
    },
    /// The kernel does not stop in the middle of its own work to run another task (`preempt=none`
    /// or `voluntary`). Where it does, a program at a function is passed over if the same program
    /// was stopped on that processor.
    Unpreempted,
    /// No task is stopped in the middle of a program at a tracepoint, although tasks may be stopped
    /// in the middle of the kernel's work: so it was until Linux 6.19.
    WholeTracepoints,
    /// An event of perf, in whose programs no task is stopped.
    Event {
        /// The subsystem.
        group: &'static str,
        /// Its name.
        name: &'static str,
    },
    /// A structure, in the kernel itself or in this module.
    Structure {
        /// `struct` by this name.
        name: &'static str,
        /// The module that may have it.
        module: Option<&'static str>,
    },
    /// A value of an enumeration: helpers, map types and attach types are such.
    Value {
        /// `enum` by this name.
        enumeration: &'static str,
        /// The value's name.
        value: &'static str,
    },
}

/// What an operator loses, or has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// `--watch kernel`: anything can be kept at all.
    Watching,
    /// Content on ext4 can be kept.
    Ext4,
    /// Content on tmpfs can be kept.
    ChangeTimes,
    /// Content on Btrfs can be kept, if change times are seen, too.
    Btrfs,
    /// Content on XFS can be kept, if change times are seen, too.
    Xfs,
    /// Dynamic pages can be kept.
    Dynamic,
    /// `run --l0`.
    L0AtTap,
    /// `attach --l0` and `run --wire --l0`.
    L0AtDriver,
    /// `--port xdp`.
    Xdp,
    /// `forward --fast-path`.
    FastPath,
}

impl Feature {
    /// All of them, in the order in which they are told.
    pub const ALL: [Self; 10] = [
        Self::Watching,
        Self::Ext4,
        Self::ChangeTimes,
        Self::Btrfs,
        Self::Xfs,
        Self::Dynamic,
        Self::L0AtTap,
        Self::L0AtDriver,
        Self::Xdp,
        Self::FastPath,
    ];

    /// The feature's name for programs: one word, the same in every release.
    pub fn label(self) -> &'static str {
        match self {
            Self::Watching => "watching",
            Self::Ext4 => "ext4",
            Self::ChangeTimes => "tmpfs",
            Self::Btrfs => "btrfs",
            Self::Xfs => "xfs",
            Self::Dynamic => "dynamic",
            Self::L0AtTap => "l0_run",
            Self::L0AtDriver => "l0_attach",
            Self::Xdp => "xdp",
            Self::FastPath => "fast_path",
        }
    }

    /// What it gives, for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Watching => "seeing what changes (--watch kernel)",
            Self::Ext4 => "keeping what is on ext4",
            Self::ChangeTimes => "keeping what is on tmpfs",
            Self::Btrfs => "keeping what is on Btrfs",
            Self::Xfs => "keeping what is on XFS",
            Self::Dynamic => "keeping dynamic pages",
            Self::L0AtTap => "--l0 for run",
            Self::L0AtDriver => "--l0 for attach and run --wire",
            Self::Xdp => "--port xdp",
            Self::FastPath => "forward --fast-path",
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |module: &Option<&str>| {
            module.map_or_else(String::new, |module| format!(" ({module})"))
        };
        match self {
            Self::Tracepoint { name, module } => {
                write!(formatter, "tracepoint {name}{}", of(module))
            }
            Self::Function { name, module } => write!(formatter, "entry of {name}(){}", of(module)),
            Self::Unpreempted => write!(formatter, "preempt=none or voluntary"),
            Self::WholeTracepoints => {
                write!(formatter, "tracepoints in whose programs no task is stopped")
            }
            Self::Event { group, name } => {
                write!(formatter, "event {group}:{name} (tracefs)")
            }
            Self::Field { structure, field } => {
                write!(formatter, "struct {structure} with {field}")
            }
            Self::Structure { name, module } => write!(formatter, "struct {name}{}", of(module)),
            Self::Value { value, .. } => write!(formatter, "{value}"),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.tests.iter().any(|test| matches!(test, Test::Unpreempted)) {
            return write!(formatter, "programs at the kernel's functions ({})", Test::Unpreempted);
        }
        for (index, test) in self.tests.iter().enumerate() {
            let between = if index == 0 { "" } else { " and " };
            write!(formatter, "{between}{test}")?;
        }
        Ok(())
    }
}
