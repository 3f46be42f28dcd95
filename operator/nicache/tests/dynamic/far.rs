//! The machine at the far end of the cable: a database, and the relay in front of it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nicache_applications::{Application, Settings, Site};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::common::{NICACHE, family, ip, is_running, kill_if_there, output, within};
use crate::stage::Shell;

/// This machine's address, and the other's.
pub(crate) const NEAR: &str = "10.55.0.1";
pub(crate) const FAR: &str = "10.55.0.2";

/// For what is certain to come, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    MariaDb,
    Postgres,
}

impl Kind {
    fn protocol(self) -> &'static str {
        if self == Self::MariaDb { "mysql" } else { "postgres" }
    }

    fn port(self) -> u16 {
        if self == Self::MariaDb { 3306 } else { 5432 }
    }
}

/// Everything on the other machine. Dropping it ends it.
pub(crate) struct Far {
    kind: Kind,
    /// Holds the namespace.
    holder: Child,
    database: Option<Child>,
    relay: Option<Child>,
    /// The bus, if there is one.
    nats: Option<Child>,
    on_bus: bool,
    site: Option<Site>,
    folder: PathBuf,
    key: PathBuf,
    _keys: TempDir,
}

impl Far {
    /// From a thread in the web machine's namespace. With `on_bus`, what the relay says goes over
    /// NATS.
    pub(crate) fn start(kind: Kind, on_bus: bool) -> Self {
        let keys = tempfile::tempdir().unwrap();
        let key = keys.path().join("key");
        std::fs::write(&key, "5a".repeat(32)).unwrap();
        std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
        let mut holder = Command::new("unshare");
        let holder =
            holder.args(["--net", "sleep", "infinity"]).stdin(Stdio::null()).spawn().unwrap();
        let pid = holder.id();
        let own = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        let is_apart = || {
            let other = std::fs::read_link(format!("/proc/{pid}/ns/net")).ok()?;
            (other != own
                && std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim() == "sleep")
                .then_some(())
        };
        assert!(within(PATIENCE, is_apart).is_some());
        ip(&format!("link add near type veth peer name far netns {pid}"));
        ip(&format!("address add {NEAR}/24 dev near"));
        ip("link set near up");
        let application =
            if kind == Kind::MariaDb { Application::PhpPage } else { Application::Flask };
        let site = application.prepare_with(&Settings::default()).unwrap();
        let folder = site.folder().to_owned();
        let (database, relay, nats, site) = (None, None, None, Some(site));
        let mut far =
            Self { kind, holder, database, relay, nats, on_bus, site, folder, key, _keys: keys };
        for arguments in
            ["link set lo up", &format!("address add {FAR}/24 dev far"), "link set far up"]
        {
            let words: Vec<&str> =
                ["ip"].into_iter().chain(arguments.split_ascii_whitespace()).collect();
            assert!(far.inside(&words).status().unwrap().success(), "{arguments}");
        }
        far.start_database();
        if on_bus {
            far.start_nats();
        }
        far.start_relay();
        far
    }

    /// A command on the other machine.
    pub(crate) fn inside(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/proc/{}/ns/net", self.holder.id()))
            .args(words)
            .stdin(Stdio::null());
        command
    }

    /// The value of `--remote-database` with this way to what the relay says.
    pub(crate) fn option(&self, way: &str) -> String {
        format!(
            "{}://{FAR}:{},{way},key={}",
            self.kind.protocol(),
            self.kind.port(),
            self.key.display()
        )
    }

