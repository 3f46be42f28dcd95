//! `nicache replay` while files are changed: is a reply ever stale?

use std::io::IsTerminal;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nicache::logs;
use nicache_replay::{ReplayConfig, Report, Site, Trace, replay};
use tempfile::TempDir;

use super::show::{show_card, show_trace};
use crate::behind::Behind;
use crate::cli::ReplayArgs;
use crate::growth::{Grown, Growth};
use crate::url::server;

/// Each has a thread.
const CLIENTS_DEFAULT: u32 = 8;
const CLIENTS_MAX: u32 = 1024;

/// Replays a log and prints what came of it.
pub(super) fn execute(arguments: &ReplayArgs, trace: &Trace) -> Result<ExitCode> {
    let clients = arguments.clients.unwrap_or(CLIENTS_DEFAULT);
    if clients > CLIENTS_MAX {
        bail!(
            "clients: each has a thread, so at most {CLIENTS_MAX}; with --target there can be more"
        );
    }
    let folder = temporary_folder()?;
    let root = arguments.site.clone().unwrap_or_else(|| folder.path().join("site"));
    if !arguments.json {
        show_trace(trace);
    }
    let site = Site::create(&root, trace)?;
    let (own, address) = match &arguments.changes.url {
        Some(url) => (None, server(url)?.address),
        None => {
            let own = Behind::start(&arguments.run, &[], &nginx(folder.path(), &root)?)?;
            let address = own.server();
            (Some(own), address)
        }
    };
    let name = own.as_ref().map(|own| own.status.name.as_str()).or(arguments.name.as_deref());
    // Without a card at the URL, there are no counters to show.
    let growth = Growth::begin(name).ok();
    let config = ReplayConfig {
        server: address,
        clients: clients as usize,
        pipeline: usize::from(arguments.changes.pipeline),
        writers: arguments.changes.writers,
        write_pause: Duration::from_millis(arguments.changes.write_pause),
        duration: arguments.duration.map(Duration::from_secs),
        rate: arguments.rate,
        agents: arguments.changes.agents,
        server_keeps_files_open: arguments.changes.server_keeps_files_open,
        seed: arguments.seed,
    };
    let shows = std::io::stderr().is_terminal();
    let report = replay(&config, trace, &site, |seconds, replies, writes| {
        if shows {
            logs::show_live_line(&format!("{seconds:.0} s, {replies} replies, {writes} writes"));
        }
    });
    logs::clear_live_line();
    let report = report?;
    show(&report, growth.and_then(Growth::end), trace, arguments.json)?;
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show(report: &Report, card: Option<Grown>, trace: &Trace, as_json: bool) -> Result<()> {
    if as_json {
        let mut all = serde_json::to_value(report)?;
        all["hit_rate"] = report.hit_rate().into();
        all["clean"] = report.is_clean().into();
        all["bad_lines"] = trace.counts.bad_lines.into();
        all["card"] = serde_json::to_value(card)?;
        println!("{all}");
        return Ok(());
    }
    print!("{report}");
    if let Some(card) = card {
        show_card(&card);
    }
    println!(
        "{}",
        if report.is_clean() { "no reply was stale, torn or corrupt" } else { "VIOLATIONS" }
    );
    Ok(())
}

/// On a disk file system almost everywhere; files on tmpfs would not be cached.
fn temporary_folder() -> Result<TempDir> {
    let folder = tempfile::Builder::new()
        .prefix("nicache-replay-")
        .tempdir_in("/var/lib")
        .context("cannot make a folder below /var/lib")?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
    Ok(folder)
}

/// The command of an nginx with the document root, telling in `X-Robots-Tag` which request it
/// worked on.
fn nginx(folder: &Path, root: &Path) -> Result<Vec<String>> {
    let (folder_text, root) = (folder.display(), root.canonicalize()?);
    let root = root.display();
    let text = format!(
        "worker_processes 2; pid {folder_text}/pid; error_log /dev/null crit; worker_rlimit_nofile 4096;
         events {{ worker_connections 2048; }}
         http {{
           access_log off; sendfile on; tcp_nopush on;
           client_body_temp_path {folder_text}/t1; proxy_temp_path {folder_text}/t2; fastcgi_temp_path {folder_text}/t3;
           uwsgi_temp_path {folder_text}/t4; scgi_temp_path {folder_text}/t5;
           server {{ listen 80; root \"{root}\"; add_header X-Robots-Tag $http_user_agent always; }}
         }}\n"
    );
    let path = folder.join("nginx.conf");
    std::fs::write(&path, text)?;
    let (folder, path) = (folder_text.to_string(), path.display().to_string());
    Ok(["nginx", "-p", &folder, "-c", &path, "-g", "daemon off;"].map(str::to_owned).to_vec())
}
