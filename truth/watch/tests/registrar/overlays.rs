//! Files on overlays, as servers in containers have them.

use std::ffi::{CString, c_void};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use nicache_coherence::{RefusalReason, Reinstatement, SourceSet, SourceSlot, Stamp, Verdict};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::common::{directory_on_ext4, slot};
use crate::fills::{set_list, set_list_by_path, set_list_by_uring};
use crate::ground::mount_own;
use crate::scene::{Scene, assert_refused, assert_stored};

/// Bytes of a mapping.
const MAPPED: usize = 5;

/// An overlay with two lower layers, below a directory that this thread alone sees.
struct Overlay {
    lower: PathBuf,
    middle: PathBuf,
    upper: PathBuf,
    merged: PathBuf,
}

impl Overlay {
    fn new(ground: &Path, more: &str) -> Self {
        let [lower, middle, upper, work, merged] =
            ["lo:wer", "middle", "upper", "work", "merged"].map(|name| ground.join(name));
        for folder in [&lower, &middle, &upper, &work, &merged] {
            fs::create_dir(folder).unwrap();
        }
        let escaped = lower.to_str().unwrap().replace(':', "\\:");
        let options = format!(
            "lowerdir={}:{escaped},upperdir={},workdir={}{more}",
            middle.display(),
            upper.display(),
            work.display()
        );
        let options = CString::new(options).unwrap();
        mount("overlay", &merged, "overlay", MountFlags::empty(), Some(options.as_c_str()))
            .unwrap();
        Self { lower, middle, upper, merged }
    }
}

fn on(kind: &'static str, more: &'static str, test: impl FnOnce(&Overlay) + Send + 'static) {
    std::thread::spawn(move || {
        let root = directory_on_ext4();
        let ground = root.path().join("ground");
        fs::create_dir(&ground).unwrap();
        mount_own(kind, &ground);
        test(&Overlay::new(&ground, more));
    })
    .join()
    .unwrap();
}

fn kinds() -> Vec<&'static str> {
    let watcher = crate::common::load(0).unwrap();
    let coverage = watcher.coverage();
    let kinds = [
        ("ext4", coverage.ext4),
        ("xfs", coverage.xfs),
        ("btrfs", coverage.btrfs),
        ("tmpfs", coverage.tmpfs),
    ];
    kinds.into_iter().filter(|(_, is_watched)| *is_watched).map(|(kind, _)| kind).collect()
}

/// Maps a file to store to its first bytes.
fn map(path: &Path) -> *mut c_void {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let access = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
    let shared = rustix::mm::MapFlags::SHARED;
    // SAFETY: a mapping of our own, where the kernel has room for it.
    unsafe { rustix::mm::mmap(std::ptr::null_mut(), MAPPED, access, shared, file, 0).unwrap() }
}

fn unmap(memory: *mut c_void) {
    // SAFETY: it comes from `map`, and nobody uses it any longer.
    unsafe { rustix::mm::munmap(memory, MAPPED) }.unwrap();
}

impl Scene {
    /// What the server in a container has at this path, whose root is `root`.
    fn fill_inside(&mut self, root: &Path, path: &'static str) -> Verdict {
        let modified =
            fs::metadata(root.join(path.trim_start_matches('/'))).unwrap().mtime() as u64;
        self.settled(|scene| {
            let forwarded = scene.forward();
            let body = scene.serve(Path::new(path));
            scene.judge(&forwarded, &body, Some(modified))
        })
    }
}

