//! Private servers in a temporary directory, ended with the test whatever its outcome.

use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nicache_namespaces::enter_private;
use nicache_sql::Dialect;
use tempfile::TempDir;

pub(crate) struct Server {
    pub dialect: Dialect,
    child: Child,
    directory: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(command: &mut Command, what: &str) -> String {
    let output =
        command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The user and group of a name in /etc/passwd.
fn user(name: &str) -> (u32, u32) {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let line =
        passwd.lines().find(|line| line.starts_with(&format!("{name}:"))).expect("no such user");
    let fields: Vec<&str> = line.split(':').collect();
    (fields[2].parse().unwrap(), fields[3].parse().unwrap())
}

impl Server {
    pub(crate) fn mariadb() -> Self {
        Self::mariadb_with(&[])
    }

    /// The only node of a cluster, which others may join, in a new network that the calling thread
    /// enters.
    pub(crate) fn mariadb_of_a_cluster() -> Self {
        enter_private();
        Self::mariadb_with(&[
            "--wsrep-on=ON",
            "--wsrep-provider=/usr/lib/galera/libgalera_smm.so",
            "--wsrep-cluster-address=gcomm://",
            "--wsrep-sst-method=rsync",
            "--binlog-format=ROW",
            "--wsrep-node-address=127.0.0.1:4567",
            "--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:4567;gcache.size=1M",
        ])
    }

    fn mariadb_with(options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        // A server that starts deletes what it takes for left behind in a folder that all share.
        let temporary = directory.path().join("temporary");
        std::fs::create_dir(&temporary).unwrap();
        let temporary = format!("--tmpdir={}", temporary.display());
        run(
            Command::new("mariadb-install-db")
                .args([
                    "--no-defaults",
                    "--user=root",
                    "--auth-root-authentication-method=normal",
                    "--skip-test-db",
                ])
                .args([format!("--datadir={}", data.display()), temporary.clone()]),
            "mariadb-install-db (install mariadb-server)",
        );
        let path = |name: &str| directory.path().join(name).display().to_string();
        let program = ["/usr/sbin/mariadbd", "mariadbd"]
            .into_iter()
            .find(|p| Path::new(p).exists())
            .unwrap_or("mariadbd");
        let child = Command::new(program)
            .args([
                "--no-defaults",
                "--user=root",
                "--skip-networking",
                "--skip-log-bin",
                "--local-infile=1",
            ])
            .args([format!("--datadir={}", data.display()), format!("--socket={}", path("server"))])
            .arg(temporary)
            .args([format!("--pid-file={}", path("pid")), format!("--log-error={}", path("log"))])
            .args([
                "--innodb-buffer-pool-size=16M",
                "--max-allowed-packet=64M",
                "--innodb-flush-log-at-trx-commit=0",
            ])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("mariadbd");
        let server = Self { dialect: Dialect::MySql, child, directory };
        server.wait();
        server
    }

    pub(crate) fn postgres() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let home = directory.path().join("home");
        std::fs::create_dir(&home).unwrap();
        let (uid, gid) = user("postgres");
        chown(&home, Some(uid), Some(gid)).unwrap();
        let program = |name: &str| -> PathBuf {
            let mut versions: Vec<_> = std::fs::read_dir("/usr/lib/postgresql")
                .expect("install postgresql")
                .map(|entry| entry.unwrap().path().join("bin").join(name))
                .filter(|path| path.exists())
                .collect();
            versions.sort();
            versions.pop().expect("install postgresql")
        };
        let data = home.join("data");
        run(
            Command::new(program("initdb"))
                .args(["--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", "-D"])
                .arg(&data)
                .uid(uid)
                .gid(gid)
                .current_dir("/"),
            "initdb",
        );
        let child = Command::new(program("postgres"))
            .args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=16MB", "-D"])
            .arg(&data)
            .args(["-k".as_ref(), home.as_os_str()])
            .uid(uid)
            .gid(gid)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("postgres");
        let server = Self { dialect: Dialect::Postgres, child, directory };
        server.wait();
        server
    }

    /// The server's own socket.
    pub(crate) fn socket(&self) -> PathBuf {
        match self.dialect {
            Dialect::MySql => self.directory.path().join("server"),
            Dialect::Postgres => self.directory.path().join("home/.s.PGSQL.5432"),
        }
    }

    /// A path for another socket with a directory of its own.
    pub(crate) fn other_socket(&self, name: &str) -> PathBuf {
        let directory = self.directory.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        directory.join(self.socket().file_name().unwrap())
    }

    fn wait(&self) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.try_ask("", "SELECT 1", &self.socket()).is_err() {
            assert!(Instant::now() < end, "the server does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What the server's own client prints for some statements, or its complaint.
    pub(crate) fn try_ask(
        &self,
        database: &str,
        sql: &str,
        socket: &Path,
    ) -> Result<String, String> {
        let mut command = match self.dialect {
            Dialect::MySql => {
                let mut command = Command::new("mariadb");
                command.args([
                    "--no-defaults",
                    "--batch",
                    "--raw",
                    "--skip-column-names",
                    "--user=root",
                ]);
                command.arg(format!("--socket={}", socket.display()));
                if !database.is_empty() {
                    command.arg(database);
                }
                command
            }
            Dialect::Postgres => {
                let mut command = Command::new("psql");
                command.args([
                    "-X",
                    "-q",
                    "-At",
                    "-F",
                    "\t",
                    "-U",
                    "postgres",
                    "-v",
                    "ON_ERROR_STOP=0",
                    "-h",
                ]);
                command.arg(socket.parent().unwrap());
                command.args(["-d", if database.is_empty() { "postgres" } else { database }]);
                command
            }
        };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server's client");
        // Small enough for the pipe.
        let written = child.stdin.take().unwrap().write_all(sql.as_bytes());
        let output = child.wait_with_output().unwrap();
        written.map_err(|error| error.to_string())?;
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    pub(crate) fn ask(&self, database: &str, sql: &str) -> String {
        self.try_ask(database, sql, &self.socket()).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }
}
