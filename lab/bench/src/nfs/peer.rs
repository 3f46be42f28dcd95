//! NFS-Ganesha (FSAL_VFS) on a unit: the same device and the same private mount as nicache's,
//! without keys and without its cache.
//!
//! A process of its own, in a mount namespace of its own: Ganesha looks for its export in the mount
//! table, and its port mapper (rpcbind) keeps files in /run.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nicache_device::{MountOptions, Mounted, Plain, Transport};
use nicache_initiator::{IscsiLun, IscsiOptions, Lun};
use rustix::fs::CWD;
use rustix::mount::{MountFlags, MoveMountFlags, UnmountFlags, mount, move_mount, unmount};
use rustix::process::{Pid, Signal, kill_process};

/// Where NFS is.
pub const NFS_PORT: u16 = 20_490;
/// Where MOUNT is.
pub const MOUNT_PORT: u16 = 20_491;
const PATIENCE: Duration = Duration::from_secs(60);

/// What is missing on this machine, if anything.
pub fn missing() -> Option<&'static str> {
    let programs = ["ganesha.nfsd", "rpcbind"];
    let folders = ["/usr/bin", "/usr/sbin", "/sbin"];
    programs
        .into_iter()
        .find(|program| !folders.iter().any(|folder| Path::new(folder).join(program).exists()))
}

/// Serves until standard input ends. `folder` is for configuration and logs; `nicache` is the
/// program that owns the mount.
///
/// # Errors
/// The unit cannot be mounted, or Ganesha does not serve.
pub fn serve(url: &str, folder: &Path, nicache: &Path) -> Result<()> {
    mount("tmpfs", "/run", "tmpfs", MountFlags::empty(), None).context("/run")?;
    let point = Path::new("/run/export");
    for folder in [point, Path::new("/run/ganesha"), Path::new("/run/rpcbind")] {
        fs::create_dir(folder)?;
    }
    let lun: Arc<dyn Lun> = Arc::new(IscsiLun::open(&url.parse()?, &IscsiOptions::default())?);
    let mut supervisor = Command::new(nicache);
    supervisor.arg("mount-owner").stdout(Stdio::null());
    let options = MountOptions {
        mkfs: false,
        threads: 4,
        transport: Transport::default(),
        supervisor,
        unmount_max: PATIENCE,
    };
    let mounted = Mounted::open(Arc::new(Plain(lun)), options)?;
    move_mount(mounted.root(), "", CWD, point, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .context("cannot mount the unit")?;
    let served = with_ganesha(folder, point);
    // The supervisor has the mount open, so it is busy; it goes with the supervisor, below.
    unmount(point, UnmountFlags::DETACH).context("cannot unmount the unit")?;
    mounted.close()?;
    served
}

fn with_ganesha(folder: &Path, point: &Path) -> Result<()> {
    let configuration = folder.join("ganesha.conf");
    fs::write(
        &configuration,
        format!(
            "NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = {NFS_PORT}; MNT_Port = {MOUNT_PORT}; Enable_NLM = false; Enable_RQUOTA = false; \
             mount_path_pseudo = true; }}\nEXPORT {{ Export_Id = 1; Path = {}; Pseudo = /data; Access_Type = RW; Squash = No_Root_Squash; \
             SecType = sys; Protocols = 3; Transports = TCP; FSAL {{ Name = VFS; }} }}\nLOG {{ Default_Log_Level = WARN; }}\n",
            point.display()
        ),
    )?;
    let mut rpcbind = quiet("rpcbind").arg("-f").spawn().context("cannot start rpcbind")?;
    let ended =
        wait_for(SocketAddr::from((Ipv4Addr::LOCALHOST, 111)), &mut rpcbind).and_then(|()| {
            let mut ganesha = quiet("ganesha.nfsd");
            ganesha
                .args(["-F", "-p", "/run/ganesha.pid", "-f"])
                .arg(&configuration)
                .arg("-L")
                .arg(folder.join("ganesha.log"));
            let mut ganesha = ganesha.spawn().context("cannot start ganesha.nfsd")?;
            let served = wait_for(SocketAddr::from((Ipv4Addr::LOCALHOST, NFS_PORT)), &mut ganesha)
                .and_then(|()| {
                    println!("ready {}", ganesha.id());
                    std::io::stdout().flush()?;
                    std::io::stdin().read_exact(&mut [0]).or(Ok(()))
                });
            end(&mut ganesha, Signal::TERM)?;
            served
        });
    end(&mut rpcbind, Signal::TERM)?;
    ended
}

fn quiet(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", program])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn wait_for(address: SocketAddr, child: &mut Child) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(address).is_err() {
        if child.try_wait()?.is_some() || Instant::now() > deadline {
            bail!("nobody listens at {address}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn end(child: &mut Child, signal: Signal) -> Result<()> {
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        let _ = kill_process(pid, signal);
    }
    let deadline = Instant::now() + PATIENCE / 2;
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            child.kill()?;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
