//! Packages of the program under test: they are made, looked into, installed below a folder, and
//! what is installed runs.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const NICACHE: &str = env!("CARGO_BIN_EXE_nicache");

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Standard output of a program that must succeed.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{error}", output.status);
    out.into_owned()
}

fn tool(name: &str) -> Command {
    let mut command = Command::new(repository().join("tools").join(name));
    // A test need not wait for the smallest package.
    command.env("DPKG_DEB_COMPRESSOR_TYPE", "gzip").env("DPKG_DEB_COMPRESSOR_LEVEL", "1");
    command
}

#[test]
fn manual_pages_and_completions_are_of_every_command() {
    let folder = tempfile::tempdir().unwrap();
    for what in ["man", "completions"] {
        output(Command::new(NICACHE).args(["generate", what]).arg(folder.path().join(what)));
    }
    let man = folder.path().join("man");
    for page in ["nicache", "nicache-run", "nicache-serve", "nicache-top"] {
        let text = std::fs::read_to_string(man.join(format!("{page}.1"))).unwrap();
        assert!(text.contains(&format!(".TH {page} 1")), "{text}");
    }
    // What is started by nicache itself is nobody's command, and the laboratory has pages of its
    // own.
    for hidden in ["card", "watch", "server", "generate", "trace"] {
        assert!(!man.join(format!("nicache-{hidden}.1")).exists(), "{hidden}");
    }
    let run = std::fs::read_to_string(man.join("nicache-run.1")).unwrap();
    assert!(run.contains("admin\\-anyone") && run.contains("handshake"), "{run}");
    for (file, shell) in [("nicache.bash", "bash"), ("_nicache", "zsh"), ("nicache.fish", "fish")] {
        let path = folder.path().join("completions").join(file);
        assert!(std::fs::read_to_string(&path).unwrap().contains("bypass"), "{file}");
        // Shells that are there read it without running it.
        if let Ok(result) = Command::new(shell).arg("-n").arg(&path).output() {
            assert!(result.status.success(), "{file}: {}", String::from_utf8_lossy(&result.stderr));
        }
    }
}

#[test]
fn a_debian_package_can_be_installed() {
    let folder = tempfile::tempdir().unwrap();
    let package = output(tool("deb").arg(NICACHE).arg(folder.path()));
    let package = package.trim();
    assert!(package.ends_with(".deb"), "{package}");
    let control = output(Command::new("dpkg-deb").args(["--info", package]));
    for needed in
        ["Package: nicache", "Depends:", "libelf1", concat!("Version: ", env!("CARGO_PKG_VERSION"))]
    {
        assert!(control.contains(needed), "no {needed} in {control}");
    }
    let list = output(Command::new("dpkg-deb").args(["--contents", package]));
    assert!(list.lines().all(|line| line.contains(" root/root ")), "{list}");

    // Below a folder, with a database of packages of its own. Scripts run, and know that it is not
    // this machine.
    let root = folder.path().join("root");
    std::fs::create_dir_all(root.join("var/lib/dpkg/updates")).unwrap();
    std::fs::create_dir_all(root.join("var/lib/dpkg/info")).unwrap();
    std::fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    let dpkg = |arguments: &[&str]| {
        let mut command = Command::new("dpkg");
        command
            .arg(format!("--root={}", root.display()))
            .args(["--force-depends", "--force-script-chrootless"]);
        command.args(["--log=/dev/null", "--force-not-root"]).args(arguments);
        output(&mut command)
    };
    dpkg(&["--install", package]);
    let installed = root.join("usr/bin/nicache");
    let version = output(Command::new(&installed).arg("--version"));
    assert_eq!(version.trim(), concat!("nicache ", env!("CARGO_PKG_VERSION")));
    for file in [
        "lib/systemd/system/nicache.service",
        "lib/systemd/system/nicache@.service",
        "usr/share/man/man1/nicache-run.1.gz",
        "usr/share/bash-completion/completions/nicache",
        "usr/share/zsh/vendor-completions/_nicache",
        "usr/share/fish/vendor_completions.d/nicache.fish",
        "usr/share/doc/nicache/copyright",
        "usr/share/doc/nicache/changelog.gz",
        "usr/share/doc/nicache/CHANGELOG.md",
        "usr/share/doc/nicache/CONTRIBUTING.md",
        "usr/share/doc/nicache/SECURITY.md",
        "usr/share/doc/nicache/README.md",
        "usr/share/doc/nicache/docs/README.md",
        "usr/share/doc/nicache/docs/applications/wordpress.md",
        "usr/share/doc/nicache/examples/nicache.toml",
    ] {
        let mode = std::fs::metadata(root.join(file))
            .unwrap_or_else(|error| panic!("{file}: {error}"))
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o644, "{file}");
    }
    let copyright = std::fs::read_to_string(root.join("usr/share/doc/nicache/copyright")).unwrap();
    assert!(
        copyright.contains("Permission is hereby granted") && !copyright.contains('@'),
        "{copyright}"
    );
    let sums = root.join("var/lib/dpkg/info/nicache.md5sums");
    output(Command::new("md5sum").args(["--check", "--quiet"]).arg(sums).current_dir(&root));
    // Equal files make an equal package.
    let again = tempfile::tempdir().unwrap();
    let other = output(tool("deb").arg(NICACHE).arg(again.path()));
    assert!(
        std::fs::read(package).unwrap() == std::fs::read(other.trim()).unwrap(),
        "another package"
    );

    // An administrator's settings stay.
    std::fs::write(root.join("etc/nicache/nicache.toml"), "memory = '1G'\n").unwrap();
    dpkg(&["--purge", "nicache"]);
    assert!(!installed.exists() && root.join("etc/nicache/nicache.toml").exists());
}

#[test]
fn units_are_what_systemd_expects() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("systemd-analyze is not installed: not checked");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for unit in ["nicache.service", "nicache@shop.service"] {
        let file = unit.replace("shop", "");
        let text = std::fs::read_to_string(repository().join("packaging").join(file)).unwrap();
        // The program is not at its place here.
        let text = text
            .replace("/usr/bin/nicache", NICACHE)
            .lines()
            .filter(|line| !line.starts_with("Documentation="))
            .fold(String::new(), |text, line| text + line + "\n");
        let path = folder.path().join(unit);
        std::fs::write(&path, text).unwrap();
        let checked = Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .arg(&path)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success() && !said.contains("nicache"), "{said}");
    }
}

#[test]
fn an_archive_holds_a_program_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let archive = output(tool("tarball").arg(NICACHE).arg(folder.path()));
    output(Command::new("tar").arg("-C").arg(folder.path()).args(["-xzf", archive.trim()]));
    let name = Path::new(archive.trim())
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .trim_end_matches(".tar.gz")
        .to_owned();
    let unpacked = folder.path().join(&name);
    let version = output(Command::new(unpacked.join("usr/bin/nicache")).arg("--version"));
    assert_eq!(version.trim(), concat!("nicache ", env!("CARGO_PKG_VERSION")));
    assert!(unpacked.join("usr/share/doc/nicache/LICENSE-MIT").exists());
    let mut tops: Vec<_> =
        std::fs::read_dir(&unpacked).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    tops.sort();
    assert_eq!(tops, ["etc", "usr"]);
}
