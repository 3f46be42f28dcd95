//! READ from the cache beside `pread`, at 4, 32 and 64 KiB and 1 MiB: `cargo run --release -p
//! nicache-ncache --example read_bench`, as root.
//!
//! Both on the same ext4 on the same device over a unit in memory, in one thread, interleaved;
//! medians of several rounds. A reply's bytes are counted and not touched, as a socket that gathers
//! would take them.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nicache_device::{MountOptions, Mounted, Transport, supervise};
use nicache_initiator::MemoryLun;
use nicache_ncache::{BlockServer, Cache, CacheOptions, Nicache, Original};
use nicache_payload::{FileId, Payload, Stability};

const FILE_BYTES: u64 = 64 << 20;
const ROUNDS: usize = 5;

fn main() {
    if std::env::args().nth(1).is_some_and(|argument| argument == "supervise") {
        return supervise().expect("supervisor");
    }
    let transport = Transport::default();
    if let Some(missing) = transport.missing() {
        return println!("there is no {missing}");
    }
    let mut supervisor = Command::new(std::env::current_exe().expect("own path"));
    supervisor.arg("supervise").stdout(Stdio::null());
    let options = MountOptions {
        mkfs: true,
        transport,
        threads: 2,
        supervisor,
        unmount_max: Duration::from_secs(60),
    };
    let cache =
        Cache::new(Arc::new(MemoryLun::new(512 << 20)), CacheOptions::default()).expect("cache");
    let mounted =
        Mounted::open(Arc::new(BlockServer::new(Arc::clone(&cache))), options).expect("mount");
    let nicache = Nicache::new(Arc::clone(&cache)).expect("threads");
    let original = Original::new(Arc::clone(&cache));
    let open = |name: &str| {
        let path = format!("/proc/self/fd/{}/{name}", mounted.root().as_raw_fd());
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .expect("file");
        let id = FileId { inode: file.metadata().expect("attributes").ino(), generation: 0 };
        (file, id)
    };
    let by_key = open("by_key");
    let by_copy = open("by_copy");
    let block = Bytes::from(vec![7; 1 << 20]);
    for at in (0..FILE_BYTES).step_by(1 << 20) {
        for (payload, (file, id)) in [(&nicache as &dyn Payload, &by_key), (&original, &by_copy)] {
            payload
                .write(file, *id, at, std::slice::from_ref(&block), Stability::Unstable)
                .expect("write");
        }
    }
    nicache.commit(&by_key.0, by_key.1).expect("commit");
    original.commit(&by_copy.0, by_copy.1).expect("commit");
    println!(
        "{:>9} {:>12} {:>12} {:>12}   per READ, {ROUNDS} rounds",
        "size", "nicache", "original", "bare pread"
    );
    for size in [4 << 10, 32 << 10, 64 << 10, 1 << 20] {
        let calls = (256 << 20) / size as u64;
        let mut times = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            times[0].push(time(
                calls,
                |at| total(&nicache.read(&by_key.0, by_key.1, at, size).expect("read")),
                size,
            ));
            times[1].push(time(
                calls,
                |at| total(&original.read(&by_copy.0, by_copy.1, at, size).expect("read")),
                size,
            ));
            let mut buffer = vec![0; size as usize];
            times[2].push(time(
                calls,
                |at| by_copy.0.read_at(&mut buffer, at).expect("pread"),
                size,
            ));
        }
        let median = |times: &mut Vec<Duration>| {
            times.sort();
            times[ROUNDS / 2].as_secs_f64() * 1e6 / calls as f64
        };
        let [nicache, original, bare] = times.each_mut().map(median);
        println!(
            "{:>8}K {nicache:>9.2} µs {original:>9.2} µs {bare:>9.2} µs   {:.1}x",
            size >> 10,
            original / nicache
        );
    }
    println!("{:?}", cache.figures());
    drop((by_key, by_copy));
    drop(nicache);
    mounted.close().expect("unmount");
}

fn total(extents: &[Bytes]) -> usize {
    extents.iter().map(Bytes::len).sum()
}

fn time(calls: u64, mut read: impl FnMut(u64) -> usize, size: u32) -> Duration {
    let mut random = fastrand::Rng::with_seed(1);
    let start = Instant::now();
    for _ in 0..calls {
        let at = random.u64(0..FILE_BYTES / u64::from(size)) * u64::from(size);
        assert_eq!(read(at), size as usize);
    }
    start.elapsed()
}
