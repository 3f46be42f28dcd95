//! Scripts that each read one file of their own, nginx and PHP-FPM that run them, and edits.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nicache_netns::Namespace;
use tempfile::TempDir;

use crate::wire::namespace;
use crate::wire::process::{Enclosure, Process};

/// How many scripts there are (section 3.2 of the paper).
pub(super) const SCRIPTS: usize = 1000;
/// Files with code that scripts share, so opcache keeps them.
pub(super) const INCLUDES: usize = 20;
/// Address of the server; the client has the one before.
const NETWORK: &str = "10.93.77";

/// What a script does beside reading its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Script {
    /// Nothing.
    Fast,
    /// It sleeps.
    Slow,
}

impl Script {
    /// Both kinds of script.
    pub const ALL: [Self; 2] = [Self::Fast, Self::Slow];

    /// The script's name for people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Fast => "fast script",
            Self::Slow => "slow script",
        }
    }
}

/// A file that scripts are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// The one that the script of this number reads.
    Data(usize),
    /// One that scripts include.
    Include(usize),
}

impl Source {
    /// Number of sources.
    pub const COUNT: usize = SCRIPTS + INCLUDES;

    /// All, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..SCRIPTS).map(Source::Data).chain((0..INCLUDES).map(Source::Include))
    }

    /// Its place in [`Source::all`].
    pub fn index(self) -> usize {
        match self {
            Self::Data(number) => number,
            Self::Include(number) => SCRIPTS + number,
        }
    }

    /// Is this one of the two files that the script is made of?
    pub fn belongs_to(self, script: usize) -> bool {
        match self {
            Self::Data(number) => number == script,
            Self::Include(number) => number == script % INCLUDES,
        }
    }
}

/// A running site.
#[derive(Debug)]
pub(super) struct Site {
    folder: TempDir,
    // Ended in this order, before the folder goes.
    _nginx: Process,
    _php: Process,
}

impl Site {
    /// Writes the files and starts the programs with so many workers in the namespace. Calls
    /// `meanwhile` again and again until they are there.
    ///
    /// # Errors
    /// The programs do not start.
    pub(super) fn start(
        namespace: &Namespace,
        script: Script,
        sleep: Duration,
        workers: u32,
        logs: &Path,
        meanwhile: impl FnMut(),
    ) -> Result<Self> {
        let folder =
            tempfile::Builder::new().prefix("nicache-bench-sets-").tempdir_in("/var/lib")?;
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755))?;
        let root = folder.path().display().to_string();
        for name in ["site", "data", "include", "run", "tmp"] {
            std::fs::create_dir(folder.path().join(name))?;
            std::fs::set_permissions(folder.path().join(name), PermissionsExt::from_mode(0o1777))?;
        }
        let pause = match script {
            Script::Fast => String::new(),
            Script::Slow => format!("usleep({});", sleep.as_micros()),
        };
        for number in 0..INCLUDES {
            std::fs::write(
                folder.path().join(format!("include/{number}.php")),
                "<?php return '';",
            )?;
        }
        for number in 0..SCRIPTS {
            let include = number % INCLUDES;
            let text = format!(
                "<?php echo include '{root}/include/{include}.php', file_get_contents('{root}/data/{number}'); {pause}"
            );
            std::fs::write(folder.path().join(format!("site/{number}.php")), text)?;
            std::fs::write(folder.path().join(format!("data/{number}")), "x")?;
        }
        let fill =
            |text: &str| text.replace("@FOLDER@", &root).replace("@WORKERS@", &workers.to_string());
        let (nginx, php) = (folder.path().join("nginx.conf"), folder.path().join("php.conf"));
        std::fs::write(&nginx, fill(NGINX))?;
        std::fs::write(&php, fill(FPM))?;
        let words =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let (nginx, php) = (nginx.display().to_string(), php.display().to_string());
        let php = words(&[
            "php-fpm8.2",
            "--nodaemonize",
            "--fpm-config",
            &php,
            "-d",
            "opcache.revalidate_freq=0",
        ]);
        let php = Process::start(
            namespace,
            crate::wire::SERVER_CPU,
            Enclosure::None,
            &php,
            &logs.join("php.log"),
        )?;
        let nginx = words(&["nginx", "-p", &root, "-e", "stderr", "-c", &nginx]);
        let nginx = Process::start(
            namespace,
            crate::wire::SERVER_CPU,
            Enclosure::None,
            &nginx,
            &logs.join("nginx.log"),
        )?;
        let mut site = Self { folder, _nginx: nginx, _php: php };
        site.wait(meanwhile)?;
        Ok(site)
    }

    fn wait(&mut self, mut meanwhile: impl FnMut()) -> Result<()> {
        let socket = self.folder.path().join("run/php.sock");
        let begun = Instant::now();
        while !socket.exists() || !self.folder.path().join("run/nginx.pid").exists() {
            self._php.check_alive()?;
            self._nginx.check_alive()?;
            if begun.elapsed() > Duration::from_secs(60) {
                bail!("PHP-FPM or nginx is not there after a minute");
            }
            meanwhile();
            std::thread::sleep(Duration::from_millis(5));
        }
        // All workers are forked before the socket is used; the last of them are still starting.
        let there = Instant::now();
        while there.elapsed() < Duration::from_millis(2000) {
            meanwhile();
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Which of the files is at this path?
    pub(super) fn source(&self, path: &[u8]) -> Option<Source> {
        let name = std::str::from_utf8(path).ok()?.strip_prefix(self.folder.path().to_str()?)?;
        if let Some(number) = name.strip_prefix("/data/") {
            return number.parse().ok().filter(|&number| number < SCRIPTS).map(Source::Data);
        }
        let number = name.strip_prefix("/include/")?.strip_suffix(".php")?.parse().ok()?;
        (number < INCLUDES).then_some(Source::Include(number))
    }

    /// Changes a file.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn edit(&self, source: Source, version: u64) -> Result<()> {
        let (path, text) = match source {
            Source::Data(number) => (format!("data/{number}"), format!("x{version}")),
            Source::Include(number) => {
                (format!("include/{number}.php"), format!("<?php return '{version} ';"))
            }
        };
        std::fs::write(self.folder.path().join(path), text)
            .context("cannot edit a file of the site")
    }
}

