//! Compiles the kernel's witnesses (`ebpf/witness.bpf.c`) with clang and the preloaded one
//! (`preload/`) with the C compiler; both are embedded in the library. They take in what the kinds
//! of database servers (`src/databases/kinds`) say of themselves in C.

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
    let kinds = folder.join("src/databases/kinds");
    collect_databases(&kinds, &out.join("databases"));
    let headers = [&kinds, &out].map(|folder| format!("-I{}", folder.display()));
    let [kinds, out_headers] = &headers;
    nicache_ebpf_build::compile("witness", "witness", &["-D__TARGET_ARCH_x86", kinds, out_headers]);
    compile_preload(&folder.join("preload"), &out.join("libnicache-preload.so"), &headers);
}

/// Writes headers that include those of every kind of database server: a folder each. `DATABASES`
/// is the list of the kinds, by their folders.
fn collect_databases(kinds: &Path, headers: &Path) {
    println!("cargo::rerun-if-changed={}", kinds.display());
    let entries = kinds.read_dir().unwrap_or_else(|error| panic!("{}: {error}", kinds.display()));
    let folders = entries.flatten().map(|entry| entry.path());
    let kinds = folders.filter(|path| path.join("processes.h").exists());
    let names = kinds.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
    let mut names: Vec<String> = names.collect();
    names.sort();
    std::fs::create_dir_all(headers).expect("OUT_DIR can be written to");
    for header in ["processes.h", "received.h"] {
        let mut text = String::from("#pragma once\n");
        for name in &names {
            text += &format!("#include \"{name}/{header}\"\n");
        }
        if header == "processes.h" {
            let list = names.iter().map(|name| format!(" KIND({name}, {})", name.to_uppercase()));
            text += &format!("#define DATABASES(KIND){}\n", list.collect::<String>());
        }
        std::fs::write(headers.join(header), text).expect("OUT_DIR can be written to");
    }
}

fn compile_preload(preload: &Path, library: &Path, headers: &[String]) {
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
        .args(headers)
        .args(&sources)
        .arg("-ldl");
    let status = command.status().unwrap_or_else(|error| {
        panic!("cannot run {compiler} ({error}); install gcc, or set CC to a C compiler")
    });
    assert!(status.success(), "{compiler} could not compile preload/*.c, see above");
}
