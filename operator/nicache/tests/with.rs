//! `nicache run --with`: programs beside the server, which live and die with the run.
#![allow(unsafe_code)]

mod common;

use std::path::Path;

use common::{
    Nicache, SOON, Site, assert_all_gone, assert_fails, command, curl, exists_within, kill,
    private_network, within,
};
use rustix::process::Signal;

/// A site whose nginx asks PHP-FPM behind a Unix socket for `*.php`.
fn php_site() -> Site {
    let location =
        "root @ROOT@/site; location ~ \\.php$ { fastcgi_pass unix:@ROOT@/php.sock; include /etc/nginx/fastcgi_params;
         fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; }";
    let site = Site::with("", location);
    let root = site.folder.path().display().to_string();
    std::fs::write(
        site.folder.path().join("site/sum.php"),
        "<?php echo 'sum ', 40 + 2, ' by ', PHP_SAPI;",
    )
    .unwrap();
    let pool = format!(
        "[global]\nerror_log = {root}/php.log\npid = {root}/php.pid\n[site]\nuser = www-data\nlisten = {root}/php.sock\n\
         listen.mode = 0666\npm = static\npm.max_children = 2\n"
    );
    std::fs::write(site.folder.path().join("php.conf"), pool).unwrap();
    site
}

fn php_fpm(site: &Site, mode: &str) -> String {
    format!("php-fpm8.2 {mode} --fpm-config '{}/php.conf'", site.folder.path().display())
}

fn fetch_sum(nicache: &Nicache) {
    let url = format!("http://{}/sum.php", nicache.server());
    let page = within(SOON, || {
        let output = std::process::Command::new("curl")
            .args(["-sS", "-m", "10", "--fail", &url])
            .output()
            .unwrap();
        output.status.success().then_some(output.stdout)
    });
    assert_eq!(page.as_deref(), Some(&b"sum 42 by fpm-fcgi"[..]));
}

/// A shell script that notes what happens to it in the site's folder, one line each.
fn script(site: &Site, name: &str, body: &str) -> String {
    let folder = site.folder.path();
    let text =
        format!("#!/bin/sh\nnote() {{ echo \"$@\" >>'{0}/notes'; }}\n{body}\n", folder.display());
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    path.display().to_string()
}

