//! A private MariaDB: its own data folder, a Unix socket, no network.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::{Service, as_user, succeed, succeed_with};
use crate::folder::Folder;

/// Debian's packages: the programs, without a service of the machine.
pub(crate) const PACKAGES: [&str; 2] = ["mariadb-server-core", "mariadb-client-core"];
/// It does not run as root; the user `mysql` is made by the package of the service.
const USER: &str = "www-data";
/// Locked memory for that is limited, for all servers of a user together.
const NO_AIO: &str = "--skip-innodb-use-native-aio";
/// Name of database, user and password alike.
pub(crate) const NAME: &str = "site";

/// A database in a site's folder.
#[derive(Debug, Clone)]
pub(crate) struct MariaDb {
    folder: PathBuf,
}

impl MariaDb {
    /// Makes an empty database and starts its server for the time of the preparation.
    pub(crate) fn create(folder: &Folder) -> Result<(Self, Service)> {
        folder.subfolder("db", USER)?;
        // Each server removes what looks like its own leftovers in its folder of temporary files, so that is shared with no other.
        let temporary = folder.subfolder("db-tmp", USER)?;
        succeed(
            Command::new("mariadb-install-db")
                .args(["--no-defaults", "--skip-test-db"])
                .args(["--auth-root-authentication-method=socket", "--auth-root-socket-user=root"])
                .arg(NO_AIO)
                .arg(format!("--tmpdir={}", temporary.display()))
                .arg(format!("--user={USER}"))
                .arg(format!("--datadir={}", folder.text("db"))),
        )
        .context("cannot make a database")?;
        let database = Self { folder: folder.path().to_owned() };
        let mut server = Service::start(&database.command())?;
        server.wait_until(|| UnixStream::connect(database.socket()).is_ok())?;
        database.execute_in(
            "mysql",
            &format!(
                "CREATE DATABASE {NAME} CHARACTER SET utf8mb4; CREATE USER '{NAME}'@'localhost' IDENTIFIED BY '{NAME}'; \
                 GRANT ALL ON {NAME}.* TO '{NAME}'@'localhost';"
            ),
        )?;
        Ok((database, server))
    }

    /// Ends the server of the preparation.
    pub(crate) fn finish(server: Service) -> Result<()> {
        server.stop(Signal::TERM)
    }

    /// The server.
    pub(crate) fn command(&self) -> Vec<String> {
        let path = |name: &str| self.folder.join(name).display().to_string();
        let option = |name: &str, value: String| format!("--{name}={value}");
        let options = [
            option("datadir", path("db")),
            option("socket", path("run/mariadb.sock")),
            option("pid-file", path("run/mariadb.pid")),
            option("log-error", path("db/error.log")),
            option("tmpdir", path("db-tmp")),
            "--skip-networking".to_owned(),
            "--skip-log-bin".to_owned(),
            NO_AIO.to_owned(),
            "--innodb-buffer-pool-size=64M".to_owned(),
            // The limit of the machine may be lower than what it would ask for.
            "--open-files-limit=1024".to_owned(),
            "--table-open-cache=200".to_owned(),
            "--max-connections=100".to_owned(),
            "--character-set-server=utf8mb4".to_owned(),
        ];
        let mut argv = vec!["mariadbd", "--no-defaults"];
        argv.extend(options.iter().map(String::as_str));
        as_user(USER, &argv)
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("run/mariadb.sock")
    }

    /// Runs statements as the site's user, by the `mariadb` client.
    pub(crate) fn execute(&self, sql: &str) -> Result<String> {
        let mut client = self.client(&self.socket());
        succeed_with(client.arg(format!("--user={NAME}")).arg(format!("--password={NAME}")).arg(NAME), sql)
    }

    /// Runs statements as the server's administrator in the site's database.
    pub(crate) fn execute_as_administrator(&self, sql: &str) -> Result<String> {
        self.execute_in(NAME, sql)
    }

    fn execute_in(&self, database: &str, sql: &str) -> Result<String> {
        succeed_with(self.client(&self.socket()).arg("--user=root").arg(database), sql)
    }

    fn client(&self, socket: &Path) -> Command {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "--batch", "--skip-column-names", "--default-character-set=utf8mb4"]);
        client.arg(format!("--socket={}", socket.display()));
        client
    }
}
