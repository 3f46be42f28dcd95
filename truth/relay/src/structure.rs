//! The structure of the database, as its own command-line client tells it.

use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nicache_sql::{Dialect, catalogue_query};

use crate::message::STRUCTURE_PART_BYTES;

/// Clients at a time.
const CLIENTS_MAX: usize = 4;
/// A client that takes longer is ended.
const PATIENCE: Duration = Duration::from_secs(15);
/// Longest answer in bytes.
const ANSWER_BYTES_MAX: u64 = 32 << 20;
/// Longest complaint that is handed on, in bytes.
const COMPLAINT_BYTES_MAX: usize = 1024;

/// Asks for the structure of the database by its own command-line client.
#[derive(Debug)]
pub struct Structures {
    dialect: Dialect,
    command: Vec<String>,
    clients: Arc<AtomicUsize>,
}

impl Structures {
    /// Asks by this client program with its arguments, which say where the database is and who
    /// asks.
    pub fn new(dialect: Dialect, command: Vec<String>) -> Self {
        Self { dialect, command, clients: Arc::default() }
    }

    /// Asks in the background. `answer` gets the parts, and whether each is the last and says why
    /// there is no answer.
    pub fn ask(
        &self,
        database: Option<String>,
        answer: impl Fn(Vec<u8>, bool, bool) + Send + 'static,
    ) {
        let refuse = |why: &str| answer(why.as_bytes().to_vec(), true, true);
        if self.clients.fetch_add(1, Ordering::SeqCst) >= CLIENTS_MAX {
            self.clients.fetch_sub(1, Ordering::SeqCst);
            return refuse("too many questions at a time");
        }
        let command = self.command(database.as_deref(), catalogue_query(self.dialect));
        let clients = Arc::clone(&self.clients);
        let body = move || {
            let outcome = run(command);
            clients.fetch_sub(1, Ordering::SeqCst);
            match outcome {
                Ok(bytes) => {
                    let mut parts = bytes.chunks(STRUCTURE_PART_BYTES).peekable();
                    while let Some(part) = parts.next() {
                        answer(part.to_vec(), parts.peek().is_none(), false);
                    }
                    if bytes.is_empty() {
                        answer(Vec::new(), true, false);
                    }
                }
                Err(error) => {
                    tracing::warn!("the structure of the database cannot be read: {error}");
                    let mut why = error.to_string().into_bytes();
                    why.truncate(COMPLAINT_BYTES_MAX);
                    answer(why, true, true);
                }
            }
        };
        if std::thread::Builder::new().name("structure".into()).spawn(body).is_err() {
            self.clients.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Is the database done with all that it was told more than so many seconds ago? What a former
    /// run of the relay had handed on may still be under way.
    ///
    /// # Errors
    /// It cannot be asked.
    pub fn is_settled(&self, seconds: u64) -> io::Result<bool> {
        let query = self.dialect.unfinished_query(seconds);
        let name = self.dialect.first_database();
        let answer = run(self.command(name, &query))?;
        Ok(answer.trim_ascii() == b"0")
    }

    fn command(&self, database: Option<&str>, query: &str) -> Command {
        let mut command = Command::new(self.command.first().map_or("false", String::as_str));
        command.args(self.command.iter().skip(1));
        command.args(self.dialect.client_arguments(database, query));
        command
    }
}

fn run(mut command: Command) -> io::Result<Vec<u8>> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        command.spawn().map_err(|error| io::Error::other(format!("{program}: {error}")))?;
    let read = |from: Option<Box<dyn Read + Send>>, max: u64| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(from) = from {
                let _ = from.take(max + 1).read_to_end(&mut bytes);
            }
            bytes
        })
    };
    let out = read(
        child.stdout.take().map(|out| Box::new(out) as Box<dyn Read + Send>),
        ANSWER_BYTES_MAX,
    );
    let err = read(
        child.stderr.take().map(|err| Box::new(err) as Box<dyn Read + Send>),
        COMPLAINT_BYTES_MAX as u64,
    );
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            return Err(io::Error::other(format!(
                "{program}: no answer within {} s",
                PATIENCE.as_secs()
            )));
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let (out, err) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
    if !status.success() {
        return Err(io::Error::other(format!(
            "{program}: {}",
            String::from_utf8_lossy(&err).trim()
        )));
    }
    if out.len() as u64 > ANSWER_BYTES_MAX {
        return Err(io::Error::other(format!("{program}: the structure is too long")));
    }
    Ok(out)
}