#[test]
fn a_server_in_a_container_is_followed_into_the_layers() {
    for kind in kinds() {
        on(kind, "", move |overlay| {
            let mut scene = Scene::new();
            let root = overlay.merged.clone();
            scene.server.run(move || {
                // SAFETY: this thread alone gets a root and a mount namespace of its own; it holds
                // no files.
                unsafe {
                    let apart =
                        rustix::thread::UnshareFlags::FS | rustix::thread::UnshareFlags::NEWNS;
                    rustix::thread::unshare_unsafe(apart).unwrap();
                }
                std::os::unix::fs::chroot(&root).unwrap();
                std::env::set_current_dir("/").unwrap();
            });
            let (below, above) = (overlay.lower.join("site/page"), overlay.upper.join("site/page"));
            fs::create_dir_all(below.parent().unwrap()).unwrap();
            fs::create_dir(overlay.middle.join("site")).unwrap();
            fs::write(&below, "hello").unwrap();
            let verdict = scene.fill_inside(&overlay.merged, "/site/page");
            assert_stored(
                &verdict,
                &[slot(&below), slot(&overlay.middle.join("site")), slot(&overlay.upper)],
            );
            // Written, it is another file.
            fs::write(overlay.merged.join("site/page"), "HELLO").unwrap();
            let verdict = scene.fill_inside(&overlay.merged, "/site/page");
            assert_stored(&verdict, &[slot(&above), slot(above.parent().unwrap())]);
            // An overlay's mapping is of the layer's file, and nothing else has changed.
            let written = overlay.merged.join("site/page");
            let everything = SourceSlot::EVERYTHING;
            // Another test may change everything at the same moment.
            let is_told = (0..50).any(|_| {
                let since = scene.table.advance_clock();
                unmap(map(&written));
                assert!(!scene.table.is_unchanged(&[slot(&above)], since));
                scene.table.is_unchanged(&[everything], since)
            });
            assert!(is_told, "{kind}");
            let memory = map(&written);
            assert_refused(
                &scene.fill_inside(&overlay.merged, "/site/page"),
                RefusalReason::OpenForWriting,
            );
            unmap(memory);
            assert_stored(&scene.fill_inside(&overlay.merged, "/site/page"), &[slot(&above)]);
        });
    }
}

#[test]
fn overlays_that_may_mean_other_names_are_refused() {
    let page = |overlay: &Overlay| {
        fs::create_dir(overlay.lower.join("site")).unwrap();
        fs::write(overlay.lower.join("site/page"), "hello").unwrap();
        overlay.merged.join("site/page")
    };
    for options in [",metacopy=on", ",redirect_dir=on", ",index=on"] {
        on("ext4", options, move |overlay| {
            let verdict = Scene::new().fill(&page(overlay));
            assert_eq!(verdict, Verdict::Refused(RefusalReason::UnwatchedFilesystem), "{options}");
        });
    }
    on("ext4", "", move |overlay| {
        let page = page(overlay);
        let mut scene = Scene::new();
        assert_stored(&scene.fill(&page), &[slot(&overlay.lower.join("site/page"))]);
        // An overlay of an overlay.
        let outer = overlay.lower.parent().unwrap().join("outer");
        fs::create_dir(&outer).unwrap();
        let nested = format!("lowerdir={}:{}", overlay.merged.display(), overlay.middle.display());
        let nested = CString::new(nested).unwrap();
        mount("overlay", &outer, "overlay", MountFlags::empty(), Some(nested.as_c_str())).unwrap();
        assert_refused(&scene.fill(&outer.join("site/page")), RefusalReason::UnwatchedFilesystem);
        // A layer whose path leads elsewhere by now.
        mount("tmpfs", &overlay.lower, "tmpfs", MountFlags::empty(), None).unwrap();
        let verdict = scene.fill(&page);
        assert!(matches!(verdict, Verdict::Refused(_)), "{verdict:?}");
        // A program that another test is just starting may still have files of it.
        unmount(&overlay.lower, UnmountFlags::DETACH).unwrap();
        assert_stored(&scene.fill(&page), &[slot(&overlay.lower.join("site/page"))]);
    });
}

