//! What the kernel's witnesses cost: nanoseconds per system call without them, with them, and for a
//! thread that they take for the server. Alternates the three, as machines drift; prints the
//! fastest portion of each, as other load only ever adds.
//!
//! `cargo run --release -p nicache-watch --example witness_cost [once | hold]`
//!
//! `hold`: the witnesses stay, for a server in this network namespace, until standard input ends.
//! Then each program's runs are printed, if the kernel has counted them (`sysctl
//! kernel.bpf_stats_enabled=1`). `once`: one short round, for a machine whose clock counts
//! instructions (`ICOUNT=1 tools/kernels/boot NAME cost`).

use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Instant;

use nicache_watch::{KernelWatcher, LookupRing};

const CALLS: u32 = 2_000;

/// Reads the ring as often as a watcher does that has nothing to judge.
fn hold() {
    let netns = fs::metadata("/proc/thread-self/ns/net").expect("/proc").ino() as u32;
    let watcher = KernelWatcher::load(netns).expect("load the witnesses");
    let mut ring = LookupRing::map(watcher.ring_fd()).expect("map the ring");
    println!("watching");
    std::thread::spawn(move || {
        loop {
            ring.drain(|_| ());
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    });
    let _ = std::io::stdin().read_line(&mut String::new());
    let mut counted: Vec<_> =
        descriptors().iter().filter_map(|fd| nicache_kernel::runs(fd.as_fd())).collect();
    counted.retain(|program| program.runs > 0);
    counted.sort_by_key(|program| std::cmp::Reverse(program.ns));
    for program in counted {
        println!(
            "{:>15} {:>8} runs, {:>6} ns each",
            program.name,
            program.runs,
            program.ns / program.runs
        );
    }
    drop(watcher);
}

/// Copies of all descriptors of this process.
fn descriptors() -> Vec<OwnedFd> {
    let numbers = fs::read_dir("/proc/self/fd")
        .expect("/proc")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let numbers: Vec<i32> = numbers.collect();
    numbers
        .into_iter()
        .filter_map(|number| {
            // SAFETY: only used to be copied, which fails if the descriptor is gone.
            let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
            descriptor.try_clone_to_owned().ok()
        })
        .collect()
}

fn main() {
    if std::env::args().nth(1).is_some_and(|argument| argument == "hold") {
        hold();
        return;
    }
    let path = std::env::temp_dir().join(format!("nicache-witness-cost-{}", std::process::id()));
    let file = File::create(&path).expect("create a file to write to");
    file.write_all_at(&[0; 4096], 0).expect("write");
    let reader = File::open(&path).expect("open it");
    let (pipe_out, pipe_in) = rustix::pipe::pipe().expect("a pipe");
    let is_once = std::env::args().nth(1).is_some_and(|argument| argument == "once");
    let (rounds, portions) = if is_once { (1, 2) } else { (7, 40) };
    let own_netns = fs::metadata("/proc/thread-self/ns/net").expect("/proc").ino() as u32;

    type Call<'a> = (&'a str, Box<dyn Fn() + 'a>);
    let calls: [Call<'_>; 7] = [
        ("getppid", Box::new(|| _ = rustix::process::getppid())),
        ("fstat", Box::new(|| _ = rustix::fs::fstat(&reader))),
        ("stat", Box::new(|| _ = rustix::fs::stat(&path))),
        ("open and close", Box::new(|| drop(File::open(&path)))),
        ("pread 4 KB", Box::new(|| drop(reader.read_exact_at(&mut [0; 4096], 0)))),
        (
            "pipe, 1 B each way",
            Box::new(|| {
                rustix::io::write(&pipe_in, &[1]).expect("write");
                rustix::io::read(&pipe_out, &mut [0; 1]).expect("read");
            }),
        ),
        ("pwrite 4 KB", Box::new(|| file.write_all_at(&[1; 4096], 0).expect("write"))),
    ];
    let mut fastest = vec![[f64::INFINITY; 3]; calls.len()];
    for _ in 0..rounds {
        for (mode, server_netns) in [None, Some(0), Some(own_netns)].into_iter().enumerate() {
            let watcher =
                server_netns.map(|inum| KernelWatcher::load(inum).expect("load the witnesses"));
            let mut ring = watcher
                .as_ref()
                .map(|watcher| LookupRing::map(watcher.ring_fd()).expect("map the ring"));
            for (index, (_, call)) in calls.iter().enumerate() {
                // In portions that the ring takes; reading it is the watcher's work and not counted
                // here.
                for _ in 0..portions {
                    let start = Instant::now();
                    for _ in 0..CALLS {
                        call();
                    }
                    let ns = start.elapsed().as_nanos() as f64 / f64::from(CALLS);
                    fastest[index][mode] = ns.min(fastest[index][mode]);
                    if let Some(ring) = &mut ring {
                        ring.drain(|_| ());
                    }
                }
            }
            drop(watcher);
            // Links are detached in the background.
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    }
    let _ = fs::remove_file(&path);
    println!("{:20}{:>12}{:>12}{:>12}  ns per call", "", "without", "with", "as server");
    for ((name, _), [without, with, server]) in calls.iter().zip(&fastest) {
        println!("{name:20}{without:12.0}{with:12.0}{server:12.0}");
    }
}
