//! `nicache watch`, the watcher process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nicache_coherence::{RecordNumber, RevisionTable};
use nicache_relay::{Key, Subscriber, follow, follow_bus};
use nicache_secret::random_u64;
use nicache_watch::{
    DataFolders, Dependents, Explanation, KernelWatcher, MemberName, Operator, PreloadMemory,
    Registrar, RemoteCounters, RemoteDatabase, SessionFiles, run_watcher,
};

use crate::inquiry::{
    DatabaseReport, FromWatch, PATHS_MAX, PathReport, RECORDS_MAX, SourcesReport, ToWatch, text,
};
use crate::logs;
use crate::options;
use crate::privileges;
use crate::setup::{
    MESSAGE_BYTES_MAX, WATCHER_NICENESS, WatchReport, WatchSetup, child_start, go_first,
    receive_message, send_message,
};

/// How often it is logged what relays have told.
const REPORT: Duration = Duration::from_secs(60);

/// Watches for the cards that the supervisor brings, until that is gone.
pub(super) fn execute() -> Result<ExitCode> {
    let (setup, _, supervisor) = child_start::<WatchSetup>(c"nicache-watch")?;
    logs::start(setup.log_format);
    go_first(WATCHER_NICENESS);
    let server_netns = u32::try_from(setup.server_netns)
        .context("the number of the server's network namespace")?;
    let started = match &setup.preload {
        None => start_kernel(&setup, server_netns).map_err(|error| {
            let error = anyhow!(
                "{error:#}; where that is not available, `nicache run --watch preload` watches without it, but what programs change that \
                 are neither the server's nor run by `nicache follow` shows only after --recheck"
            );
            error.to_string()
        }),
        Some(folder) => start_preload(&setup, server_netns, folder)
            .map_err(|error| format!("{error:#}")),
    };
    let Started { mut registrar, table, witness, lacks } = match started {
        Ok(started) => started,
        Err(reason) => {
            let report = WatchReport { files: 0, unavailable: Some(reason), lacks: Vec::new() };
            send_message(&supervisor, &report, &[])?;
            while receive_message::<serde_json::Value>(&supervisor)?.is_some() {}
            return Ok(ExitCode::FAILURE);
        }
    };
    privileges::keep_capabilities(privileges::OF_A_WATCHER)?;
    privileges::refuse_calls()?;
    let remotes = follow_remotes(&setup.remote_databases, &table)?;
    registrar.leave_out(SessionFiles::new(&setup.session_files));
    registrar.take_as_data(DataFolders::new(&setup.data_folders));
    registrar.follow_remotes(remotes.clone());
    if !remotes.is_empty() {
        let remotes = remotes.clone();
        std::thread::Builder::new()
            .name("relay-report".into())
            .spawn(move || self::report(&remotes))?;
    }
    registrar.handle_time();
    let report = WatchReport { files: witness.len(), unavailable: None, lacks };
    send_message(&supervisor, &report, &witness.iter().map(AsFd::as_fd).collect::<Vec<_>>())?;
    let mut operator = Supervisor { socket: supervisor, remotes };
    run_watcher(&mut registrar, Vec::new(), Some(&mut operator))
        .context("polling the sockets of cards")?;
    Ok(ExitCode::FAILURE)
}

/// What a witness has been started with.
struct Started {
    registrar: Registrar,
    table: Arc<RevisionTable>,
    /// Files for the card: the two of the revision table, then those that only need to stay open.
    witness: Vec<OwnedFd>,
    /// See [`WatchReport::lacks`].
    lacks: Vec<String>,
}

fn start_kernel(setup: &WatchSetup, server_netns: u32) -> Result<Started> {
    let watcher = KernelWatcher::load(server_netns)?;
    let lacks = watcher.coverage().missing.clone();
    for lack in &lacks {
        tracing::warn!("less is kept on this kernel: {lack} (`nicache check` says more)");
    }
    let files =
        [watcher.control_fd(), watcher.revisions_fd()].into_iter().chain(watcher.link_fds());
    let files = files.map(|file| file.try_clone_to_owned()).collect::<Result<_, _>>()?;
    let table = Arc::new(watcher.table().context("mapping the revision table")?);
    table.set_service_ports(&setup.http_ports);
    let witness = watcher.witness().context("mapping the ring of look-ups")?;
    let mut registrar = Registrar::new(Arc::clone(&table), Box::new(witness));
    registrar.follow_databases(watcher.databases());
    for unit in &setup.follow_units {
        let expected = watcher.members().expect(&MemberName::Unit(unit.clone()));
        expected.with_context(|| format!("following the unit {unit}"))?;
    }
    registrar.follow_members(watcher.members());
    Ok(Started { registrar, table, witness: files, lacks })
}

fn start_preload(setup: &WatchSetup, server_netns: u32, folder: &Path) -> Result<Started> {
    let memory = PreloadMemory::create(folder, server_netns)
        .context("making the memory for --watch preload")?;
    let table = Arc::new(memory.table().context("mapping the revision table")?);
    table.set_service_ports(&setup.http_ports);
    let files = memory
        .table_fds()
        .map(|file| file.try_clone_to_owned())
        .into_iter()
        .collect::<Result<_, _>>()?;
    let registrar = Registrar::new(Arc::clone(&table), Box::new(memory.witness()?));
    Ok(Started { registrar, table, witness: files, lacks: Vec::new() })
}

