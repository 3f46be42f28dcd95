//! Against a real target: Debian's tgtd.

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use nicache_initiator::{
    BLOCK_BYTES, Credentials, IscsiLun, IscsiOptions, Lun, LunError, ReservationOptions, TargetUrl,
    discover,
};
use nicache_target::{Target, TargetOptions};

struct Unit {
    target: Target,
    image: PathBuf,
    _folder: tempfile::TempDir,
}

/// Starts a target and enters its network; None where that cannot be done.
fn unit(options: &TargetOptions) -> Option<Unit> {
    if let Some(missing) = nicache_target::missing() {
        println!("skipped: there is no {missing}");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("unit");
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let target = Target::start(&image, options).unwrap();
    target.enter().unwrap();
    Some(Unit { target, image, _folder: folder })
}

fn options() -> IscsiOptions {
    IscsiOptions {
        patience: Duration::from_secs(60),
        silence_max: Duration::from_secs(2),
        ..IscsiOptions::default()
    }
}

fn open(unit: &Unit) -> IscsiLun {
    IscsiLun::open(&unit.target.url().parse().unwrap(), &options()).unwrap()
}

fn pattern(block: u64, version: u64) -> Bytes {
    let mut bytes = vec![0; BLOCK_BYTES];
    fastrand::Rng::with_seed(block << 32 | version).fill(&mut bytes);
    bytes.into()
}

fn read(lun: &dyn Lun, block: u64, count: usize) -> Vec<BytesMut> {
    let mut buffers = vec![BytesMut::zeroed(BLOCK_BYTES); count];
    lun.read(block * BLOCK_BYTES as u64, &mut buffers).unwrap();
    buffers
}

/// Flags of linux/sched.h that PR_SET_IO_FLUSHER sets: memory that the thread asks for waits for no
/// device.
const MEMALLOC_NOIO: u64 = 0x0008_0000;

#[test]
fn the_kernel_does_not_make_the_session_wait_for_its_own_device() {
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        println!("skipped: PR_SET_IO_FLUSHER needs CAP_SYS_RESOURCE ({error})");
        return;
    }
    // Threads inherit it from the one that starts them.
    rustix::process::configure_io_flusher_behavior(false).unwrap();
    let Some(unit) = unit(&TargetOptions::default()) else { return };
    let _lun = open(&unit);
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    // "1234 (iscsi) S", then numbers; the flags are the ninth field (proc_pid_stat(5)).
    let stats =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
    let flags = stats.filter_map(|stat| {
        let (_, rest) = stat.split_once("(iscsi) ")?;
        rest.split(' ').nth(6)?.parse::<u64>().ok()
    });
    let all: Vec<u64> = flags.collect();
    assert!(all.iter().any(|flags| flags & MEMALLOC_NOIO != 0), "{all:x?}");
}

#[test]
fn what_is_written_is_read_and_reaches_the_file() {
    let Some(unit) = unit(&TargetOptions::default()) else { return };
    let lun = open(&unit);
    assert_eq!((lun.capacity_bytes(), lun.block_bytes()), (64 << 20, 512));
    // Longer than one transfer, in pieces of many lengths.
    let mut data = Vec::new();
    let mut block = 0;
    for blocks in [1, 3, 200, 1, 64, 7] {
        let piece: Vec<u8> = (block..block + blocks).flat_map(|b| pattern(b, 0)).collect();
        data.push(Bytes::from(piece));
        block += blocks;
    }
    lun.write(BLOCK_BYTES as u64 * 10, &data).unwrap();
    lun.flush().unwrap();
    for (i, buffer) in read(&lun, 10, block as usize).iter().enumerate() {
        assert_eq!(buffer[..], pattern(i as u64, 0), "block {i}");
    }
    let file = std::fs::read(&unit.image).unwrap();
    assert_eq!(file[BLOCK_BYTES * 10..][..BLOCK_BYTES], pattern(0, 0));
    assert!(matches!(lun.write(64 << 20, &[pattern(0, 0)]), Err(LunError::OutOfRange { .. })));
}

#[test]
fn many_threads_at_once() {
    let Some(unit) = unit(&TargetOptions::default()) else { return };
    let lun = open(&unit);
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let lun = &lun;
            scope.spawn(move || {
                for version in 0..40 {
                    let block = thread * 100 + version % 10;
                    lun.write(block * BLOCK_BYTES as u64, &[pattern(block, version)]).unwrap();
                    assert_eq!(read(lun, block, 1)[0][..], pattern(block, version));
                }
            });
        }
    });
}

