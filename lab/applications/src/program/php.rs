//! PHP: a private PHP-FPM behind a Unix socket, and the command line.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::{succeed_with, words};
use crate::edit::{Edit, MarkedFile};
use crate::folder::Folder;
use crate::site::Settings;

/// Debian's packages of PHP-FPM and the command line.
pub(crate) const PACKAGES: [&str; 2] = ["php8.2-fpm", "php8.2-cli"];

/// Edits of a script. PHP compares the time of a script that it has compiled in seconds, every
/// `opcache.revalidate_freq` seconds of its clock.
pub(crate) fn script_edits(
    script: &MarkedFile,
    settings: &Settings,
    names: [&'static str; 2],
    page: &str,
) -> [Edit; 2] {
    let delay = match settings.opcache_revalidate_freq {
        0 => 0,
        seconds => seconds + 1,
    };
    script.edits(names, page).map(|edit| edit.delayed(delay).hasty())
}

/// Writes the configuration of a pool that listens at `run/php.sock`, and returns the command that
/// runs it.
pub(crate) fn fpm(folder: &Folder, settings: &Settings) -> Result<Vec<String>> {
    let sessions = folder.subfolder("run/sessions", "www-data")?;
    let pool = format!(
        "[global]\nerror_log = {log}\npid = {pid}\ndaemonize = no\n\n\
         [site]\nuser = www-data\ngroup = www-data\nlisten = {socket}\nlisten.owner = www-data\n\
         pm = static\npm.max_children = {workers}\n\
         php_admin_value[session.save_path] = {sessions}\nphp_admin_value[sys_temp_dir] = {tmp}\n\
         php_admin_value[upload_tmp_dir] = {tmp}\nphp_admin_value[error_log] = {errors}\nphp_admin_flag[log_errors] = on\n",
        log = folder.text("log/php-fpm.log"),
        pid = folder.text("run/php-fpm.pid"),
        socket = folder.text("run/php.sock"),
        workers = settings.workers,
        sessions = sessions.display(),
        tmp = folder.text("tmp"),
        errors = folder.text("log/php.log"),
    );
    let file = folder.write("php-fpm.conf", &pool)?.display().to_string();
    let revalidate = format!("opcache.revalidate_freq={}", settings.opcache_revalidate_freq);
    Ok(words(&["php-fpm8.2", "--nodaemonize", "--fpm-config", &file, "-d", &revalidate]))
}

/// A script that is run by the command line, as the user of the web server, in the site's folder.
#[derive(Debug)]
pub(crate) struct Script {
    command: Command,
}

impl Script {
    /// The script at `path`, without arguments.
    pub(crate) fn new(folder: &Path, path: &Path) -> Self {
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid",
            "www-data",
            "--regid",
            "www-data",
            "--clear-groups",
            "--",
            "php8.2",
        ]);
        command.args(["-d", "display_errors=stderr", "-d", "memory_limit=512M"]);
        command.arg("-d").arg(format!("sys_temp_dir={}", folder.join("tmp").display()));
        command.arg(path).current_dir(folder);
        Self { command }
    }

    /// Adds arguments.
    pub(crate) fn args<'a>(mut self, arguments: impl IntoIterator<Item = &'a str>) -> Self {
        self.command.args(arguments);
        self
    }

    /// Sets a variable of the environment.
    pub(crate) fn env(mut self, name: &str, value: &Path) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it with a text on its standard input.
    pub(crate) fn run(mut self, input: &str) -> Result<String> {
        succeed_with(&mut self.command, input)
    }
}
