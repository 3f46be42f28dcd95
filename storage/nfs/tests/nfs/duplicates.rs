//! N6: what must run once runs once, however often it is asked for.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use nfs3_types::nfs3::*;
use nfs3_types::xdr_codec::{Opaque, Unpack};
use nicache_nfs::ServerConfig;
use nicache_nfs::protocol::{NFS, Procedure};
use nicache_payload::{Extent, FileId, Payload, Stability};

use crate::world::*;

/// Payload whose writes wait until they may go on. None waits for more than a minute: a server ends
/// only when its threads have.
pub(crate) struct Gate {
    inner: Arc<dyn Payload>,
    pub writes: AtomicUsize,
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(crate) fn new(is_open: bool) -> Arc<Self> {
        Arc::new(Self {
            inner: original(),
            writes: AtomicUsize::new(0),
            is_open: Mutex::new(is_open),
            opened: Condvar::new(),
        })
    }

    pub(crate) fn set(&self, is_open: bool) {
        *self.is_open.lock().unwrap() = is_open;
        self.opened.notify_all();
    }
}

impl Payload for Gate {
    fn read(&self, file: &File, id: FileId, offset: u64, len: u32) -> io::Result<Vec<Extent>> {
        self.inner.read(file, id, offset, len)
    }

    fn write(
        &self,
        file: &File,
        id: FileId,
        offset: u64,
        data: &[Extent],
        stability: Stability,
    ) -> io::Result<()> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        let is_open = self.is_open.lock().unwrap();
        drop(
            self.opened
                .wait_timeout_while(is_open, Duration::from_secs(60), |is_open| !*is_open)
                .unwrap(),
        );
        self.inner.write(file, id, offset, data, stability)
    }

    fn commit(&self, file: &File, id: FileId) -> io::Result<()> {
        self.inner.commit(file, id)
    }

    fn resize(&self, file: &File, id: FileId, size: u64) -> io::Result<()> {
        self.inner.resize(file, id, size)
    }

    fn verifier(&self) -> u64 {
        1
    }
}

fn status(results: &[u8]) -> u32 {
    u32::from_be_bytes(results[..4].try_into().unwrap())
}

#[test]
fn a_repetition_gets_the_first_answer() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    client.make_file(&root, "f");
    let target = client.make_file(&root, "target");
    let place = |name: &str| place(&root, name);
    let create = |how| CREATE3args { where_: place("made"), how };
    let calls: Vec<(Procedure, Vec<u8>)> = vec![
        (Procedure::Create, packed(&create(createhow3::GUARDED(mode(0o644))))),
        (Procedure::MkDir, packed(&MKDIR3args { where_: place("d"), attributes: mode(0o755) })),
        (
            Procedure::SymLink,
            packed(&SYMLINK3args {
                where_: place("l"),
                symlink: symlinkdata3 {
                    symlink_attributes: sattr3::default(),
                    symlink_data: nfspath3(Opaque::borrowed(b"x")),
                },
            }),
        ),
        (
            Procedure::MkNod,
            packed(&MKNOD3args { where_: place("p"), what: mknoddata3::NF3FIFO(mode(0o600)) }),
        ),
        (Procedure::Link, packed(&LINK3args { file: target.clone(), link: place("second") })),
        (Procedure::Rename, packed(&RENAME3args { from: place("f"), to: place("g") })),
        (Procedure::Remove, packed(&REMOVE3args { object: place("g") })),
        (Procedure::RmDir, packed(&RMDIR3args { object: place("d") })),
    ];
    for (procedure, arguments) in &calls {
        let xid = next_xid();
        let record = client.record(NFS, *procedure as u32, xid, arguments);
        client.send(&record);
        let first = client.results(xid);
        assert_eq!(status(&first), 0, "{procedure:?}");
        client.send(&record);
        assert_eq!(client.results(xid), first, "{procedure:?} again");
        // On a new connection, from another port.
        let mut other = world.client();
        other.send(&record);
        assert_eq!(other.results(xid), first, "{procedure:?} on a new connection");
        // With another time and name in the credential, as older Linux repeats calls.
        other.credential = user_at(2, "elsewhere", 0, 0, &[]);
        let later = other.record(NFS, *procedure as u32, xid, arguments);
        assert_ne!(later, record);
        other.send(&later);
        assert_eq!(other.results(xid), first, "{procedure:?} encoded anew");
        // With another number it is another call, which cannot succeed.
        let xid = next_xid();
        let record = client.record(NFS, *procedure as u32, xid, arguments);
        client.send(&record);
        assert_ne!(status(&client.results(xid)), 0, "{procedure:?} as another call");
    }
    assert_eq!(world.server.metrics().repeated_calls, 3 * calls.len() as u64);
}

