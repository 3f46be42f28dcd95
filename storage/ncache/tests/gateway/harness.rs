//! A gateway without its front end.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nicache_device::{MountOptions, Mounted, Plain, Transport};
use nicache_filemap::{Wait, cached_pages, drop_pages, write_back};
use nicache_initiator::{BLOCK_BYTES, Lun, MemoryLun};
use nicache_ncache::{BlockServer, Cache, CacheOptions, Nicache};
use nicache_payload::{FileId, Payload, Stability};

pub(crate) const BLOCK: usize = BLOCK_BYTES;

/// Whether this machine cannot run it; says why.
pub(crate) fn skipped() -> bool {
    let missing = transport().missing();
    if let Some(missing) = missing {
        println!("skipped: there is no {missing}");
    }
    missing.is_some()
}

/// On which device: that of a guest of tools/kernels, or what there is.
fn transport() -> Transport {
    std::env::var("NICACHE_TEST_DEVICE")
        .map_or_else(|_| Transport::default(), |name| name.parse().unwrap())
}

pub(crate) fn mount_options(mkfs: bool) -> MountOptions {
    let mut supervisor = Command::new(std::env::current_exe().unwrap());
    supervisor
        .args(["supervisor_process", "--exact"])
        .env("NICACHE_SUPERVISOR", "1")
        .stdout(Stdio::null());
    MountOptions {
        mkfs,
        transport: transport(),
        threads: 4,
        supervisor,
        unmount_max: Duration::from_secs(60),
    }
}

pub(crate) struct Gateway {
    // Before the mount: it has descriptors of dirty files.
    pub nicache: Arc<Nicache>,
    pub cache: Arc<Cache>,
    pub mounted: Mounted,
}

impl Gateway {
    pub(crate) fn new(lun: Arc<dyn Lun>, options: CacheOptions, mkfs: bool) -> Self {
        let cache = Cache::new(lun, options).unwrap();
        let blocks = Arc::new(BlockServer::new(Arc::clone(&cache)));
        let mounted = Mounted::open(blocks, mount_options(mkfs)).unwrap();
        Self { nicache: Arc::new(Nicache::new(Arc::clone(&cache)).unwrap()), cache, mounted }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        path(&self.mounted, name)
    }

    /// Opens or makes a file.
    pub(crate) fn open(&self, name: &str) -> (File, FileId) {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.path(name))
            .unwrap();
        let id = id(&file);
        (file, id)
    }

    pub(crate) fn close(self) {
        let Self { nicache, mounted, .. } = self;
        drop(nicache);
        mounted.close().unwrap();
    }
}

pub(crate) fn path(mounted: &Mounted, name: &str) -> PathBuf {
    format!("/proc/self/fd/{}/{name}", mounted.root().as_raw_fd()).into()
}

pub(crate) fn id(file: &File) -> FileId {
    FileId {
        inode: file.metadata().unwrap().ino(),
        generation: nicache_filemap::generation(file).unwrap(),
    }
}

pub(crate) fn read(payload: &dyn Payload, file: &File, offset: u64, len: usize) -> Vec<u8> {
    payload.read(file, id(file), offset, len as u32).unwrap().concat()
}

pub(crate) fn write(payload: &dyn Payload, file: &File, offset: u64, data: &[u8]) {
    payload
        .write(file, id(file), offset, &[Bytes::copy_from_slice(data)], Stability::Unstable)
        .unwrap();
}

/// Bytes that say which file, version and place they are of: 8 bytes each.
pub(crate) fn pattern(file: u8, version: u16, offset: usize, len: usize) -> Vec<u8> {
    let word = |at: usize| {
        ((at as u64 / 8) << 24 | u64::from(version) << 8 | u64::from(file)).to_le_bytes()
    };
    (offset..offset + len).map(|at| word(at)[at % 8]).collect()
}

/// A length of any magnitude below 2 to the power of `bits_max`.
pub(crate) fn length(random: &mut fastrand::Rng, bits_max: u32) -> usize {
    let bits = random.u32(4..bits_max);
    random.usize(1..1 << bits)
}

/// A write's payload in the pieces in which a network may deliver it.
pub(crate) fn pieces(random: &mut fastrand::Rng, data: &[u8]) -> Vec<Bytes> {
    let whole = Bytes::copy_from_slice(data);
    match random.u32(0..3) {
        0 => vec![whole],
        1 => {
            let cut = random.usize(..=data.len());
            vec![whole.slice(..cut), whole.slice(cut..)]
        }
        _ => (0..data.len())
            .step_by(BLOCK * 2)
            .map(|at| whole.slice(at..data.len().min(at + BLOCK * 2)))
            .collect(),
    }
}

/// No block that could be read after some power cut has the tag anywhere (N1).
pub(crate) fn assert_no_tag(lun: &MemoryLun, cache: &Cache) {
    lun.scan(|at, block| {
        assert!(!has_tag(block, cache.keyring().tag()), "the tag is on the unit at {at}");
    });
}

/// What the kernel still writes back keeps a page for a moment.
pub(crate) fn drop_all_pages(file: &File) {
    for _ in 0..1000 {
        write_back(file, 0, 0, Wait::Yes).unwrap();
        drop_pages(file, 0, 0).unwrap();
        if cached_pages(file).is_ok_and(|pages| pages.cached == 0) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("pages stay: {:?}", cached_pages(file));
}

pub(crate) fn has_tag(bytes: &[u8], tag: &[u8]) -> bool {
    bytes.windows(tag.len()).any(|window| window == tag)
}

/// `e2fsck -fn` (N4).
pub(crate) fn assert_clean(image: &Path) {
    let output = Command::new("e2fsck").args(["-f", "-n"]).arg(image).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

pub(crate) fn assert_unit_clean(lun: &MemoryLun) {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    lun.save(&image).unwrap();
    assert_clean(&image);
}

/// Mounts what a power cut left, as any kernel would, and closes it again.
pub(crate) fn replayed(lun: &Arc<MemoryLun>, see: impl FnOnce(&Mounted)) {
    let mounted = Mounted::open(Arc::new(Plain(lun.clone())), mount_options(false)).unwrap();
    see(&mounted);
    mounted.close().unwrap();
    assert_unit_clean(lun);
}
