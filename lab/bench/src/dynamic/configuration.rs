//! Configurations for the measurement, made from those that a site is prepared with, so all
//! subjects run the same server.

use anyhow::{Result, ensure};

use super::fpm;
use super::store::Store;

/// What the report says about the server.
pub(super) const SERVER_SETTINGS: &str = "nginx with 1 worker, keepalive_requests unlimited, access_log off; PHP-FPM with 4 workers (static), opcache on \
     (revalidate_freq 2 s); MariaDB with 64 MB of buffers";
/// What the report says about nginx as a cache.
pub(super) const NGINX_CACHE_SETTINGS: &str = "fastcgi_cache_valid 60s or 1s, fastcgi_cache_lock on, fastcgi_cache_use_stale updating, cache \
     headers and cookies of the application ignored";
/// What the report says about Varnish.
pub(super) const VARNISH_SETTINGS: &str = "ttl 60s or 1s, grace 10s (its default: so long an expired page is still given out while it is fetched \
     again), cache headers and cookies of the application ignored, 256 MB of memory";

/// nginx for load: the site's configuration with one worker and without limits that load would
/// meet. With a cache if there is a `store`.
///
/// # Errors
/// The site's configuration is not what it is thought to be.
pub(super) fn nginx(site: &str, folder: &str, store: Option<Store>) -> Result<String> {
    let mut text = site.to_owned();
    replace(&mut text, "worker_processes 2;", "worker_processes 1;\nworker_rlimit_nofile 8192;")?;
    replace(&mut text, "worker_connections 512;", "worker_connections 4096;")?;
    replace(&mut text, "access_log off;", "access_log off;\n    keepalive_requests 1000000000;")?;
    let file = format!(
        "location = {FILE_PATH} {{ default_type text/html; alias {folder}/{FILE}; }}\n        location ~ \\.php"
    );
    replace(&mut text, "location ~ \\.php", &file)?;
    let Some(store) = store else { return Ok(text) };
    let zone = format!(
        "access_log off;\n    fastcgi_cache_path {folder}/{NGINX_CACHE} levels=1:2 keys_zone=pages:16m max_size=256m \
         inactive=10m use_temp_path=off;"
    );
    replace(&mut text, "access_log off;", &zone)?;
    let cache = format!(
        "fastcgi_cache pages;
            fastcgi_cache_key $scheme$request_method$host$request_uri;
            fastcgi_cache_valid 200 {}s;
            fastcgi_cache_lock on;
            fastcgi_cache_use_stale updating error timeout;
            fastcgi_ignore_headers Cache-Control Expires Set-Cookie Vary X-Accel-Expires;
            fastcgi_hide_header Set-Cookie;
            fastcgi_pass ",
        store.seconds
    );
    replace(&mut text, "fastcgi_pass ", &cache)?;
    Ok(text)
}

/// A file of the site's folder that has the bytes of a page, and by what path the server gives it.
pub(super) const FILE: &str = "tmp/bench-page.html";
/// See [`FILE`].
pub(super) const FILE_PATH: &str = "/nicache-bench-page.html";
/// Where nginx keeps its pages, in the site's folder.
pub(super) const NGINX_CACHE: &str = "tmp/pages";

/// PHP-FPM with its status page. The pool is the last section of the site's configuration.
///
/// # Errors
/// The site's configuration is not what it is thought to be.
pub(super) fn php_fpm(site: &str) -> Result<String> {
    ensure!(
        site.lines().rfind(|line| line.starts_with('[')) == Some("[site]"),
        "an odd configuration of PHP-FPM"
    );
    Ok(format!("{site}pm.status_path = {}\n", fpm::STATUS_PATH))
}

/// Varnish before `backend`.
pub(super) fn varnish(backend: &str, store: Store) -> String {
    format!(
        "vcl 4.1;
backend default {{ .host = \"{backend}\"; .port = \"80\"; }}
sub vcl_recv {{
    unset req.http.Cookie;
}}
sub vcl_backend_response {{
    unset beresp.http.Set-Cookie;
    unset beresp.http.Cache-Control;
    unset beresp.http.Expires;
    unset beresp.http.Pragma;
    unset beresp.http.Vary;
    set beresp.ttl = {}s;
}}
",
        store.seconds
    )
}

fn replace(text: &mut String, what: &str, by: &str) -> Result<()> {
    ensure!(text.contains(what), "the site's configuration of nginx has no `{what}`");
    *text = text.replacen(what, by, 1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: &str = "worker_processes 2;\nworker_connections 512;\nhttp {\n    access_log off;\n    location ~ \\.php$ { fastcgi_pass unix:x; }\n}";

    #[test]
    fn nginx_caches_only_if_told() {
        let plain = nginx(SITE, "/f", None).unwrap();
        assert!(
            plain.contains("worker_processes 1;") && !plain.contains("fastcgi_cache"),
            "{plain}"
        );
        let cached = nginx(SITE, "/f", Some(Store { seconds: 60 })).unwrap();
        assert!(
            cached.contains("fastcgi_cache_path /f/tmp/pages ")
                && cached.contains("valid 200 60s;"),
            "{cached}"
        );
        assert!(cached.contains("fastcgi_pass unix:x;"), "{cached}");
        assert!(nginx("http {}", "/f", None).is_err());
    }

    #[test]
    fn the_status_page_belongs_to_the_pool() {
        let text = php_fpm("[global]\nx = 1\n\n[site]\nuser = y\n").unwrap();
        assert!(text.ends_with("user = y\npm.status_path = /nicache-bench-status\n"), "{text}");
        assert!(php_fpm("[site]\n[other]\n").is_err());
    }

    #[test]
    fn varnish_keeps_a_page_as_long_as_told() {
        let text = varnish("10.0.0.2", Store { seconds: 1 });
        assert!(
            text.contains("beresp.ttl = 1s") && text.contains(".host = \"10.0.0.2\""),
            "{text}"
        );
    }
}
