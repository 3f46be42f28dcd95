//! Compiles the kernel's witnesses (`ebpf/witness.bpf.c`) with clang and the preloaded one
//! (`preload/`) with the C compiler; both are embedded in the library.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let target = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    assert!(
        target == "x86_64",
        "the witnesses know the system calls and registers of x86-64 only, not {target}"
    );
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    nicache_ebpf_build::compile("witness", "witness", &["-D__TARGET_ARCH_x86"]);
    compile_preload(&folder.join("preload"), &out.join("libnicache-preload.so"));
}

fn compile_preload(preload: &Path, library: &Path) {
    println!("cargo::rerun-if-changed={}", preload.display());
    println!("cargo::rerun-if-env-changed=CC");
    let entries =
        preload.read_dir().unwrap_or_else(|error| panic!("{}: {error}", preload.display()));
    let mut sources: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    sources.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
    sources.sort();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut command = Command::new(&compiler);
    // Libc's own definitions are the ones to be replaced: no built-in or fortified versions of
    // them.
    command.args([
        "-std=gnu11",
        "-O2",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-nonnull-compare",
        "-fno-builtin",
    ]);
    command.args(["-Wno-missing-attributes", "-Wno-unknown-warning-option"]);
    command
        .args(["-U_FORTIFY_SOURCE", "-fPIC", "-shared", "-Wl,-z,now", "-o"])
        .arg(library)
        .args(&sources)
        .arg("-ldl");
    let status = command.status().unwrap_or_else(|error| {
        panic!("cannot run {compiler} ({error}); install gcc, or set CC to a C compiler")
    });
    assert!(status.success(), "{compiler} could not compile preload/*.c, see above");
}
