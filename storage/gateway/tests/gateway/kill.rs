//! `kill -9` of the gateway under load: what was committed is there, for the same handles, after a
//! restart.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use nicache_gateway::CopyMode;
use nicache_nfs::caller::Caller;

use crate::harness::*;

const CLIENTS: u32 = 2;
const FILE_BYTES: usize = 150_000;

/// Not a test: a gateway, until it is killed or its standard input ends.
#[test]
fn gateway_process() {
    let Ok(url) = std::env::var("NICACHE_UNIT") else { return };
    let gateway = start(&url, CopyMode::Nicache, std::env::var_os("NICACHE_MKFS").is_some());
    let tag = gateway.cache().keyring().tag().to_vec();
    let mut out = std::io::stdout();
    writeln!(out, "\nserving {} {} {tag:?}", gateway.addresses()[0], gateway.supervisor_id())
        .unwrap();
    out.flush().unwrap();
    let _ = std::io::stdin().read_line(&mut String::new());
    gateway.close().unwrap();
    std::process::exit(0);
}

struct Running {
    child: Child,
    address: SocketAddr,
    supervisor: u32,
    tag: Vec<u8>,
}

fn launch(url: &str, mkfs: bool) -> Running {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["kill::gateway_process", "--exact", "--nocapture"]).env("NICACHE_UNIT", url);
    if mkfs {
        command.env("NICACHE_MKFS", "1");
    }
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find(|line| line.starts_with("serving ")).unwrap();
    // The rest of the output is nobody's, and must not fill the pipe.
    std::thread::spawn(move || lines.for_each(drop));
    let mut words = line["serving ".len()..].splitn(3, ' ');
    let mut next = || words.next().unwrap();
    let (address, supervisor, tag) = (next().parse().unwrap(), next().parse().unwrap(), next());
    let tag = tag.trim_matches(['[', ']']).split(", ").map(|byte| byte.parse().unwrap()).collect();
    Running { child, address, supervisor, tag }
}

/// What a client knows of a file: the handle, the version that a COMMIT has acknowledged, and the
/// last that was sent.
#[derive(Clone, Debug)]
struct Known {
    handle: Vec<u8>,
    committed: u16,
    sent: u16,
}

/// Writes version after version of its files, in pieces, and commits each, until the connection
/// breaks.
fn work(
    caller: &mut Caller,
    client: u32,
    known: &Mutex<HashMap<u32, Known>>,
    stop: &AtomicBool,
) -> std::io::Result<()> {
    let root = caller.mount("/data")?;
    let mut random = fastrand::Rng::with_seed(u64::from(client));
    while !stop.load(Ordering::Relaxed) {
        let file = client * 100 + random.u32(..6);
        let mut one = match known.lock().unwrap().get(&file).cloned() {
            Some(one) => one,
            None => {
                // A name is durable with the first COMMIT of its file (ext4 makes a new file's name
                // durable with its fsync).
                let handle = caller.create(&root, &format!("f{file}"))?;
                Known { handle, committed: 0, sent: 0 }
            }
        };
        one.sent = one.sent.max(one.committed) + 1;
        known.lock().unwrap().insert(file, one.clone());
        let data = pattern(file, one.sent, FILE_BYTES);
        let mut verifiers = Vec::new();
        for (i, piece) in data.chunks(40_000).enumerate() {
            let written = caller.write(&one.handle, i as u64 * 40_000, piece, 0)?;
            assert_eq!(written.status, 0);
            verifiers.push(written.verifier);
        }
        let committed = caller.commit(&one.handle)?;
        assert_eq!(committed.status, 0);
        if verifiers.iter().all(|verifier| *verifier == committed.verifier) {
            one.committed = one.sent;
            known.lock().unwrap().insert(file, one);
        }
    }
    Ok(())
}

/// Each block of a file is of the version that was committed or of one that was sent later; without
/// a later one, all of it is committed.
fn check(caller: &mut Caller, file: u32, one: &Known) {
    if one.committed == 0 {
        return;
    }
    let found = caller.read(&one.handle, 0, 1 << 20).unwrap().unwrap();
    assert_eq!(found.len(), FILE_BYTES, "file {file}");
    let versions: Vec<Vec<u8>> =
        (one.committed..=one.sent).map(|version| pattern(file, version, FILE_BYTES)).collect();
    for (i, block) in found.chunks(4096).enumerate() {
        let is_known =
            versions.iter().any(|version| version[i * 4096..i * 4096 + block.len()] == *block);
        assert!(
            is_known,
            "file {file}, block {i}: neither version {} nor a later one",
            one.committed
        );
    }
}

fn kills(rounds: u32) {
    let unit = Unit::new();
    let known: Mutex<HashMap<u32, Known>> = Mutex::default();
    let mut random = fastrand::Rng::with_seed(11);
    let mut verifiers = Vec::new();
    for round in 0..rounds {
        let mut running = launch(&unit.target.url(), round == 0);
        let mut looking = caller(running.address);
        // Of a file that was never committed the name may be gone.
        known.lock().unwrap().retain(|_, one| one.committed > 0);
        for (file, one) in known.lock().unwrap().iter() {
            check(&mut looking, *file, one);
            // Nobody sends the lost ones again; the next version covers them.
            let verifier = looking.commit(&one.handle).unwrap().verifier;
            verifiers.push(verifier);
        }
        let committed_before: u32 =
            known.lock().unwrap().values().map(|one| u32::from(one.committed)).sum();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (known, stop, mut caller) = (&known, &stop, caller(running.address));
                scope.spawn(move || {
                    // The end of the gateway is the end of the connection, and nothing else is.
                    let _ = work(&mut caller, client, known, stop);
                });
            }
            let commits = random.u32(2..12);
            until("clients commit", || {
                known.lock().unwrap().values().map(|one| u32::from(one.committed)).sum::<u32>()
                    >= committed_before + commits
            });
            std::thread::sleep(std::time::Duration::from_micros(random.u64(..4000)));
            running.child.kill().unwrap();
            stop.store(true, Ordering::Relaxed);
        });
        running.child.wait().unwrap();
        until("the supervisor ends", || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", running.supervisor));
            stat.map_or(true, |stat| stat.contains(") Z"))
        });
        // The journal has work to do, so only the next mount can say whether all is well; but no
        // key may be there.
        let file = std::fs::File::open(&unit.image).unwrap();
        assert!(file.metadata().unwrap().len() == UNIT_BYTES);
        drop(file);
        let mut last = launch(&unit.target.url(), false);
        drop(last.child.stdin.take());
        assert!(last.child.wait().unwrap().success());
        unit.assert_clean(Some(&running.tag));
    }
    verifiers.sort_unstable();
    verifiers.dedup();
    assert!(
        verifiers.len() + 1 >= rounds as usize,
        "each gateway has a verifier of its own: {verifiers:?}"
    );
    let running = launch(&unit.target.url(), false);
    let mut looking = caller(running.address);
    for (file, one) in known.lock().unwrap().iter() {
        check(&mut looking, *file, one);
    }
    let committed: u32 = known.lock().unwrap().values().map(|one| u32::from(one.committed)).sum();
    println!("{rounds} kills, {committed} commits whole");
    let mut child = running.child;
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_was_committed_outlives_a_few_kills() {
    if !skipped() {
        kills(3);
    }
}

/// `cargo test -p nicache-gateway --test gateway -- --ignored kill`.
#[test]
#[ignore = "takes minutes: run it with --ignored"]
fn what_was_committed_outlives_a_hundred_kills() {
    if !skipped() {
        kills(100);
    }
}
