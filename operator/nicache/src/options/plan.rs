//! What is done: settings with defaults applied, and checked against each other.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nicache_admin::Reach;
use nicache_http::KeyConfig;
use nicache_watch::MEMBER_NAME_BYTES_MAX;

use super::rechecks::{RECHECK_DEFAULT, RECHECK_MAX_DEFAULT, Rechecks};
use super::run::{CARDS_MAX, MEMORY_BYTES_MIN, QUEUES_MAX, RunOptions};
use super::{
    AdminAddress, ClientLimits, HandshakeKind, LogFormat, Milliseconds, Network, PathOptions,
    PolicyKind, PortKind, Publish, ReloadPhp, RemoteDatabase, Size, Subnet, WatchKind, path, reach,
};

/// What `run` does, with nothing left open but what only the machine can tell.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunPlan {
    pub memory_bytes: u64,
    pub policy: PolicyKind,
    pub handshake: HandshakeKind,
    pub rechecks: Rechecks,
    pub watch: WatchKind,
    pub http_ports: Vec<u16>,
    pub publish: Vec<Publish>,
    pub outgoing: bool,
    pub share: Vec<u16>,
    pub remote_databases: Vec<RemoteDatabase>,
    pub subnet: Option<Subnet>,
    /// The server is a station on the network of an existing interface; `None`: it has a network of
    /// its own.
    pub wire: Option<WireOptions>,
    pub cards: u16,
    pub queues: u16,
    pub pcap: Option<PathBuf>,
    pub access_log: Option<PathBuf>,
    pub l0: bool,
    pub cache_status: bool,
    pub ignore_cookies: Vec<String>,
    pub ignore_headers: Vec<String>,
    pub vary: Vec<String>,
    pub session_files: Vec<PathBuf>,
    pub data_folders: Vec<PathBuf>,
    /// With their suffixes.
    pub follow_units: Vec<String>,
    pub reload_php: ReloadPhp,
    pub paths: Vec<PathOptions>,
    pub admin: Option<AdminAddress>,
    pub admin_reach: Reach,
    pub name: Option<String>,
    pub json: bool,
    pub log_format: LogFormat,
    /// How many clients there may be, and how long they may take their time.
    pub clients: ClientLimits,
    /// Programs beside the server, each with its arguments.
    pub with: Vec<Vec<String>>,
    pub server: Vec<String>,
}

/// `run --wire`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WireOptions {
    /// The interface.
    pub interface: String,
    /// The server's addresses.
    pub addresses: Vec<Network>,
    /// The server's default routes.
    pub gateways: Vec<IpAddr>,
    /// By what the card is on the interface.
    pub port: PortKind,
}

/// What `attach` does.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AttachPlan {
    /// Toward the clients.
    pub wire: String,
    /// Toward the server.
    pub host: String,
    /// By what the card is on the wire.
    pub port: PortKind,
    /// A process of the server.
    pub server_pid: Option<u32>,
    /// The rest.
    pub run: RunPlan,
}

impl RunOptions {
    /// Reads the file named by `--config`, lets the flags win, applies defaults and checks every
    /// value.
    pub(crate) fn resolve(self) -> Result<RunPlan> {
        let merged = self.merged()?;
        if merged.host.is_some() || merged.server_pid.is_some() {
            bail!(
                "host, server-pid: belong to `nicache attach`, which stands in front of a server that runs"
            );
        }
        let wire = merged.wire.clone().map(|interface| WireOptions {
            interface,
            addresses: merged.address.clone(),
            gateways: merged.gateway.clone(),
            port: merged.port.unwrap_or(PortKind::Auto),
        });
        match &wire {
            None if !merged.address.is_empty()
                || !merged.gateway.is_empty()
                || merged.port.is_some() =>
            {
                bail!(
                    "address, gateway, port: are for the network of an existing interface, which --wire names"
                );
            }
            Some(_)
                if !merged.publish.is_empty()
                    || merged.subnet.is_some()
                    || !merged.share.is_empty() =>
            {
                bail!("publish, subnet, share: a server on --wire has addresses of its own there");
            }
            Some(_) if merged.cards.is_some_and(|cards| cards > 1) => {
                bail!("cards: a server on --wire has one");
            }
            Some(wire) if wire.addresses.is_empty() => {
                bail!(
                    "address: a server on --wire {} needs an address there: --address 192.0.2.10/24",
                    wire.interface
                );
            }
            Some(_) | None => {}
        }
        Ok(RunPlan { wire, ..merged.checked()? })
    }

    fn merged(self) -> Result<Self> {
        let merged = match &self.config {
            None => self,
            Some(path) => Self::from_file(path)?.overlaid_with(&self)?,
        };
        Ok(merged)
    }

