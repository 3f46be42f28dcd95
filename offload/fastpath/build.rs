//! Compiles the programs (`ebpf/forward.bpf.c`) with clang; they are embedded in the library.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let ebpf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ebpf");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for source in ["forward.bpf.c", "headers.h"] {
        println!("cargo::rerun-if-changed={}", ebpf.join(source).display());
    }
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let mut command = Command::new(&clang);
    command.args(["-g", "-O2", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3"]);
    // The helpers' headers of the vendored libbpf, else those of the system.
    if let Some(include) = std::env::var_os("DEP_BPF_INCLUDE") {
        command.arg("-I").arg(include);
    }
    // Debian keeps the machine's own headers, which <linux/types.h> wants, in a folder that clang does not look into for BPF.
    let machine = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the architecture");
    command.arg(format!("-I/usr/include/{machine}-linux-gnu"));
    command.arg("-c").arg(ebpf.join("forward.bpf.c")).arg("-o").arg(out.join("forward.bpf.o"));
    let status = command.status().unwrap_or_else(|error| {
        panic!("cannot run {clang} ({error}); install clang 14 or newer, or set CLANG to its path")
    });
    assert!(status.success(), "{clang} could not compile ebpf/forward.bpf.c, see above");
}
