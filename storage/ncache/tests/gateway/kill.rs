//! The server is killed: between an unstable write and COMMIT, and in the middle of both.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nicache_device::{Mounted, Plain};
use nicache_initiator::{IscsiLun, IscsiOptions, Lun};
use nicache_ncache::CacheOptions;
use nicache_payload::Payload;
use nicache_target::{Target, TargetOptions};

use crate::harness::*;

/// Not a test: a server that commits one file after the other and says so, until it is killed.
#[test]
fn server_process() {
    let Ok(url) = std::env::var("NICACHE_UNIT") else { return };
    let lun = Arc::new(IscsiLun::open(&url.parse().unwrap(), &IscsiOptions::default()).unwrap());
    let is_empty = std::env::var_os("NICACHE_MKFS").is_some();
    let gateway = Gateway::new(lun, CacheOptions::default(), is_empty);
    let mut out = std::io::stdout();
    writeln!(out, "\ntag {:?} {}", gateway.cache.keyring().tag(), gateway.mounted.supervisor_id())
        .unwrap();
    let round: u16 = std::env::var("NICACHE_ROUND").unwrap().parse().unwrap();
    for number in 0.. {
        let (file, id) = gateway.open(&format!("r{round}-{number}"));
        file.sync_all().unwrap();
        write(&*gateway.nicache, &file, 0, &pattern(number, round, 0, 200_000));
        writeln!(out, "\nwritten {number}").unwrap();
        gateway.nicache.commit(&file, id).unwrap();
        writeln!(out, "\ncommitted {number}").unwrap();
        if number == 250 {
            break;
        }
    }
    std::thread::sleep(Duration::from_secs(600));
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn kills(rounds: u16) {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("unit");
    File::create(&image).unwrap().set_len(512 << 20).unwrap();
    let target = Target::start(&image, &TargetOptions::default()).unwrap();
    target.enter().unwrap();
    let mut random = fastrand::Rng::with_seed(3);
    let mut committed: Vec<(u16, u8)> = Vec::new();
    for round in 0..rounds {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["kill::server_process", "--exact", "--nocapture"]);
        command.env("NICACHE_UNIT", target.url()).env("NICACHE_ROUND", round.to_string());
        if round == 0 {
            command.env("NICACHE_MKFS", "1");
        }
        let mut server = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok);
        let tag_line = lines.find(|line| line.starts_with("tag ")).unwrap();
        let (tag, supervisor) = tag_line["tag [".len()..].split_once("] ").unwrap();
        let tag: Vec<u8> = tag.split(", ").map(|byte| byte.parse().unwrap()).collect();
        // Right after some line: an unstable write that was acknowledged, or a commit; then a
        // moment more.
        let count = random.usize(1..8);
        for line in
            lines.by_ref().filter(|line| line.contains("ted ") || line.contains("ten ")).take(count)
        {
            if let Some(number) = line.strip_prefix("committed ") {
                committed.push((round, number.parse().unwrap()));
            }
        }
        std::thread::sleep(Duration::from_micros(random.u64(..3000)));
        server.kill().unwrap();
        for line in lines {
            if let Some(number) = line.strip_prefix("committed ") {
                committed.push((round, number.parse().unwrap()));
            }
        }
        server.wait().unwrap();
        until("the supervisor ends", || {
            std::fs::read_to_string(format!("/proc/{supervisor}/stat"))
                .map_or(true, |stat| stat.contains(") Z"))
        });
        let lun: Arc<dyn Lun> = Arc::new(
            IscsiLun::open(&target.url().parse().unwrap(), &IscsiOptions::default()).unwrap(),
        );
        let mounted = Mounted::open(Arc::new(Plain(lun)), mount_options(false)).unwrap();
        for (round, number) in &committed {
            let found = std::fs::read(path(&mounted, &format!("r{round}-{number}"))).unwrap();
            assert!(found == pattern(*number, *round, 0, 200_000), "round {round}, file {number}");
        }
        mounted.close().unwrap();
        assert_no_tag_in(&image, &tag);
        assert_clean(&image);
    }
    assert!(!committed.is_empty());
    println!("{rounds} kills, {} committed files whole", committed.len());
}

fn assert_no_tag_in(image: &Path, tag: &[u8]) {
    // Only what is allocated: the image is sparse.
    let file = File::open(image).unwrap();
    let extents = nicache_filemap::extents(&file, 0, u64::MAX, true).unwrap();
    for extent in extents {
        let mut bytes = vec![0; extent.bytes as usize];
        let until =
            file.metadata().unwrap().len().saturating_sub(extent.offset).min(extent.bytes) as usize;
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes[..until], extent.offset)
            .unwrap();
        // A tag begins a block, or is in the middle of nothing that was ever written: blocks are
        // whole.
        assert!(!bytes.chunks(512).any(|sector| sector.starts_with(tag)), "the tag is on the unit");
    }
}

fn is_skipped() -> bool {
    if let Some(missing) = nicache_target::missing() {
        println!("skipped: there is no {missing}");
        return true;
    }
    skipped()
}

#[test]
fn a_few_kills() {
    if !is_skipped() {
        kills(4);
    }
}

/// `cargo test --test gateway -- --ignored kill`.
#[test]
#[ignore = "takes minutes: run it with --ignored"]
fn a_hundred_kills() {
    if !is_skipped() {
        kills(100);
    }
}
