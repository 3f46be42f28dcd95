//! `nicache nfs`.
//!
//! ```text
//! nfs.rs          the unit, the gateway on it, until somebody ends it
//! nfs/serving.rs  what status, top and the admin port are told
//! ```

mod serving;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nicache_admin::{AdminServer, Source};
use nicache_gateway::{
    CopyMode, Demo, ExportLine, Gateway, GatewayConfig, KeptKey, UnitCredentials, key_path,
    load_or_make_key, read_credentials,
};
use nicache_initiator::{IscsiLun, IscsiOptions, Lun, ReservationOptions, discover};
use nicache_ncache::CacheOptions;
use nicache_nfs::caller::{Caller, User};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::thread::CapabilitySet;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::control::ControlSocket;
use crate::logs;
use crate::options::{LogFormat, NfsOptions};
use crate::supervisor::instance::Name;
use crate::supervisor::notify;
use crate::supervisor::signals::Signals;
use serving::Serving;

const DEMO_EXPORT: &str =
    "/demo 127.0.0.0/8(rw,no_root_squash,insecure) ::1(rw,no_root_squash,insecure)";
const DEMO_TEXT: &[u8] =
    b"This file is on a unit of an iSCSI target. It came here by NFS, and its bytes were not copied between layers.\n";
/// How often the live line is drawn on a terminal, and trouble is looked for.
const LOOK: Duration = Duration::from_millis(500);
/// How often counters are logged where there is no terminal.
const LOG_EVERY: Duration = Duration::from_secs(10);
const PORTMAP_PORT: u16 = 111;

/// Serves a unit until Ctrl-C or SIGTERM.
pub(super) fn execute(options: &NfsOptions) -> Result<ExitCode> {
    logs::start(options.log_format);
    if let Some(portals) = &options.discover {
        return list_targets(options, portals);
    }
    check(options)?;
    stay_in_memory();
    let signals = Signals::catch()?;
    let name = Name::reserve(options.name.as_deref(), "nfs")?;
    let admin = options.admin.bind()?;
    let (demo, unit) = if options.demo {
        open_demo(options).map(|(demo, unit)| (Some(demo), unit))?
    } else {
        (None, open_unit(options)?)
    };
    let (lun, kept) = unit;
    let gateway = Gateway::start(config(options, lun, &kept))?;
    if options.demo {
        put_demo_text(&gateway)?;
    }
    let serving = Arc::new(Serving::new(
        gateway,
        name.name.clone(),
        admin.as_ref().map(AdminServer::address),
    ));
    let ended = serve(options, &name, admin, &signals, &serving);
    logs::clear_live_line();
    notify::tell("STOPPING=1");
    let closed = serving.close();
    drop((demo, kept));
    if options.json {
        logs::print(
            &serde_json::json!({ "event": "ended", "failed": ended.is_err() || closed.is_err() })
                .to_string(),
        );
    }
    ended?;
    closed.context(
        "not everything was written: see above; clients send again what no COMMIT has acknowledged",
    )?;
    Ok(ExitCode::SUCCESS)
}

/// The process that owns device and mount, which outlives the gateway.
pub(super) fn own_mount() -> Result<ExitCode> {
    logs::start(LogFormat::Text);
    rustix::thread::set_name(c"nicache-mount")?;
    nicache_device::supervise()?;
    Ok(ExitCode::SUCCESS)
}

/// When memory is short, the kernel writes pages to the device that this process answers: it must
/// not have to be read from a disk first.
fn stay_in_memory() {
    // Without this capability there is a limit, and reaching it would be worse.
    let may_lock = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    if may_lock && let Err(error) = mlockall(flags) {
        tracing::warn!(
            "this process may be swapped out, which is slow when memory is short: {error}"
        );
    }
}

fn check(options: &NfsOptions) -> Result<()> {
    if options.copy == CopyMode::Baseline && !options.demo && !options.measurement {
        bail!(
            "--copy baseline sends zeroes instead of what files contain: it is for --demo and for measurements only"
        );
    }
    let of_demo = options.demo.then(Demo::missing).flatten();
    match of_demo.or_else(|| options.device.missing()) {
        None => Ok(()),
        Some("root") => bail!(
            "nicache nfs needs root, for its device and its mount: try `sudo nicache nfs ...`"
        ),
        Some("/dev/fuse") => {
            bail!("there is no /dev/fuse: run `modprobe fuse`, or give the container that device")
        }
        Some("/dev/loop-control") => {
            bail!(
                "there is no /dev/loop-control: run `modprobe loop`, or give the container that device"
            )
        }
        Some("/dev/ublk-control") => {
            bail!(
                "there is no /dev/ublk-control: run `modprobe ublk_drv`, or leave out --device ublk; not every kernel has it"
            )
        }
        Some("tgtd" | "tgtadm") => bail!("--demo needs tgtd: run `apt install tgt`"),
        Some(program) => bail!("--demo needs the program {program}: install it"),
    }
}