/// Makes the namespaces of client and server, joined.
///
/// # Errors
/// Not permitted.
pub(super) fn namespaces() -> Result<(Namespace, Namespace)> {
    let (client, server) = (namespace::create()?, namespace::create()?);
    namespace::join(&client, &server, "sets0", NETWORK)?;
    // Ports of connections that have ended are used again only after a minute.
    client.run(|| std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "10000 65000"))?;
    for namespace in [&client, &server] {
        namespace.run(|| std::fs::write("/proc/sys/net/core/somaxconn", "8192"))?;
    }
    let reached = client.run(|| {
        std::net::UdpSocket::bind("0.0.0.0:0").and_then(|socket| socket.connect(server_address()))
    });
    ensure!(reached.is_ok(), "the namespaces are not joined: {reached:?}");
    Ok((client, server))
}

/// Where nginx is.
pub(super) fn server_address() -> std::net::SocketAddr {
    format!("{NETWORK}.2:80").parse().expect("an address and a port")
}

const NGINX: &str = "daemon off;
user www-data;
worker_processes 1;
worker_rlimit_nofile 16384;
pid @FOLDER@/run/nginx.pid;
error_log stderr warn;
events { worker_connections 8192; }
http {
    access_log off;
    fastcgi_temp_path @FOLDER@/tmp/fastcgi;
    client_body_temp_path @FOLDER@/tmp/body;
    proxy_temp_path @FOLDER@/tmp/proxy;
    uwsgi_temp_path @FOLDER@/tmp/uwsgi;
    scgi_temp_path @FOLDER@/tmp/scgi;
    server {
        listen 80 backlog=8192;
        root @FOLDER@/site;
        location / {
            fastcgi_pass unix:@FOLDER@/run/php.sock;
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
        }
    }
}
";

const FPM: &str = "[global]
error_log = @FOLDER@/run/php-fpm.log
daemonize = no
[site]
user = www-data
group = www-data
listen = @FOLDER@/run/php.sock
listen.owner = www-data
listen.backlog = 8192
pm = static
pm.max_children = @WORKERS@
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_made_of_two_files() {
        assert!(Source::all().enumerate().all(|(at, source)| source.index() == at));
        let sources = Source::all();
        assert_eq!(
            sources.filter(|source| source.belongs_to(25)).collect::<Vec<_>>(),
            [Source::Data(25), Source::Include(5)]
        );
    }
}
