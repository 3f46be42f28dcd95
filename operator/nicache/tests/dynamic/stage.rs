//! A site of scripts that the test writes, with nginx, PHP-FPM and maybe a database, behind
//! `nicache run`.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use nicache_applications::{Application, Client, Settings, Site};
use nicache_coherence::{RULE_OFF, Rule};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

use crate::common::{self, Nicache, is_running, private_network, within};
use crate::far::{self, FAR, Far, Kind};
use crate::ground::own_mounts;

/// The server's clock and what else nobody sees may be this old.
pub(crate) const T: Duration = Duration::from_secs(1);

/// For what is certain to come, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which database runs beside the web server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Database {
    None,
    MariaDb,
    Postgres,
}

/// Who watches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watch {
    Kernel,
    /// What the test's own process changes is not seen, so a [`Stage`] changes things by
    /// programs that are followed.
    Preload,
}

/// How a stage is set up.
pub(crate) struct Setup {
    pub watch: Watch,
    pub database: Database,
    /// The database is on another machine, and a relay stands in front of it.
    pub relay: bool,
    /// `opcache.revalidate_freq`.
    pub revalidate: u32,
    pub workers: u32,
    /// How PHP-FPM manages them.
    pub pool: &'static str,
    /// Further settings of PHP, each `name=value`.
    pub php: &'static [&'static str],
    /// Further options of `nicache run`. `@FOLDER@` stands for the folder.
    pub options: &'static [&'static str],
    /// Further directives of nginx's `server`. `@FOLDER@` stands for the folder.
    pub nginx: &'static str,
    /// MariaDB has a certificate.
    pub tls: bool,
    /// The database is started again when it ends.
    pub respawn: bool,
    /// The database is not a program of the run, and there before it.
    pub outside: bool,
    /// PHP-FPM is not a program of the run, and there before it.
    pub php_outside: bool,
    /// A rule that is turned off, to see what comes of it.
    pub without: Option<Rule>,
    /// The folder is an overlay, with these files in its lower layer.
    pub overlay: Option<Vec<(String, String)>>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            watch: Watch::Kernel,
            database: Database::None,
            relay: false,
            revalidate: 0,
            workers: 3,
            pool: "pm = static",
            php: &[],
            options: &[],
            nginx: "",
            tls: false,
            respawn: false,
            outside: false,
            php_outside: false,
            without: None,
            overlay: None,
        }
    }
}

enum Folder {
    Plain(TempDir),
    Prepared(Box<Site>),
    Overlay(Overlay),
}

/// An overlay of a layer that is there before and an empty one.
struct Overlay {
    merged: PathBuf,
    _folder: TempDir,
}

impl Overlay {
    fn mount(files: &[(String, String)]) -> Self {
        let folder = temporary();
        let [lower, upper, work, merged] =
            ["lower", "upper", "work", "merged"].map(|name| folder.path().join(name));
        for path in [&lower, &upper, &work, &merged] {
            std::fs::create_dir(path).unwrap();
        }
        for (name, text) in files {
            let path = lower.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text.replace("@FOLDER@", merged.to_str().unwrap())).unwrap();
            // PHP tells files apart by the second.
            let hour_ago = SystemTime::now() - Duration::from_secs(3600);
            File::options().write(true).open(path).unwrap().set_modified(hour_ago).unwrap();
        }
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            lower.display(),
            upper.display(),
            work.display()
        );
        let options = CString::new(options).unwrap();
        own_mounts();
        mount("overlay", &merged, "overlay", MountFlags::empty(), Some(options.as_c_str()))
            .unwrap();
        Self { merged, _folder: folder }
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = unmount(&self.merged, UnmountFlags::DETACH);
    }
}

/// A running site. Dropping it ends everything and removes its folder.
pub(crate) struct Stage {
    pub nicache: Nicache,
    pub folder: PathBuf,
    held: Option<Folder>,
    outside: Option<Child>,
    /// PHP-FPM, if that is outside, and its command.
    pub php: Option<(Child, String)>,
    far: Option<Far>,
    /// Changes files where the test's own process is not seen.
    hand: Option<Mutex<Shell>>,
    /// The environment of programs that are seen.
    followed: Vec<(String, String)>,
}

impl Stage {
    /// Starts it in a network of its own.
    pub(crate) fn start(setup: &Setup, prepare: impl FnOnce(&Path)) -> Self {
        private_network();
        let far = setup.relay.then(|| {
            let kind =
                if setup.database == Database::MariaDb { Kind::MariaDb } else { Kind::Postgres };
            Far::start(kind, false)
        });
        Self::start_here(setup, far, prepare)
    }