type Unit = (Arc<dyn Lun>, KeptKey);

fn open_unit(options: &NfsOptions) -> Result<Unit> {
    let mut url = options.unit.clone().context("no unit is given")?;
    let credentials = credentials(options)?;
    if credentials.own.is_some() {
        url.credentials = credentials.own;
    }
    url.target_credentials = credentials.target;
    if url.target_credentials.is_some() && url.credentials.is_none() {
        bail!("a target proves itself only to an initiator that does");
    }
    let kept = load_or_make_key(&key_path(&options.state, &url))?;
    let lun = IscsiLun::open(&url, &iscsi_options(options, &kept)).with_context(|| {
        format!(
            "cannot use the unit; `nicache nfs --discover {}` lists what is there",
            url.portals.join(",")
        )
    })?;
    Ok((Arc::new(lun), kept))
}

fn open_demo(options: &NfsOptions) -> Result<(Demo, Unit)> {
    let demo = Demo::start(&options.demo_folder, options.demo_size.0 / 4096 * 4096).with_context(
        || format!("cannot start a target over a file in {}", options.demo_folder.display()),
    )?;
    // Whatever happens to this process, nothing is left.
    let secrets = tempfile::tempdir_in(&options.demo_folder)?;
    let kept = load_or_make_key(&secrets.path().join("key"))?;
    let lun = demo.open_unit(&iscsi_options(options, &kept))?;
    demo.forget_image()?;
    Ok((demo, (Arc::new(lun), kept)))
}

fn credentials(options: &NfsOptions) -> Result<UnitCredentials> {
    if let Some(path) = &options.chap {
        return Ok(read_credentials(path)?);
    }
    match std::env::var("NICACHE_CHAP") {
        Ok(text) => Ok(UnitCredentials::parse("NICACHE_CHAP", &text)?),
        Err(_) => Ok(UnitCredentials::default()),
    }
}

fn iscsi_options(options: &NfsOptions, kept: &KeptKey) -> IscsiOptions {
    let (patience, take_over) = (options.patience.into(), options.take_over);
    let reservation = ReservationOptions { identity: kept.identity, take_over };
    let reservation = Some(reservation).filter(|_| !options.no_reservation);
    IscsiOptions {
        initiator: options.initiator.clone(),
        patience,
        reservation,
        ..IscsiOptions::default()
    }
}

fn config(options: &NfsOptions, lun: Arc<dyn Lun>, kept: &KeptKey) -> GatewayConfig {
    let mut exports: Vec<ExportLine> = options.export.clone();
    let mut listen = options.listen.clone();
    if options.demo {
        if exports.is_empty() {
            exports.extend(DEMO_EXPORT.parse::<ExportLine>());
        }
        // Unless the operator says otherwise, whatever port is free, for this machine alone.
        if listen == [SocketAddr::from(([0, 0, 0, 0], 2049))] {
            listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
        }
    }
    exports.iter_mut().for_each(|export| export.is_sync |= options.sync);
    let portmap = options
        .portmap
        .then(|| listen.first().map(|address| SocketAddr::new(address.ip(), PORTMAP_PORT)));
    let portmap = portmap.flatten();
    listen.extend(portmap);
    let bytes_max = usize::try_from(options.memory.0).unwrap_or(usize::MAX);
    let dirty_bytes_max =
        options.dirty.map_or(bytes_max / 4, |size| usize::try_from(size.0).unwrap_or(usize::MAX));
    let mut supervisor = Command::new("/proc/self/exe");
    supervisor.arg("mount-owner").stdout(Stdio::null());
    GatewayConfig {
        lun,
        mkfs: options.mkfs || options.demo,
        transport: options.device,
        supervisor,
        exports,
        web: options.http.clone(),
        copy: options.copy,
        cache: CacheOptions {
            bytes_max,
            dirty_bytes_max,
            policy: options.policy,
            ..CacheOptions::default()
        },
        listen,
        portmap_udp: portmap,
        register: options.register.then(|| SocketAddr::from(([127, 0, 0, 1], PORTMAP_PORT))),
        workers: usize::from(options.workers),
        handle_key: kept.key.clone(),
    }
}

/// Something to see. It goes the way of all payload.
fn put_demo_text(gateway: &Gateway) -> Result<()> {
    let address = gateway.addresses().first().copied().context("the gateway listens nowhere")?;
    let mut caller = Caller::connect(address, User::default(), Duration::from_secs(60))?;
    let root = caller
        .mount("/demo")
        .context("--demo's own export is /demo; with --export, it has to be among them")?;
    let file = caller.create(&root, "README.txt")?;
    let written = caller.write(&file, 0, DEMO_TEXT, 2)?;
    if written.status != 0 {
        bail!("the demonstration's first file cannot be written: status {}", written.status);
    }
    Ok(())
}

