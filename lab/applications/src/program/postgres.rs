//! A private PostgreSQL: its own data folder, a Unix socket, no network.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::{Service, as_user, succeed, succeed_with};
use crate::folder::Folder;
use crate::template::Template;

/// Debian's packages.
pub(crate) const PACKAGES: [&str; 2] = ["postgresql-15", "postgresql-client-15"];
/// Name of the database.
pub(crate) const NAME: &str = "site";

const BIN: &str = "/usr/lib/postgresql/15/bin";
/// It does not run as root.
const USER: &str = "postgres";

/// A database in a site's folder.
#[derive(Debug, Clone)]
pub(crate) struct Postgres {
    folder: PathBuf,
}

impl Postgres {
    /// Makes a database that `fill` fills, or a copy of one that has been made with the template
    /// before. No server runs afterwards.
    pub(crate) fn create_filled(
        folder: &Folder,
        template: &Template,
        fill: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<Self> {
        let data = folder.subfolder("db", USER)?;
        let database = Self { folder: folder.path().to_owned() };
        template.fill(&data, || {
            let server = database.make(&data)?;
            fill(&database)?;
            server.stop_cleanly(Signal::INT)
        })?;
        Ok(database)
    }

    /// Makes an empty database and starts its server for the time of the preparation.
    fn make(&self, data: &Path) -> Result<Service> {
        std::fs::set_permissions(data, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
        let initdb = format!("{BIN}/initdb");
        let data = data.display().to_string();
        // Whoever may reach the socket may use the database.
        run_as_user(&[
            &initdb,
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--no-sync",
            "-D",
            &data,
        ])
        .context("cannot make a database")?;
        let mut server = Service::start(&self.command())?;
        server.wait_until(|| self.execute_in("postgres", "SELECT 1").is_ok())?;
        self.execute_in("postgres", &format!("CREATE DATABASE {NAME}"))?;
        Ok(server)
    }

    /// The server.
    pub(crate) fn command(&self) -> Vec<String> {
        let postgres = format!("{BIN}/postgres");
        let data = self.folder.join("db").display().to_string();
        let sockets = format!("unix_socket_directories={}", self.sockets().display());
        // Shared memory is in the folder, so nothing is left when the server is killed.
        let memory = ["-c", "shared_buffers=64MB", "-c", "dynamic_shared_memory_type=mmap"];
        let server = [&postgres, "-D", &data, "-c", "listen_addresses=", "-c", &sockets];
        let folder = format!("log_directory={}", self.folder.join("log").display());
        let log = ["-c", "logging_collector=on", "-c", &folder, "-c", "log_filename=postgres.log"];
        as_user(USER, &[&server[..], &memory[..], &log[..]].concat())
    }

    /// The folder of its socket.
    pub(crate) fn sockets(&self) -> PathBuf {
        self.folder.join("run")
    }

    /// Runs statements by the `psql` client.
    pub(crate) fn execute(&self, sql: &str) -> Result<String> {
        self.execute_in(NAME, sql)
    }

    fn execute_in(&self, database: &str, sql: &str) -> Result<String> {
        let mut client = Command::new(Path::new(BIN).join("psql"));
        client.args([
            "--no-psqlrc",
            "--quiet",
            "--tuples-only",
            "--no-align",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            USER,
        ]);
        client.arg("-h").arg(self.sockets()).args(["-d", database]);
        succeed_with(&mut client, sql)
    }
}

fn run_as_user(argv: &[&str]) -> Result<String> {
    let words = as_user(USER, argv);
    succeed(Command::new(&words[0]).args(&words[1..]).current_dir("/"))
}
