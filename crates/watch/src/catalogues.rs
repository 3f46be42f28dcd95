//! The structure of the databases that are watched: fetched by the servers' own command-line clients, in the background, and again after
//! each change of it.
//!
//! Read first: `nicache_sql::Catalogue`. Until a catalogue is there, and where none can be had (no client program, no permission), a statement
//! touches all that is in reach: nothing is wrong then, but everything purges everything.

use std::collections::HashMap;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use nicache_sql::{Catalogue, Dialect, catalogue_query};

use crate::processes::sockets_of;

/// After a change of the structure, so long is waited for further ones.
const SETTLING_NS: u64 = 100_000_000;
/// After a failure.
const AGAIN_NS: u64 = 10_000_000_000;
/// Databases whose structure is followed.
const CATALOGUES_MAX: usize = 256;
/// A client that says nothing for so long is ended.
const PATIENCE: Duration = Duration::from_secs(20);

/// A database (PostgreSQL), or all databases of a server (MySQL).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The server's first process.
    pub server: u32,
    /// What it speaks.
    pub dialect: Dialect,
    /// Name of the database; PostgreSQL only.
    pub database: Option<Box<str>>,
}

#[derive(Debug, Default)]
struct State {
    catalogue: Option<Arc<Catalogue>>,
    /// Counts changes of the structure: an answer to an older question is none.
    generation: u64,
    /// When to ask, unless an answer is on its way.
    ask_at_ns: Option<u64>,
}

struct Answer {
    place: Place,
    generation: u64,
    outcome: io::Result<Catalogue>,
}

/// See the module's head.
#[derive(Debug)]
pub struct Catalogues {
    states: HashMap<Place, State>,
    answers: Receiver<Answer>,
    sender: Sender<Answer>,
    warned: bool,
}

impl Catalogues {
    /// Nothing is known yet.
    pub fn new() -> Catalogues {
        let (sender, answers) = channel();
        Catalogues { states: HashMap::new(), answers, sender, warned: false }
    }

    /// The structure of a place, if it is known; else it will be asked for.
    pub fn get(&mut self, place: &Place, now_ns: u64) -> Option<Arc<Catalogue>> {
        if !self.states.contains_key(place) {
            if self.states.len() >= CATALOGUES_MAX {
                return None;
            }
            self.states.insert(place.clone(), State { ask_at_ns: Some(now_ns), ..State::default() });
        }
        self.states.get(place).and_then(|state| state.catalogue.clone())
    }

    /// The structure of something on this server is about to change, or has.
    pub fn handle_change(&mut self, server: u32, now_ns: u64) {
        for (_, state) in self.states.iter_mut().filter(|(place, _)| place.server == server) {
            state.catalogue = None;
            state.generation += 1;
            state.ask_at_ns = Some(now_ns + SETTLING_NS);
        }
    }

    /// A server has ended.
    pub fn forget(&mut self, server: u32) {
        self.states.retain(|place, _| place.server != server);
    }

    /// Takes answers, and asks where it is time to.
    pub fn handle_time(&mut self, now_ns: u64) {
        while let Ok(answer) = self.answers.try_recv() {
            let Some(state) = self.states.get_mut(&answer.place) else { continue };
            if state.generation != answer.generation {
                continue;
            }
            match answer.outcome {
                Ok(catalogue) => {
                    tracing::debug!(place = ?answer.place, "the structure of a database is known");
                    state.catalogue = Some(Arc::new(catalogue));
                }
                Err(error) => {
                    state.ask_at_ns = Some(now_ns + AGAIN_NS);
                    if !std::mem::replace(&mut self.warned, true) {
                        tracing::warn!(
                            "the structure of a database cannot be read, so any change of it voids every page that asked it: {error}"
                        );
                    }
                }
            }
        }
        for (place, state) in &mut self.states {
            if state.ask_at_ns.is_some_and(|at| now_ns >= at) {
                state.ask_at_ns = None;
                let (place, generation, sender) = (place.clone(), state.generation, self.sender.clone());
                let fetch = move || {
                    let outcome = fetch(&place);
                    // Fails only if nobody wants to know any more.
                    let _ = sender.send(Answer { place, generation, outcome });
                };
                if std::thread::Builder::new().name("catalogue".into()).spawn(fetch).is_err() {
                    state.ask_at_ns = Some(now_ns + AGAIN_NS);
                }
            }
        }
    }
}

