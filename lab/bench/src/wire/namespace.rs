//! Unnamed network namespaces, each held by a thread. They vanish with it, and their interfaces
//! with them.

use std::io;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::mpsc;

use anyhow::{Context, Result, bail};

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace with its loopback up. Clones are the same one; it lasts as long as any of
/// them.
#[derive(Debug, Clone)]
pub(crate) struct Namespace {
    jobs: mpsc::Sender<Job>,
    thread_id: i32,
}

impl Namespace {
    /// Makes one.
    ///
    /// # Errors
    /// Not permitted, or the kernel has no network namespaces.
    pub(crate) fn create() -> Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (made, result) = mpsc::channel();
        let body = move || {
            let unshared = unshare();
            let ready = unshared.is_ok();
            let _ = made.send(unshared.map(|()| rustix::thread::gettid().as_raw_nonzero().get()));
            if ready {
                queue.into_iter().for_each(|job| job());
            }
        };
        std::thread::Builder::new().name("netns".into()).spawn(body)?;
        let thread_id = result.recv()?.context(
            "cannot make a network namespace: that needs root, e.g. `sudo nicache bench wire`",
        )?;
        let namespace = Self { jobs, thread_id };
        namespace.command("ip link set lo up")?;
        Ok(namespace)
    }

    /// The thread that is inside, for commands that name a namespace by it.
    pub(crate) fn thread_id(&self) -> i32 {
        self.thread_id
    }

    /// Runs `job` inside and waits for its result. A process that it starts is inside, too.
    pub(crate) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = mpsc::channel();
        let job = Box::new(move || {
            let _ = done.send(job());
        });
        self.jobs.send(job).expect("the thread lives as long as the namespace");
        result.recv().expect("a job does not panic")
    }

    /// Runs `job` on a thread of its own inside, to which things may be lent.
    pub(crate) fn lend<T: Send>(&self, job: impl FnOnce() -> T + Send) -> T {
        let netns = self.run(|| std::fs::File::open("/proc/thread-self/ns/net"));
        std::thread::scope(|scope| {
            let body = move || {
                let netns = netns.expect("a thread has a namespace");
                rustix::thread::move_into_link_name_space(netns.as_fd(), None)
                    .expect("a namespace that is there");
                job()
            };
            scope.spawn(body).join().expect("a job does not panic")
        })
    }

    /// Runs a command (words separated by blanks) inside.
    ///
    /// # Errors
    /// It cannot be started, or fails: then with what it said.
    pub(crate) fn command(&self, words: &str) -> Result<()> {
        let words = words.to_owned();
        self.run(move || command(&words))
    }

    /// Joins two namespaces by a pair of virtual Ethernet interfaces, `name` on both sides: `left`
    /// gets the first address of `network` (three bytes of it) with /30, `right` the second. Both
    /// ends coalesce what they receive, and both sides use the same congestion control.
    ///
    /// # Errors
    /// As [`Namespace::command`].
    pub(crate) fn join(left: &Self, right: &Self, name: &str, network: &str) -> Result<()> {
        left.command(&format!(
            "ip link add {name} type veth peer name {name} netns {}",
            right.thread_id
        ))?;
        for (side, host) in [(left, 1), (right, 2)] {
            side.command(&format!("ip address add {network}.{host}/30 dev {name}"))?;
            side.command(&format!("ip link set {name} up"))?;
            // Without it a veth delivers every segment by itself, and bulk transfers slow down
            // several times.
            side.command(&format!("ethtool -K {name} gro on"))?;
            side.command(&cubic_route(name, network, host))?;
        }
        Ok(())
    }
}

/// The command that makes connections on a /30 network use CUBIC, whatever the machine's default
/// is: BBR paces small replies and makes any server look several times slower here.
pub(crate) fn cubic_route(interface: &str, network: &str, host: u8) -> String {
    format!(
        "ip route replace {network}.0/30 dev {interface} proto kernel scope link src {network}.{host} congctl cubic"
    )
}

/// Runs a command (words separated by blanks) in the calling thread's namespace.
///
/// # Errors
/// It cannot be started, or fails: then with what it said.
pub(crate) fn command(words: &str) -> Result<()> {
    let mut parts = words.split_ascii_whitespace();
    let program = parts.next().context("no command")?;
    let output = Command::new(program)
        .args(parts)
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        bail!("`{words}` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[allow(unsafe_code)]
fn unshare() -> io::Result<()> {
    use rustix::thread::{UnshareFlags, unshare_unsafe};
    // SAFETY: only CLONE_FILES makes unshare(2) unsafe (file descriptors of other threads would go
    // stale); it is not asked for.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    Ok(())
}
