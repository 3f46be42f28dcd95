//! `nicache serve`.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Command, FromArgMatches};
use nicache_policy::ChosenPolicy;

use crate::commands::nfs;
use crate::options::{NfsOptions, ServeOptions};
use crate::serve;

const UNIT: &str = "iscsi://";

/// Serves a folder from card memory, or one of a logical unit out of the gateway's cache.
pub(super) fn execute(options: ServeOptions) -> Result<ExitCode> {
    match options.root.to_str().filter(|root| root.starts_with(UNIT)) {
        Some(root) => nfs::execute(&of_unit(root, &options)?),
        None => serve::run(&options),
    }
}

/// The settings of `nicache nfs --http` that serve this folder of a unit.
fn of_unit(root: &str, options: &ServeOptions) -> Result<NfsOptions> {
    let plain: ServeOptions = parsed(["serve", "/"])?;
    let of_folders = [
        ("--cards", options.cards != plain.cards),
        ("--coherence", options.coherence != plain.coherence),
        ("--route", options.route != plain.route),
        ("--bus", options.bus.is_some()),
        ("--segmentation", options.segmentation != plain.segmentation),
        ("--page-cache", options.page_cache != plain.page_cache),
        ("--publish", !options.publish.is_empty()),
        ("--index", options.index != plain.index),
        ("--list", options.list),
        ("--live", !options.live.is_empty()),
        ("--connections", options.connections != plain.connections),
        ("--subnet", options.subnet.is_some()),
    ];
    if let Some((name, _)) = of_folders.iter().find(|(_, is_given)| *is_given) {
        bail!(
            "{name} is for a folder of this machine; a folder of a logical unit is served by sockets of the kernel, as by `nicache nfs --http`"
        );
    }
    let mut parts = root[UNIT.len()..].splitn(4, '/');
    let (Some(portals), Some(target), Some(unit)) = (parts.next(), parts.next(), parts.next())
    else {
        bail!("`{root}` names no logical unit: write iscsi://HOST/IQN/LUN/FOLDER");
    };
    let folder = parts.next().unwrap_or_default();
    let mut words = vec!["nfs".to_owned(), format!("{UNIT}{portals}/{target}/{unit}")];
    for port in &options.port {
        words.extend(["--http".to_owned(), format!("{port}=/{folder}")]);
    }
    let mut nfs: NfsOptions = parsed(words)?;
    if options.memory != plain.memory {
        nfs.memory = options.memory;
    }
    nfs.policy = ChosenPolicy::new(options.policy.name()).with_context(|| {
        format!("{} is not a policy of the gateway", options.policy.name().name())
    })?;
    nfs.admin = options.admin.clone();
    nfs.name = options.name.clone();
    nfs.json = options.json;
    nfs.log_format = options.log_format;
    Ok(nfs)
}

/// Settings, as from a command line.
fn parsed<T: Args>(
    words: impl IntoIterator<Item = impl Into<std::ffi::OsString> + Clone>,
) -> Result<T> {
    let matches = T::augment_args(Command::new("nicache")).try_get_matches_from(words)?;
    Ok(<T as FromArgMatches>::from_arg_matches(&matches)?)
}