    /// What is to be done for `nicache attach`, which starts no server: the command line laid over
    /// the configuration file, and checked.
    ///
    /// # Errors
    /// The file cannot be read or a setting is wrong; what belongs to a server that is started is
    /// refused, too.
    pub(crate) fn resolve_attach(self) -> Result<AttachPlan> {
        let merged = self.merged()?;
        let (wire, host, server_pid) =
            (merged.wire.clone(), merged.host.clone(), merged.server_pid);
        let port = merged.port.unwrap_or(PortKind::Auto);
        let is_station = !merged.address.is_empty() || !merged.gateway.is_empty();
        let mut plan = merged.checked()?;
        let (Some(wire), Some(host)) = (wire, host) else {
            bail!(
                "attach needs two interfaces: --wire IFACE toward the clients and --host IFACE toward the server"
            );
        };
        for (name, is_given) in [
            ("SERVER", !plan.server.is_empty()),
            ("with", !plan.with.is_empty()),
            ("publish", !plan.publish.is_empty()),
            ("share", !plan.share.is_empty()),
            ("subnet", plan.subnet.is_some()),
            ("cards", plan.cards > 1),
            ("remote-database", !plan.remote_databases.is_empty()),
            ("address, gateway", is_station),
            ("watch preload", plan.watch == WatchKind::Preload),
        ] {
            if is_given {
                bail!(
                    "{name}: belongs to `nicache run`, which starts a server; attach stands in front of one that runs"
                );
            }
        }
        // What a server that runs already has read before is not known, so what its programs
        // make is not kept.
        plan.rechecks.first = Milliseconds(0);
        for path in &mut plan.paths {
            path.recheck = path.recheck.map(|_| Milliseconds(0));
        }
        Ok(AttachPlan { wire, host, port, server_pid, run: plan })
    }

    fn from_file(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the configuration file {}", path.display()))?;
        toml::from_str(&text)
            .with_context(|| format!("in the configuration file {}", path.display()))
    }

    pub(super) fn overlaid_with(&self, flags: &Self) -> Result<Self> {
        let mut table = toml::Table::try_from(self)?;
        table.extend(toml::Table::try_from(flags)?);
        Ok(table.try_into()?)
    }

