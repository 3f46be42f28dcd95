//! Starting a gateway, looking after it, and ending it, each in the right order.
//!
//! The front end's files keep the file system mounted, and the cache's handle has files that are
//! dirty; so the front end ends first, then the payload's way, then the mount, and the session with
//! the target last.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nicache_device::{DeviceError, MountOptions, Mounted, Transport};
use nicache_initiator::Lun;
use nicache_ncache::{Baseline, BlockServer, Cache, CacheOptions, Nicache, Original};
use nicache_nfs::portmap::{self, Mapping};
use nicache_nfs::protocol::PORTMAP;
use nicache_nfs::{
    ExportConfig, ExportError, HandleKey, PauseLimits, Server, ServerConfig, ServerError,
};
use nicache_payload::Payload;
use nicache_web::{Revised, WebConfig, WebError, WebServer};
use rustix::fs::{Mode, OFlags, ResolveFlags, StatVfsMountFlags, openat2};
use thiserror::Error;

use crate::copy_mode::CopyMode;
use crate::export_line::ExportLine;
use crate::figures::{Figures, WebFigures, block_bytes};
use crate::file_report::FileReporter;
use crate::metered::Metered;
use crate::web_line::WebLine;

/// Threads that answer the device. They wait for the target, each with one request.
const DEVICE_THREADS: usize = 4;
/// How long the last writes may take.
const UNMOUNT_MAX: Duration = Duration::from_secs(60);
/// A reply by HTTP refers to this part of the cache at once, so slow clients together have a
/// quarter of it.
const WEB_PIECES: u64 = 1024;
/// Replies by NFS that clients have not taken may be this part of the cache.
const UNSENT_PARTS: usize = 4;

/// What a gateway is made of.
pub struct GatewayConfig {
    /// Where the bytes are kept.
    pub lun: Arc<dyn Lun>,
    /// Makes a file system first, if the unit is empty. If it is not, nothing is touched.
    pub mkfs: bool,
    /// Which block device the file system is on.
    pub transport: Transport,
    /// The program that calls `nicache_device::supervise` and nothing else.
    pub supervisor: Command,
    /// What is exported. Nothing: NFS is not served.
    pub exports: Vec<ExportLine>,
    /// What is served by HTTP.
    pub web: Vec<WebLine>,
    /// How payload travels.
    pub copy: CopyMode,
    /// Payload in memory: cached, dirty, and on its way to clients.
    pub cache: CacheOptions,
    /// Where NFS and MOUNT are served over TCP: both at the first address; if there is a second
    /// one, clients are told that for MOUNT.
    pub listen: Vec<SocketAddr>,
    /// Where the port mapper is served over UDP, too.
    pub portmap_udp: Option<SocketAddr>,
    /// A port mapper that runs already, which is told where NFS and MOUNT are.
    pub register: Option<SocketAddr>,
    /// Threads that execute requests.
    pub workers: usize,
    /// What file handles are proven with.
    pub handle_key: HandleKey,
}

/// A gateway does not start, or does not end in order.
#[derive(Debug, Error)]
pub enum GatewayError {
    /// There is no memory, or no randomness for keys.
    #[error("the cache cannot be made: {0}")]
    Cache(io::Error),
    /// The unit cannot be mounted, or not be unmounted.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A folder of the unit cannot be served.
    #[error(
        "cannot export the folder {folder} of the unit as {name}: {error}; export the whole unit first and make the folder there"
    )]
    Folder {
        /// The export.
        name: String,
        /// The folder.
        folder: String,
        /// Why the folder cannot be exported.
        error: io::Error,
    },
    /// Kernels before 6.15 cannot.
    #[error(
        "cannot export the folder {folder} of the unit as {name}: this kernel copies no private mount (Linux 6.15 does); export the whole unit"
    )]
    FolderUnsupported {
        /// The export.
        name: String,
        /// The folder.
        folder: String,
    },
    /// The front end does not start.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// HTTP is not served.
    #[error(transparent)]
    Web(#[from] WebError),
    /// The port mapper does not take the programs.
    #[error("cannot register with the port mapper at {address}: {error}")]
    Register {
        /// Where it is.
        address: SocketAddr,
        /// Why the programs were not registered.
        error: io::Error,
    },
}

