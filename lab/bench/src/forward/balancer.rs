//! The least that a balancer can do: a program at tc that translates the addresses of one service,
//! and looks at nothing else.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use nicache_netns::Namespace;

use super::ground::Ground;

/// Made with clang where it is used.
const PROGRAM: &str = include_str!("balancer.bpf.c");

/// Attaches it to both interfaces.
pub(super) fn start(ground: &Ground, folder: &Path) -> Result<()> {
    let source = folder.join("balancer.bpf.c");
    std::fs::write(&source, PROGRAM)?;
    let link = |namespace: &Namespace, name: &str| -> Result<(String, String)> {
        let shown = run(namespace, "ip", &["-o", "link", "show", "dev", name])?;
        let index = shown.split(':').next().unwrap_or_default().trim().to_owned();
        let mac = shown.split_once("link/ether ").and_then(|(_, rest)| rest.split(' ').next());
        let mac = mac.context("an interface without a MAC address")?;
        Ok((index, mac.split(':').map(|byte| format!("0x{byte}")).collect::<Vec<_>>().join(",")))
    };
    let ((left, left_mac), (right, right_mac)) =
        (link(&ground.middle, "left")?, link(&ground.middle, "right")?);
    let ((_, client_mac), (_, server_mac)) =
        (link(&ground.client, "eth0")?, link(&ground.server, "eth0")?);
    for (name, out, macs, is_request) in [
        ("left", &right, format!("{server_mac},{right_mac}"), "1"),
        ("right", &left, format!("{client_mac},{left_mac}"), "0"),
    ] {
        let object = folder.join(format!("{name}.o"));
        let mut clang = Command::new("clang");
        clang.args(["-O2", "-target", "bpf", "-mcpu=v3", "-c"]).arg(&source).arg("-o").arg(&object);
        clang.arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH));
        clang.args([
            format!("-DOUT={out}"),
            format!("-DMACS={macs}"),
            format!("-DIS_REQUEST={is_request}"),
        ]);
        let made = clang.output().context("clang is needed for the tc-BPF balancer")?;
        if !made.status.success() {
            bail!("clang: {}", String::from_utf8_lossy(&made.stderr));
        }
        run(&ground.middle, "tc", &["qdisc", "add", "dev", name, "clsact"])?;
        let object = object.to_str().context("a path that is text")?;
        run(
            &ground.middle,
            "tc",
            &["filter", "add", "dev", name, "ingress", "bpf", "da", "obj", object, "sec", "tc"],
        )?;
    }
    Ok(())
}

/// Takes it away, if it is there.
pub(super) fn stop(ground: &Ground) {
    for name in ["left", "right"] {
        let _ = run(&ground.middle, "tc", &["qdisc", "del", "dev", name, "clsact"]);
    }
}

fn run(namespace: &Namespace, program: &str, arguments: &[&str]) -> Result<String> {
    let (name, program) = (program.to_owned(), program.to_owned());
    let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
    let output = namespace
        .run(move || Command::new(program).args(arguments).output())
        .with_context(|| format!("{name} is needed"))?;
    if !output.status.success() {
        bail!("{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
