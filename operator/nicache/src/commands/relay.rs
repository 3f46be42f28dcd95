//! `nicache relay`.

use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nicache_relay::{Door, DoorCounters, Hub, Key, Proxy, Publisher, Step, Structures, serve};
use nicache_secret::random_u64;

use crate::cli::RelayArgs;
use crate::logs;
use crate::options::Milliseconds;

/// Shorter leases end between two renewals.
const LEASE_MIN: Milliseconds = Milliseconds(1000);
const LEASE_MAX: Milliseconds = Milliseconds(60_000);
/// In the place of a connection: what a former run had handed on. Others are numbered from 1.
const FORMER: u64 = 0;
/// Nothing goes through in the first moments, so what is under way for longer is a former run's.
const SETTLING: Duration = Duration::from_millis(1000);
/// How often it is logged what has happened.
const REPORT: Duration = Duration::from_secs(60);

/// Relays until it is killed.
pub(super) fn execute(arguments: &RelayArgs) -> Result<ExitCode> {
    logs::start(arguments.log_format);
    if !(LEASE_MIN.0..=LEASE_MAX.0).contains(&arguments.lease.0) {
        bail!("lease: from {LEASE_MIN} to {LEASE_MAX}");
    }
    let key = Key::read(&arguments.key).context("the key")?;
    let clients = listen(arguments.listen, "--listen")?;
    let cards = arguments.cards.map(|address| listen(address, "--cards")).transpose()?;
    let publisher =
        Publisher::new(random_u64()?, arguments.lease.0 * 1_000_000, nicache_clock::boottime_ns());
    let hub = Arc::new(Hub::new(publisher));
    let structures = Arc::new(Structures::new(arguments.protocol.0, client(arguments)?));
    hub.hold(FORMER);
    let (settling, former) = (Arc::clone(&structures), Arc::clone(&hub));
    let body = move || wait_for_former(&settling, &former);
    std::thread::Builder::new().name("former".into()).spawn(body)?;
    let counters = Arc::new(DoorCounters::default());
    if let Some(bus) = &arguments.nats {
        serve(bus.0.clone(), Arc::clone(&hub), Arc::clone(&structures), &key)?;
    }
    if let Some(cards) = cards {
        Door { hub: Arc::clone(&hub), structures, key, counters: Arc::clone(&counters) }
            .open(cards)?;
    }
    let proxy = Arc::new(Proxy::new(Arc::clone(&hub), arguments.protocol.0, arguments.database));
    Arc::clone(&proxy).open(clients)?;
    tracing::info!(listen = %arguments.listen, database = %arguments.database, "relaying");
    loop {
        std::thread::sleep(REPORT);
        let (published, leases) = hub.counters();
        let of = proxy.counters();
        tracing::info!(
            leases,
            events = published.events,
            greetings = published.greetings,
            resumed = published.resumed,
            behind = published.behind,
            refused = published.refused + counters.refused.load(Ordering::Relaxed),
            crowded = counters.crowded.load(Ordering::Relaxed) + of.crowded.load(Ordering::Relaxed),
            connections = of.connections.load(Ordering::Relaxed),
            open = of.open.load(Ordering::Relaxed),
            questions = of.questions.load(Ordering::Relaxed),
            changes = of.changes.load(Ordering::Relaxed),
            "so far"
        );
    }
}

/// Waits until the database is done with what a former run of the relay had handed on. Until then
/// everything counts as being changed.
fn wait_for_former(structures: &Structures, hub: &Hub) {
    let start = Instant::now();
    let mut said = false;
    loop {
        std::thread::sleep(SETTLING);
        // The database counts whole seconds.
        match structures.is_settled(start.elapsed().as_secs().saturating_sub(1)) {
            Ok(true) => break,
            Ok(false) => {}
            Err(error) => {
                if !std::mem::replace(&mut said, true) {
                    tracing::warn!(
                        "no page of the database is kept before --client can ask it: {error}"
                    );
                }
            }
        }
    }
    hub.publish(FORMER, Step::Idle);
}

fn listen(address: SocketAddr, option: &str) -> Result<TcpListener> {
    TcpListener::bind(address).with_context(|| format!("{option}: cannot listen at {address}"))
}

fn client(arguments: &RelayArgs) -> Result<Vec<String>> {
    if let Some(command) = &arguments.client {
        return match shlex::split(command) {
            Some(words) if !words.is_empty() => Ok(words),
            _ => bail!("client: `{command}` is not a command"),
        };
    }
    let (host, port) = (arguments.database.ip().to_string(), arguments.database.port().to_string());
    Ok(arguments.protocol.0.client(&host, &port))
}
