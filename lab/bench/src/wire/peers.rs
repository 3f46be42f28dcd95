//! Servers and caches that the card is compared with beside nginx: commands and configurations.
//!
//! Each has the CPUs that it is given, no access log, and connections that stay open as long as the
//! client likes. What is not set is as Debian installs it.

use std::path::Path;

use anyhow::Result;

use super::cpu::Cpus;

/// What the report says about Apache.
pub(super) const APACHE_SETTINGS: &str = "mpm_event with 1 process of 128 threads (Debian: of 25 each), EnableSendfile on as nginx (Debian: off), \
     EnableMMAP on, no .htaccess files, no access log, MaxKeepAliveRequests unlimited";

/// What the report says about Varnish.
pub(super) const VARNISH_SETTINGS: &str = "defaults, 256 MB, its log in memory, nginx behind it";

/// What the report says about HAProxy.
pub(super) const HAPROXY_SETTINGS: &str =
    "a thread for each CPU it has, cache of 256 MB for objects up to 4 MB, no log, nginx behind it";

/// Where Debian has Apache's modules.
const APACHE_MODULES: &str = "/usr/lib/apache2/modules";

/// Command of Apache for the files below `root`. Its own files are in `folder`.
///
/// # Errors
/// Its configuration cannot be written.
pub(super) fn apache(folder: &Path, root: &Path) -> Result<Vec<String>> {
    let conf = folder.join("apache.conf");
    let (folder, root) = (folder.display(), root.display());
    std::fs::write(&conf, apache_conf(&folder.to_string(), &root.to_string()))?;
    Ok(["apache2", "-f", &conf.display().to_string(), "-D", "FOREGROUND"]
        .map(str::to_owned)
        .to_vec())
}

/// Command of Varnish in front of `backend`. Its shared memory log and its compiled configuration
/// are on a tmpfs that only it sees, as its documentation advises. Its own files are in `folder`.
///
/// # Errors
/// Its configuration cannot be written.
pub(super) fn varnish(folder: &Path, backend: &str) -> Result<Vec<String>> {
    std::fs::write(folder.join("default.vcl"), vcl(backend))?;
    let folder = folder.display();
    let work = format!("{folder}/varnish");
    std::fs::create_dir_all(&work)?;
    let script = format!(
        "mount -t tmpfs -o mode=755 tmpfs {work} && \
         exec varnishd -F -j none -n {work} -f {folder}/default.vcl -a :80 -T none -s malloc,256m"
    );
    Ok(["sh", "-c", &script].map(str::to_owned).to_vec())
}

/// Command of HAProxy with a cache in front of `backend`. Its own files are in `folder`.
///
/// # Errors
/// Its configuration cannot be written.
pub(super) fn haproxy(folder: &Path, backend: &str, cpus: Cpus) -> Result<Vec<String>> {
    let conf = folder.join("haproxy.conf");
    std::fs::write(&conf, haproxy_conf(backend, cpus.count()))?;
    Ok(["haproxy", "-db", "-f", &conf.display().to_string()].map(str::to_owned).to_vec())
}

/// There are more threads than connections: when all threads of a process are busy, the event MPM
/// closes connections that are to stay open. Without FollowSymLinks each path would be looked at
/// for links, which nginx does not do.
fn apache_conf(folder: &str, root: &str) -> String {
    format!(
        "LoadModule mpm_event_module {APACHE_MODULES}/mod_mpm_event.so
LoadModule authz_core_module {APACHE_MODULES}/mod_authz_core.so
ServerRoot {folder}
DefaultRuntimeDir {folder}
PidFile {folder}/apache.pid
ErrorLog /dev/stderr
LogLevel error
ServerName bench
User www-data
Group www-data
Listen 80
ListenBackLog 4096
StartServers 1
ServerLimit 1
MinSpareThreads 1
MaxSpareThreads 128
ThreadLimit 128
ThreadsPerChild 128
MaxRequestWorkers 128
MaxConnectionsPerChild 0
Timeout 300
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 60
EnableSendfile On
EnableMMAP On
DocumentRoot {root}
<Directory />
    AllowOverride None
    Options FollowSymLinks
    Require all granted
</Directory>
"
    )
}

fn vcl(backend: &str) -> String {
    format!(
        "vcl 4.1;
backend default {{ .host = \"{backend}\"; .port = \"80\"; }}
sub vcl_backend_response {{ set beresp.ttl = 1h; }}
"
    )
}

fn haproxy_conf(backend: &str, threads: u32) -> String {
    format!(
        "global
    nbthread {threads}
    maxconn 4096
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    timeout http-keep-alive 60s
cache objects
    total-max-size 256
    max-object-size 4000000
    max-age 3600
frontend wire
    bind :80 backlog 4096
    http-request cache-use objects
    http-response cache-store objects
    default_backend nginx
backend nginx
    server nginx {backend}:80
"
    )
}

#[cfg(test)]
mod tests {
    use super::super::site::OBJECTS;
    use super::*;

    #[test]
    fn every_object_fits_the_cache_of_haproxy() {
        let conf = haproxy_conf("10.201.2.2", 1);
        let most: u64 = conf
            .lines()
            .find_map(|line| line.trim().strip_prefix("max-object-size "))
            .and_then(|number| number.parse().ok())
            .unwrap();
        // The head counts, too; an object may have half of the cache.
        assert!(OBJECTS.iter().all(|object| object.bytes + 4_096 < most));
        assert!(most <= 256 << 19);
        assert!(conf.contains("server nginx 10.201.2.2:80\n"));
    }
}
