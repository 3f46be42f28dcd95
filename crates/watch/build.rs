//! Compiles the kernel's witnesses (`ebpf/`) with clang; the object is embedded in the library.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let ebpf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ebpf");
    let object = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("witness.bpf.o");
    for file in ["witness.bpf.c", "bytes.h", "kernel.h", "requests.h", "shared.h", "sql.h", "syscalls.h"] {
        println!("cargo::rerun-if-changed={}", ebpf.join(file).display());
    }
    println!("cargo::rerun-if-env-changed=CLANG");
    let target = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    assert!(target == "x86_64", "ebpf/witness.bpf.c knows the system calls and registers of x86-64 only, not {target}");

    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let mut command = Command::new(&clang);
    command.args(["-g", "-O2", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3", "-D__TARGET_ARCH_x86"]);
    // The helpers' headers of the vendored libbpf, else those of the system.
    if let Some(include) = std::env::var_os("DEP_BPF_INCLUDE") {
        command.arg("-I").arg(include);
    }
    command.arg("-I/usr/include/x86_64-linux-gnu").arg("-c").arg(ebpf.join("witness.bpf.c")).arg("-o").arg(&object);
    let status = command.status().unwrap_or_else(|error| {
        panic!("cannot run {clang} ({error}); install clang 14 or newer, or set CLANG to its path")
    });
    assert!(status.success(), "{clang} could not compile ebpf/witness.bpf.c, see above");
}
