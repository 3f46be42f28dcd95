//! A private MariaDB: its own data folder, a Unix socket, no network; and another one whose changes
//! it can be told to apply.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::{Service, as_user, succeed, succeed_with};
use crate::folder::Folder;
use crate::template::Template;

/// Debian's packages: the programs, without a service of the machine.
pub(crate) const PACKAGES: [&str; 2] = ["mariadb-server-core", "mariadb-client-core"];
/// It does not run as root; the user `mysql` is made by the package of the service.
const USER: &str = "www-data";
/// Locked memory for that is limited, for all servers of a user together.
const NO_AIO: &str = "--skip-innodb-use-native-aio";
const NO_NETWORK: &str = "--skip-networking";
/// Most of a small database would be its log: written when it is made, and read by each copy.
const SMALL_LOG: &str = "--innodb-log-file-size=8M";
/// Name of database, user and password alike.
pub(crate) const NAME: &str = "site";

/// Name and password of the user as whom a replica reads a primary's log.
const APPLIER: &str = "applier";

/// A database in a site's folder.
#[derive(Debug, Clone)]
pub(crate) struct MariaDb {
    folder: PathBuf,
    /// What its files in the folder begin with.
    prefix: &'static str,
    /// Where a replica reaches it, on the loopback interface of the server's network namespace.
    port: Option<u16>,
}

impl MariaDb {
    /// Makes an empty database and starts its server for the time of the preparation.
    pub(crate) fn create(folder: &Folder) -> Result<(Self, Service)> {
        Self::of_the_site(folder).make(folder)
    }

    /// Makes a database that `fill` fills, or a copy of one that has been made with the template
    /// before. No server runs afterwards.
    pub(crate) fn create_filled(
        folder: &Folder,
        template: &Template,
        fill: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<Self> {
        let database = Self::of_the_site(folder);
        let data = database.make_folders(folder)?;
        template.fill(&data, || {
            let (database, server) = database.clone().make(folder)?;
            fill(&database)?;
            Self::finish(server)
        })?;
        Ok(database)
    }

    fn of_the_site(folder: &Folder) -> Self {
        Self { folder: folder.path().to_owned(), prefix: "db", port: None }
    }

    /// Makes an empty database whose changes the site's own can apply ([`Self::apply`]), and starts
    /// its server for the time of the preparation. From now on it keeps its changes in a log.
    pub(crate) fn create_primary(folder: &Folder, port: u16) -> Result<(Self, Service)> {
        let (primary, server) =
            Self { folder: folder.path().to_owned(), prefix: "primary", port: Some(port) }
                .make(folder)?;
        primary.execute_as_administrator(&format!(
            "CREATE USER '{APPLIER}'@'127.0.0.1' IDENTIFIED BY '{APPLIER}'; GRANT REPLICATION SLAVE ON *.* TO '{APPLIER}'@'127.0.0.1';"
        ))?;
        Ok((primary, server))
    }

    /// From now on the primary's changes can be applied here: those that come after this, and only
    /// while `START SLAVE` is in force.
    pub(crate) fn apply(&self, primary: &Self) -> Result<()> {
        let port = primary.port.context("no replica reaches a database without a port")?;
        primary.execute_as_administrator("RESET MASTER;")?;
        let sql = format!(
            "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, \
             MASTER_USER = '{APPLIER}', MASTER_PASSWORD = '{APPLIER}', MASTER_CONNECT_RETRY = 1;"
        );
        self.execute_as_administrator(&sql).map(drop)
    }

    fn make(self, folder: &Folder) -> Result<(Self, Service)> {
        let data = self.make_folders(folder)?;
        succeed(
            Command::new("mariadb-install-db")
                .args(["--no-defaults", "--skip-test-db"])
                .args(["--auth-root-authentication-method=socket", "--auth-root-socket-user=root"])
                .args([NO_AIO, SMALL_LOG])
                .arg(format!("--tmpdir={}", folder.text(&self.temporary())))
                .arg(format!("--user={USER}"))
                .arg(format!("--datadir={}", data.display())),
        )
        .context("cannot make a database")?;
        let server = self.start()?;
        self.execute_in(
            "mysql",
            &format!(
                "CREATE DATABASE {NAME} CHARACTER SET utf8mb4; CREATE USER '{NAME}'@'localhost' IDENTIFIED BY '{NAME}'; \
                 GRANT ALL ON {NAME}.* TO '{NAME}'@'localhost';"
            ),
        )?;
        Ok((self, server))
    }

    /// Name of a folder in the site's. Each server removes what looks like its own leftovers in its
    /// folder of temporary files, so it is shared with no other.
    fn temporary(&self) -> String {
        format!("{}-tmp", self.prefix)
    }

    /// Makes the folders of its files and of its temporary files, and returns the former.
    fn make_folders(&self, folder: &Folder) -> Result<PathBuf> {
        folder.subfolder(&self.temporary(), USER)?;
        folder.subfolder(self.prefix, USER)
    }

    /// Starts its server for the time of a preparation.
    pub(crate) fn start(&self) -> Result<Service> {
        // Its port belongs to the network that the site will have.
        let mut command = self.command();
        command.push(NO_NETWORK.to_owned());
        let mut server = Service::start(&command)?;
        server.wait_until(|| UnixStream::connect(self.socket()).is_ok())?;
        Ok(server)
    }

    /// Ends the server of the preparation.
    pub(crate) fn finish(server: Service) -> Result<()> {
        server.stop_cleanly(Signal::TERM)
    }

    /// The server.
    pub(crate) fn command(&self) -> Vec<String> {
        let path =
            |rest: &str| self.folder.join(format!("{}{rest}", self.prefix)).display().to_string();
        let option = |name: &str, value: String| format!("--{name}={value}");
        let mut options = vec![
            option("datadir", path("")),
            option("socket", self.socket().display().to_string()),
            option("pid-file", path("/server.pid")),
            option("log-error", path("/error.log")),
            option("tmpdir", path("-tmp")),
            NO_AIO.to_owned(),
            SMALL_LOG.to_owned(),
            "--innodb-buffer-pool-size=64M".to_owned(),
            // The limit of the machine may be lower than what it would ask for.
            "--open-files-limit=1024".to_owned(),
            "--table-open-cache=200".to_owned(),
            "--max-connections=100".to_owned(),
            "--character-set-server=utf8mb4".to_owned(),
        ];
        match self.port {
            None => {
                options.extend(
                    [NO_NETWORK, "--skip-log-bin", "--server-id=2", "--skip-slave-start"]
                        .map(str::to_owned),
                );
            }
            Some(port) => options.extend([
                "--bind-address=127.0.0.1".to_owned(),
                option("port", port.to_string()),
                "--skip-name-resolve".to_owned(),
                "--log-bin=changes".to_owned(),
            ]),
        }
        let mut argv = vec!["mariadbd", "--no-defaults"];
        argv.extend(options.iter().map(String::as_str));
        as_user(USER, &argv)
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("run").join(if self.port.is_none() {
            "mariadb.sock"
        } else {
            "primary.sock"
        })
    }

    /// Runs statements as the site's user, by the `mariadb` client.
    pub(crate) fn execute(&self, sql: &str) -> Result<String> {
        let mut client = self.client(&self.socket());
        succeed_with(
            client.arg(format!("--user={NAME}")).arg(format!("--password={NAME}")).arg(NAME),
            sql,
        )
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
        client.args([
            "--no-defaults",
            "--batch",
            "--skip-column-names",
            "--default-character-set=utf8mb4",
        ]);
        client.arg(format!("--socket={}", socket.display()));
        client
    }
}