    /// Starts a stage in the network of the calling thread, with a database elsewhere that is there
    /// already, if `far` has one.
    pub(crate) fn start_here(setup: &Setup, far: Option<Far>, prepare: impl FnOnce(&Path)) -> Self {
        let held = folder_for(setup);
        let folder = match &held {
            Folder::Plain(folder) => folder.path().to_owned(),
            Folder::Prepared(site) => site.folder().to_owned(),
            Folder::Overlay(overlay) => overlay.merged.clone(),
        };
        for name in ["site", "include", "run", "tmp", "log", "data"] {
            std::fs::create_dir_all(folder.join(name)).unwrap();
        }
        for name in ["run", "tmp", "log", "data"] {
            let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
            std::fs::set_permissions(folder.join(name), everybody).unwrap();
        }
        let root = folder.display().to_string();
        std::fs::write(
            folder.join("nginx.conf"),
            NGINX.replace("@SERVER@", setup.nginx).replace("@FOLDER@", &root),
        )
        .unwrap();
        let workers = setup.workers.to_string();
        std::fs::write(
            folder.join("php.conf"),
            FPM.replace("@WORKERS@", &workers)
                .replace("@POOL@", setup.pool)
                .replace("@FOLDER@", &root),
        )
        .unwrap();
        let mut outside = None;
        if let (true, Folder::Prepared(site)) = (setup.outside, &held) {
            let mut command = site.with()[0].clone();
            command.retain(|word| word != "--skip-networking");
            command.extend(["--bind-address=127.0.0.1".to_owned(), "--port=3306".to_owned()]);
            outside = Some(
                Command::new(&command[0]).args(&command[1..]).stdin(Stdio::null()).spawn().unwrap(),
            );
            let is_there = || run(mariadb(&folder).args(["--execute", "SELECT 1"])).ok();
            assert!(within(PATIENCE, is_there).is_some());
        }
        prepare(&folder);

        let mut php = format!("php-fpm8.2 --nodaemonize --fpm-config '{root}/php.conf'");
        php += &format!(" -d opcache.revalidate_freq={} -d apc.enabled=1", setup.revalidate);
        for setting in setup.php {
            php += &format!(" -d {}", setting.replace("@FOLDER@", &root));
        }
        let mut with = Vec::new();
        if let (None, Folder::Prepared(site)) = (&outside, &held) {
            let mut command = site.with()[0].clone();
            if setup.tls {
                let key = folder.join("data/tls.key");
                make_certificate(&key, &folder.join("data/tls.pem"));
                std::fs::set_permissions(key, std::os::unix::fs::PermissionsExt::from_mode(0o644))
                    .unwrap();
                command.extend([
                    format!("--ssl-cert={root}/data/tls.pem"),
                    format!("--ssl-key={root}/data/tls.key"),
                ]);
            }
            if setup.respawn {
                let script = "while :; do \"$@\"; sleep 0.2; done";
                command =
                    [["sh", "-c", script, "sh"].map(str::to_owned).to_vec(), command].concat();
            }
            with.push(shlex::try_join(command.iter().map(String::as_str)).unwrap());
        }
        let mut php_outside = None;
        if setup.php_outside {
            let child = start_words(&php);
            php_outside = Some((child, php));
        } else {
            with.push(php);
        }
        let mut options: Vec<&str> =
            with.iter().flat_map(|command| ["--with", command.as_str()]).collect();
        options.extend(common::SMALL_PAGES);
        let relayed = far.as_ref().map(|far| far.option(&format!("relay={FAR}:7400")));
        if let Some(relayed) = &relayed {
            options.extend(["--remote-database", relayed]);
        }
        let further: Vec<String> =
            setup.options.iter().map(|option| option.replace("@FOLDER@", &root)).collect();
        options.extend(further.iter().map(String::as_str));
        if setup.watch == Watch::Preload {
            options.extend(["--watch", "preload"]);
        }
        let configuration = format!("{root}/nginx.conf");
        let server =
            ["nginx", "-p", &root, "-e", "stderr", "-c", &configuration].map(str::to_owned);
        let nicache = Nicache::start_with(&options, &server, |command| {
            if std::env::var_os("NICACHE_LOG").is_none() {
                command.env("NICACHE_LOG", "info,nicache_watch=debug,nicache_card=debug");
            }
            if let Some(rule) = setup.without {
                command.env(RULE_OFF, rule.label());
            }
        });
        let (hand, followed, php) = (None, Vec::new(), php_outside);
        let mut stage =
            Self { nicache, folder, held: Some(held), outside, php, far, hand, followed };
        if setup.watch == Watch::Preload {
            let said = common::output(
                common::NICACHE,
                &["follow", "--print", "--name", stage.nicache.name()],
            );
            let variables = said.split_ascii_whitespace().filter_map(|word| word.split_once('='));
            stage.followed =
                variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            let mut shell = stage.command("sh");
            shell.arg("-e");
            stage.hand = Some(Mutex::new(Shell::new(shell, "echo said")));
        }
        stage.script("ready.php", "<?php echo 'ready';");
        let is_ready = || {
            let reply = stage.client().get("/ready.php");
            reply.is_ok_and(|reply| reply.text() == "ready").then_some(())
        };
        assert!(within(PATIENCE, is_ready).is_some(), "PHP is not there");
        match setup.database {
            Database::None => {}
            Database::MariaDb => stage.wait_for(|| stage.try_sql("SELECT 1").is_ok()),
            Database::Postgres => stage.wait_for(|| stage.try_psql("SELECT 1").is_ok()),
        }
        stage
    }