    fn start_database(&mut self) {
        let site = self.site.as_ref().unwrap();
        let mut words = site.with()[0].clone();
        let program = words
            .iter()
            .position(|word| word.ends_with("mariadbd") || word.ends_with("/postgres"))
            .unwrap();
        let found = if words[program].starts_with('/') {
            PathBuf::from(&words[program])
        } else {
            PathBuf::from(output("which", &[&words[program]]).trim())
        };
        match self.kind {
            Kind::MariaDb => {
                // Under another name; what it needs besides it finds by itself.
                let other = self.folder.join("elsewhere");
                std::os::unix::fs::symlink(found, &other).unwrap();
                words[program] = other.display().to_string();
                words.retain(|word| word != "--skip-networking");
                words.extend(["--bind-address=127.0.0.1".to_owned(), "--port=3306".to_owned()]);
            }
            Kind::Postgres => {
                // It looks for its files beside the program that it is, so is a copy there,
                // for the time of the test.
                let name = format!("elsewhere{}", self.holder.id());
                let other = found.with_file_name(&name);
                std::fs::copy(found, &other).unwrap();
                words[program] = other.display().to_string();
                let listen =
                    words.iter().position(|word| word.starts_with("listen_addresses=")).unwrap();
                words[listen] = "listen_addresses=127.0.0.1".to_owned();
            }
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.database = Some(self.inside(&words).spawn().unwrap());
        let is_there = || self.direct("SELECT 1").ok();
        assert!(within(PATIENCE, is_there).is_some(), "the database is not there");
        if self.kind == Kind::MariaDb {
            self.direct(
                "CREATE USER 'site'@'%' IDENTIFIED BY 'site'; GRANT ALL ON site.* TO 'site'@'%'",
            )
            .unwrap();
        }
    }

    pub(crate) fn start_relay(&mut self) {
        let port = self.kind.port();
        let (listen, cards) = (format!("{FAR}:{port}"), format!("{FAR}:7400"));
        let (database, key) = (format!("127.0.0.1:{port}"), self.key.display().to_string());
        let run = self.folder.join("run");
        let client = match self.kind {
            Kind::MariaDb => {
                format!(
                    "mariadb --no-defaults --user=root --socket={}",
                    run.join("mariadb.sock").display()
                )
            }
            Kind::Postgres => format!("psql --username=postgres --host={}", run.display()),
        };
        let mut words =
            vec![NICACHE, "relay", "--protocol", self.kind.protocol(), "--listen", &listen];
        words.extend(["--database", &database, "--key", &key, "--client", &client]);
        let bus = format!("nats://{FAR}:4222/shop");
        words.extend(if self.on_bus { ["--nats", &bus] } else { ["--cards", &cards] });
        let mut command = self.inside(&words);
        if std::env::var_os("NICACHE_LOG").is_none() {
            command.env("NICACHE_LOG", "warn");
        }
        self.relay = Some(command.spawn().unwrap());
        // On a bus, the relay has no address but the database's.
        let address = if self.on_bus { &listen } else { &cards };
        let is_there = || std::net::TcpStream::connect(&**address).ok();
        assert!(within(PATIENCE, is_there).is_some(), "the relay is not there");
    }

    pub(crate) fn start_nats(&mut self) {
        let store = self.folder.join("nats").display().to_string();
        let words =
            ["nats-server", "-a", FAR, "-p", "4222", "-js", "-sd", &store, "-l", "/dev/null"];
        self.nats = Some(self.inside(&words).spawn().unwrap());
        let is_there = || std::net::TcpStream::connect(format!("{FAR}:4222")).ok();
        assert!(within(PATIENCE, is_there).is_some(), "the bus is not there");
    }

    /// The bus's process.
    pub(crate) fn nats(&self) -> u64 {
        self.nats.as_ref().unwrap().id().into()
    }

    pub(crate) fn kill_nats(&mut self) {
        let mut nats = self.nats.take().unwrap();
        nats.kill().unwrap();
        nats.wait().unwrap();
    }

    /// Where what the relay says comes from.
    pub(crate) fn events_port(&self) -> u16 {
        if self.on_bus { 4222 } else { 7400 }
    }

    /// The relay's process.
    pub(crate) fn relay(&self) -> u64 {
        // nsenter becomes what it starts.
        self.relay.as_ref().unwrap().id().into()
    }

    pub(crate) fn kill_relay(&mut self) {
        let mut relay = self.relay.take().unwrap();
        relay.kill().unwrap();
        relay.wait().unwrap();
    }

    /// Statements past the relay, as the database's owner.
    pub(crate) fn direct(&self, sql: &str) -> Result<String, String> {
        let run = self.folder.join("run").display().to_string();
        let socket = format!("--socket={run}/mariadb.sock");
        let words = match self.kind {
            Kind::MariaDb => vec![
                "mariadb",
                "--no-defaults",
                "--user=root",
                &socket,
                "--batch",
                "--execute",
                sql,
            ],
            Kind::Postgres => {
                vec!["psql", "-X", "-q", "-U", "postgres", "-h", &run, "-d", "site", "-c", sql]
            }
        };
        finish(&mut self.inside(&words))
    }

    /// Statements through the relay, from this machine.
    pub(crate) fn sql(&self, sql: &str) -> String {
        self.try_sql(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    pub(crate) fn try_sql(&self, sql: &str) -> Result<String, String> {
        let mut command = match self.kind {
            Kind::MariaDb => mariadb(),
            Kind::Postgres => psql(),
        };
        command.args([if self.kind == Kind::MariaDb { "--execute" } else { "--command" }, sql]);
        finish(command.stdin(Stdio::null()))
    }

    /// A client of MariaDB that stays connected through the relay.
    pub(crate) fn shell(&self) -> Shell {
        Shell::new(mariadb(), "SELECT 'said';")
    }

    /// Statements through the relay, whose end nobody waits for.
    pub(crate) fn try_sql_in_background(&self, sql: &str) {
        let mut command = mariadb();
        let command = command.args(["--execute", sql]).stdin(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        std::thread::spawn(move || child.wait());
    }

    /// The cable is cut, or whole again.
    pub(crate) fn cable(&self, whole: bool) {
        ip(if whole { "link set near up" } else { "link set near down" });
    }

    /// What is said between the relay and the card gets lost on the way (or does no more);
    /// statements go on.
    pub(crate) fn cut_events(&self, cut: bool) {
        if cut {
            let port = self.events_port();
            let rules = format!(
                "table ip cut {{ chain in {{ type filter hook input priority 0; tcp sport {port} drop; }}; \
                 chain out {{ type filter hook output priority 0; tcp dport {port} drop; }}; }}"
            );
            output("nft", &[&rules]);
        } else {
            output("nft", &["delete table ip cut"]);
        }
    }
}

/// A client of MariaDB through the relay.
pub(crate) fn mariadb() -> Command {
    let mut command = Command::new("mariadb");
    command.args([
        "--no-defaults",
        "--batch",
        "--skip-column-names",
        "--unbuffered",
        "--skip-ssl",
        "--connect-timeout=30",
    ]);
    command.args(["--user=site", "--password=site", "--database=site", "--host", FAR]);
    command
}

/// A client of PostgreSQL through the relay.
pub(crate) fn psql() -> Command {
    let mut command = Command::new("psql");
    command.args([
        "--no-psqlrc",
        "--quiet",
        "--tuples-only",
        "--no-align",
        "-v",
        "ON_ERROR_STOP=1",
    ]);
    command.args(["--username=postgres", "--dbname=site", "--host", FAR]);
    command.env("PGSSLMODE", "disable").env("PGCONNECT_TIMEOUT", "30");
    command
}

fn finish(command: &mut Command) -> Result<String, String> {
    let output = command.output().unwrap();
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let mut all = Vec::new();
        for child in [&mut self.relay, &mut self.nats, &mut self.database].into_iter().flatten() {
            let processes = family(child.id().into());
            for &pid in processes.iter().filter(|pid| is_running(**pid)) {
                kill_if_there(pid, Signal::KILL);
            }
            let _ = child.wait();
            all.extend(processes);
        }
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        within(Duration::from_secs(5), || (!all.iter().any(|pid| is_running(*pid))).then_some(()));
        if self.kind == Kind::Postgres {
            let copy = Path::new("/usr/lib/postgresql/15/bin")
                .join(format!("elsewhere{}", self.holder.id()));
            let _ = std::fs::remove_file(copy);
        }
        self.site.take();
    }
}
