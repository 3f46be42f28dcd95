//! Which nicache this is: its number (interface `nicN`), its name, its /30 network, each of them
//! its own while it lives.
//!
//! Numbers and names are reserved by locked files in the run folder; a lock dies with its process,
//! so nothing stale can block.

use std::fs::{File, OpenOptions};
use std::net::Ipv4Addr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::FlockOperation;

use super::netlink::Netlink;
use super::preload_files;
use crate::control::run_folder;
use crate::options::Subnet;

const INSTANCES_MAX: u8 = 128;
/// Instance 0 tries 10.77.0.0/30 first.
const FIRST_NETWORK: u8 = 77;

/// Reservations of one running nicache. Dropping it gives them back.
#[derive(Debug)]
pub(crate) struct Instance {
    /// Name for `status` and the like.
    pub name: String,
    /// Name of the wire TAP.
    pub interface: String,
    /// Network between this machine and the server.
    pub subnet: Subnet,
    _number_lock: Lock,
    _name_lock: Option<Lock>,
}

impl Instance {
    /// Reserves a free number, the name and the network. `setting_up` is held until the interface
    /// has its address, so two that start together do not choose the same network.
    pub(crate) fn reserve(name: Option<&str>, subnet: Option<Subnet>) -> Result<(Self, Lock)> {
        let folder = run_folder();
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o755);
        builder
            .create(&folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let setting_up = Lock::wait(folder.join("setup.lock"))?;
        remove_leftovers(&folder);
        preload_files::remove_leftovers(|name| !folder.join(format!("{name}.lock")).exists());
        let netlink = Netlink::open()?;
        let name_lock = match name {
            None => None,
            Some(name) => match Lock::try_take(folder.join(format!("{name}.lock")))? {
                Some(lock) => Some(lock),
                None => bail!(
                    "a nicache named `{name}` is running already: choose another --name, or none"
                ),
            },
        };
        for number in 0..INSTANCES_MAX {
            let interface = format!("nic{number}");
            if netlink.index(&interface)?.is_some() || name == Some(&interface) {
                continue;
            }
            if let Some(lock) = Lock::try_take(folder.join(format!("{interface}.lock")))? {
                let subnet = choose_subnet(subnet, number)?;
                let name = name.map_or_else(|| interface.clone(), str::to_owned);
                let instance =
                    Self { name, interface, subnet, _number_lock: lock, _name_lock: name_lock };
                return Ok((instance, setting_up));
            }
        }
        bail!("{INSTANCES_MAX} nicaches run on this machine already")
    }

    /// Reserves one more number and network for a further card. The caller holds what
    /// [`reserve`](Instance::reserve) has given.
    pub(crate) fn reserve_another() -> Result<Self> {
        let (folder, netlink) = (run_folder(), Netlink::open()?);
        for number in 0..INSTANCES_MAX {
            let interface = format!("nic{number}");
            if netlink.index(&interface)?.is_none()
                && let Some(lock) = Lock::try_take(folder.join(format!("{interface}.lock")))?
            {
                let subnet = choose_subnet(None, number)?;
                return Ok(Self {
                    name: interface.clone(),
                    interface,
                    subnet,
                    _number_lock: lock,
                    _name_lock: None,
                });
            }
        }
        bail!("{INSTANCES_MAX} nicaches run on this machine already")
    }

    /// Path of the control socket.
    pub(crate) fn socket_path(&self) -> PathBuf {
        run_folder().join(format!("{}.sock", self.name))
    }
}

/// The name of a running nicache that has no interface. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Name {
    /// Name for `status` and the like.
    pub name: String,
    _lock: Lock,
}

impl Name {
    /// Reserves a name, or the first free one of a family: nfs0, nfs1, ...
    pub(crate) fn reserve(name: Option<&str>, family: &str) -> Result<Self> {
        let folder = run_folder();
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o755);
        builder
            .create(&folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let _setting_up = Lock::wait(folder.join("setup.lock"))?;
        remove_leftovers(&folder);
        let names: Vec<String> = match name {
            Some(name) if name.contains('/') || name.is_empty() => {
                bail!("`{name}` is not a name: choose one without /")
            }
            Some(name) => vec![name.to_owned()],
            None => (0..INSTANCES_MAX).map(|number| format!("{family}{number}")).collect(),
        };
        for name in names {
            if let Some(lock) = Lock::try_take(folder.join(format!("{name}.lock")))? {
                return Ok(Self { name, _lock: lock });
            }
        }
        match name {
            Some(name) => {
                bail!("a nicache named `{name}` is running already: choose another --name, or none")
            }
            None => bail!("{INSTANCES_MAX} nicaches run on this machine already"),
        }
    }

    /// Path of the control socket.
    pub(crate) fn socket_path(&self) -> PathBuf {
        run_folder().join(format!("{}.sock", self.name))
    }
}

