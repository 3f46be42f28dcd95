//! An Express application on Node.js.
//!
//! Debian's `node-express` needs Debian's `nodejs`. On a machine with another Node.js, Express
//! comes from npm, once, into `/var/cache/nicache`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::application::Application;
use crate::client::Client;
use crate::edit::{Edit, FIRST, MarkedFile};
use crate::folder::Folder;
use crate::packages;
use crate::program::{succeed, words};
use crate::site::{Page, Settings, Site};

const DEBIAN: &str = "/usr/share/nodejs";
const CACHE: &str = "/var/cache/nicache";
const CACHED: &str = "/var/cache/nicache/express-4/node_modules";

/// Debian's packages, where there is no Node.js yet.
pub(super) fn packages() -> Vec<&'static [&'static str]> {
    if has_program("node") { Vec::new() } else { vec![&["nodejs", "node-express"]] }
}

/// Makes Express available to the Node.js that is there.
pub(super) fn install() -> Result<()> {
    if modules().is_some() {
        return Ok(());
    }
    let by_apt = install_by_apt();
    let Err(apt) = by_apt else {
        return Ok(());
    };
    install_by_npm().with_context(|| {
        format!(
            "there is no Express: Debian's node-express cannot be installed ({apt:#}), and npm cannot fetch it either"
        )
    })
}

pub(super) fn prepare(settings: &Settings) -> Result<Site> {
    if !has_program("node") {
        bail!("there is no `node`: apt-get install nodejs node-express");
    }
    install()?;
    let modules = modules().context("Express is not where it was installed")?;
    let folder = Folder::create("express")?;
    folder.write("site/app.js", include_str!("../../scripts/express/app.js"))?;
    let content = MarkedFile::create(
        folder.join("site/content.txt"),
        "This is the content of a file, @VERSION@",
    )?;
    // A port below 1024 without being root.
    let server = words(&[
        "setpriv",
        "--reuid",
        "www-data",
        "--regid",
        "www-data",
        "--clear-groups",
        "--inh-caps",
        "+net_bind_service",
        "--ambient-caps",
        "+net_bind_service",
        "--",
        "env",
        &format!("NODE_PATH={}", modules.display()),
        "NODE_ENV=production",
        "node",
        &folder.text("site/app.js"),
        &settings.port.to_string(),
    ]);
    let mut edits = vec![Edit::by_http("web-form", "/item/1", "<p>", |server, marker| {
        edit_by_form(server, 1, marker)
    })];
    edits.push(Edit::by_http("web-form-list", "/", "This is item 7.</a> ", |server, marker| {
        edit_by_form(server, 7, marker)
    }));
    edits.extend(content.edits(["file-renamed", "file-overwritten"], "/file"));
    let with = Vec::new();
    Ok(Site {
        application: Application::Express,
        port: settings.port,
        with,
        server,
        pages: pages(),
        edits,
        audiences: Vec::new(),
        configuration: String::new(),
        logins: Vec::new(),
        folder,
    })
}

fn pages() -> Vec<Page> {
    vec![
        Page::stable("/", "all items, from memory", "This is item 20."),
        Page::stable("/item/1", "an item", FIRST),
        Page::stable("/file", "a file", FIRST),
        Page::unstable("/time", "the time of the request", "It is"),
    ]
}

fn edit_by_form(server: SocketAddr, item: u32, marker: &str) -> Result<()> {
    let reply = Client::new(server)
        .post_form(&format!("/item/{item}"), &[("version", Edit::number(marker))])?;
    if reply.status != 303 {
        bail!("the application answered with status {}: {}", reply.status, reply.text());
    }
    Ok(())
}

/// The folder that has `express` in it.
fn modules() -> Option<PathBuf> {
    [CACHED, DEBIAN]
        .map(PathBuf::from)
        .into_iter()
        .find(|folder| folder.join("express/package.json").exists())
}

fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// Only if that removes nothing, such as a newer Node.js.
fn install_by_apt() -> Result<()> {
    let plan = succeed(Command::new("apt-get").args([
        "install",
        "--simulate",
        "--no-install-recommends",
        "node-express",
    ]))?;
    if plan.lines().any(|line| line.starts_with("Remv ")) {
        bail!("it would remove other packages");
    }
    packages::install(&["node-express"])
}

fn install_by_npm() -> Result<()> {
    std::fs::create_dir_all(CACHE).with_context(|| format!("cannot make {CACHE}"))?;
    // Made aside and renamed when it is whole, because another may do the same at this moment.
    let folder = tempfile::Builder::new().prefix("express-").tempdir_in(CACHE)?;
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--no-save", "--ignore-scripts", "--prefix"]);
    succeed(npm.arg(folder.path()).arg("express@4").current_dir(folder.path()))?;
    let target = Path::new(CACHED).parent().context("a path with a parent")?;
    match std::fs::rename(folder.path(), target) {
        Err(error) if !target.join("node_modules/express/package.json").exists() => {
            Err(error).with_context(|| format!("cannot make {}", target.display()))
        }
        _ => Ok(()),
    }
}