fn notes(site: &Site) -> Vec<String> {
    let text = std::fs::read_to_string(site.folder.path().join("notes")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn php_beside_nginx() {
    private_network();
    let site = php_site();
    let mut nicache =
        Nicache::start(&["--with", &php_fpm(&site, "--nodaemonize")], &site.command());
    fetch_sum(&nicache);
    let text = command(&["status", "--name", nicache.name()]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(
        text.lines()
            .any(|line| line.starts_with("with ") && line.contains("php-fpm8.2 --nodaemonize")),
        "{text}"
    );
    let processes = nicache.processes();
    nicache.signal(Signal::TERM);
    assert!(nicache.wait(SOON).unwrap().success());
    assert_all_gone(&processes);
    // It was asked to end, and removed its own files.
    assert!(!site.folder.path().join("php.sock").exists());
}

#[test]
fn a_program_in_the_background_is_followed() {
    private_network();
    let site = php_site();
    let mut nicache = Nicache::start(&["--with", &php_fpm(&site, "--daemonize")], &site.command());
    fetch_sum(&nicache);
    let processes = nicache.processes();
    nicache.signal(Signal::TERM);
    assert!(nicache.wait(SOON).unwrap().success());
    assert_all_gone(&processes);
}

#[test]
fn started_in_order_and_stopped_in_reverse() {
    private_network();
    let site = Site::new();
    let body = "trap 'note stop $1; exit 0' TERM; note start $1; while :; do sleep 0.05; done";
    let program = script(&site, "program", body);
    let once = script(&site, "once", "note once");
    let with = [format!("{program} 'first one'"), once, format!("{program} second")];
    let options: Vec<&str> = with.iter().flat_map(|command| ["--with", command.as_str()]).collect();
    let mut nicache = Nicache::start(&options, &site.command());
    assert_eq!(curl(&format!("http://{}/page.html", nicache.server())), "hello from nginx\n");
    let all_started = || (notes(&site).len() == 3).then_some(());
    assert!(within(SOON, all_started).is_some(), "{:?}", notes(&site));
    nicache.signal(Signal::TERM);
    assert!(nicache.wait(SOON).unwrap().success());
    assert_eq!(notes(&site)[3..], ["stop second", "stop first one"]);
}

#[test]
fn a_failing_program_ends_everything_and_is_named() {
    private_network();
    let site = Site::new();
    let flag = site.folder.path().join("fail");
    let body = format!("while [ ! -e '{}' ]; do sleep 0.05; done; exit 7", flag.display());
    let program = script(&site, "brittle", &body);
    let mut nicache = Nicache::start(&["--with", &program], &site.command());
    let processes = nicache.processes();
    std::fs::write(&flag, "").unwrap();
    assert!(!nicache.wait(SOON).unwrap().success());
    assert_all_gone(&processes);
    let log = nicache.log_text();
    assert!(log.contains("brittle") && log.contains("--with") && log.contains("status 7"), "{log}");
}

#[test]
fn a_killed_program_ends_everything_and_is_named() {
    private_network();
    let site = php_site();
    let mut nicache =
        Nicache::start(&["--with", &php_fpm(&site, "--nodaemonize")], &site.command());
    let pid_file = site.folder.path().join("php.pid");
    assert!(exists_within(&pid_file, SOON));
    let processes = nicache.processes();
    let is_master = |pid: &&u64| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
        line.is_ok_and(|line| line.starts_with("php-fpm: master"))
    };
    let master = within(SOON, || nicache.processes().iter().find(is_master).copied());
    kill(master.expect("PHP-FPM runs"), Signal::KILL);
    assert!(!nicache.wait(SOON).unwrap().success());
    assert_all_gone(&processes);
    let log = nicache.log_text();
    assert!(log.contains("`php-fpm8.2`") && log.contains("signal 9"), "{log}");
}

#[test]
fn the_end_of_the_server_ends_the_programs_beside_it() {
    private_network();
    let site = php_site();
    // The server ends with status 0 although PHP-FPM is in the background of the same namespace.
    let mut nicache = Nicache::start(&["--with", &php_fpm(&site, "--daemonize")], &site.command());
    fetch_sum(&nicache);
    let processes = nicache.processes();
    end_server(&nicache, &site);
    assert!(nicache.wait(SOON).unwrap().success());
    assert_all_gone(&processes);
    let log = nicache.log_text();
    assert!(log.contains("ended by itself") && !log.contains("is killed"), "{log}");
}

/// Ends nginx, which is in the foreground, as if by itself.
fn end_server(nicache: &Nicache, site: &Site) {
    let pid = std::fs::read_to_string(site.folder.path().join("pid")).unwrap();
    let pid = pid.trim().parse().unwrap();
    assert!(nicache.processes().contains(&pid), "the PID file names another process: {pid}");
    kill(pid, Signal::QUIT);
}

#[test]
fn a_program_on_its_way_to_the_background_is_told_to_end() {
    private_network();
    let site = Site::new();
    let ready = site.folder.path().join("ready");
    // Its first process hears that it shall end when it is about to end anyway.
    let body = format!(
        "trap 'note told first' TERM
        (trap 'note told second; exit 0' TERM; note second; while :; do sleep 0.05; done) &
        while [ ! -e '{}' ]; do sleep 0.05; done",
        ready.display()
    );
    let program = script(&site, "program", &body);
    let mut nicache = Nicache::start(&["--with", &program], &site.command());
    let noted = |line: &str| within(SOON, || notes(&site).iter().any(|l| l == line).then_some(()));
    assert!(noted("second").is_some());
    end_server(&nicache, &site);
    assert!(noted("told first").is_some());
    std::fs::write(&ready, "").unwrap();
    assert!(nicache.wait(SOON).unwrap().success());
    assert_eq!(notes(&site), ["second", "told first", "told second"]);
}

#[test]
fn a_program_that_stays_after_the_servers_end_is_killed_and_named() {
    private_network();
    let site = Site::new();
    let program = script(&site, "stubborn", "trap '' TERM; note up; while :; do sleep 0.05; done");
    let mut nicache = Nicache::start(&["--with", &program], &site.command());
    assert!(within(SOON, || (notes(&site).len() == 1).then_some(())).is_some());
    let processes = nicache.processes();
    end_server(&nicache, &site);
    assert!(nicache.wait(SOON).unwrap().success());
    assert_all_gone(&processes);
    let log = nicache.log_text();
    assert!(
        log.contains("stubborn") && log.contains("--with") && log.contains("ended by itself"),
        "{log}"
    );
}

#[test]
fn what_cannot_be_started_is_named() {
    private_network();
    let server = ["--", "sleep", "60"];
    assert_fails(
        &[&["--with", "no-such-program -x"][..], &server].concat(),
        &["`no-such-program`", "--with", "PATH"],
    );
    assert_fails(&[&["--with", "a 'b"][..], &server].concat(), &["with:", "`a 'b`"]);
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("broken");
    std::fs::write(&program, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let path: &Path = &program;
    assert_fails(
        &[&["--with", path.to_str().unwrap()][..], &server].concat(),
        &["cannot start", "--with", "broken"],
    );
}

/// Runs a line as an operator's shell does, outside of the server's namespaces.
fn shell(line: &str) {
    let output = std::process::Command::new("sh").args(["-c", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

fn becomes(url: &str, wanted: &str) {
    let mut last = String::new();
    let is_there = || {
        let output =
            std::process::Command::new("curl").args(["-sS", "-m", "10", url]).output().unwrap();
        last = String::from_utf8_lossy(&output.stdout).into_owned();
        (last == wanted).then_some(())
    };
    assert!(within(PATIENCE, is_there).is_some(), "{url} shows `{last}` instead of `{wanted}`");
}

/// For what takes new processes on a busy machine.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

fn replace_in(path: &Path, old: &str, new: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains(old), "{text}");
    std::fs::write(path, text.replace(old, new)).unwrap();
}

#[test]
fn an_operators_tools_find_nginx_and_php() {
    private_network();
    let site = php_site();
    let root = site.folder.path();
    let (conf, pool) = (root.join("nginx.conf"), root.join("php.conf"));
    replace_in(
        &conf,
        "server { listen 80;",
        "server { listen 80; location = /release { return 200 one; }",
    );
    std::fs::write(root.join("site/release.php"), "<?php echo getenv('RELEASE');").unwrap();
    std::fs::write(&pool, std::fs::read_to_string(&pool).unwrap() + "env[RELEASE] = one\n")
        .unwrap();
    let nicache = Nicache::start(&["--with", &php_fpm(&site, "--nodaemonize")], &site.command());
    let url = |path: &str| format!("http://{}{path}", nicache.server());
    becomes(&url("/release"), "one");
    becomes(&url("/release.php"), "one");
    // A hook of certbot.
    replace_in(&conf, "return 200 one;", "return 200 two;");
    let folder = root.display();
    shell(&format!("nginx -p {folder} -c {folder}/nginx.conf -s reload"));
    becomes(&url("/release"), "two");
    // Log rotation.
    let log = root.join("access.log");
    std::fs::rename(&log, root.join("access.log.1")).unwrap();
    shell(&format!("kill -USR1 $(cat {folder}/pid)"));
    let is_written = || {
        curl(&url("/release?log"));
        std::fs::metadata(&log).is_ok_and(|log| log.len() > 0).then_some(())
    };
    assert!(within(PATIENCE, is_written).is_some(), "nginx did not open its log again");
    // systemctl reload php8.2-fpm.
    replace_in(&pool, "env[RELEASE] = one", "env[RELEASE] = two");
    shell(&format!("kill -USR2 $(cat {folder}/php.pid)"));
    becomes(&url("/release.php"), "two");
    // systemctl reload nicache: the server and the programs beside it.
    replace_in(&pool, "env[RELEASE] = two", "env[RELEASE] = three");
    replace_in(&conf, "return 200 two;", "return 200 three;");
    nicache.signal(Signal::HUP);
    becomes(&url("/release"), "three");
    becomes(&url("/release.php"), "three");
}

#[test]
fn an_operators_tools_find_apache() {
    if !Path::new("/usr/sbin/apache2").exists() {
        return;
    }
    private_network();
    let site = Site::new();
    let folder = site.folder.path().display().to_string();
    let conf = site.folder.path().join("apache.conf");
    let load =
        |name: &str| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n");
    let modules: String = ["mpm_event", "authz_core", "alias", "log_config"].map(load).concat();
    let text = format!(
        "{modules}ServerRoot {folder}\nDefaultRuntimeDir {folder}\nPidFile {folder}/apache.pid\nErrorLog {folder}/error.log\n\
         CustomLog {folder}/apache.log %r\nListen 80\nServerName files\nUser www-data\nGroup www-data\nStartServers 1\n\
         DocumentRoot {folder}/site\nRedirect /release http://one/\n<Directory {folder}/site>\nRequire all granted\n</Directory>\n"
    );
    // Debian links it in, others do not.
    let text = text.replace(&load("log_config"), "");
    std::fs::write(&conf, text).unwrap();
    let server = ["apache2", "-f", &conf.display().to_string(), "-DFOREGROUND"].map(str::to_owned);
    let nicache = Nicache::start(&[], &server);
    let target = |wanted: &str| {
        let url = format!("http://{}/release", nicache.server());
        let is_there = || {
            let arguments = ["-sS", "-m", "10", "-o", "/dev/null", "-w", "%{redirect_url}", &url];
            let output = std::process::Command::new("curl").args(arguments).output().unwrap();
            (String::from_utf8_lossy(&output.stdout) == wanted).then_some(())
        };
        assert!(within(PATIENCE, is_there).is_some(), "not redirected to {wanted}");
    };
    target("http://one/");
    replace_in(&conf, "http://one/", "http://two/");
    shell(&format!("apache2 -f {} -k graceful", conf.display()));
    target("http://two/");
    let log = site.folder.path().join("apache.log");
    std::fs::rename(&log, site.folder.path().join("apache.log.1")).unwrap();
    shell(&format!("kill -USR1 $(cat {folder}/apache.pid)"));
    assert!(exists_within(&log, PATIENCE), "Apache did not open its log again");
}