/// A file locked by this process, removed at the end.
#[derive(Debug)]
pub(crate) struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    fn try_take(path: PathBuf) -> Result<Option<Self>> {
        Self::take(path, FlockOperation::NonBlockingLockExclusive)
    }

    fn wait(path: PathBuf) -> Result<Self> {
        let taken = Self::take(path, FlockOperation::LockExclusive)?;
        taken.context("a lock was not granted")
    }

    fn take(path: PathBuf, how: FlockOperation) -> Result<Option<Self>> {
        loop {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let file =
                options.open(&path).with_context(|| format!("cannot open {}", path.display()))?;
            match rustix::fs::flock(&file, how) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            // The one that held it may have removed it meanwhile; then the lock is on a file that
            // nobody else can find.
            if same_file(&file, &path) {
                return Ok(Some(Self { path, _file: file }));
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Removes locks and sockets of nicaches that were killed: those whose lock nobody holds.
fn remove_leftovers(folder: &Path) {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in files.filter(|path| path.extension().is_some_and(|extension| extension == "lock")) {
        if let Ok(Some(lock)) = Lock::try_take(path.clone()) {
            let _ = std::fs::remove_file(path.with_extension("sock"));
            drop(lock);
        }
    }
}

fn same_file(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(named)) = (file.metadata(), std::fs::metadata(path)) else {
        return false;
    };
    (open.dev(), open.ino()) == (named.dev(), named.ino())
}

fn choose_subnet(wanted: Option<Subnet>, number: u8) -> Result<Subnet> {
    let table = std::fs::read_to_string("/proc/thread-self/net/route")
        .context("cannot read the routing table")?;
    let taken = routes(&table);
    if let Some(subnet) = wanted {
        if let Some(route) = taken.iter().find(|route| route.overlaps(subnet)) {
            bail!(
                "the subnet {subnet} is taken: {}/{} is routed to {}; omit --subnet to get a free one",
                route.network,
                route.prefix,
                route.interface
            );
        }
        return Ok(subnet);
    }
    let candidates = (0..=u8::MAX)
        .map(|offset| Subnet::ten(FIRST_NETWORK.wrapping_add(number).wrapping_add(offset)));
    let free =
        candidates.into_iter().find(|subnet| !taken.iter().any(|route| route.overlaps(*subnet)));
    free.context("all of 10.0.0.0/8 is in use on this machine: choose a free network with --subnet A.B.C.D/30")
}

#[derive(Debug, PartialEq)]
struct Route {
    network: Ipv4Addr,
    prefix: u32,
    interface: String,
}

impl Route {
    fn overlaps(&self, subnet: Subnet) -> bool {
        let prefix = self.prefix.min(u32::from(Subnet::PREFIX));
        let mask = u32::MAX << (32 - prefix);
        u32::from(self.network) & mask == u32::from(subnet.network()) & mask
    }
}

/// Routes of `/proc/net/route` but the default route. Addresses there are hexadecimal in network
/// byte order read as a native integer.
fn routes(table: &str) -> Vec<Route> {
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let address = |text: &str| {
            u32::from_str_radix(text, 16).ok().map(|value| Ipv4Addr::from(value.to_ne_bytes()))
        };
        let mask = address(fields.get(7)?)?;
        let prefix = u32::from(mask).leading_ones();
        let network = address(fields.get(1)?)?;
        (prefix > 0).then(|| Route { network, prefix, interface: fields[0].to_owned() })
    };
    table.lines().skip(1).filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str =
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
nic0\t00004D0A\t00000000\t0001\t0\t0\t0\tFCFFFFFF\t0\t0\t0
";

    #[test]
    #[cfg(target_endian = "little")]
    fn overlaps_are_found() {
        let routes = routes(TABLE);
        assert_eq!(routes.len(), 2);
        assert_eq!(
            routes[1],
            Route { network: Ipv4Addr::new(10, 77, 0, 0), prefix: 30, interface: "nic0".into() }
        );
        let hit = |text: &str| routes.iter().any(|route| route.overlaps(text.parse().unwrap()));
        assert!(hit("10.77.0.0/30") && hit("192.168.0.128/30"));
        assert!(!hit("10.78.0.0/30") && !hit("10.77.0.4/30") && !hit("192.168.1.0/30"));
    }

    #[test]
    fn only_the_dead_are_tidied_away() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        for name in ["dead.lock", "dead.sock", "live.sock", "other"] {
            std::fs::write(file(name), "").unwrap();
        }
        let _live = Lock::try_take(file("live.lock")).unwrap().unwrap();
        remove_leftovers(folder.path());
        let left = |name: &str| file(name).exists();
        assert!(!left("dead.lock") && !left("dead.sock"));
        assert!(left("live.lock") && left("live.sock") && left("other"));
    }

    #[test]
    fn a_lock_is_exclusive_and_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.lock");
        let first = Lock::try_take(path.clone()).unwrap().unwrap();
        assert!(Lock::try_take(path.clone()).unwrap().is_none());
        drop(first);
        assert!(!path.exists());
        assert!(Lock::try_take(path).unwrap().is_some());
    }
}
