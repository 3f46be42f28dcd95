//! A target, a gateway on its unit, and clients, all in the target's network.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nicache_device::Transport;
use nicache_gateway::{CopyMode, Gateway, GatewayConfig, Metered};
use nicache_initiator::{IscsiLun, IscsiOptions, Lun};
use nicache_ncache::CacheOptions;
use nicache_nfs::HandleKey;
use nicache_nfs::caller::{Caller, User};
use nicache_target::{Target, TargetOptions};

pub(crate) const UNIT_BYTES: u64 = 256 << 20;

/// Whether this machine cannot run it; says why.
pub(crate) fn skipped() -> bool {
    let missing = nicache_gateway::Demo::missing();
    if let Some(missing) = missing {
        println!("skipped: there is no {missing}");
    }
    missing.is_some()
}

/// A target over a sparse file. The thread is in its network from here on.
pub(crate) struct Unit {
    pub target: Target,
    pub image: PathBuf,
    _folder: tempfile::TempDir,
}

impl Unit {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("unit");
        File::create(&image).unwrap().set_len(UNIT_BYTES).unwrap();
        let target = Target::start(&image, &TargetOptions::default()).unwrap();
        target.enter().unwrap();
        Self { target, image, _folder: folder }
    }

    /// `e2fsck -fn` (N4), and no tag in any block (N1).
    pub(crate) fn assert_clean(&self, tag: Option<&[u8]>) {
        let output = Command::new("e2fsck").args(["-f", "-n"]).arg(&self.image).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let Some(tag) = tag else { return };
        // Only what is allocated: the image is sparse.
        let file = File::open(&self.image).unwrap();
        for extent in nicache_filemap::extents(&file, 0, u64::MAX, true).unwrap() {
            let mut bytes =
                vec![0; UNIT_BYTES.saturating_sub(extent.offset).min(extent.bytes) as usize];
            file.read_exact_at(&mut bytes, extent.offset).unwrap();
            assert!(
                !bytes.chunks(512).any(|sector| sector.starts_with(tag)),
                "the tag is on the unit"
            );
        }
    }
}

pub(crate) fn config(url: &str, copy: CopyMode, mkfs: bool, exports: &[&str]) -> GatewayConfig {
    let lun: Arc<dyn Lun> =
        Arc::new(IscsiLun::open(&url.parse().unwrap(), &IscsiOptions::default()).unwrap());
    config_for(lun, copy, mkfs, exports)
}

pub(crate) fn config_for(
    lun: Arc<dyn Lun>,
    copy: CopyMode,
    mkfs: bool,
    exports: &[&str],
) -> GatewayConfig {
    let mut supervisor = Command::new(std::env::current_exe().unwrap());
    supervisor
        .args(["supervisor_process", "--exact"])
        .env("NICACHE_SUPERVISOR", "1")
        .stdout(Stdio::null());
    GatewayConfig {
        lun: Arc::new(Metered::new(lun)),
        mkfs,
        supervisor,
        exports: exports.iter().map(|line| line.parse().unwrap()).collect(),
        web: Vec::new(),
        copy,
        transport: Transport::default(),
        cache: CacheOptions::default(),
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        portmap_udp: None,
        register: None,
        workers: 4,
        handle_key: HandleKey::new([7; 32]),
    }
}

pub(crate) const OPEN: &str = "/data *(rw,no_root_squash,insecure)";

pub(crate) fn start(url: &str, copy: CopyMode, mkfs: bool) -> Gateway {
    Gateway::start(config(url, copy, mkfs, &[OPEN])).unwrap()
}

pub(crate) fn caller(address: SocketAddr) -> Caller {
    Caller::connect(address, User::default(), Duration::from_secs(120)).unwrap()
}

/// What a program of libnfs prints; it must succeed.
pub(crate) fn libnfs(
    program: &str,
    gateway: SocketAddr,
    path: &str,
    other: Option<&Path>,
    is_to: bool,
) -> Vec<u8> {
    let port = gateway.port();
    let url = format!("nfs://127.0.0.1{path}?nfsport={port}&mountport={port}");
    let mut command = Command::new(program);
    match other {
        Some(other) if is_to => command.arg(other).arg(url),
        Some(other) => {
            // It makes files and opens none.
            let _ = std::fs::remove_file(other);
            command.arg(url).arg(other)
        }
        None => command.arg(url),
    };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Bytes that say which file, version and place they are of: 8 bytes each.
pub(crate) fn pattern(file: u32, version: u16, len: usize) -> Vec<u8> {
    let word = |at: usize| {
        ((at as u64 / 8) << 40 | u64::from(version) << 24 | u64::from(file)).to_le_bytes()
    };
    (0..len).map(|at| word(at)[at % 8]).collect()
}

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
