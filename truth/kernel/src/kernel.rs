//! The types of the running kernel, and of its modules.

use std::collections::HashMap;
use std::ffi::CString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::ptr::NonNull;

use libbpf_rs::AsRawLibbpf;
use libbpf_rs::btf::types::{Enum, Enum64, Struct};
use libbpf_rs::btf::{Btf, BtfKind};

use crate::assumption::{Assumption, Test};
use crate::findings::{Findings, Lack};
use crate::preemption::{has_whole_tracepoints, is_unpreempted};
use crate::tracing::{calls_programs_at_functions, has_tracefs};

/// The kernel does not describe its types.
#[derive(Debug, thiserror::Error)]
#[error(
    "this kernel has no /sys/kernel/btf/vmlinux: take one that is built with CONFIG_DEBUG_INFO_BTF, version 6.1 or later"
)]
pub struct NoTypes;

/// What the running kernel says of itself (BTF).
pub struct Kernel {
    // Before `base`, which they refer to: fields are dropped in this order.
    // `None`: the module is not available; it is asked for once.
    modules: HashMap<&'static str, Option<ModuleTypes>>,
    base: Btf<'static>,
    is_unpreempted: bool,
    has_whole_tracepoints: bool,
    is_rehearsal: bool,
    has_functions: bool,
}

impl Kernel {
    /// Reads the kernel's types, and those of the modules that `assumptions` name. A module that is
    /// not loaded is loaded, if `modprobe` can.
    ///
    /// # Errors
    /// [`NoTypes`].
    pub fn read(assumptions: &'static [Assumption]) -> Result<Self, NoTypes> {
        let base = Btf::from_vmlinux().map_err(|_| NoTypes)?;
        let is_unpreempted = is_unpreempted();
        let mut kernel = Self {
            modules: HashMap::new(),
            base,
            is_unpreempted,
            has_whole_tracepoints: is_unpreempted || has_whole_tracepoints(),
            is_rehearsal: false,
            has_functions: calls_programs_at_functions(),
        };
        let tests =
            assumptions.iter().flat_map(|assumption| assumption.ways).flat_map(|way| way.tests);
        for test in tests {
            let (Test::Tracepoint { module: Some(module), .. }
            | Test::Function { module: Some(module), .. }
            | Test::Structure { module: Some(module), .. }) = test
            else {
                continue;
            };
            if kernel.modules.contains_key(module) || kernel.has(test) {
                continue;
            }
            load_module(module);
            let types = ModuleTypes::load(module, &kernel.base);
            kernel.modules.insert(module, types);
        }
        let programs =
            assumptions.iter().flat_map(|assumption| assumption.ways).flat_map(|way| way.programs);
        for test in programs.filter_map(|program| program.if_there.as_ref()) {
            if let Test::Function { module: Some(module), .. } = test
                && !kernel.modules.contains_key(module)
            {
                let types = ModuleTypes::load(module, &kernel.base);
                kernel.modules.insert(module, types);
            }
        }
        Ok(kernel)
    }

    /// Does the kernel have that?
    pub fn has(&self, test: &Test) -> bool {
        match test {
            Test::Tracepoint { name, module } => {
                self.names(&format!("btf_trace_{name}"), BtfKind::Typedef, *module)
            }
            // Without ftrace's trampolines nothing can be attached to functions.
            Test::Function { name, module } => {
                self.has_functions
                    && self.names("register_ftrace_direct", BtfKind::Func, None)
                    && self.names(name, BtfKind::Func, *module)
            }
            Test::Unpreempted => self.is_unpreempted,
            Test::WholeTracepoints => self.has_whole_tracepoints,
            Test::Event { .. } => has_tracefs(),
            Test::Field { structure, field } => {
                let structure: Option<Struct<'_>> = self.base.type_by_name(structure);
                structure.is_some_and(|found| {
                    found.iter().any(|member| member.name.is_some_and(|name| name == *field))
                })
            }
            Test::Structure { name, module } => self.names(name, BtfKind::Struct, *module),
            Test::Value { enumeration, value } => {
                let small: Option<Enum<'_>> = self.base.type_by_name(enumeration);
                let large: Option<Enum64<'_>> = self.base.type_by_name(enumeration);
                small.is_some_and(|found| {
                    found.iter().any(|known| known.name.is_some_and(|name| name == *value))
                }) || large.is_some_and(|found| {
                    found.iter().any(|known| known.name.is_some_and(|name| name == *value))
                })
            }
        }
    }

    /// From now on takes no way that needs a function: the kernel has refused a program at one.
    pub fn take_no_functions(&mut self) {
        self.has_functions = false;
    }

    /// From now on takes the way for a kernel that stops tasks in the middle of its own work, and
    /// of programs at tracepoints.
    pub fn expect_stops(&mut self) {
        self.is_unpreempted = false;
        self.is_rehearsal = std::mem::take(&mut self.has_whole_tracepoints);
    }