/// A gateway that runs. End it with [`close`](Gateway::close); dropping it does the same and tells
/// nobody about errors.
pub struct Gateway {
    // In the order in which they end.
    server: Option<Server>,
    web: Vec<WebServer>,
    payload: Option<Arc<Revised>>,
    mounted: Option<Mounted>,
    cache: Arc<Cache>,
    metered: Arc<Metered>,
    copy: CopyMode,
    cache_bytes_max: u64,
    policy: String,
    /// What clients mount, and the folder of the unit that it is.
    exports: Vec<(String, PathBuf)>,
    registered: Option<(SocketAddr, Vec<Mapping>)>,
    errors_before: Option<u64>,
    started: Instant,
}

impl Gateway {
    /// Mounts the unit privately and serves it.
    pub fn start(config: GatewayConfig) -> Result<Self, GatewayError> {
        let metered = Arc::new(Metered::new(config.lun));
        let cache_bytes_max = config.cache.bytes_max as u64;
        let policy = config.cache.policy.to_string();
        let lun: Arc<dyn Lun> = metered.clone();
        let cache = Cache::new(lun, config.cache).map_err(GatewayError::Cache)?;
        let blocks = Arc::new(BlockServer::new(Arc::clone(&cache)));
        let options = MountOptions {
            mkfs: config.mkfs,
            transport: config.transport,
            threads: DEVICE_THREADS,
            supervisor: config.supervisor,
            unmount_max: UNMOUNT_MAX,
        };
        let mounted = Mounted::open(blocks, options)?;
        let payload: Arc<dyn Payload> = match config.copy {
            CopyMode::Original => Arc::new(Original::new(Arc::clone(&cache))),
            CopyMode::Nicache => {
                Arc::new(Nicache::new(Arc::clone(&cache)).map_err(GatewayError::Cache)?)
            }
            CopyMode::Baseline => Arc::new(Baseline::new(Arc::clone(&cache))),
        };
        let payload = Arc::new(Revised::new(payload));
        let errors_before = errors_of_file_system(mounted.device());
        let mut gateway = Self {
            server: None,
            web: Vec::new(),
            payload: Some(Arc::clone(&payload)),
            mounted: Some(mounted),
            cache,
            metered,
            copy: config.copy,
            cache_bytes_max,
            policy,
            exports: config
                .exports
                .iter()
                .map(|export| (export.name.clone(), export.folder.clone()))
                .collect(),
            registered: None,
            errors_before,
            started: Instant::now(),
        };
        if !config.exports.is_empty() {
            let served: Arc<dyn Payload> = payload.clone();
            gateway.serve(
                config.exports,
                config.listen,
                config.portmap_udp,
                config.workers,
                config.handle_key,
                served,
            )?;
        }
        for line in config.web {
            gateway.serve_web(&line, Arc::clone(&payload))?;
        }
        if let Some(address) = config.register {
            let programs = gateway.mappings().iter().filter(|mapping| mapping.program != PORTMAP);
            let programs: Vec<Mapping> = programs.copied().collect();
            portmap::register(address, &programs)
                .map_err(|error| GatewayError::Register { address, error })?;
            gateway.registered = Some((address, programs));
        }
        Ok(gateway)
    }