#[test]
fn chap_both_ways_and_wrong_secrets() {
    let account = |user: &str, password: &str| (user.to_owned(), password.to_owned());
    let options = TargetOptions {
        incoming: Some(account("initiator", "secret-of-12-letters")),
        outgoing: Some(account("target", "another-secret-12")),
        ports: Vec::new(),
    };
    let Some(mut unit) = unit(&options) else { return };
    let mut url: TargetUrl = unit.target.url().parse().unwrap();
    let error = IscsiLun::open(&url, &self::options()).err().unwrap();
    assert!(error.to_string().contains(nicache_target::NAME), "{error}");
    url.credentials =
        Some(Credentials { user: "initiator".into(), password: "wrong-secret-12".into() });
    assert!(IscsiLun::open(&url, &self::options()).is_err());
    url.credentials =
        Some(Credentials { user: "initiator".into(), password: "secret-of-12-letters".into() });
    IscsiLun::open(&url, &self::options()).unwrap().flush().unwrap();
    url.target_credentials =
        Some(Credentials { user: "target".into(), password: "not-the-target-12".into() });
    assert!(
        IscsiLun::open(&url, &self::options()).is_err(),
        "a target that cannot prove who it is"
    );
    url.target_credentials =
        Some(Credentials { user: "target".into(), password: "another-secret-12".into() });
    let lun = IscsiLun::open(&url, &self::options()).unwrap();
    lun.flush().unwrap();
    // It proves itself in each session.
    unit.target.restart().unwrap();
    lun.write(0, &[pattern(0, 1)]).unwrap();
    assert_eq!(lun.sessions(), 2);
}

#[test]
fn discovery_and_a_portal_that_does_not_answer() {
    let options = TargetOptions { ports: vec![3261], ..TargetOptions::default() };
    let Some(unit) = unit(&options) else { return };
    let found = discover(
        "127.0.0.1:3299,127.0.0.1",
        None,
        None,
        "iqn.2026-11.org.nicache:test",
        Duration::from_secs(5),
    )
    .unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].name, nicache_target::NAME);
    assert!(found[0].portals.contains(&"127.0.0.1:3260".to_owned()), "{found:?}");
    let url = format!("iscsi://127.0.0.1:3299,127.0.0.1:3261/{}/1", nicache_target::NAME);
    IscsiLun::open(&url.parse().unwrap(), &self::options()).unwrap().flush().unwrap();
    drop(unit);
    assert!(
        discover("127.0.0.1", None, None, "iqn.2026-11.org.nicache:test", Duration::from_secs(2))
            .is_err()
    );
}

#[test]
fn a_unit_that_is_not_there_is_refused_with_its_name() {
    let Some(unit) = unit(&TargetOptions::default()) else { return };
    let url: TargetUrl = format!("iscsi://127.0.0.1/{}/9", nicache_target::NAME).parse().unwrap();
    let error = IscsiLun::open(&url, &options()).err().unwrap();
    assert!(matches!(&error, LunError::Refused { lun, .. } if lun.ends_with("/9")), "{error}");
    drop(unit);
}

/// Writers go on while the target is killed, restarted, stopped and continued.
#[test]
fn commands_outlive_a_target_that_dies_and_one_that_stalls() {
    let Some(mut unit) = unit(&TargetOptions::default()) else { return };
    let lun = open(&unit);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4_u64)
            .map(|thread| {
                let (lun, stop) = (&lun, &stop);
                scope.spawn(move || {
                    let mut version = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let data: Vec<Bytes> =
                            (0..8).map(|b| pattern(thread * 8 + b, version)).collect();
                        lun.write(thread * 8 * BLOCK_BYTES as u64, &data).unwrap();
                        if version % 16 == 0 {
                            lun.flush().unwrap();
                        }
                        version += 1;
                    }
                    version - 1
                })
            })
            .collect();
        for sessions in 2..5 {
            std::thread::sleep(Duration::from_millis(150));
            unit.target.restart().unwrap();
            until_sessions(&lun, sessions);
        }
        // Longer than a silence may be.
        unit.target.pause().unwrap();
        std::thread::sleep(Duration::from_millis(2500));
        unit.target.resume().unwrap();
        until_sessions(&lun, 5);
        std::thread::sleep(Duration::from_millis(300));
        stop.store(true, Ordering::Relaxed);
        for (thread, writer) in writers.into_iter().enumerate() {
            let version = writer.join().unwrap();
            for (b, buffer) in read(&lun, thread as u64 * 8, 8).iter().enumerate() {
                assert_eq!(buffer[..], pattern(thread as u64 * 8 + b as u64, version));
            }
        }
    });
}

