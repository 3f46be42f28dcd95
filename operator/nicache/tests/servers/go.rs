//! Go's `http.FileServer` in a program that is linked statically.

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use tempfile::TempDir;

use super::stage::{Stage, Traits};
use super::{cases, edits};

const PROGRAM: &str = r#"package main

import (
	"log"
	"net/http"
	"os"
)

func main() {
	log.Fatal(http.ListenAndServe("0.0.0.0:80", http.FileServer(http.Dir(os.Args[1]))))
}
"#;

/// The compiler, if it is there.
static COMPILER: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/local/go/bin";
    path.split(':').map(|folder| PathBuf::from(folder).join("go")).find(|program| program.exists())
});

/// The folder of the program, which is called `files`.
fn compile() -> Option<TempDir> {
    let Some(compiler) = &*COMPILER else {
        println!("skipped: go is not installed (tools/setup test)");
        return None;
    };
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::write(folder.path().join("files.go"), PROGRAM).unwrap();
    let output = Command::new(compiler)
        .args(["build", "-o", "files", "files.go"])
        .current_dir(&folder)
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-mod=mod")
        .env("GOTOOLCHAIN", "local")
        .env("GOCACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/go"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(folder)
}

#[test]
fn files() {
    let Some(program) = compile() else { return };
    let traits = Traits { is_root: true, ..Traits::default() };
    let stage = Stage::new("Go", traits, &[], |folder| {
        let program = program.path().join("files");
        [program, folder.root()].map(|word| word.to_str().unwrap().to_owned()).to_vec()
    });
    cases::check(&stage);
    edits::check(&stage);
}
