//! Who sees what: several exports of one unit, read-only ones, and links that must lead nowhere.

use nicache_gateway::{CopyMode, Gateway, GatewayError};
use nicache_initiator::{Fault, Kind, MemoryLun};
use nicache_nfs::caller::{self, place, status_of};
use nicache_nfs::protocol::{Procedure, Status};

use crate::harness::*;

fn make(caller: &mut nicache_nfs::caller::Caller, procedure: Procedure, arguments: &[u8]) {
    assert_eq!(status_of(caller.call(procedure, arguments).unwrap()).unwrap(), 0);
}

#[test]
fn exports_are_folders_of_the_unit_with_rules_of_their_own() {
    if skipped() {
        return;
    }
    let lun = std::sync::Arc::new(MemoryLun::new(64 << 20));
    let gateway =
        Gateway::start(config_for(lun.clone(), CopyMode::Nicache, true, &[OPEN])).unwrap();
    let mut client = caller(gateway.addresses()[0]);
    let root = client.mount("/data").unwrap();
    let words =
        |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let no_attributes = words(&[1, 0o755, 0, 0, 0, 0, 0]);
    make(&mut client, Procedure::MkDir, &[place(&root, "home"), no_attributes.clone()].concat());
    let mut link = [place(&root, "etc"), no_attributes].concat();
    link.extend(words(&[4]));
    link.extend(b"/etc");
    make(&mut client, Procedure::SymLink, &link);
    let home = client.look_up(&root, "home").unwrap().unwrap();
    let file = client.create(&home, "mine").unwrap();
    assert_eq!(client.write(&file, 0, b"text", 2).unwrap().status, 0);
    drop(client);
    gateway.close().unwrap();

    // A client's link is not this machine's folder.
    let error = Gateway::start(config_for(lun.clone(), CopyMode::Nicache, false, &["/etc=etc *"]))
        .map(drop)
        .unwrap_err();
    assert!(matches!(&error, GatewayError::Folder { .. }), "{error}");
    // And a unit with a file system is not made anew.
    let error = Gateway::start(config_for(lun.clone(), CopyMode::Nicache, true, &[OPEN]))
        .map(drop)
        .unwrap_err();
    assert!(error.to_string().contains("is not empty"), "{error}");

    let lines = ["/home=home 127.0.0.1(ro,insecure)", OPEN, "/none 10.0.0.0/8"];
    let gateway = match Gateway::start(config_for(lun, CopyMode::Nicache, false, &lines)) {
        Err(error @ GatewayError::FolderUnsupported { .. }) => return println!("skipped: {error}"),
        started => started.unwrap(),
    };
    let mut client = caller(gateway.addresses()[0]);
    client.mount("/none").unwrap_err();
    let home = client.mount("/home").unwrap();
    let file = client.look_up(&home, "mine").unwrap().unwrap();
    assert_eq!(client.read(&file, 0, 100).unwrap().unwrap(), b"text");
    assert_eq!(client.write(&file, 0, b"else", 0).unwrap().status, Status::Rofs as u32);
    // `..` of an export's root leads nowhere.
    let parent = client.look_up(&home, "..").unwrap();
    assert!(parent.as_ref().map_or(true, |parent| *parent == home), "{parent:?}");
    let root = client.mount("/data").unwrap();
    assert_eq!(
        status_of(client.call(Procedure::GetAttr, &caller::object(&root)).unwrap()).unwrap(),
        0
    );
    drop(client);
    gateway.close().unwrap();
}

/// A unit that is given up is trouble, and everything fails closed.
#[test]
fn a_target_that_stays_away_is_told() {
    if skipped() {
        return;
    }
    let mut unit = Unit::new();
    let options = nicache_initiator::IscsiOptions {
        patience: std::time::Duration::from_millis(300),
        login_max: std::time::Duration::from_secs(5),
        ..nicache_initiator::IscsiOptions::default()
    };
    let lun =
        nicache_initiator::IscsiLun::open(&unit.target.url().parse().unwrap(), &options).unwrap();
    let config = config_for(std::sync::Arc::new(lun), CopyMode::Nicache, true, &[OPEN]);
    let gateway = Gateway::start(config).unwrap();
    let mut client = caller(gateway.addresses()[0]);
    let root = client.mount("/data").unwrap();
    let file = client.create(&root, "file").unwrap();
    assert_eq!(client.write(&file, 0, &pattern(1, 1, 8192), 2).unwrap().status, 0);
    unit.target.kill();
    let written = client.write(&file, 0, &pattern(1, 2, 8192), 2).unwrap();
    assert_ne!(written.status, 0, "nothing is durable without a target");
    until("the gateway tells", || gateway.trouble().is_some());
    assert!(gateway.figures().to_string().contains("TROUBLE"));
    drop(client);
    gateway.close().unwrap_err();
}

/// Another gateway takes the unit, and clients ask only for what is in memory, so no command is
/// there to fail.
#[test]
fn a_unit_that_is_lost_without_a_command_is_told_and_nothing_is_read_out_of_memory() {
    if skipped() {
        return;
    }
    for copy in [CopyMode::Nicache, CopyMode::Original] {
        let lun = std::sync::Arc::new(MemoryLun::new(64 << 20));
        let gateway = Gateway::start(config_for(lun.clone(), copy, true, &[OPEN])).unwrap();
        let mut client = caller(gateway.addresses()[0]);
        let root = client.mount("/data").unwrap();
        let file = client.create(&root, "file").unwrap();
        let written = client.write(&file, 0, &pattern(1, 1, 8192), 2).unwrap();
        assert_eq!(written.status, 0);
        assert!(client.read(&file, 0, 8192).unwrap().unwrap() == pattern(1, 1, 8192));
        assert_eq!(gateway.trouble(), None);
        lun.give_up();
        let told = gateway.trouble().unwrap();
        assert!(told.contains("another gateway has taken the unit"), "{told}");
        let found = client.read(&file, 0, 8192).unwrap().map(|bytes| bytes.len());
        assert_eq!(found, Err(Status::Io as u32));
        if copy == CopyMode::Nicache {
            let again = client.write(&file, 0, &pattern(1, 2, 8192), 0).unwrap();
            assert_eq!(again.status, Status::Io as u32);
        }
        drop(client);
        gateway.close().unwrap();
    }
}

/// Whoever looks at a file waits for the unit, and the gateway is there for others meanwhile.
#[test]
fn a_report_waits_for_the_unit_and_the_gateway_does_not() {
    if skipped() {
        return;
    }
    let lun = std::sync::Arc::new(MemoryLun::new(64 << 20));
    let config = |mkfs| config_for(lun.clone(), CopyMode::Nicache, mkfs, &[OPEN]);
    let gateway = Gateway::start(config(true)).unwrap();
    let mut client = caller(gateway.addresses()[0]);
    let root = client.mount("/data").unwrap();
    client.create(&root, "file").unwrap();
    drop(client);
    gateway.close().unwrap();
    let gateway = Gateway::start(config(false)).unwrap();
    lun.set_faults(|kind, _, _| (kind == Kind::Read).then_some(Fault::Stall));
    let reporter = gateway.reporter().unwrap();
    let report = std::thread::spawn(move || reporter.report("/data/file").unwrap());
    until("the report waits", || lun.stalled() > 0);
    assert!(!report.is_finished());
    assert_eq!(gateway.trouble(), None);
    lun.resume();
    assert_eq!(report.join().unwrap().path, "/data/file");
    gateway.close().unwrap();
}
