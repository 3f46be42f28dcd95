//! A program that makes one call (`calls.c`), in a folder of its own, maybe with the library.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use nicache_coherence::{RevisionTable, Stamp};
use nicache_watch::{
    Drained, LookupEvent, PRELOAD_LIBRARY, PRELOAD_VARIABLE, PreloadMemory, PreloadWitness, Witness,
};
use tempfile::TempDir;

use nicache_namespaces::inode as netns_of_this_thread;

/// The programs, compiled once.
fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<TempDir> = OnceLock::new();
    let folder = PROGRAMS.get_or_init(|| {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/preload");
        let compile = |arguments: &[&str], source: &Path, name: &str| {
            let mut command = Command::new("cc");
            command
                .args(["-std=gnu11", "-w", "-O1", "-U_FORTIFY_SOURCE"])
                .args(arguments)
                .arg("-o")
                .arg(folder.path().join(name));
            assert!(command.arg(source).arg("-ldl").status().unwrap().success(), "{name}");
        };
        compile(&[], &sources.join("calls.c"), "calls");
        compile(&["-shared", "-fPIC"], &sources.join("deep.c"), "deep.so");
        let text = folder.path().join("static.c");
        std::fs::write(&text, "#include <stdio.h>\nint main(void) { puts(\"static\"); }").unwrap();
        compile(&["-static"], &text, "static");
        std::fs::write(folder.path().join("library.so"), PRELOAD_LIBRARY).unwrap();
        folder
    });
    folder.path()
}

/// Names of all cases.
pub(crate) fn cases() -> Vec<String> {
    let output = Command::new(programs().join("calls")).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Shared memory, and whoever reads it.
pub(crate) struct Memory {
    pub table: RevisionTable,
    pub witness: PreloadWitness,
    memory: PreloadMemory,
    _folder: TempDir,
}

impl Memory {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let memory = PreloadMemory::create(folder.path(), netns_of_this_thread()).unwrap();
        let witness = memory.witness().unwrap();
        Self { table: memory.table().unwrap(), witness, memory, _folder: folder }
    }

    pub(crate) fn events(&mut self) -> Vec<LookupEvent> {
        let mut events = Vec::new();
        assert_eq!(self.witness.drain(&mut |event| events.push(event)), Drained::All);
        events
    }

    /// What a program needs that is to have the library.
    pub(crate) fn give_to(&self, command: &mut Command, part: &str) {
        command.env("LD_PRELOAD", programs().join("library.so"));
        command.env(PRELOAD_VARIABLE, format!("{part}:{}", self.memory.folder().display()));
    }
}

/// A folder with what the calls are about.
pub(crate) struct Folder {
    folder: TempDir,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["file", "other"] {
            std::fs::write(path(name), "0123456789").unwrap();
            std::fs::set_permissions(path(name), PermissionsExt::from_mode(0o644)).unwrap();
        }
        for name in ["directory", "empty"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        for name in ["directory/a", "directory/b"] {
            std::fs::write(path(name), "").unwrap();
        }
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        std::fs::write(path("script"), "#!/bin/sh\necho script\n").unwrap();
        std::fs::set_permissions(path("script"), PermissionsExt::from_mode(0o755)).unwrap();
        for name in ["static", "deep.so"] {
            std::fs::copy(programs().join(name), path(name)).unwrap();
        }
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a case; what it printed, and the clock from which on its changes count.
    pub(crate) fn run(&self, case: &str, memory: Option<(&Memory, &str)>) -> (String, Stamp) {
        let mut command = Command::new(programs().join("calls"));
        command.arg(case).current_dir(&self.folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some((memory, part)) = memory {
            memory.give_to(&mut command, part);
        }
        let mut stamp = memory.map_or(Stamp(0), |(memory, _)| memory.table.advance_clock());
        let mut process = command.spawn().unwrap();
        let (mut input, mut ticks) =
            (process.stdin.take().unwrap(), process.stderr.take().unwrap());
        let mut said = [0];
        while ticks.read(&mut said).unwrap() == 1 {
            if said == *b"t" {
                stamp = memory.map_or(Stamp(0), |(memory, _)| memory.table.advance_clock());
                input.write_all(b".").unwrap();
            } else {
                std::io::stderr().write_all(&said).unwrap();
            }
        }
        let mut text = String::new();
        process.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        let status = process.wait().unwrap();
        (format!("{text}{status}"), stamp)
    }
}