    /// Ends a PHP-FPM that is outside and starts it again, as the machine's service manager does.
    pub(crate) fn restart_php(&mut self) {
        let (child, words) = self.php.as_mut().expect("PHP-FPM is outside");
        common::kill(u64::from(child.id()), rustix::process::Signal::TERM);
        child.wait().unwrap();
        *child = start_words(words);
    }

    /// Waits for something that is certain to come.
    pub(crate) fn wait_until(&self, mut is_there: impl FnMut() -> bool) {
        assert!(within(PATIENCE, || is_there().then_some(())).is_some(), "it does not come");
    }

    fn wait_for(&self, mut ready: impl FnMut() -> bool) {
        assert!(within(PATIENCE, || ready().then_some(())).is_some(), "the database is not there");
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((self.nicache.server(), 80))
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.address())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes a file in place.
    pub(crate) fn write(&self, name: &str, text: &str) {
        match &self.hand {
            None => std::fs::write(self.path(name), text).unwrap(),
            Some(_) => {
                let words = shlex::try_join(["printf", "%s", text]).unwrap();
                self.shell(&format!("{words} >{}", self.path(name).display()));
            }
        }
    }

    /// Writes a file below the document root. `@FOLDER@` stands for the site's folder; `@HOST@`,
    /// `@SOCKET@`, `@DSN@` and `@PG@` for the way to the database, as `mysqli`, PDO and
    /// `pg_connect` want it.
    pub(crate) fn script(&self, name: &str, text: &str) {
        let run = self.path("run").display().to_string();
        let (host, socket, dsn, pg) = match &self.far {
            Some(_) => (
                FAR.to_owned(),
                "null".to_owned(),
                format!("host={FAR}"),
                format!("{FAR} sslmode=disable"),
            ),
            None => {
                let socket = format!("{run}/mariadb.sock");
                (
                    "localhost".to_owned(),
                    format!("'{socket}'"),
                    format!("unix_socket={socket}"),
                    run,
                )
            }
        };
        let text = text
            .replace("@HOST@", &host)
            .replace("@SOCKET@", &socket)
            .replace("@DSN@", &dsn)
            .replace("@PG@", &pg);
        self.write(
            &format!("site/{name}"),
            &text.replace("@FOLDER@", &self.folder.display().to_string()),
        );
    }

    /// Puts a new file in the place of another.
    pub(crate) fn replace(&self, name: &str, text: &str) {
        let new = format!("{name}.new");
        self.write(&new, text);
        self.rename(&new, name);
    }

    /// Renames a file or a folder.
    pub(crate) fn rename(&self, old: &str, new: &str) {
        let (old, new) = (self.path(old), self.path(new));
        match &self.hand {
            None => std::fs::rename(old, new).unwrap(),
            Some(_) => self.shell(&format!("mv -T {} {}", old.display(), new.display())),
        }
    }

    /// Removes a file.
    pub(crate) fn remove(&self, name: &str) {
        match &self.hand {
            None => std::fs::remove_file(self.path(name)).unwrap(),
            Some(_) => self.shell(&format!("rm {}", self.path(name).display())),
        }
    }

