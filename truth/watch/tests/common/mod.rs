//! What the tests share: a loaded watcher, a directory on ext4, a thread and a process that play
//! the server.

#![allow(dead_code, missing_docs)]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nicache_coherence::SourceSlot;
use nicache_namespaces::Namespace;
use nicache_watch::{KernelWatcher, WatchError};
use tempfile::TempDir;

/// Set: the tests run in the way for kernels that stop tasks in the middle of witnesses.
const EXPECT_STOPS: &str = "NICACHE_EXPECT_STOPS";

/// The kernel's witnesses, in the way that these tests are run for.
pub(crate) fn load(netns: u32) -> Result<KernelWatcher, WatchError> {
    match expects_stops() {
        true => KernelWatcher::load_expecting_stops(netns),
        false => KernelWatcher::load(netns),
    }
}

/// Are these run in the way for kernels that stop tasks in the middle of witnesses?
pub(crate) fn expects_stops() -> bool {
    std::env::var_os(EXPECT_STOPS).is_some()
}

/// Runs all tests of this program but `itself` in the way for kernels that stop tasks in the middle
/// of witnesses.
pub(crate) fn run_all_expecting_stops(itself: &str) {
    if std::env::var_os(EXPECT_STOPS).is_some() {
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--skip", itself])
        .env(EXPECT_STOPS, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{said}");
    assert!(!text.contains(" 0 passed"), "{text}");
}

/// A fresh directory on ext4, removed at the end.
pub(crate) fn directory_on_ext4() -> TempDir {
    let bases = [PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from("/var/tmp")];
    for base in bases {
        if rustix::fs::statfs(&base).is_ok_and(|fs| fs.f_type as u64 == 0xef53) {
            return tempfile::tempdir_in(base).unwrap();
        }
    }
    panic!("neither the target directory nor /var/tmp is on ext4, the only watched file system");
}

/// Slot of what a path leads to, links at the end not followed.
pub(crate) fn slot(path: &Path) -> SourceSlot {
    let stat = fs::symlink_metadata(path).unwrap();
    let dev = stat.dev();
    SourceSlot::of_device_inode(rustix::fs::major(dev), rustix::fs::minor(dev), stat.ino())
}

/// A thread in a network namespace of its own: the kernel's witnesses take it for the server.
pub(crate) struct ServerThread {
    namespace: Namespace,
    pub netns: u32,
}

impl ServerThread {
    pub(crate) fn start() -> Self {
        let namespace =
            Namespace::new().expect("these tests make network namespaces: run them as root");
        Self { netns: namespace.inode(), namespace }
    }

    /// Runs `job` on the server's thread and returns its result.
    pub(crate) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        self.namespace.run(job)
    }
}

/// Whose root and working directory a thread has.
#[derive(Clone, Copy)]
pub(crate) enum Directories {
    OfTheProcess,
    Own,
}

/// A process in a network namespace of its own, which reads each file by a thread that ends
/// afterwards.
pub(crate) struct ServerProcess {
    process: Child,
    pub netns: u32,
}

impl ServerProcess {
    pub(crate) fn start() -> Self {
        const PROGRAM: &str = r#"
import ctypes, sys, threading
CLONE_FS = 0x200
def read(path, directories):
    if directories == "own" and ctypes.CDLL(None).unshare(CLONE_FS):
        sys.exit("unshare failed")
    with open(path) as file:
        body = file.read()
    print(threading.get_native_id(), body, flush=True)
print("up", flush=True)
for line in sys.stdin:
    directories, path = line.rstrip("\n").split(" ", 1)
    thread = threading.Thread(target=read, args=(path, directories))
    thread.start()
    thread.join()
"#;
        let mut command = Command::new("python3");
        command.args(["-c", PROGRAM]).stdin(Stdio::piped()).stdout(Stdio::piped());
        // SAFETY: unshare is safe to call between fork and exec, and the child has a single thread.
        unsafe {
            command.pre_exec(|| {
                Ok(rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET)?)
            });
        }
        let process = command.spawn().unwrap();
        let netns = fs::metadata(format!("/proc/{}/ns/net", process.id())).unwrap().ino() as u32;
        let mut server = Self { process, netns };
        assert_eq!(server.line(), "up");
        server
    }

    /// What a thread read from `path`, on one line. It has ended when this returns.
    pub(crate) fn serve_by_a_thread_that_ends(
        &mut self,
        path: &Path,
        directories: Directories,
    ) -> Vec<u8> {
        let directories = match directories {
            Directories::OfTheProcess => "common",
            Directories::Own => "own",
        };
        writeln!(self.process.stdin.as_mut().unwrap(), "{directories} {}", path.display()).unwrap();
        let line = self.line();
        let (tid, body) = line.split_once(' ').unwrap();
        wait_for_its_end(self.process.id(), tid.parse().unwrap());
        body.into()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let mut byte = [0];
        while self.process.stdout.as_mut().unwrap().read(&mut byte).unwrap() == 1
            && byte[0] != b'\n'
        {
            line.push(byte[0].into());
        }
        line
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits until a thread is gone: it can be joined a moment before the kernel takes its number away.
pub(crate) fn wait_for_its_end(pid: u32, tid: i32) {
    while fs::metadata(format!("/proc/{pid}/task/{tid}")).is_ok() {
        std::thread::sleep(Duration::from_millis(1));
    }
}