    fn serve(
        &mut self,
        lines: Vec<ExportLine>,
        listen: Vec<SocketAddr>,
        portmap_udp: Option<SocketAddr>,
        workers: usize,
        handle_key: HandleKey,
        payload: Arc<dyn Payload>,
    ) -> Result<(), GatewayError> {
        let Some(mounted) = &self.mounted else { return Ok(()) };
        // Open until the server has them.
        let mut folders: Vec<OwnedFd> = Vec::new();
        let mut exports = Vec::new();
        for line in &lines {
            let folder = if line.folder.as_os_str().is_empty() {
                mounted.root().as_raw_fd()
            } else {
                let folder =
                    open_below(mounted, &line.folder).map_err(|error| GatewayError::Folder {
                        name: line.name.clone(),
                        folder: line.folder.display().to_string(),
                        error,
                    })?;
                folders.push(folder);
                folders.last().map_or(-1, rustix::fd::AsRawFd::as_raw_fd)
            };
            exports.push(ExportConfig {
                name: line.name.clone(),
                path: format!("/proc/self/fd/{folder}").into(),
                is_detached_root: line.folder.as_os_str().is_empty(),
                clients: line.clients.clone(),
                is_sync: line.is_sync,
            });
        }
        let first =
            listen.first().copied().unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 2049)));
        let config = ServerConfig::new(exports, first, handle_key);
        let unsent_bytes_all_max = self.cache_bytes_max as usize / UNSENT_PARTS;
        let pause = PauseLimits { unsent_bytes_all_max, ..config.pause };
        let config = ServerConfig {
            pause,
            listen: if listen.is_empty() { vec![first] } else { listen },
            listen_portmap_udp: portmap_udp,
            workers,
            ..config
        };
        let server = Server::start(config, payload).map_err(|error| match error {
            ServerError::Export(ExportError::Open { path, error })
                if error.kind() == io::ErrorKind::InvalidInput =>
            {
                let of = |line: &&ExportLine| !line.folder.as_os_str().is_empty();
                match lines.iter().find(of) {
                    Some(line) => GatewayError::FolderUnsupported {
                        name: line.name.clone(),
                        folder: line.folder.display().to_string(),
                    },
                    None => ServerError::Export(ExportError::Open { path, error }).into(),
                }
            }
            error => error.into(),
        })?;
        self.server = Some(server);
        Ok(())
    }

    fn serve_web(&mut self, line: &WebLine, payload: Arc<Revised>) -> Result<(), GatewayError> {
        let Some(mounted) = &self.mounted else { return Ok(()) };
        let folder =
            if line.folder.as_os_str().is_empty() { Path::new(".") } else { line.folder.as_path() };
        let root = open_below(mounted, folder).map_err(|error| GatewayError::Folder {
            name: format!("http://{}/", line.listen),
            folder: line.folder.display().to_string(),
            error,
        })?;
        let piece_bytes = u32::try_from(self.cache_bytes_max / WEB_PIECES)
            .unwrap_or(u32::MAX)
            .clamp(64 << 10, 1 << 20);
        self.web.push(WebServer::start(WebConfig {
            listen: line.listen,
            root,
            payload,
            piece_bytes,
        })?);
        Ok(())
    }

    /// Where HTTP is served, in the order of the configuration.
    pub fn web_addresses(&self) -> Vec<SocketAddr> {
        self.web.iter().map(WebServer::address).collect()
    }

    /// Where it listens, in the order of the configuration.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.server.as_ref().map_or(Vec::new(), |server| server.addresses().to_vec())
    }

    fn mappings(&self) -> &[Mapping] {
        self.server.as_ref().map_or(&[], Server::mappings)
    }

    /// The process that owns device and mount.
    pub fn supervisor_id(&self) -> u32 {
        self.mounted.as_ref().map_or(0, Mounted::supervisor_id)
    }

    /// The cache, for those who look for tags where none must be, and for measurements.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Why the gateway should end, if it should: it can serve, and yet nobody could rely on it. Ask
    /// about once a second.
    pub fn trouble(&self) -> Option<String> {
        if let Some(lost) = self.metered.lost_reason() {
            return Some(lost);
        }
        let mounted = self.mounted.as_ref()?;
        if !mounted.is_supervised() {
            return Some("the process that owns the mount has ended".to_owned());
        }
        let is_read_only = rustix::fs::fstatvfs(mounted.root())
            .is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY));
        // Newer kernels stop writing and say so nowhere else.
        let has_errors = errors_of_file_system(mounted.device()) > self.errors_before;
        (is_read_only || has_errors).then(|| {
            format!(
                "the kernel found errors in the file system of {} and writes to it no longer: see the kernel's log, stop, and run e2fsck on the unit",
                self.cache.lun().name()
            )
        })
    }

    /// What it did and holds. Names and processes are the caller's to fill in.
    pub fn figures(&self) -> Figures {
        let cache = self.cache.figures();
        let mut figures = Figures {
            uptime_s: self.started.elapsed().as_secs(),
            unit: self.cache.lun().name().to_owned(),
            exports: self.exports.iter().map(|(name, _)| name.clone()).collect(),
            addresses: self.addresses().iter().map(ToString::to_string).collect(),
            copy: self.copy,
            trouble: self.trouble(),
            hits_fho: cache.hits_fho,
            hits_lbn: cache.hits_lbn,
            misses: cache.misses,
            remapped: cache.remapped,
            evicted: cache.evicted,
            declined: cache.declined,
            policy: self.policy.clone(),
            device: self
                .mounted
                .as_ref()
                .map_or_else(String::new, |mounted| mounted.device().to_owned()),
            dirty_bytes: block_bytes(cache.dirty_chunks),
            cache_bytes: cache.bytes as u64,
            cache_bytes_max: self.cache_bytes_max,
            refused_keys: cache.refused_keys,
            unit_commands: self.metered.figures(),
            ..Figures::default()
        };
        for server in &self.web {
            let web = figures.web.get_or_insert_with(WebFigures::default);
            web.addresses.push(server.address().to_string());
            web.counters.add(&server.counters());
        }
        if let Some(server) = &self.server {
            let (metrics, sizes) = (server.metrics(), server.sizes());
            figures.connections = sizes.connections as u64;
            figures.open_files = sizes.open_files as u64;
            figures.set_copies(self.cache.copies(), metrics.copied_bytes);
            figures.set_operations(&metrics);
        }
        figures
    }

    /// What tells of files, apart from the gateway: that waits for the unit, and nobody who needs
    /// the gateway has to wait, too.
    pub fn reporter(&self) -> io::Result<FileReporter> {
        let ended = || io::Error::other("the gateway has ended");
        let root = self.mounted.as_ref().ok_or_else(ended)?.root().try_clone_to_owned()?;
        let (exports, cache) = (self.exports.clone(), Arc::clone(&self.cache));
        Ok(FileReporter { root, exports, cache, copy: self.copy })
    }

    /// Ends it: requests that are under way are executed, everything is written and durable, the
    /// mount is gone. Or this says what is not so.
    pub fn close(mut self) -> Result<(), GatewayError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), GatewayError> {
        if let Some((address, programs)) = self.registered.take()
            && let Err(error) = portmap::unregister(address, &programs)
        {
            tracing::warn!("the port mapper at {address} still has this server: {error}");
        }
        self.server = None;
        self.web.clear();
        self.payload = None;
        self.mounted.take().map_or(Ok(()), |mounted| Ok(mounted.close()?))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!("{error}");
        }
    }
}

/// A folder of the unit. Links are not followed: clients make them, and they would lead into this
/// machine's own files.
fn open_below(mounted: &Mounted, folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    Ok(openat2(mounted.root().as_fd(), folder, flags, Mode::empty(), resolve)?)
}

/// How many errors ext4 has counted on a device in all its life.
fn errors_of_file_system(device: &str) -> Option<u64> {
    let name = Path::new(device).file_name()?.to_str()?;
    std::fs::read_to_string(format!("/sys/fs/ext4/{name}/errors_count")).ok()?.trim().parse().ok()
}
