//! A real device and a real file system, over units in memory.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nicache_device::{DeviceError, MountOptions, Mounted, Plain, Transport, supervise};
use nicache_initiator::{Fault, Kind, MemoryLun};

/// Not a test: the supervisor of the others, which start this program again.
#[test]
fn supervisor_process() {
    if std::env::var_os("NICACHE_SUPERVISOR").is_some() {
        supervise().unwrap();
        std::process::exit(0);
    }
}

/// On which device: that of a guest of tools/kernels, or what there is.
fn transport() -> Transport {
    std::env::var("NICACHE_TEST_DEVICE")
        .map_or_else(|_| Transport::default(), |name| name.parse().unwrap())
}

fn options(mkfs: bool) -> MountOptions {
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

fn skipped() -> bool {
    let missing = transport().missing();
    if let Some(missing) = missing {
        println!("skipped: there is no {missing}");
    }
    missing.is_some()
}

/// A file below the root, through the descriptor: the mount has no path.
fn open(mounted: &Mounted, name: &str, create: bool) -> std::io::Result<File> {
    let path = format!("/proc/self/fd/{}/{name}", mounted.root().as_raw_fd());
    File::options().read(true).write(true).create(create).open(path)
}

fn fsck(lun: &MemoryLun) {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    lun.save(&image).unwrap();
    let output = Command::new("e2fsck").args(["-f", "-n"]).arg(&image).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is_attached(device: &str) -> bool {
    let name = Path::new(device).file_name().unwrap().to_str().unwrap();
    if name.starts_with("ublk") {
        return Path::new("/sys/block").join(name).exists();
    }
    // Another test may have taken the device again; then the file behind it is its own.
    std::fs::read_to_string(format!("/sys/block/{name}/loop/backing_file"))
        .is_ok_and(|file| file.contains("/disk"))
}

#[test]
fn a_file_outlives_mounts_and_nobody_else_sees_them() {
    if skipped() {
        return;
    }
    let lun = Arc::new(MemoryLun::new(64 << 20));
    let blocks = || Arc::new(Plain(lun.clone()));
    assert!(matches!(Mounted::open(blocks(), options(false)), Err(DeviceError::Unsuitable { .. })));
    let mounted = Mounted::open(blocks(), options(true)).unwrap();
    assert!(mounted.is_supervised());
    open(&mounted, "file", true).unwrap().write_all(b"content").unwrap();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let is_seen = mounts.split_ascii_whitespace().any(|word| word == mounted.device());
    assert!(!is_seen, "{mounts}");
    mounted.close().unwrap();
    fsck(&lun);
    assert!(matches!(Mounted::open(blocks(), options(true)), Err(DeviceError::NotEmpty { .. })));
    let mounted = Mounted::open(blocks(), options(false)).unwrap();
    let mut content = String::new();
    open(&mounted, "file", false).unwrap().read_to_string(&mut content).unwrap();
    assert_eq!(content, "content");
    drop(mounted);
    fsck(&lun);
}

#[test]
fn a_flush_that_fails_fails_the_fsync() {
    if skipped() {
        return;
    }
    let lun = Arc::new(MemoryLun::new(64 << 20));
    let mounted = Mounted::open(Arc::new(Plain(lun.clone())), options(true)).unwrap();
    let mut file = open(&mounted, "file", true).unwrap();
    file.write_all(b"content").unwrap();
    file.sync_all().unwrap();
    let flushes = lun.count(Kind::Flush);
    assert!(flushes > 0);
    lun.set_faults(|kind, _, _| (kind == Kind::Flush).then_some(Fault::Failure));
    file.write_all(b"more").unwrap();
    assert!(file.sync_all().is_err());
    lun.resume();
    drop(file);
    drop(mounted);
}

/// An fsync without a flush would promise what the unit has only in its cache.
#[test]
fn the_superblock_cannot_switch_flushes_off() {
    if skipped() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("mke2fs.conf");
    std::fs::write(
        &config,
        "[defaults]\nbase_features = has_journal,extent,64bit\ndefault_mntopts = nobarrier\n",
    )
    .unwrap();
    let lun = Arc::new(MemoryLun::new(64 << 20));
    let mut options = options(true);
    options.supervisor.env("MKE2FS_CONFIG", &config);
    let mounted = Mounted::open(Arc::new(Plain(lun.clone())), options).unwrap();
    let mut head = [bytes::BytesMut::zeroed(4096)].to_vec();
    nicache_initiator::Lun::read(&*lun, 0, &mut head).unwrap();
    // s_default_mount_opts has EXT4_DEFM_NOBARRIER.
    assert!(head[0][1024 + 0x101] & 1 != 0, "the premise");
    let mut file = open(&mounted, "file", true).unwrap();
    for content in [b"content", b"another"] {
        let flushes = lun.count(Kind::Flush);
        file.write_all(content).unwrap();
        file.sync_data().unwrap();
        assert!(lun.count(Kind::Flush) > flushes);
    }
    drop(file);
    mounted.close().unwrap();
}

/// `mke2fs` makes no journal if a unit is too small for one, or if it is told not to.
#[test]
fn a_new_file_system_has_a_journal_or_is_not_served() {
    if skipped() {
        return;
    }
    let small = Arc::new(Plain(Arc::new(MemoryLun::new(4 << 20))));
    let error = Mounted::open(small, options(true)).unwrap_err().to_string();
    assert!(error.contains("has no journal"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("mke2fs.conf");
    let features = "[fs_types]\next4 = {\nfeatures = ^has_journal,extent,64bit\n}\n";
    std::fs::write(&config, features).unwrap();
    let lun = Arc::new(MemoryLun::new(64 << 20));
    let mut with_config = options(true);
    with_config.supervisor.env("MKE2FS_CONFIG", &config);
    Mounted::open(Arc::new(Plain(lun.clone())), with_config).unwrap().close().unwrap();
    // It passes the check of a file system that is there.
    Mounted::open(Arc::new(Plain(lun)), options(false)).unwrap().close().unwrap();
}

#[test]
fn a_server_without_its_supervisor_unmounts_by_itself() {
    if skipped() {
        return;
    }
    let lun = Arc::new(MemoryLun::new(64 << 20));
    let mounted = Mounted::open(Arc::new(Plain(lun.clone())), options(true)).unwrap();
    open(&mounted, "file", true).unwrap().write_all(b"content").unwrap();
    let device = mounted.device().to_owned();
    let pid = rustix::process::Pid::from_raw(mounted.supervisor_id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    until("the server notices", || !mounted.is_supervised());
    assert_eq!(
        std::fs::metadata(format!("/proc/self/fd/{}/file", mounted.root().as_raw_fd()))
            .unwrap()
            .len(),
        7
    );
    let _ = mounted.close();
    until("the device is free", || !is_attached(&device));
    fsck(&lun);
}

/// Not a test: a server that waits to be killed.
#[test]
fn server_process() {
    if std::env::var_os("NICACHE_SERVER").is_none() {
        return;
    }
    let mounted =
        Mounted::open(Arc::new(Plain(Arc::new(MemoryLun::new(64 << 20)))), options(true)).unwrap();
    let mut file = open(&mounted, "file", true).unwrap();
    file.write_all(&[7; 1 << 20]).unwrap();
    println!("serving {} {}", mounted.device(), mounted.supervisor_id());
    loop {
        // Under way when the end comes.
        file.write_all(&[7; 4096]).unwrap();
        let _ = file.sync_data();
        let _ = rustix::fs::seek(file.as_fd(), rustix::fs::SeekFrom::Start(0));
    }
}

/// A server process, its device, and its supervisor.
fn start_server() -> (Child, String, String) {
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["server_process", "--exact", "--nocapture"])
        .env("NICACHE_SERVER", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (device, supervisor) = told(&mut server);
    (server, device, supervisor)
}

/// The device of a server process, and its supervisor.
fn told(server: &mut Child) -> (String, String) {
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains("serving ")).unwrap();
    let mut words = line.split("serving ").nth(1).unwrap().split(' ');
    (words.next().unwrap().to_owned(), words.next().unwrap().trim().to_owned())
}

fn is_ended(process: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat"));
    status.map_or(true, |status| status.contains(") Z"))
}

#[test]
fn a_server_that_is_killed_leaves_nothing_behind() {
    if skipped() {
        return;
    }
    for and_supervisor in [false, true, false] {
        let (mut server, device, supervisor) = start_server();
        std::thread::sleep(Duration::from_millis(50));
        if and_supervisor {
            let pid = rustix::process::Pid::from_raw(supervisor.parse().unwrap()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        server.kill().unwrap();
        server.wait().unwrap();
        until("the supervisor ends", || is_ended(&supervisor));
        until("the device is free", || !is_attached(&device));
    }
}

/// A device of the ublk driver outlives its server, the mount's owner and its own as a file that
/// nobody can use. It is deleted by whoever makes the next device.
#[test]
fn what_all_left_behind_is_deleted_by_the_next_start() {
    if Transport::Ublk.missing().is_some() || transport() == Transport::Loop {
        return println!("skipped: this kernel lacks ublk");
    }
    let (mut server, device, supervisor) = start_server();
    let characters = device.replace("ublkb", "ublkc");
    let is_there = || Path::new(&characters).exists();
    // Somebody else's start does not mind a device that is served.
    let other = Arc::new(Plain(Arc::new(MemoryLun::new(64 << 20))));
    Mounted::open(other.clone(), options(true)).unwrap().close().unwrap();
    assert!(is_there());
    let owner = child_of(&supervisor);
    // In this order: the owner keeps a device that is mounted, and the server would end by itself.
    for process in [supervisor.as_str(), &owner] {
        kill(process);
    }
    server.kill().unwrap();
    server.wait().unwrap();
    until("the disk is gone", || !is_attached(&device));
    assert!(is_there(), "nobody was left to delete it");
    until("it is deleted", || {
        // The processes may still be ending.
        Mounted::open(other.clone(), options(false)).unwrap().close().unwrap();
        !is_there()
    });
}

fn kill(process: &str) {
    let pid = rustix::process::Pid::from_raw(process.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

fn child_of(process: &str) -> String {
    // A child belongs to the thread that started it.
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let children: String = tasks
        .map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).unwrap())
        .collect();
    children.trim().to_owned()
}

/// A target that answers nothing while the server is killed: every request of the device waits.
#[test]
fn a_server_that_is_killed_with_all_its_requests_waiting_leaves_nothing_behind() {
    if skipped() {
        return;
    }
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["stalled_server_process", "--exact", "--nocapture"])
        .env("NICACHE_SERVER", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (device, supervisor) = told(&mut server);
    std::thread::sleep(Duration::from_millis(500));
    server.kill().unwrap();
    server.wait().unwrap();
    until("the supervisor ends", || is_ended(&supervisor));
    until("the device is free", || !is_attached(&device));
}

/// Not a test: a server whose unit stalls under more writes than a device has room for.
#[test]
fn stalled_server_process() {
    if std::env::var_os("NICACHE_SERVER").is_none() {
        return;
    }
    let lun = Arc::new(MemoryLun::new(256 << 20));
    let mounted = Mounted::open(Arc::new(Plain(lun.clone())), options(true)).unwrap();
    let files: Vec<File> =
        (0..200).map(|number| open(&mounted, &format!("file{number}"), true).unwrap()).collect();
    lun.set_faults(|kind, _, _| (kind == Kind::Write).then_some(Fault::Stall));
    println!("serving {} {}", mounted.device(), mounted.supervisor_id());
    std::thread::scope(|scope| {
        for mut file in files {
            scope.spawn(move || {
                file.write_all(&[7; 64 << 10]).unwrap();
                let _ = file.sync_data();
            });
        }
    });
}

#[test]
fn a_kernel_without_the_driver_is_told_so_and_has_a_loop_device_instead() {
    if Transport::Loop.missing().is_some() || Transport::Ublk.missing().is_none() {
        return println!("skipped: this kernel has the driver, or no loop devices");
    }
    let lun = Arc::new(Plain(Arc::new(MemoryLun::new(64 << 20))));
    let with = |transport| MountOptions { transport, ..options(true) };
    let error = Mounted::open(lun.clone(), with(Transport::Ublk)).unwrap_err().to_string();
    assert!(error.contains("ublk"), "{error}");
    let mounted = Mounted::open(lun, with(Transport::Auto)).unwrap();
    assert!(mounted.device().starts_with("/dev/loop"), "{}", mounted.device());
    mounted.close().unwrap();
}

/// Its owner is killed while files are written: they fail, the server hears of it, and nothing is
/// left behind.
#[test]
fn a_device_owner_that_is_killed_takes_the_device_with_it() {
    if Transport::Ublk.missing().is_some() || transport() == Transport::Loop {
        return println!("skipped: this kernel lacks ublk");
    }
    let lun = Arc::new(MemoryLun::new(64 << 20));
    let mounted = Mounted::open(Arc::new(Plain(lun.clone())), options(true)).unwrap();
    let mut file = open(&mounted, "file", true).unwrap();
    file.write_all(b"content").unwrap();
    file.sync_all().unwrap();
    let device = mounted.device().to_owned();
    kill(&child_of(&mounted.supervisor_id().to_string()));
    until("the server notices", || !mounted.is_supervised());
    assert!(file.write_all(&[7; 1 << 20]).and_then(|()| file.sync_all()).is_err());
    drop(file);
    assert!(mounted.close().is_err());
    until("the disk is gone", || !is_attached(&device));
    assert!(!Path::new(&device.replace("ublkb", "ublkc")).exists());
    // What was durable is.
    let mounted = Mounted::open(Arc::new(Plain(lun.clone())), options(false)).unwrap();
    let mut content = String::new();
    open(&mounted, "file", false).unwrap().read_to_string(&mut content).unwrap();
    assert_eq!(content, "content");
    mounted.close().unwrap();
    fsck(&lun);
}
