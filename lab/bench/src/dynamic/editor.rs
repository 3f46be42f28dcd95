//! Changes a page, as often as wanted: through one database client that stays open, or by renaming
//! files. Neither starts a program per change, which would cost the machine more than the change
//! itself.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::oracle::{Clock, Edit};
use super::page::{Change, Page};

/// The version that a prepared site's files show.
const FIRST: &str = "version=0.";
/// How long a pause may be until a stop is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(10);
const NS_PER_SECOND: u64 = 1_000_000_000;

/// What changes one page.
#[derive(Debug)]
pub(super) struct Editor {
    way: Way,
}

#[derive(Debug)]
enum Way {
    Database { client: Client, statement: fn(u64) -> String },
    File { path: PathBuf, temporary: PathBuf, template: String },
}

impl Editor {
    /// For a page of a running site. `template`: of [`template`].
    ///
    /// # Errors
    /// The database's client does not start.
    pub(super) fn open(page: Page, folder: &Path, template: &str, cpu: usize) -> Result<Self> {
        let way = match page.change() {
            Change::Statement(statement) => {
                Way::Database { client: Client::start(&Page::database(folder), cpu)?, statement }
            }
            Change::File(name) => Way::File {
                path: folder.join(name),
                // In another folder, so there is one change in the one that the page is in.
                temporary: folder.join("tmp/next-version"),
                template: template.to_owned(),
            },
        };
        Ok(Self { way })
    }

    /// Makes the page show a version.
    ///
    /// # Errors
    /// It could not be changed.
    pub(super) fn change(&mut self, version: u64) -> Result<()> {
        match &mut self.way {
            Way::Database { client, statement } => client.change_one_row(&statement(version)),
            Way::File { path, temporary, template } => {
                std::fs::write(
                    &*temporary,
                    template.replace(FIRST, &format!("version={version}.")),
                )?;
                std::fs::rename(&*temporary, &*path)
                    .with_context(|| format!("cannot replace {}", path.display()))
            }
        }
    }

    /// Changes it once.
    ///
    /// # Errors
    /// As [`Editor::change`].
    pub(super) fn edit(&mut self, version: u64, clock: &Clock) -> Result<Edit> {
        let begun_ns = clock.now_ns();
        self.change(version)?;
        Ok(Edit { version, begun_ns, ended_ns: clock.now_ns() })
    }

    /// Changes it `rate` times per second, from `first` on, until `stop`; the first time after half
    /// a period.
    ///
    /// # Errors
    /// As [`Editor::change`].
    pub(super) fn run(
        &mut self,
        rate: u32,
        first: u64,
        clock: &Clock,
        stop: &Arc<AtomicBool>,
    ) -> Result<Vec<Edit>> {
        let mut edits = Vec::new();
        let Some(period_ns) = NS_PER_SECOND.checked_div(u64::from(rate)) else { return Ok(edits) };
        let mut due_ns = clock.now_ns() + period_ns / 2;
        while !stop.load(Ordering::Relaxed) {
            let wait = clock.until(due_ns);
            if wait.is_zero() {
                edits.push(self.edit(first + edits.len() as u64, clock)?);
                due_ns += period_ns;
            } else {
                std::thread::sleep(wait.min(LOOK_EVERY));
            }
        }
        Ok(edits)
    }
}

/// The text of the file that is replaced, as the site was prepared; empty for a page in a database.
///
/// # Errors
/// The file cannot be read, or shows no version.
pub(super) fn template(page: Page, folder: &Path) -> Result<String> {
    let Change::File(name) = page.change() else { return Ok(String::new()) };
    let text = std::fs::read_to_string(folder.join(name))
        .with_context(|| format!("the site has no {name}"))?;
    ensure!(text.contains(FIRST), "{name} does not show {FIRST}");
    Ok(text)
}

/// A `mariadb` that reads statements from a pipe.
#[derive(Debug)]
struct Client {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Client {
    fn start(socket: &Path, cpu: usize) -> Result<Self> {
        let mut command = Command::new("setpriv");
        command.args([
            "--pdeathsig",
            "KILL",
            "taskset",
            "-c",
            &cpu.to_string(),
            "mariadb",
            "--no-defaults",
        ]);
        command.args([
            "--batch",
            "--skip-column-names",
            "--unbuffered",
            "--user=site",
            "--password=site",
        ]);
        command.arg(format!("--socket={}", socket.display())).arg("site");
        // Ctrl-C is for the benchmark.
        let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).spawn();
        let mut process = process.context("cannot start mariadb (package mariadb-client-core)")?;
        let (input, output) = (process.stdin.take(), process.stdout.take());
        let (input, output) =
            (input.context("no pipe")?, BufReader::new(output.context("no pipe")?));
        Ok(Self { process, input, output })
    }

    /// Returns when the server has said that the change is made.
    fn change_one_row(&mut self, statement: &str) -> Result<()> {
        let mut answer = String::new();
        writeln!(self.input, "{statement}; SELECT ROW_COUNT();")
            .and_then(|()| self.input.flush())
            .and_then(|()| self.output.read_line(&mut answer))
            .context("the database's client ended")?;
        ensure!(
            answer.trim() == "1",
            "`{statement}` changed {} rows instead of one",
            answer.trim()
        );
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn editor(folder: &Path) -> Editor {
        let (path, temporary) = (folder.join("page.txt"), folder.join("next"));
        Editor {
            way: Way::File { path, temporary, template: "This is version=0. of it".to_owned() },
        }
    }

    #[test]
    fn a_file_gets_the_version() {
        let folder = tempfile::tempdir().unwrap();
        let edit = editor(folder.path()).edit(7, &Clock::start()).unwrap();
        assert_eq!(
            std::fs::read_to_string(folder.path().join("page.txt")).unwrap(),
            "This is version=7. of it"
        );
        assert!(edit.version == 7 && edit.begun_ns <= edit.ended_ns);
    }

    #[test]
    fn no_rate_no_edits_and_a_stop_is_heeded() {
        let folder = tempfile::tempdir().unwrap();
        let stop = Arc::new(AtomicBool::new(true));
        let clock = Clock::start();
        assert_eq!(editor(folder.path()).run(0, 1, &clock, &stop).unwrap(), []);
        assert_eq!(editor(folder.path()).run(10, 1, &clock, &stop).unwrap(), []);
        assert!(!folder.path().join("page.txt").exists());
    }
}