fn fetch(place: &Place) -> io::Result<Catalogue> {
    let text = match place.dialect {
        Dialect::MySql => ask_mysql(place.server)?,
        Dialect::Postgres => ask_postgres(place.server, place.database.as_deref().unwrap_or("postgres"))?,
    };
    Catalogue::parse(place.dialect, &text).map_err(io::Error::other)
}

fn ask_mysql(server: u32) -> io::Result<String> {
    let socket = listening_socket(server)?;
    let mut command = Command::new("mariadb");
    command.args(["--no-defaults", "--batch", "--raw", "--skip-column-names", "--user=root"]);
    command.arg("--socket").arg(socket).arg("--execute").arg(catalogue_query(Dialect::MySql));
    run(command)
}

/// As the user that the server runs as, whom it lets in without a password (peer authentication).
fn ask_postgres(server: u32, database: &str) -> io::Result<String> {
    let socket = listening_socket(server)?;
    let (folder, name) = (socket.parent(), socket.file_name().and_then(|name| name.to_str()));
    let port = name.and_then(|name| name.strip_prefix(".s.PGSQL."));
    let (Some(folder), Some(port)) = (folder, port) else {
        return Err(io::Error::other(format!("{} is no socket of PostgreSQL", socket.display())));
    };
    let owner = std::fs::metadata(format!("/proc/{server}"))?;
    use std::os::unix::fs::MetadataExt;
    let mut command = Command::new("psql");
    command.args(["--no-psqlrc", "--no-align", "--tuples-only", "--field-separator=\t", "--no-password"]);
    command.arg("--host").arg(folder).args(["--port", port, "--dbname", database]);
    command.args(["--command", catalogue_query(Dialect::Postgres)]);
    command.uid(owner.uid()).gid(owner.gid()).current_dir("/").env_clear().env("PATH", "/usr/bin:/bin");
    run(command)
}

fn run(mut command: Command) -> io::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| io::Error::other(format!("{program}: {error}")))?;
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let (done, waiting) = channel::<()>();
    let pid = rustix::process::Pid::from_child(&child);
    let guard = std::thread::spawn(move || {
        if waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    });
    let read = |from: &mut dyn io::Read| {
        let mut text = String::new();
        from.read_to_string(&mut text).map(|_| text)
    };
    let text = out.as_mut().map_or(Ok(String::new()), |out| read(out))?;
    let complaint = err.as_mut().map_or(Ok(String::new()), |err| read(err)).unwrap_or_default();
    drop(done);
    let _ = guard.join();
    let status = child.wait()?;
    if status.success() { Ok(text) } else { Err(io::Error::other(format!("{program}: {}", complaint.trim()))) }
}

/// Path of the socket that a server listens at in the file system.
fn listening_socket(server: u32) -> io::Result<PathBuf> {
    let inodes = sockets_of(server);
    let table = std::fs::read_to_string(format!("/proc/{server}/net/unix"))?;
    let listening = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        // Num RefCount Protocol Flags Type St Inode Path; flag 0x10000 is "listens".
        let (flags, inode, path) = (*fields.get(3)?, fields.get(6)?.parse().ok()?, *fields.get(7)?);
        let listens = u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & 0x1_0000 != 0);
        (listens && inodes.contains(&inode) && path.starts_with('/')).then(|| PathBuf::from(path))
    });
    let mut listening: Vec<PathBuf> = listening.collect();
    listening.sort();
    listening.into_iter().next().ok_or_else(|| {
        io::Error::other(format!("the server (process {server}) listens at no socket in the file system"))
    })
}
