//! The client that looks at what it gets: `wrk` counts replies, but does not read them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, Result, ensure};
use nicache_applications::Client;
use nicache_netns::Namespace;

use super::oracle::{Clock, Observation, version_in};
use crate::wire::cpu::bind_to;

/// Pause between two requests; 500 per second are few beside the load.
const PERIOD_NS: u64 = 2_000_000;

/// A client at work.
#[derive(Debug)]
pub(super) struct Checker {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Observation>>>,
}

impl Checker {
    /// Starts it: one connection that stays open, one request after the other.
    pub(super) fn start(
        namespace: &Namespace,
        server: SocketAddr,
        path: &'static str,
        cpu: usize,
        clock: Clock,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        // A thread is born in the network namespace of the one that starts it.
        let thread = namespace
            .run(move || std::thread::spawn(move || check(server, path, cpu, &clock, &told)));
        Self { stop, thread }
    }

    /// Ends it; what it saw.
    ///
    /// # Errors
    /// A request failed.
    pub(super) fn finish(self) -> Result<Vec<Observation>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread
            .join()
            .expect("the checking client does not panic")
            .context("the checking client")
    }
}

fn check(
    server: SocketAddr,
    path: &'static str,
    cpu: usize,
    clock: &Clock,
    stop: &AtomicBool,
) -> Result<Vec<Observation>> {
    bind_to(cpu)?;
    let mut client = Client::new(server);
    let mut observations = Vec::new();
    let mut due_ns = clock.now_ns();
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(clock.until(due_ns));
        let sent_ns = clock.now_ns();
        let reply = client.get(path)?;
        let received_ns = clock.now_ns();
        ensure!(reply.status == 200, "status {}", reply.status);
        observations.push(Observation { sent_ns, received_ns, version: version_in(&reply.body) });
        // Without catching up: a slow server gets fewer requests, not more.
        due_ns = received_ns.max(due_ns + PERIOD_NS);
    }
    Ok(observations)
}