    pub(super) fn checked(self) -> Result<RunPlan> {
        let clients = ClientLimits::of(&self)?;
        let plan = RunPlan {
            clients,
            memory_bytes: self.memory.unwrap_or(Size(64 << 20)).0,
            policy: self.policy.unwrap_or(PolicyKind::LRU),
            handshake: self.handshake.unwrap_or(HandshakeKind::PassThrough),
            rechecks: Rechecks {
                first: self.recheck.unwrap_or(RECHECK_DEFAULT),
                most: self.recheck_max.unwrap_or(match self.watch {
                    Some(WatchKind::Preload) => RECHECK_DEFAULT,
                    _ => RECHECK_MAX_DEFAULT,
                }),
            },
            watch: self.watch.unwrap_or(WatchKind::Kernel),
            http_ports: if self.http_port.is_empty() { vec![80] } else { self.http_port },
            outgoing: self.outgoing.unwrap_or(false)
                || !self.remote_database.is_empty()
                || self.publish.iter().any(|p| !p.address.ip().is_loopback()),
            publish: self.publish,
            share: self.share,
            remote_databases: self.remote_database,
            subnet: self.subnet,
            wire: None,
            cards: self.cards.unwrap_or(1),
            queues: self.queues.unwrap_or(1),
            pcap: self.pcap,
            access_log: self.access_log,
            l0: self.l0.unwrap_or(false),
            cache_status: self.cache_status.unwrap_or(false),
            ignore_cookies: self.ignore_cookie,
            ignore_headers: self.ignore_header,
            vary: self.vary,
            session_files: self.session_files,
            data_folders: self.data_folder,
            follow_units: self
                .follow_unit
                .iter()
                .map(|unit| unit_name(unit))
                .collect::<Result<_>>()?,
            reload_php: self.reload_php.unwrap_or(ReloadPhp::Idle),
            paths: self.path,
            admin: self.admin,
            admin_reach: reach(self.admin_anyone.unwrap_or(false)),
            name: self.name,
            json: self.json.unwrap_or(false),
            log_format: self.log_format.unwrap_or(LogFormat::Text),
            with: self.with.iter().map(|command| words(command)).collect::<Result<_>>()?,
            server: self.server,
        };
        if plan.memory_bytes < MEMORY_BYTES_MIN {
            bail!("memory: the card needs at least 1M");
        }
        if plan.watch == WatchKind::Preload && !plan.rechecks.wants_dynamic() {
            bail!(
                "recheck: 0 caches files alone, for which --watch preload cannot vouch; omit it, or use --watch kernel"
            );
        }
        if self.recheck_max.is_some_and(|most| most < plan.rechecks.first) {
            bail!("recheck-max: less than recheck, {}", plan.rechecks.first);
        }
        let all = plan.paths.iter().map(|path| path.rechecks(plan.rechecks)).chain([plan.rechecks]);
        let longest =
            all.map(|rechecks| rechecks.first.max(rechecks.most)).max().unwrap_or(RECHECK_DEFAULT);
        if plan.watch == WatchKind::Preload && longest > RECHECK_DEFAULT {
            bail!(
                "recheck, recheck-max: with --watch preload a change by another program shows after this time, so it may not be above \
                 {RECHECK_DEFAULT}, for no path; use --watch kernel for {longest}"
            );
        }
        if plan.admin_reach == Reach::Anyone && plan.admin.is_none() {
            bail!("admin-anyone: says who may look at --admin, which is not there");
        }
        if plan.http_ports.contains(&0) || plan.share.contains(&0) {
            bail!("http-port, share: 0 is not a port");
        }
        if !(1..=CARDS_MAX).contains(&plan.cards) {
            bail!("cards: between 1 and {CARDS_MAX}");
        }
        if !(1..=QUEUES_MAX).contains(&plan.queues) {
            bail!("queues: between 1 and {QUEUES_MAX}");
        }
        path::check(&plan.paths, plan.rechecks)?;
        let mut keys = KeyConfig::new([0; 16]);
        for header in &plan.vary {
            let separated = keys.separate_by(header).ok();
            keys = separated.with_context(|| {
                format!("vary: `{header}` is not a header name, or there are too many headers")
            })?;
        }
        for header in &plan.ignore_headers {
            let stem = header.strip_suffix('*').unwrap_or(header);
            if stem.is_empty() || !path::is_token(stem) || stem.contains('*') {
                bail!(
                    "ignore-header: `{header}` is not a header's name, nor the beginning of one with a final `*`"
                );
            }
        }
        for cookie in plan.ignore_cookies.iter().filter(|cookie| *cookie != "*") {
            path::check_cookie(cookie)
                .map_err(|reason| anyhow::anyhow!("ignore-cookie: {reason}"))?;
        }
        if let Some(odd) = plan.session_files.iter().find(|file| !is_session_pattern(file)) {
            bail!(
                "session-files: `{}` is not an absolute path, nor the beginning of file names in a folder with a final `*`",
                odd.display()
            );
        }
        if let Some(odd) = plan.data_folders.iter().find(|folder| !is_data_folder(folder)) {
            bail!(
                "data-folder: `{}` is not the absolute path of a folder, without `..`",
                odd.display()
            );
        }
        for (index, remote) in plan.remote_databases.iter().enumerate() {
            if plan.remote_databases[..index]
                .iter()
                .any(|earlier| earlier.address == remote.address)
            {
                bail!("remote-database: {} is given twice", remote.address);
            }
            nicache_relay::Key::read(&remote.key).context("remote-database: the key")?;
        }
        for (index, publish) in plan.publish.iter().enumerate() {
            if plan.publish[..index].iter().any(|earlier| earlier.address == publish.address) {
                bail!("publish: {} is given twice", publish.address);
            }
        }
        if let Some(name) = &plan.name {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            if name.is_empty()
                || name.len() > 64
                || name.starts_with('.')
                || !name.chars().all(plain)
            {
                bail!("name: up to 64 letters, digits, `.`, `_` and `-`, not beginning with a dot");
            }
        }
        Ok(plan)
    }
}

/// A unit as systemd has it: a name without a suffix is a service's.
fn unit_name(name: &str) -> Result<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte);
    let suffixes = [".service", ".scope", ".slice", ".socket", ".mount"];
    let unit = if suffixes.iter().any(|suffix| name.ends_with(suffix)) {
        name.to_owned()
    } else {
        format!("{name}.service")
    };
    if name.is_empty() || unit.len() > MEMBER_NAME_BYTES_MAX || !unit.bytes().all(is_plain) {
        bail!(
            "follow-unit: `{name}` is not the name of a unit: write it as `systemctl list-units` does, e.g. php8.2-fpm.service"
        );
    }
    Ok(unit)
}

/// A file, or the beginning of names in a folder: one that would be all of a folder must say more.
fn is_session_pattern(path: &Path) -> bool {
    let Some(text) = path.to_str() else { return false };
    let stem = text.strip_suffix('*').unwrap_or(text);
    let is_plain = !stem.contains('*')
        && !stem.contains("//")
        && !stem.contains("/./")
        && !stem.contains("/../");
    stem.len() > 1 && stem.starts_with('/') && is_plain
}

fn is_data_folder(path: &Path) -> bool {
    let climbs = path.components().any(|part| part == std::path::Component::ParentDir);
    path.is_absolute() && !climbs && path.components().count() > 1
}

/// Splits a command as a shell does.
fn words(command: &str) -> Result<Vec<String>> {
    match shlex::split(command) {
        None => bail!("with: a quote or backslash in `{command}` has no partner"),
        Some(words) if words.is_empty() => bail!("with: an empty command"),
        Some(words) => Ok(words),
    }
}