/// Entries depend on the directories of the layers, and a list is set by the overlay's.
#[test]
fn an_entry_goes_when_a_list_is_set_through_the_overlay() {
    type SetList = fn(&Path);
    let ways: [(&str, SetList); 3] = [
        ("by a descriptor", set_list),
        ("by the path", set_list_by_path),
        ("by io_uring", |path| set_list_by_uring(path, io_uring::squeue::Flags::empty())),
    ];
    for kind in kinds() {
        on(kind, "", move |overlay| {
            let mut scene = Scene::new();
            let mut folders = 0..;
            for (way, set_list) in ways {
                for layer in [&overlay.lower, &overlay.upper] {
                    for what in ["", "page"] {
                        let folder = folders.next().unwrap().to_string();
                        fs::create_dir(layer.join(&folder)).unwrap();
                        fs::write(layer.join(&folder).join("page"), "hello").unwrap();
                        let folder = overlay.merged.join(folder);
                        let entry = scene.entry(&folder.join("page"));
                        set_list(&folder.join(what));
                        let which = format!("{kind}, {way}, {}, {what:?}", layer.display());
                        assert!(scene.is_void(&entry), "no witness: {which}");
                        assert_eq!(scene.reinstate(&entry), Reinstatement::Gone, "{which}");
                    }
                }
            }
        });
    }
}

/// What the change is, and whether the page is below before.
type Change = fn(&Path) -> std::io::Result<()>;

const CHANGES: [(&str, Change); 6] = [
    ("write", |page| OpenOptions::new().write(true).open(page)?.write_all(b"new")),
    ("truncate, write", |page| fs::write(page, "new")),
    ("rename over", |page| {
        let other = page.with_extension("other");
        fs::write(&other, "new")?;
        fs::rename(other, page)
    }),
    ("unlink, create", |page| {
        fs::remove_file(page)?;
        fs::write(page, "new")
    }),
    ("chmod, write", |page| {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(page, fs::Permissions::from_mode(0o640))?;
        OpenOptions::new().write(true).open(page)?.write_all_at(b"new", 0)
    }),
    ("the directory anew", |page| {
        let folder = page.parent().unwrap();
        let aside = folder.with_extension("aside");
        fs::create_dir(&aside)?;
        fs::write(aside.join("page"), "new")?;
        fs::remove_dir_all(folder)?;
        fs::rename(aside, folder)
    }),
];

/// An entry that holds after a change has ended has what the change has made, however the two came
/// together.
#[test]
fn changes_that_copy_a_file_up_while_it_is_filled() {
    for kind in kinds() {
        on(kind, "", move |overlay| {
            let mut scene = Scene::new();
            let (mut stored, mut held, mut stale) = (0, 0, Vec::new());
            for round in 0..CHANGES.len() * 25 {
                let (name, change) = CHANGES[round % CHANGES.len()];
                let folder = format!("{round}");
                fs::create_dir(overlay.lower.join(&folder)).unwrap();
                fs::write(overlay.lower.join(&folder).join("page"), "old").unwrap();
                let page = overlay.merged.join(&folder).join("page");
                let modified = fs::metadata(&page).unwrap().mtime() as u64;
                let mut entries: Vec<(Stamp, SourceSet, Vec<u8>)> = Vec::new();
                let (start, ended) = (Barrier::new(2), AtomicBool::new(false));
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        start.wait();
                        // At another moment of the reader's each time.
                        std::thread::sleep(std::time::Duration::from_micros(
                            round as u64 * 13 % 400,
                        ));
                        change(&page).unwrap();
                        ended.store(true, Ordering::Release);
                    });
                    start.wait();
                    let mut after = 0;
                    while after < 3 {
                        after += usize::from(ended.load(Ordering::Acquire));
                        let forwarded = scene.forward();
                        let asked = page.clone();
                        let Ok(body) = scene.server.run(move || fs::read(asked)) else { continue };
                        let modified =
                            fs::metadata(&page).map_or(modified, |stat| stat.mtime() as u64);
                        if let Verdict::Stored { sources, .. } =
                            scene.judge(&forwarded, &body, Some(modified))
                        {
                            entries.push((forwarded.stamp, sources, body));
                        }
                    }
                });
                stored += entries.len();
                for (stamp, sources, body) in &entries {
                    if scene.table.is_unchanged(sources.as_slice(), *stamp) {
                        held += 1;
                        if body != b"new" {
                            stale.push(name);
                        }
                    }
                }
            }
            println!("RESULT copy_up on={kind} stored={stored} held={held} stale={}", stale.len());
            assert!(stale.is_empty(), "{kind}: {stale:?}");
            assert!(stored > 0 && held > 0);
        });
    }
}
