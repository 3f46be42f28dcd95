//! libnfs' own programs.

use std::fs;
use std::process::Command;

use crate::world::*;

#[test]
fn libnfs_lists_and_copies() {
    if Command::new("nfs-ls").output().is_err() {
        eprintln!("not run: libnfs, because its programs (package libnfs-utils) are not installed");
        return;
    }
    let world = World::new();
    let port = world.server.addresses()[0].port();
    let url = |path: &str| format!("nfs://127.0.0.1/export{path}?nfsport={port}&mountport={port}");
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(
            output.status.success(),
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        output.stdout
    };
    let data: Vec<u8> = (0..3_000_001u32).map(|i| (i ^ i >> 11) as u8).collect();
    fs::write(world.path.join("big"), &data).unwrap();
    fs::create_dir_all(world.path.join("d/e")).unwrap();
    fs::write(world.path.join("d/e/small"), "small").unwrap();
    let listed = String::from_utf8(run(Command::new("nfs-ls").arg("-R").arg(url("")))).unwrap();
    for name in ["big", "d/e", "d/e/small", "3000001"] {
        assert!(listed.contains(name), "{name} in {listed}");
    }
    assert_eq!(run(Command::new("nfs-cat").arg(url("/d/e/small"))), b"small");
    let copy = world.path.with_file_name("copy");
    run(Command::new("nfs-cp").arg(url("/big")).arg(&copy));
    assert!(fs::read(&copy).unwrap() == data);
    run(Command::new("nfs-cp").arg(&copy).arg(url("/d/back")));
    assert!(fs::read(world.path.join("d/back")).unwrap() == data);
}