fn serve(
    options: &NfsOptions,
    name: &Name,
    mut admin: Option<AdminServer>,
    signals: &Signals,
    serving: &Arc<Serving>,
) -> Result<()> {
    let control = ControlSocket::bind(&name.socket_path())?;
    let answers = Arc::clone(serving);
    control.answer(move |request| answers.answer(&request))?;
    if let Some(admin) = &mut admin {
        admin.serve(Arc::clone(serving) as Arc<dyn Source>)?;
    }
    announce(options, serving)?;
    let is_shown = options.log_format == LogFormat::Text && std::io::stderr().is_terminal();
    let mut logged = Instant::now();
    let mut calls = 0;
    loop {
        let files = signals.files().map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN));
        let mut files: Vec<PollFd<'_>> = files.collect();
        let pause = Timespec::try_from(LOOK).unwrap_or_default();
        match poll(&mut files, Some(&pause)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(SIGINT | SIGTERM) = signals.take() {
            return Ok(());
        }
        if let Some(trouble) = serving.trouble() {
            bail!("{trouble}");
        }
        if is_shown {
            logs::show_live_line(&crate::live::fit(&serving.figures()?.line()));
        } else if logged.elapsed() >= LOG_EVERY {
            logged = Instant::now();
            let figures = serving.figures()?;
            if figures.calls() != calls {
                calls = figures.calls();
                tracing::info!("{}", figures.line());
            }
        }
    }
}

fn announce(options: &NfsOptions, serving: &Serving) -> Result<()> {
    notify::tell("READY=1");
    let figures = serving.figures()?;
    let addresses: Vec<SocketAddr> =
        figures.addresses.iter().filter_map(|address| address.parse().ok()).collect();
    let web: Vec<String> = figures
        .web
        .iter()
        .flat_map(|web| web.addresses.iter().map(|at| format!("http://{at}/")))
        .collect();
    let nfs = addresses.first().copied().unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)));
    let mount =
        addresses.get(1).filter(|address| address.port() != PORTMAP_PORT).copied().unwrap_or(nfs);
    let (port, mount_port) = (nfs.port(), mount.port());
    let host = if nfs.ip().is_unspecified() { "SERVER".to_owned() } else { nfs.ip().to_string() };
    let mounts: Vec<String> = figures
        .exports
        .iter()
        .map(|export| {
            let ports = format!("port={port},mountport={mount_port},mountproto=tcp");
            format!("mount -t nfs -o vers=3,proto=tcp,nolock,{ports} {host}:{export} /mnt")
        })
        .collect();
    if options.json {
        let line = serde_json::json!({
            "event": "serving", "name": figures.name, "pid": figures.pid, "unit": figures.unit,
            "exports": figures.exports, "policy": figures.policy, "device": figures.device,
            "addresses": figures.addresses, "admin": figures.admin, "mount": mounts, "http": web,
        });
        logs::print(&line.to_string());
        return Ok(());
    }
    let served: Vec<String> = figures.exports.iter().chain(&web).cloned().collect();
    logs::print(&format!("{} serves {} as {}", figures.name, figures.unit, served.join(", ")));
    mounts.iter().for_each(|line| logs::print(&format!("  {line}")));
    if let Some(export) = figures.exports.first() {
        logs::print(&format!(
            "  nfs-ls 'nfs://{host}{export}?nfsport={port}&mountport={mount_port}'"
        ));
    }
    if !figures.exports.is_empty()
        && !options.demo
        && !options.export.iter().any(ExportLine::is_for_others)
    {
        logs::print(
            "only this machine is let in: name clients, such as --export '/data 10.0.0.0/8(rw)'",
        );
    }
    if let Some(admin) = &figures.admin {
        logs::print(&format!("its figures are at http://{admin}/"));
    }
    Ok(())
}

fn list_targets(options: &NfsOptions, portals: &str) -> Result<ExitCode> {
    let credentials = credentials(options)?;
    let (own, target) = (credentials.own.as_ref(), credentials.target.as_ref());
    let found = discover(portals, own, target, &options.initiator, Duration::from_secs(10))?;
    if options.json {
        let targets: Vec<_> = found
            .iter()
            .map(|one| serde_json::json!({ "target": one.name, "portals": one.portals }))
            .collect();
        logs::print(&serde_json::json!({ "targets": targets }).to_string());
    } else if found.is_empty() {
        logs::print(&format!(
            "{portals} tells of no target; it may hide them from an initiator named {}",
            options.initiator
        ));
    }
    for one in found.iter().filter(|_| !options.json) {
        logs::print(&format!("iscsi://{}/{}/LUN", one.portals.join(","), one.name));
    }
    Ok(ExitCode::SUCCESS)
}