    /// Makes a folder, and those on the way to it.
    pub(crate) fn make_folder(&self, name: &str) {
        match &self.hand {
            None => std::fs::create_dir_all(self.path(name)).unwrap(),
            Some(_) => self.shell(&format!("mkdir -p {}", self.path(name).display())),
        }
    }

    /// Runs a shell script whose changes are seen.
    pub(crate) fn shell(&self, script: &str) {
        match &self.hand {
            Some(hand) => {
                drop(hand.lock().unwrap_or_else(std::sync::PoisonError::into_inner).run(script));
            }
            None => {
                let status = Command::new("sh").args(["-ec", script]).status().unwrap();
                assert!(status.success(), "{script}");
            }
        }
    }

    /// A program whose changes are seen.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.envs(self.followed.iter().map(|(name, value)| (name, value)));
        command
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        let status = common::status(self.nicache.name());
        status["counters"][name]
            .as_u64()
            .unwrap_or_else(|| panic!("no counter {name} in {status:#}"))
    }

    /// All counters of the card, by their names in `nicache status --json`.
    pub(crate) fn counters(&self) -> BTreeMap<String, u64> {
        let status = common::status(self.nicache.name());
        let counters =
            status["counters"].as_object().unwrap_or_else(|| panic!("no counters in {status:#}"));
        counters.iter().filter_map(|(name, count)| Some((name.clone(), count.as_u64()?))).collect()
    }

    /// What the server itself says: a request that the card lets pass, and whose reply it does not
    /// keep.
    pub(crate) fn direct(&self, path: &str) -> String {
        self.client().request("GET", path, &[("X-Direct", "1")], b"").unwrap().text()
    }

    pub(crate) fn get(&self, path: &str) -> String {
        self.client().get(path).unwrap().text()
    }

    /// Runs statements by the `mariadb` client as root.
    pub(crate) fn sql(&self, text: &str) -> String {
        self.try_sql(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Runs statements by the `mariadb` client as root, with further options of the client.
    pub(crate) fn sql_with(&self, options: &[&str], text: &str) -> String {
        run(self.mariadb().args(options).args(["--execute", text]))
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    pub(crate) fn try_sql(&self, text: &str) -> Result<String, String> {
        run(self.mariadb().args(["--execute", text]))
    }

    /// A client of the database that can be given further options.
    pub(crate) fn mariadb(&self) -> Command {
        self.far.as_ref().map_or_else(|| mariadb(&self.folder), |_| far::mariadb())
    }

    /// Runs statements by the `psql` client.
    pub(crate) fn psql(&self, text: &str) -> String {
        self.try_psql(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// As [`Stage::psql`], in another database.
    pub(crate) fn psql_in(&self, database: &str, text: &str) -> String {
        run(self.postgres().args(["--dbname", database, "--command", text]))
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn try_psql(&self, text: &str) -> Result<String, String> {
        run(self.postgres().args(["--command", text]))
    }

    fn postgres(&self) -> Command {
        if self.far.is_some() {
            return far::psql();
        }
        let mut command = Command::new("psql");
        command.args([
            "--no-psqlrc",
            "--quiet",
            "--tuples-only",
            "--no-align",
            "-v",
            "ON_ERROR_STOP=1",
        ]);
        command.args(["--username=postgres", "--dbname=site", "--host"]).arg(self.path("run"));
        command
    }

    /// A `mariadb` that stays connected.
    pub(crate) fn mariadb_shell(&self) -> Shell {
        Shell::new(self.mariadb(), "SELECT 'said';")
    }

    /// A `psql` that stays connected.
    pub(crate) fn psql_shell(&self) -> Shell {
        Shell::new(self.postgres(), "\\echo said")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let processes = self.nicache.processes();
        let _ = self.nicache.process.kill();
        let _ = self.nicache.process.wait();
        let mut processes = processes;
        for child in self.outside.iter_mut().chain(self.php.as_mut().map(|(child, _)| child)) {
            processes.extend(common::family(u64::from(child.id())));
            let _ = child.kill();
            let _ = child.wait();
        }
        for process in processes.iter().filter(|process| is_running(**process)) {
            common::kill_if_there(*process, rustix::process::Signal::KILL);
        }
        // They would write into the folder while it is removed.
        let all_gone = || (!processes.iter().any(|pid| is_running(*pid))).then_some(());
        within(Duration::from_secs(5), all_gone);
        self.held.take();
    }
}

fn start_words(words: &str) -> Child {
    let words = shlex::split(words).unwrap();
    // It ends with the test, also if that is killed.
    Command::new("setpriv")
        .arg("--pdeathsig=TERM")
        .args(words)
        .stdin(Stdio::null())
        .spawn()
        .unwrap()
}

fn temporary() -> TempDir {
    let folder =
        tempfile::Builder::new().prefix("nicache-dynamic-").tempdir_in("/var/lib").unwrap();
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), everybody).unwrap();
    folder
}

fn plain_folder() -> Folder {
    Folder::Plain(temporary())
}

fn folder_for(setup: &Setup) -> Folder {
    if let Some(files) = &setup.overlay {
        return Folder::Overlay(Overlay::mount(files));
    }
    let application = match setup.database {
        _ if setup.relay => return plain_folder(),
        Database::None => return plain_folder(),
        Database::MariaDb => Application::PhpPage,
        Database::Postgres => Application::Flask,
    };
    Folder::Prepared(Box::new(application.prepare_with(&Settings::default()).unwrap()))
}

fn mariadb(folder: &Path) -> Command {
    let mut command = Command::new("mariadb");
    command.args([
        "--no-defaults",
        "--batch",
        "--skip-column-names",
        "--unbuffered",
        "--user=root",
        "--socket",
    ]);
    command.arg(folder.join("run/mariadb.sock")).arg("--database=site");
    command
}

/// A certificate for `localhost` that it has signed itself, and its key.
pub(crate) fn make_certificate(key: &Path, certificate: &Path) {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]);
    openssl.args(["-days", "2", "-keyout"]).arg(key).arg("-out").arg(certificate);
    run(&mut openssl).unwrap();
}

fn run(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().unwrap();
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// A database client with a connection that stays.
pub(crate) struct Shell {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    echo: &'static str,
}

impl Shell {
    /// Connected to the database in a site's folder.
    pub(crate) fn mariadb(folder: &Path) -> Self {
        Self::new(mariadb(folder), "SELECT 'said';")
    }

    /// `echo` is a statement that says `said`.
    pub(crate) fn new(mut command: Command, echo: &'static str) -> Self {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) =
            (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let mut shell = Self { process, input, output, echo };
        shell.run("");
        shell
    }

    /// Runs statements, and returns when they are done.
    pub(crate) fn run(&mut self, text: &str) -> String {
        self.send(text);
        writeln!(self.input, "{}", self.echo).unwrap();
        let mut said = String::new();
        loop {
            let mut line = String::new();
            let bytes = self.output.read_line(&mut line).unwrap();
            assert!(bytes > 0, "the client of the database has ended at: {text}");
            if line.trim() == "said" {
                return said;
            }
            said += &line;
        }
    }

    /// Has statements run, and does not wait.
    pub(crate) fn send(&mut self, text: &str) {
        writeln!(self.input, "{text}").unwrap();
        self.input.flush().unwrap();
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const NGINX: &str = "daemon off;
user www-data;
worker_processes 2;
pid @FOLDER@/run/nginx.pid;
error_log @FOLDER@/log/nginx.log warn;
events { worker_connections 512; }
http {
    include /etc/nginx/mime.types;
    sendfile on;
    access_log @FOLDER@/log/access.log;
    client_body_temp_path @FOLDER@/tmp/body;
    proxy_temp_path @FOLDER@/tmp/proxy;
    fastcgi_temp_path @FOLDER@/tmp/fastcgi;
    uwsgi_temp_path @FOLDER@/tmp/uwsgi;
    scgi_temp_path @FOLDER@/tmp/scgi;
    upstream kept {
        server unix:@FOLDER@/run/php.sock;
        keepalive 1;
    }
    server {
        listen 80;
        root @FOLDER@/site;
        index index.php index.html;
        keepalive_requests 100000;
        @SERVER@
        location ~ \\.php$ {
            try_files $uri =404;
            fastcgi_pass unix:@FOLDER@/run/php.sock;
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
        }
    }
}
";

const FPM: &str = "[global]
error_log = @FOLDER@/log/php-fpm.log
pid = @FOLDER@/run/php-fpm.pid
daemonize = no
[site]
access.log = @FOLDER@/log/php-access.log
user = www-data
group = www-data
listen = @FOLDER@/run/php.sock
listen.owner = www-data
@POOL@
pm.max_children = @WORKERS@
php_admin_value[session.save_path] = @FOLDER@/tmp
php_admin_value[sys_temp_dir] = @FOLDER@/tmp
php_admin_value[error_log] = @FOLDER@/log/php.log
php_admin_flag[log_errors] = on
";