    /// Goes through `assumptions`.
    pub fn findings(&self, assumptions: &'static [Assumption]) -> Findings {
        let mut findings = Findings {
            stops_at_tracepoints: !self.has_whole_tracepoints,
            is_rehearsal: self.is_rehearsal,
            ..Findings::default()
        };
        for assumption in assumptions {
            match assumption.ways.iter().find(|way| way.tests.iter().all(|test| self.has(test))) {
                Some(way) => findings.take(assumption, way, |test| self.has(test)),
                None => findings.lacks.push(Lack { assumption, why: self.why_not(assumption) }),
            }
        }
        findings
    }

    fn names(&self, name: &str, kind: BtfKind, module: Option<&str>) -> bool {
        match module.and_then(|module| self.modules.get(module)?.as_ref()) {
            Some(types) => names(types.0, name, kind),
            None => names(self.base.as_libbpf_object(), name, kind),
        }
    }

    fn why_not(&self, assumption: &Assumption) -> String {
        let missing = |test: &&Test| !self.has(test);
        let ways = assumption.ways.iter().map(|way| {
            let tests: Vec<String> =
                way.tests.iter().filter(missing).map(ToString::to_string).collect();
            tests.join(", ")
        });
        format!("this kernel lacks {}", ways.collect::<Vec<_>>().join(", or else "))
    }
}

/// Is one of the types of that name and kind? Also one that it refers to in the types it is based
/// on.
fn names(types: NonNull<libbpf_sys::btf>, name: &str, kind: BtfKind) -> bool {
    let Ok(name) = CString::new(name) else { return false };
    // SAFETY: both callers' types are valid as long as they are borrowed, and the name is a C
    // string.
    unsafe { libbpf_sys::btf__find_by_name_kind(types.as_ptr(), name.as_ptr(), kind as u32) >= 0 }
}

/// The types of a module, with those of the kernel, in libbpf's own form.
struct ModuleTypes(NonNull<libbpf_sys::btf>);

// SAFETY: nothing in it is bound to a thread; what is read by a shared reference is not changed.
unsafe impl Send for ModuleTypes {}

impl ModuleTypes {
    fn load(module: &str, base: &Btf<'_>) -> Option<Self> {
        let name = CString::new(module).ok()?;
        // SAFETY: a C string and a valid description, which outlives the one that refers to it (see
        // `Kernel`).
        let types = unsafe {
            libbpf_sys::btf__load_module_btf(name.as_ptr(), base.as_libbpf_object().as_ptr())
        };
        // libbpf may return a small negative number in the place of a pointer.
        // SAFETY: it only looks at the pointer's value.
        if unsafe { libbpf_sys::libbpf_get_error(types.cast()) } != 0 {
            return None;
        }
        NonNull::new(types).map(ModuleTypes)
    }
}

impl Drop for ModuleTypes {
    fn drop(&mut self) {
        // SAFETY: it is ours, and nobody refers to it any longer.
        unsafe { libbpf_sys::btf__free(self.0.as_ptr()) }
    }
}

fn load_module(module: &str) {
    if !Path::new(&format!("/sys/kernel/btf/{module}")).exists() {
        let _ = Command::new("modprobe")
            .args(["-q", module])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ASSUMPTIONS, Program};

    #[test]
    fn what_no_kernel_has_is_lacking_and_said() {
        static IMPOSSIBLE: [Assumption; 1] = [Assumption {
            name: "the impossible",
            feature: crate::Feature::Ext4,
            ways: &[
                crate::Way {
                    tests: &[Test::Tracepoint { name: "no_such", module: None }],
                    programs: &[Program::new("a")],
                    since: "9",
                },
                crate::Way {
                    tests: &[Test::Function { name: "no_such", module: None }],
                    programs: &[Program::new("b")],
                    since: "9",
                },
            ],
        }];
        let kernel = Kernel::read(&IMPOSSIBLE).unwrap();
        let findings = kernel.findings(&IMPOSSIBLE);
        assert!(!findings.has(crate::Feature::Ext4));
        let why = &findings.lacks[0].to_string();
        assert_eq!(
            why,
            "the impossible: this kernel lacks tracepoint no_such, or else entry of no_such()"
        );
    }

    #[test]
    fn each_kind_of_test_finds_what_is_there() {
        let kernel = Kernel::read(ASSUMPTIONS).unwrap();
        assert!(kernel.has(&Test::Tracepoint { name: "sys_exit", module: None }));
        assert!(kernel.has(&Test::Tracepoint { name: "ext4_da_write_end", module: Some("ext4") }));
        assert!(kernel.has(&Test::Field { structure: "inode", field: "i_ino" }));
        assert!(!kernel.has(&Test::Field { structure: "inode", field: "i_no_such" }));
        assert!(
            kernel.has(&Test::Value { enumeration: "bpf_map_type", value: "BPF_MAP_TYPE_RINGBUF" })
        );
        assert!(
            !kernel
                .has(&Test::Value { enumeration: "bpf_map_type", value: "BPF_MAP_TYPE_NO_SUCH" })
        );
    }
}
