//! What a user is told when something is wrong: what it is, and what to do.
#![allow(unsafe_code)]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use common::{
    NICACHE, Nicache, SOON, START_TIMEOUT, Site, assert_fails, assert_fails_with, ip,
    private_network,
};
use rustix::process::Signal;

const SERVER: [&str; 3] = ["--", "sleep", "60"];

#[test]
fn not_root() {
    private_network();
    // The build folder may be closed to others.
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("nicache");
    std::fs::copy(NICACHE, &program).unwrap();
    let output =
        Command::new(&program).args(["run", "--", "true"]).uid(65534).gid(65534).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(text.contains("needs root") && text.contains("sudo nicache run"), "{text}");
}

#[test]
fn no_tun_device() {
    private_network();
    // A mount namespace of this thread alone, in which /dev/net is empty. File system state is the
    // thread's own from here on.
    let output = Command::new("unshare")
        .args([
            "-m",
            "sh",
            "-c",
            "mount -t tmpfs none /dev/net && exec \"$0\" run -- sleep 60",
            NICACHE,
        ])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(text.contains("/dev/net/tun") && text.contains("modprobe tun"), "{text}");
}

#[test]
fn the_server_program_is_missing() {
    private_network();
    assert_fails(&["--", "no-such-server"], &["`no-such-server` was not found", "PATH"]);
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    assert_fails(&["--", path], &[&format!("`{path}` was not found")]);
}

#[test]
fn nginx_is_missing_for_the_demonstration() {
    private_network();
    let empty = tempfile::tempdir().unwrap();
    assert_fails_with(&[], &["nginx is not installed", "nicache run -- SERVER"], |command| {
        command.env("PATH", empty.path());
    });
}

#[test]
fn the_server_ends_at_once() {
    private_network();
    assert_fails(
        &["--", "sh", "-c", "exit 3"],
        &["the server ended with status 3 before it listened", "sh -c exit 3"],
    );
    assert_fails(&["--", "true"], &["ended with status 0 before it listened on port 80"]);
    assert_fails(&["--", "sh", "-c", "kill -9 $$"], &["was ended by signal 9"]);
}

#[test]
fn the_subnet_is_taken() {
    private_network();
    ip("link add other type veth peer name far");
    ip("addr add 10.50.0.1/16 dev other");
    ip("link set other up");
    let arguments = [&["--subnet", "10.50.3.0/30"], &SERVER[..]].concat();
    assert_fails(&arguments, &["10.50.3.0/30 is taken", "10.50.0.0/16", "other"]);
}

#[test]
fn the_automatic_subnet_avoids_what_is_taken() {
    private_network();
    ip("link add other type veth peer name far");
    ip("addr add 10.77.0.1/9 dev other");
    ip("link set other up");
    let site = Site::new();
    let nicache = Nicache::start(&[], &site.command());
    assert!(nicache.server().octets()[1] >= 128, "{}", nicache.server());
}

#[test]
fn the_name_is_taken() {
    private_network();
    let site = Site::new();
    let name = format!("taken-{}", std::process::id());
    let _first = Nicache::start(&["--name", &name], &site.command());
    let output = common::command(&[&["run", "--name", &name], &SERVER[..]].concat());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("is running already"), "{text}");
}

#[test]
fn wrong_settings() {
    private_network();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nicache.toml");
    std::fs::write(&file, "memroy = '1G'\n").unwrap();
    let path = file.to_str().unwrap();
    assert_fails(&["--config", path], &["unknown field `memroy`", path]);
    assert_fails(
        &["--config", "/no/such/file"],
        &["cannot read the configuration file /no/such/file"],
    );
    assert_fails(&["--memory", "many"], &["invalid size `many`"]);
    assert_fails(&["--publish", "80"], &["`80` is not ADDR:PORT"]);
    assert_fails(
        &["--access-log", "/no/such/log", "--", "true"],
        &["cannot open the access log /no/such/log"],
    );
    assert_fails(&["--pcap", "/no/such/file", "--", "true"], &["cannot create the capture file"]);
}

#[test]
fn a_configuration_file_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nicache.toml");
    let check = |text: &str, more: &[&str]| {
        std::fs::write(&file, text).unwrap();
        let output = common::command(&[&["check", file.to_str().unwrap()], more].concat());
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (status, text) =
        check("memroy = '1G'\nqueues = 2\nmemory = 'many'\nserver = ['no-such-server']\n", &[]);
    assert_eq!(status, Some(1), "{text}");
    for part in
        ["line 1: memroy: ", "is it `memory`?", "line 3: memory: invalid size `many`", "2 faults"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (status, text) = check("server = ['no-such-server']\n", &["--json"]);
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &report["faults"][0]["key"]), (Some(1), &"server".into()), "{report:#}");
    let right = "server = ['nginx', '-g', 'daemon off;']\npublish = ['127.0.0.1:8080']\n[[path]]\npattern = '/admin*'\ncache = false\n";
    let (status, text) = check(right, &[]);
    assert_eq!(status, Some(0), "{text}");
    for part in [
        "runs nginx -g daemon off;",
        "published at 127.0.0.1:8080",
        "/admin*: always to the server",
        "would start so",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_folder_that_nobody_watches_is_told_at_the_start() {
    private_network();
    let site = Site::with("", "root @ROOT@/site; location /kernel/ { alias /proc/sys/kernel/; }");
    let mut nicache = Nicache::start(&[], &site.command());
    let log = nicache.log_text();
    assert!(
        log.contains(
            "the server's folder /proc/sys/kernel/ is on proc, where nobody sees every change"
        ),
        "{log}"
    );
    assert!(!log.contains("/site is on"), "{log}");
}

#[test]
fn the_kernel_cannot_watch_files() {
    private_network();
    let site = Site::new();
    let name = format!("blind-{}", std::process::id());
    // Without the kernel's own type information no BPF program can be loaded; everything else
    // works.
    let script = "mount -t tmpfs none /sys/kernel/btf 2>/dev/null; exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", script, NICACHE, "run", "--name", &name, "--"])
        .args(site.command());
    let mut process = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let status = common::within(START_TIMEOUT, || {
        let output = common::command(&["status", "--json", "--name", &name]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        Some(status)
    });
    let status = status.expect("it runs all the same");
    assert!(status["watch_unavailable"].is_string(), "{status}");
    assert!(status["counters"]["not_caching"].is_string(), "{status}");
    let url = format!("http://{}/page.html", status["server_address"].as_str().unwrap());
    let page = common::within(SOON, || {
        let output = Command::new("curl").args(["-sS", "-m", "5", &url]).output().unwrap();
        output.status.success().then_some(output.stdout)
    });
    assert_eq!(page.unwrap(), b"hello from nginx\n");
    common::kill(u64::from(process.id()), Signal::TERM);
    let output = process.wait().unwrap();
    assert!(output.success());
    let mut text = String::new();
    std::io::Read::read_to_string(process.stderr.as_mut().unwrap(), &mut text).unwrap();
    assert!(text.contains("nothing is cached, every request goes to the server"), "{text}");
}

#[test]
fn the_hidden_commands_explain_themselves() {
    for hidden in ["card", "watch", "server", "guard"] {
        let output = common::command(&[hidden]);
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains("started by `nicache run`"));
    }
}
