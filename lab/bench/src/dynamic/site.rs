//! A prepared application with the configurations of this measurement, and its programs as
//! processes in a namespace.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nicache_applications::{Application, Site as Prepared};
use nicache_netns::Namespace;

use super::configuration;
use super::store::Store;
use crate::wire::process::{Enclosure, Process};

/// A site, prepared once for the whole run.
#[derive(Debug)]
pub(super) struct Site {
    prepared: Prepared,
    /// For messages of programs: not in the site's folder, in which nothing shall change but the
    /// page.
    logs: PathBuf,
}

impl Site {
    /// Prepares the application. What programs say goes into `logs`.
    ///
    /// # Errors
    /// Packages are missing, or it cannot be prepared.
    pub(super) fn prepare(application: Application, logs: &Path) -> Result<Self> {
        let prepared = application.prepare(80, "localhost")?;
        let site = Self { prepared, logs: logs.to_owned() };
        let read = |name: &str| {
            std::fs::read_to_string(site.folder().join(name))
                .with_context(|| format!("the site has no {name}"))
        };
        let (nginx, folder) = (read("nginx.conf")?, site.folder().display().to_string());
        for store in Store::ALL.into_iter().map(Some).chain([None]) {
            std::fs::write(site.nginx_file(store), configuration::nginx(&nginx, &folder, store)?)?;
        }
        std::fs::write(site.configuration(), site.prepared.configuration())?;
        std::fs::write(
            site.folder().join(PHP_FPM),
            configuration::php_fpm(&read("php-fpm.conf")?)?,
        )?;
        Ok(site)
    }

    /// Where it is.
    pub(super) fn folder(&self) -> &Path {
        self.prepared.folder()
    }

    /// The configuration file of nicache for it.
    pub(super) fn configuration(&self) -> PathBuf {
        self.folder().join("nicache.toml")
    }

    /// Where programs of a measurement put their messages.
    pub(super) fn logs(&self) -> &Path {
        &self.logs
    }

    /// The last line that nginx wrote into its log, for messages: it knows why a reply was not a
    /// success.
    pub(super) fn last_words(&self) -> Option<String> {
        let log = std::fs::read(self.folder().join("log/nginx.log")).ok()?;
        String::from_utf8_lossy(&log).lines().next_back().map(str::to_owned)
    }

    /// Socket of PHP-FPM.
    pub(super) fn php(&self) -> PathBuf {
        self.folder().join("run/php.sock")
    }

    /// The programs beside nginx, in the order of their start.
    pub(super) fn with(&self) -> Vec<Vec<String>> {
        let (old, new) = (self.folder().join("php-fpm.conf"), self.folder().join(PHP_FPM));
        let (old, new) = (old.display().to_string(), new.display().to_string());
        let replaced = |word: &String| if *word == old { new.clone() } else { word.clone() };
        self.prepared.with().iter().map(|argv| argv.iter().map(replaced).collect()).collect()
    }

    /// nginx, with a cache of its own if there is a `store`.
    pub(super) fn nginx(&self, store: Option<Store>) -> Vec<String> {
        let old = self.folder().join("nginx.conf").display().to_string();
        let new = self.nginx_file(store).display().to_string();
        self.prepared
            .server()
            .iter()
            .map(|word| if *word == old { new.clone() } else { word.clone() })
            .collect()
    }

    fn nginx_file(&self, store: Option<Store>) -> PathBuf {
        let name = store.map_or_else(|| "plain".to_owned(), |store| format!("{}s", store.seconds));
        self.folder().join(format!("nginx-bench-{name}.conf"))
    }

    /// Starts everything in a namespace on a CPU; nginx comes last, and with an empty cache.
    ///
    /// # Errors
    /// A program cannot be started.
    pub(super) fn start(
        &self,
        namespace: &Namespace,
        cpu: usize,
        store: Option<Store>,
    ) -> Result<Vec<Process>> {
        let cache = self.folder().join(configuration::NGINX_CACHE);
        if cache.exists() {
            std::fs::remove_dir_all(&cache)?;
        }
        let mut processes = Vec::new();
        for argv in self.with().into_iter().chain([self.nginx(store)]) {
            let log = self.logs.join(format!("program-{}.log", processes.len()));
            let argv = killed_with_parent(argv);
            processes.push(Process::start(namespace, cpu, Enclosure::PidNamespace, &argv, &log)?);
        }
        Ok(processes)
    }

    /// Varnish before the server at `backend`. As its documentation advises, its log in shared
    /// memory and its compiled configuration are on a tmpfs, which only it sees.
    ///
    /// # Errors
    /// Its configuration cannot be written.
    pub(super) fn varnish(&self, backend: &str, store: Store) -> Result<Vec<String>> {
        let configuration = self.logs.join("bench.vcl");
        std::fs::write(&configuration, configuration::varnish(backend, store))?;
        let work = self.logs.join("varnish");
        std::fs::create_dir_all(&work)?;
        let (work, configuration) = (work.display(), configuration.display());
        let script = format!(
            "mount -t tmpfs -o mode=755 tmpfs {work} && \
             exec varnishd -F -j none -n {work} -f {configuration} -a :80 -T none -s malloc,256m"
        );
        Ok(["sh", "-c", &script].map(str::to_owned).to_vec())
    }
}

const PHP_FPM: &str = "php-fpm-bench.conf";

/// A program that changes its user loses the wish to be killed with its parent; here it is asked
/// for again, behind the change.
fn killed_with_parent(mut argv: Vec<String>) -> Vec<String> {
    if argv.first().is_some_and(|program| program == "setpriv") {
        argv.splice(1..1, ["--pdeathsig".to_owned(), "KILL".to_owned()]);
    }
    argv
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_changes_the_user_asks_again() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let argv = killed_with_parent(words("setpriv --reuid x -- mariadbd"));
        assert_eq!(argv, words("setpriv --pdeathsig KILL --reuid x -- mariadbd"));
        assert_eq!(killed_with_parent(words("nginx -c x")), words("nginx -c x"));
    }
}