fn until_sessions(lun: &IscsiLun, count: u64) {
    let deadline = std::time::Instant::now() + Duration::from_secs(50);
    while lun.sessions() < count {
        assert!(std::time::Instant::now() < deadline, "session {count} does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Only the target has to know: the gateway uses the size that it found at the start.
#[test]
fn a_unit_may_grow_but_not_shrink() {
    let Some(mut unit) = unit(&TargetOptions::default()) else { return };
    let lun = open(&unit);
    lun.write(0, &[pattern(0, 0)]).unwrap();
    let resize = |bytes| File::options().write(true).open(&unit.image).unwrap().set_len(bytes);
    resize(96 << 20).unwrap();
    unit.target.restart().unwrap();
    lun.write((64 << 20) - BLOCK_BYTES as u64, &[pattern(1, 0)]).unwrap();
    lun.flush().unwrap();
    assert_eq!((lun.sessions(), lun.capacity_bytes()), (2, 64 << 20));
    unit.target.kill();
    let resize = |bytes| File::options().write(true).open(&unit.image).unwrap().set_len(bytes);
    resize(32 << 20).unwrap();
    unit.target.restart().unwrap();
    let error = lun.write(0, &[pattern(0, 1)]).unwrap_err();
    assert!(matches!(&error, LunError::Changed { .. }) && error.is_final(), "{error}");
    assert!(error.to_string().contains("33554432"), "{error}");
}

/// Waits until a unit that is asked for nothing says that it was given up.
fn until_lost(lun: &IscsiLun) -> LunError {
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(error) = lun.lost() {
            return error;
        }
        assert!(std::time::Instant::now() < deadline, "it does not say that it is lost");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whoever answers out of memory gives no commands for hours.
#[test]
fn a_unit_that_is_asked_for_nothing_says_that_its_target_stays_away() {
    let Some(mut unit) = unit(&TargetOptions::default()) else { return };
    let options = IscsiOptions { patience: Duration::from_millis(700), ..options() };
    let lun = IscsiLun::open(&unit.target.url().parse().unwrap(), &options).unwrap();
    assert_eq!(lun.lost(), None);
    unit.target.kill();
    let error = until_lost(&lun);
    assert!(matches!(&error, LunError::Lost { .. }), "{error}");
}

#[test]
fn a_target_that_stays_away_fails_closed_with_its_name() {
    let Some(mut unit) = unit(&TargetOptions::default()) else { return };
    let options = IscsiOptions { patience: Duration::from_millis(700), ..options() };
    let lun = IscsiLun::open(&unit.target.url().parse().unwrap(), &options).unwrap();
    lun.write(0, &[pattern(0, 0)]).unwrap();
    unit.target.kill();
    let error = lun.write(0, &[pattern(0, 1)]).unwrap_err();
    assert!(
        matches!(&error, LunError::Lost { lun, .. } if lun.contains(nicache_target::NAME)),
        "{error}"
    );
    // Closed, also when the target is there again.
    unit.target.restart().unwrap();
    assert!(matches!(lun.flush(), Err(LunError::Lost { .. })));
}

/// Gateways on two machines, which have other names and other identities. On a unit of any target,
/// if the environment has one (64 MB at least, whose content is nobody's).
#[test]
fn a_reserved_unit_is_one_gateways_until_another_takes_it_over() {
    let given = std::env::var("NICACHE_TEST_UNIT").ok();
    let mut unit = match given {
        Some(_) => None,
        None => unit(&TargetOptions::default()),
    };
    let Some(url) = given.or_else(|| unit.as_ref().map(|unit| unit.target.url())) else { return };
    let url: TargetUrl = url.parse().unwrap();
    let open = |machine: &str, identity: u32, take_over: bool| {
        let initiator = format!("iqn.2026-11.org.nicache:{machine}");
        let reservation = Some(ReservationOptions { identity, take_over });
        IscsiLun::open(&url, &IscsiOptions { initiator, reservation, ..options() })
    };
    let write = |lun: &IscsiLun, version| lun.write(0, &[pattern(0, version)]);
    let first = open("one", 1, false).unwrap();
    write(&first, 1).unwrap();
    let refused = open("two", 2, false).err().unwrap().to_string();
    assert!(
        refused.contains("another gateway has reserved the unit")
            && refused.contains("--take-over"),
        "{refused}"
    );
    // One that asks for no reservation is refused by the target itself: when it writes, or already
    // when it asks for the size (LIO).
    let options = IscsiOptions { initiator: "iqn.2026-11.org.nicache:x".to_owned(), ..options() };
    match IscsiLun::open(&url, &options) {
        Ok(stranger) => assert!(matches!(write(&stranger, 9), Err(LunError::Taken { .. }))),
        Err(refused) => assert!(
            refused.to_string().contains("another initiator has reserved the unit"),
            "{refused}"
        ),
    }
    // Through a new session, and through one with a target that has forgotten everything.
    if let Some(unit) = &mut unit {
        unit.target.restart().unwrap();
    }
    write(&first, 2).unwrap();
    assert!(open("two", 2, false).is_err());
    // Killed and started again: the same identity. The first one is as one whose process does not
    // know that it is dead.
    let again = open("one", 1, false).unwrap();
    write(&again, 3).unwrap();
    assert!(matches!(write(&first, 9), Err(LunError::Taken { .. })));
    // The other machine, when told to; and the one that had it notices although it asks for
    // nothing.
    let second = open("two", 2, true).unwrap();
    let error = until_lost(&again);
    assert!(matches!(&error, LunError::Taken { .. }), "{error}");
    assert!(matches!(again.flush(), Err(LunError::Taken { .. })));
    write(&second, 4).unwrap();
    assert_eq!(read(&second, 0, 1)[0][..], pattern(0, 4));
    // Its end does not give away what is another's; the owner's end does.
    drop((first, again));
    write(&second, 5).unwrap();
    assert!(open("one", 1, false).is_err());
    drop(second);
    assert_eq!(read(&open("one", 1, false).unwrap(), 0, 1)[0][..], pattern(0, 5));
}
