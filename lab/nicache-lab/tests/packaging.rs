//! The package of the laboratory, and how `nicache` finds the program.

use std::path::{Path, PathBuf};
use std::process::Command;

const LAB: &str = env!("CARGO_BIN_EXE_nicache-lab");

/// Standard output of a program that must succeed.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{error}", output.status);
    out.into_owned()
}

fn tool(name: &str) -> Command {
    let mut command =
        Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools").join(name));
    command.env("DPKG_DEB_COMPRESSOR_TYPE", "gzip").env("DPKG_DEB_COMPRESSOR_LEVEL", "1");
    command
}

#[test]
fn the_debian_package_has_the_program_and_its_manual_and_needs_nicache() {
    let folder = tempfile::tempdir().unwrap();
    let package = output(tool("deb").arg(LAB).arg(folder.path()));
    let package = package.trim();
    let control = output(Command::new("dpkg-deb").args(["--info", package]));
    let nicache = concat!("nicache (= ", env!("CARGO_PKG_VERSION"), ")");
    for needed in ["Package: nicache-lab", nicache] {
        assert!(control.contains(needed), "no {needed} in {control}");
    }
    assert!(!control.contains("postinst"), "{control}");
    let list = output(Command::new("dpkg-deb").args(["--contents", package]));
    for file in [
        "./usr/bin/nicache-lab",
        "./usr/share/man/man1/nicache-lab-trace-advise.1.gz",
        "./usr/share/bash-completion/completions/nicache-lab",
        "./usr/share/doc/nicache-lab/copyright",
    ] {
        assert!(list.contains(file), "no {file} in {list}");
    }
    // Files of the other package would be in its way.
    for line in list.lines().filter(|line| !line.ends_with('/')) {
        assert!(line.contains("nicache-lab"), "{line}");
    }
}

#[test]
fn nicache_becomes_the_laboratory_beside_it_or_in_path_or_says_what_to_install() {
    let nicache: PathBuf = LAB.trim_end_matches("-lab").into();
    assert!(
        nicache.exists(),
        "{} is not there: build it first (cargo build -p nicache)",
        nicache.display()
    );
    let help = output(Command::new(&nicache).args(["trace", "--help"]));
    assert!(help.contains("Usage: nicache-lab trace"), "{help}");
    let names = output(Command::new(&nicache).args(["sim", "server", "--list"]));
    assert_eq!(names, output(Command::new(LAB).args(["sim", "server", "--list"])));

    // A nicache on its own.
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("nicache");
    if std::fs::hard_link(&nicache, &alone).is_err() {
        std::fs::copy(&nicache, &alone).unwrap();
    }
    let said = Command::new(&alone)
        .args(["trace", "info", "--json", "x"])
        .env("PATH", folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(!said.status.success() && text.contains("install the package nicache-lab"), "{text}");
    let path = Path::new(LAB).parent().unwrap();
    let found =
        Command::new(&alone).args(["sim", "server", "--list"]).env("PATH", path).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), names);
}