/// Who asks on behalf of `nicache why`, `who` and `status`.
struct Supervisor {
    socket: OwnedFd,
    remotes: Vec<Arc<RemoteDatabase>>,
}

impl Operator for Supervisor {
    fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn answer(&mut self, registrar: &mut Registrar) -> io::Result<Option<OwnedFd>> {
        let question = receive_message(&self.socket).map_err(io::Error::other)?;
        let Some((question, files)) = question else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let Some(mut answer) = answer(question, registrar, &self.remotes) else {
            return Ok(files.into_iter().next());
        };
        // Paths may be of any length.
        while let FromWatch::Explained { sources: Some(sources) } = &mut answer
            && serde_json::to_vec(sources).is_ok_and(|bytes| bytes.len() > MESSAGE_BYTES_MAX - 1024)
        {
            sources.paths.truncate(sources.paths.len() / 2);
            sources.tables.truncate(sources.tables.len() / 2);
        }
        send_message(&self.socket, &answer, &[]).map_err(io::Error::other)?;
        Ok(None)
    }
}

/// `None`: there is nothing to say, but a card to serve.
fn answer(
    question: ToWatch,
    registrar: &mut Registrar,
    remotes: &[Arc<RemoteDatabase>],
) -> Option<FromWatch> {
    Some(match question {
        ToWatch::ServeCard { server_is_older } => {
            if server_is_older {
                registrar.handle_older_server();
            }
            return None;
        }
        ToWatch::Explain { record } => FromWatch::Explained {
            sources: registrar.explain(RecordNumber(record)).map(sources_report),
        },
        ToWatch::DependsOnPath { path } => {
            dependents_report(registrar.dependents_of_path(Path::new(&path)))
        }
        ToWatch::DependsOnTable { table } => {
            dependents_report(registrar.dependents_of_table(&table))
        }
        ToWatch::Outsiders => FromWatch::Outsiders { processes: registrar.outsiders() },
        ToWatch::Databases => FromWatch::Databases {
            databases: remotes.iter().map(|remote| report_of(remote)).collect(),
        },
    })
}

fn report_of(remote: &RemoteDatabase) -> DatabaseReport {
    let RemoteCounters { events, changes, voided, in_step } = remote.counters();
    DatabaseReport {
        database: remote.address().to_string(),
        in_step: in_step == 1,
        events,
        changes,
        voided,
    }
}

fn sources_report(explanation: Explanation) -> SourcesReport {
    let paths = explanation.paths.into_iter().take(PATHS_MAX).map(|path| PathReport {
        path: text(path.path.as_bytes()),
        used: path.used.label().to_owned(),
        revision: path.revision,
    });
    SourcesReport {
        paths: paths.collect(),
        paths_count: explanation.paths_count as u64,
        tables: explanation
            .tables
            .iter()
            .take(PATHS_MAX)
            .map(|table| text(table.as_bytes()))
            .collect(),
        retained: explanation.retained as u64,
    }
}

fn dependents_report(dependents: Dependents) -> FromWatch {
    let records = dependents.records.iter().rev().take(RECORDS_MAX).map(|record| record.0);
    FromWatch::Dependents {
        records: records.collect(),
        records_count: dependents.records.len() as u64,
        every_dynamic: dependents.every_dynamic,
    }
}

/// Has a thread follow each relay.
fn follow_remotes(
    setups: &[options::RemoteDatabase],
    table: &Arc<RevisionTable>,
) -> Result<Vec<Arc<RemoteDatabase>>> {
    let mut remotes = Vec::new();
    for (index, setup) in (0..).zip(setups) {
        let key = Key::read(&setup.key).context("the key of a relay")?;
        let remote = RemoteDatabase::new(setup.address, setup.protocol.0, index, Arc::clone(table));
        let remote = Arc::new(remote);
        remotes.push(Arc::clone(&remote));
        let card = random_u64()?;
        let (relay, mut subscriber) = (setup.relay.clone(), Subscriber::new(card));
        let body = move || match &relay {
            options::Relay::Direct(address) => follow(*address, &key, &mut subscriber, &*remote),
            options::Relay::Bus(bus) => follow_bus(&bus.0, card, &key, &mut subscriber, &*remote),
        };
        std::thread::Builder::new().name("relay".into()).spawn(body)?;
    }
    Ok(remotes)
}

/// Logs now and then what the relays have told.
fn report(remotes: &[Arc<RemoteDatabase>]) {
    loop {
        std::thread::sleep(REPORT);
        for remote in remotes {
            let counters = remote.counters();
            tracing::info!(
                database = %remote.address(),
                in_step = counters.in_step,
                events = counters.events,
                changes = counters.changes,
                voided = counters.voided,
                "a database on another machine"
            );
        }
    }
}
