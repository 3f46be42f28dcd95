//! For build scripts: compiles the programs for the kernel (`ebpf/`) with clang. The crates that
//! load them embed the objects.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `ebpf/SOURCE.bpf.c` to `OBJECT.bpf.o` in cargo's `OUT_DIR`, with `arguments` for clang
/// beside the usual ones. Cargo does it again when the source changes, or one of the headers in
/// `ebpf/` that it includes.
///
/// # Panics
/// The build ends if there is no clang (`CLANG` names the one to use), or if it refuses the
/// program.
pub fn compile(source: &str, object: &str, arguments: &[&str]) {
    let ebpf = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("../../ebpf");
    let out = PathBuf::from(variable("OUT_DIR"));
    let source = format!("{source}.bpf.c");
    let included = out.join(format!("{object}.bpf.d"));
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let mut command = Command::new(&clang);
    // From there, clang names the headers beside the source without a folder.
    command.current_dir(&ebpf);
    command.args(["-g", "-O2", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3"]).args(arguments);
    // The helpers' headers of the vendored libbpf, else those of the system.
    if let Some(include) = std::env::var_os("DEP_BPF_INCLUDE") {
        command.arg("-I").arg(include);
    }
    // Debian keeps the machine's own headers, which <linux/types.h> wants, in a folder that clang
    // does not look into for BPF.
    command.arg(format!("-I/usr/include/{}-linux-gnu", variable("CARGO_CFG_TARGET_ARCH")));
    command.arg("-MMD").arg("-MF").arg(&included);
    command.arg("-c").arg(&source).arg("-o").arg(out.join(format!("{object}.bpf.o")));
    let status = command.status().unwrap_or_else(|error| {
        panic!("cannot run {clang} ({error}); install clang 14 or newer, or set CLANG to its path")
    });
    assert!(status.success(), "{clang} could not compile ebpf/{source}, see above");
    for name in own_files(&included) {
        println!("cargo::rerun-if-changed={}", ebpf.join(name).display());
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: this is for build scripts, which cargo runs")
    })
}

/// The files of `ebpf/` in what clang wrote for make: words, of which the first is the object.
/// Those of other folders have a `/`; a `\` is of a line that goes on, or of a folder's name that
/// has spaces.
fn own_files(included: &Path) -> Vec<String> {
    let rule = std::fs::read_to_string(included)
        .unwrap_or_else(|error| panic!("{}: {error}", included.display()));
    let names = rule.split_whitespace().filter(|word| !word.contains(['/', '\\']));
    names.map(str::to_owned).collect()
}