#[test]
fn another_caller_or_other_arguments_are_another_call() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let xid = next_xid();
    let call = |client: &mut Client, name: &str| {
        let arguments = packed(&CREATE3args {
            where_: place(&root, name),
            how: createhow3::GUARDED(mode(0o644)),
        });
        let record = client.record(NFS, Procedure::Create as u32, xid, &arguments);
        client.send(&record);
        status(&client.results(xid))
    };
    assert_eq!(call(&mut client, "a"), 0);
    assert_eq!(call(&mut client, "b"), 0);
    assert!(world.path.join("b").exists());
    client.act_as(1000, 1000, &[]);
    assert_eq!(call(&mut client, "a"), Stat::NFS3ERR_EXIST as u32);
}

/// A delayed repetition of a WRITE must not undo what was written since.
#[test]
fn a_late_write_changes_nothing() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let file = client.make_file(&root, "f");
    let write = |data: &'static [u8]| {
        packed(&WRITE3args {
            file: file.clone(),
            offset: 0,
            count: 3,
            stable: stable_how::UNSTABLE,
            data: Opaque::borrowed(data),
        })
    };
    let xid = next_xid();
    let late = client.record(NFS, Procedure::Write as u32, xid, &write(b"old"));
    client.send(&late);
    let first = client.results(xid);
    client.write(&file, 0, b"new", stable_how::UNSTABLE).unwrap();
    let mut other = world.client();
    other.send(&late);
    assert_eq!(other.results(xid), first);
    assert_eq!(client.read(&file, 0, 3).unwrap().0, b"new");
}

/// A WRITE whose connection ends while it is under way runs once, and its repetitions get its
/// answer.
#[test]
fn a_repetition_while_the_first_is_under_way_waits_for_it() {
    let gate = Gate::new(true);
    let world = World::with(open_rule(), gate.clone());
    let (mut client, root) = world.mounted();
    let file = client.make_file(&root, "f");
    gate.set(false);
    let arguments = packed(&WRITE3args {
        file: file.clone(),
        offset: 0,
        count: 4,
        stable: stable_how::UNSTABLE,
        data: Opaque::borrowed(b"once"),
    });
    let xid = next_xid();
    let record = client.record(NFS, Procedure::Write as u32, xid, &arguments);
    client.send(&record);
    until("the first one is under way", || gate.writes.load(Ordering::SeqCst) == 1);
    drop(client); // The client gives the connection up, and comes again.
    let mut others: Vec<Client> = (0..3).map(|_| world.client()).collect();
    for other in &mut others {
        other.send(&record);
    }
    until("all wait", || world.server.metrics().waiting_calls == 3);
    // A worker is free for others meanwhile.
    world.client().getattr(&file).unwrap();
    gate.set(true);
    for other in &mut others {
        let results = other.results(xid);
        assert_eq!(status(&results), 0);
        let (reply, _) = WRITE3res::unpack(&mut &results[..]).unwrap();
        assert_eq!(result(reply).unwrap().count, 4);
    }
    assert_eq!(gate.writes.load(Ordering::SeqCst), 1, "it ran once");
}

#[test]
fn answers_are_remembered_up_to_a_number() {
    let folder = folder();
    let config = ServerConfig {
        answers_max: 64,
        ..config(vec![export("/export", folder.path(), open_rule())])
    };
    let server = nicache_nfs::Server::start(config, original()).unwrap();
    let mut client = Client::connect(server.addresses()[0]);
    let root = client.mount("/export").unwrap();
    for i in 0..500 {
        client.make_file(&root, format!("f{i}"));
    }
    assert!(server.sizes().answers <= 64, "{:?}", server.sizes());
}

/// Many connections send the same calls at the same time.
#[test]
fn a_storm_of_repetitions_runs_each_call_once() {
    let gate = Gate::new(true);
    let world = World::with(open_rule(), gate.clone());
    let (mut client, root) = world.mounted();
    let file = client.make_file(&root, "f");
    let xids: Vec<u32> = (0..40).map(|_| next_xid()).collect();
    let records: Vec<Vec<u8>> = xids
        .iter()
        .enumerate()
        .map(|(i, &xid)| {
            let data = [i as u8; 16];
            let arguments = packed(&WRITE3args {
                file: file.clone(),
                offset: 16 * i as u64,
                count: 16,
                stable: stable_how::UNSTABLE,
                data: Opaque::borrowed(&data),
            });
            client.record(NFS, Procedure::Write as u32, xid, &arguments)
        })
        .collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = world.client();
                for (record, &xid) in records.iter().zip(&xids) {
                    client.send(record);
                    assert_eq!(status(&client.results(xid)), 0);
                }
            });
        }
    });
    assert_eq!(gate.writes.load(Ordering::SeqCst), 40);
}
