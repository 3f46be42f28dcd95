//! What clients do not send: wrong lengths, fragments, forged heads; and clients that go or do not
//! read.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nfs3_types::nfs3::*;
use nfs3_types::xdr_codec::Opaque;
use nicache_nfs::protocol::{MOUNT, NFS, Procedure, Program};
use nicache_nfs::{ClientRule, PauseLimits, Server, ServerConfig};
use nicache_payload::{Extent, FileId, Payload, Stability};

use crate::world::*;

/// The words of a reply.
fn words(reply: &[u8]) -> Vec<u32> {
    reply.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect()
}

fn answer(client: &mut Client, record: &[u8]) -> Vec<u32> {
    client.send(record);
    words(&client.receive().expect("a reply"))
}

#[test]
fn calls_that_are_not_served_are_refused_as_rpc_says() {
    let world = World::new();
    let mut client = world.client();
    let program = |number, version| Program { number, version };
    let xid = 77;
    let credential = client.credential.clone();
    let record = |program, procedure| record(program, procedure, xid, &credential, &[]);
    assert_eq!(
        answer(&mut client, &record(program(100_021, 4), 0)),
        [xid, 1, 0, 0, 0, 1],
        "no NLM"
    );
    assert_eq!(answer(&mut client, &record(program(100_003, 4), 0)), [xid, 1, 0, 0, 0, 2, 3, 3]);
    assert_eq!(answer(&mut client, &record(program(100_003, 2), 1)), [xid, 1, 0, 0, 0, 2, 3, 3]);
    assert_eq!(answer(&mut client, &record(program(100_005, 1), 1)), [xid, 1, 0, 0, 0, 2, 3, 3]);
    assert_eq!(answer(&mut client, &record(NFS, 22)), [xid, 1, 0, 0, 0, 3]);
    assert_eq!(answer(&mut client, &record(MOUNT, 6)), [xid, 1, 0, 0, 0, 3]);
    for procedure in 1..22 {
        assert_eq!(
            answer(&mut client, &record(NFS, procedure)),
            [xid, 1, 0, 0, 0, 4],
            "without arguments"
        );
    }
    let mut other_version = record(NFS, 0);
    other_version[11] = 3;
    assert_eq!(answer(&mut client, &other_version), [xid, 1, 1, 0, 2, 2]);
    // RPCSEC_GSS, and AUTH_SYS that is none.
    let mut gss = record(NFS, 1);
    gss[27] = 6;
    assert_eq!(answer(&mut client, &gss), [xid, 1, 1, 1, 5]);
    let mut short = user(0, 0, &[]);
    short.body = Opaque::owned(vec![0; 8]);
    let bad = crate::world::record(NFS, 1, xid, &short, &[]);
    assert_eq!(answer(&mut client, &bad), [xid, 1, 1, 1, 1]);
    let null = crate::world::record(NFS, 0, xid, &short, &[]);
    assert_eq!(
        answer(&mut client, &null),
        [xid, 1, 0, 0, 0, 0],
        "anybody may ask whether somebody is there"
    );
}

/// Waits for something of the server's. Has it ended the connection, or refused it?
fn is_ended(stream: &TcpStream) -> bool {
    let received = rustix::io::retry_on_intr(|| rustix::io::read(stream, &mut [0]));
    matches!(received, Ok(0) | Err(rustix::io::Errno::CONNRESET))
}

#[test]
fn what_is_no_call_ends_the_connection() {
    let world = World::new();
    let good = world.client().record(NFS, 0, 5, &[]);
    let mut reply = good.clone();
    reply[7] = 1;
    let mut long_credential = good.clone();
    long_credential[28..32].copy_from_slice(&[0, 0, 2, 0]);
    for bad in [&good[..3], &good[..20], &[], &reply, &long_credential] {
        let mut client = world.client();
        client.send(bad);
        assert_eq!(client.receive(), None);
        assert!(is_ended(&client.stream));
    }
    let mut client = world.client();
    client.stream.write_all(&0x7fff_ffffu32.to_be_bytes()).unwrap();
    assert_eq!(client.receive(), None, "a record of 2 GiB");
    until("all connections are gone", || {
        let mut one = world.client();
        one.null();
        world.server.sizes().connections <= 1
    });
    assert_eq!(world.server.metrics().bad_records, 6);
}

#[test]
fn a_write_has_as_many_bytes_as_it_says() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let file = client.make_file(&root, "f");
    let mut write = |count: u32, data_bytes: u32, there: usize| {
        let mut arguments = packed(&file);
        arguments.extend_from_slice(&0u64.to_be_bytes());
        for word in [count, 2, data_bytes] {
            arguments.extend_from_slice(&word.to_be_bytes());
        }
        arguments.extend_from_slice(&vec![b'x'; there]);
        let record = client.record(NFS, Procedure::Write as u32, next_xid(), &arguments);
        answer(&mut client, &record)[5..7].to_vec()
    };
    let inval = Stat::NFS3ERR_INVAL as u32;
    assert_eq!(write(8, 8, 8), [0, 0]);
    for (count, data_bytes, there) in [
        (7, 8, 8),
        (9, 8, 8),
        (8, 8, 4),
        (8, 8, 0),
        (0, 8, 8),
        (u32::MAX, 8, 8),
        (u32::MAX, u32::MAX, 8),
        (1 << 20, 1 << 20, 8),
        ((1 << 20) + 4, (1 << 20) + 4, 1000),
        (200_000, 200_000, 199_996),
    ] {
        assert_eq!(
            write(count, data_bytes, there),
            [0, inval],
            "count {count}, {data_bytes} bytes said, {there} there"
        );
    }
    assert_eq!(fs::read(world.path.join("f")).unwrap(), b"xxxxxxxx");
}

#[test]
fn fragments_are_put_together() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let file = client.make_file(&root, "f");
    let data: Vec<u8> = (0..100_003u32).map(|i| (i * 7) as u8).collect();
    for fragment in [1, 5, 100, 4096, 65_536] {
        let arguments = packed(&WRITE3args {
            file: file.clone(),
            offset: 0,
            count: data.len() as u32,
            stable: stable_how::UNSTABLE,
            data: Opaque::borrowed(&data),
        });
        let xid = next_xid();
        let record = client.record(NFS, Procedure::Write as u32, xid, &arguments);
        let mut out = Vec::new();
        for piece in record.chunks(fragment) {
            out.extend_from_slice(&(piece.len() as u32).to_be_bytes());
            out.extend_from_slice(piece);
        }
        out.extend_from_slice(&0x8000_0000u32.to_be_bytes()); // The last one is empty.
        client.stream.write_all(&out).unwrap();
        assert_eq!(client.results(xid)[..4], [0; 4]);
        assert!(fs::read(world.path.join("f")).unwrap() == data);
        client.setattr(&file, size(0), Nfs3Option::None).unwrap();
    }
    // Slowly, byte by byte, with a call behind it.
    let xid = next_xid();
    let mut bytes = vec![0x80, 0, 0, 0];
    let record = client.record(NFS, 1, xid, &packed(&file));
    bytes[2..4].copy_from_slice(&(record.len() as u16).to_be_bytes());
    bytes.extend_from_slice(&record);
    for byte in &bytes {
        client.stream.write_all(&[*byte]).unwrap();
    }
    assert_eq!(client.results(xid)[..4], [0; 4]);
}

#[test]
fn a_client_that_goes_in_the_middle_of_a_write_writes_nothing() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let file = client.make_file(&root, "f");
    client.write(&file, 0, b"before", stable_how::FILE_SYNC).unwrap();
    let data = vec![b'x'; 300_000];
    let arguments = packed(&WRITE3args {
        file: file.clone(),
        offset: 0,
        count: 300_000,
        stable: stable_how::UNSTABLE,
        data: Opaque::borrowed(&data),
    });
    let record = client.record(NFS, Procedure::Write as u32, next_xid(), &arguments);
    for there in [10, 100, 200, 5000, 100_000, record.len() - 1] {
        let mut going = world.client();
        going.stream.write_all(&(0x8000_0000 | record.len() as u32).to_be_bytes()).unwrap();
        going.stream.write_all(&record[..there]).unwrap();
        going.stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(going.receive(), None, "{there} bytes of it");
    }
    assert_eq!(fs::read(world.path.join("f")).unwrap(), b"before");
    until("the connections are gone", || world.server.sizes().connections == 1);
}

/// Requests are executed side by side, and none is lost, however many a client sends at once.
#[test]
fn many_requests_at_once() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let file = client.make_file(&root, "f");
    client.write(&file, 0, &vec![5; 1 << 20], stable_how::UNSTABLE).unwrap();
    let first = next_xid() + 100_000;
    let mut out = Vec::new();
    let count = 3000u32;
    for i in 0..count {
        let record = if i.is_multiple_of(3) {
            client.record(NFS, 1, first + i, &packed(&file))
        } else {
            client.record(
                NFS,
                6,
                first + i,
                &packed(&READ3args { file: file.clone(), offset: u64::from(i), count: i % 5000 }),
            )
        };
        out.extend_from_slice(&(0x8000_0000 | record.len() as u32).to_be_bytes());
        out.extend_from_slice(&record);
    }
    let mut sender = client.stream.try_clone().unwrap();
    let thread = std::thread::spawn(move || sender.write_all(&out).unwrap());
    let mut seen = vec![false; count as usize];
    for _ in 0..count {
        let reply = client.receive().unwrap();
        let words = words(&reply[..28]);
        assert_eq!(words[1..7], [1, 0, 0, 0, 0, 0]);
        let i = words[0] - first;
        assert!(!std::mem::replace(&mut seen[i as usize], true), "a reply comes once");
        if !i.is_multiple_of(3) {
            let len = (i % 5000) as usize;
            assert_eq!(reply.len(), 28 + 4 + 84 + 4 + 4 + 4 + len.next_multiple_of(4));
        }
    }
    thread.join().unwrap();
}

/// A request that waits for a disk stops no others of its connection, nor the replies that were
/// ready before it.
#[test]
fn a_slow_request_stops_no_others() {
    let gate = crate::duplicates::Gate::new(true);
    let world = World::with(open_rule(), gate.clone());
    let (mut client, root) = world.mounted();
    let file = client.make_file(&root, "f");
    gate.set(false);
    let write = packed(&WRITE3args {
        file: file.clone(),
        offset: 0,
        count: 4,
        stable: stable_how::UNSTABLE,
        data: Opaque::borrowed(b"slow"),
    });
    let slow = next_xid();
    let (first, last) = (next_xid(), next_xid());
    let mut out = Vec::new();
    for record in [
        client.record(NFS, 1, first, &packed(&file)),
        client.record(NFS, 7, slow, &write),
        client.record(NFS, 1, last, &packed(&file)),
    ] {
        out.extend_from_slice(&(0x8000_0000 | record.len() as u32).to_be_bytes());
        out.extend_from_slice(&record);
    }
    client.stream.write_all(&out).unwrap();
    for results in client.results_of([first, last]) {
        assert_eq!(results[..4], [0; 4]);
    }
    // Also what comes only now.
    client.getattr(&file).unwrap();
    gate.set(true);
    assert_eq!(client.results(slow)[..4], [0; 4]);
}

/// A client that asks and does not read costs no more than the limit.
#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let folder = folder();
    fs::write(folder.path().join("f"), vec![7; 1 << 20]).unwrap();
    let config = config(vec![export("/export", folder.path(), open_rule())]);
    let pause = PauseLimits { requests_max: 8, unsent_bytes_max: 2 << 20, ..config.pause };
    let config = ServerConfig { pause, ..config };
    let server = Server::start(config, original()).unwrap();
    let mut client = Client::connect(server.addresses()[0]);
    let root = client.mount("/export").unwrap();
    let file = client.lookup(&root, "f").unwrap();
    let (first, count) = (next_xid() + 200_000, 400);
    let mut sender = client.stream.try_clone().unwrap();
    let records: Vec<_> = (0..count)
        .map(|i| {
            client.record(
                NFS,
                6,
                first + i,
                &packed(&READ3args { file: file.clone(), offset: 0, count: 1 << 20 }),
            )
        })
        .collect();
    let thread = std::thread::spawn(move || {
        for record in records {
            sender.write_all(&(0x8000_0000 | record.len() as u32).to_be_bytes()).unwrap();
            sender.write_all(&record).unwrap();
        }
    });
    until("it is paused", || server.metrics().pauses > 0);
    // Others are served meanwhile.
    let mut other = Client::connect(server.addresses()[0]);
    for _ in 0..100 {
        other.getattr(&file).unwrap();
    }
    let executed = server.metrics().procedure(Procedure::Read).calls;
    assert!(executed < 60, "{executed} replies of 1 MiB were made for nobody");
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..count {
        let reply = client.receive().unwrap();
        assert_eq!(reply.len(), 24 + 4 + 88 + 12 + (1 << 20));
        assert!(reply[128..].iter().all(|&byte| byte == 7));
        seen.insert(words(&reply[..4])[0]);
    }
    assert_eq!(seen.len(), count as usize);
    thread.join().unwrap();
}

/// Payload whose replies are out of a memory of so many bytes.
struct Memory {
    inner: Arc<dyn Payload>,
    bytes_max: usize,
    used: Arc<AtomicUsize>,
    used_max: AtomicUsize,
}

/// What a reply has of it.
struct Part(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.1.fetch_sub(self.0.len(), Ordering::SeqCst);
    }
}

impl Memory {
    fn new(bytes_max: usize) -> Arc<Self> {
        let (used, used_max) = Default::default();
        Arc::new(Self { inner: original(), bytes_max, used, used_max })
    }
}

impl Payload for Memory {
    fn read(&self, _: &File, _: FileId, _: u64, len: u32) -> io::Result<Vec<Extent>> {
        let len = len as usize;
        let used = self.used.fetch_add(len, Ordering::SeqCst) + len;
        let part = Part(vec![7; len], self.used.clone());
        if used > self.bytes_max {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.used_max.fetch_max(used, Ordering::SeqCst);
        Ok(vec![Extent::from_owner(part)])
    }

    fn write(
        &self,
        file: &File,
        id: FileId,
        offset: u64,
        data: &[Extent],
        stability: Stability,
    ) -> io::Result<()> {
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

/// A file of 1 MiB, served out of a memory.
fn lender(memory: &Arc<Memory>, pause: PauseLimits) -> (Server, tempfile::TempDir) {
    let folder = folder();
    fs::write(folder.path().join("f"), vec![7; 1 << 20]).unwrap();
    let config =
        ServerConfig { pause, ..config(vec![export("/export", folder.path(), open_rule())]) };
    (Server::start(config, memory.clone()).unwrap(), folder)
}

/// Asks for 1 MiB so often, and does not look at replies.
fn ask(client: &mut Client, file: &nfs_fh3, count: usize) {
    for _ in 0..count {
        let read = packed(&READ3args { file: file.clone(), offset: 0, count: 1 << 20 });
        let record = client.record(NFS, 6, next_xid(), &read);
        client.send(&record);
    }
}

const PAUSE: PauseLimits = PauseLimits {
    requests_max: 64,
    unsent_bytes_max: 8 << 20,
    unsent_bytes_all_max: 64 << 20,
    unsent_timeout: MINUTE,
};

/// Memory that a client's replies hold comes back, also if the client stays and never takes them.
#[test]
fn a_client_that_takes_no_replies_is_ended() {
    let memory = Memory::new(4 << 20);
    let pause = PauseLimits { unsent_timeout: Duration::from_millis(300), ..PAUSE };
    let (server, _folder) = lender(&memory, pause);
    let mut other = Client::connect(server.addresses()[0]);
    let root = other.mount("/export").unwrap();
    let file = other.lookup(&root, "f").unwrap();
    let mut stopped = Client::connect(server.addresses()[0]);
    ask(&mut stopped, &file, 64);
    until("it is ended", || server.metrics().stuck_connections == 1);
    until("memory is free", || memory.used.load(Ordering::SeqCst) == 0);
    assert_eq!(other.read(&file, 0, 1 << 20).unwrap().0.len(), 1 << 20);
    assert_eq!(server.sizes().connections, 1);
}

/// Many such clients hold no more than all may together, and lose nothing.
#[test]
fn replies_of_all_clients_together_are_limited() {
    const CLIENTS: usize = 6;
    const COUNT: usize = 24;
    let memory = Memory::new(usize::MAX);
    let pause = PauseLimits { unsent_bytes_all_max: 2 << 20, ..PAUSE };
    let (server, _folder) = lender(&memory, pause);
    let mut clients: Vec<Client> =
        (0..CLIENTS).map(|_| Client::connect(server.addresses()[0])).collect();
    let root = clients[0].mount("/export").unwrap();
    let file = clients[0].lookup(&root, "f").unwrap();
    clients.iter_mut().for_each(|client| ask(client, &file, COUNT));
    until("all are paused", || server.metrics().pauses >= CLIENTS as u64);
    for client in &mut clients {
        for _ in 0..COUNT {
            assert_eq!(client.receive().unwrap().len(), 24 + 4 + 88 + 12 + (1 << 20));
        }
    }
    // What the limit is, and one reply of each client and of each of four workers.
    let used_max = memory.used_max.load(Ordering::SeqCst);
    assert!(used_max <= (2 + CLIENTS + 4) << 20, "{used_max} bytes");
}

/// A server with room for eight connections, for 127.0.0.1 only.
fn crowded(request_timeout: Duration, payload: Arc<dyn Payload>) -> (Server, tempfile::TempDir) {
    let folder = folder();
    let here = ClientRule { network: "127.0.0.1".parse().unwrap(), ..open_rule() };
    let config = ServerConfig {
        connections_max: 8,
        workers: 12,
        request_timeout,
        ..config(vec![export("/export", folder.path(), here)])
    };
    (Server::start(config, payload).unwrap(), folder)
}

/// A connection from another address of this machine, which no export lets in.
fn stranger(address: SocketAddr) -> Client {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, 2], 0))).unwrap();
    connect(&socket, &address).unwrap();
    Client::over(TcpStream::from(socket))
}

/// One that was let in. While a worker has not quite done with the last one, its place is not free.
fn stranger_let_in(address: SocketAddr) -> Client {
    let mut found = None;
    until("there is a place for a stranger", || {
        let mut client = stranger(address);
        let record = client.record(NFS, 0, next_xid(), &[]);
        let _ = client.stream.write_all(&(0x8000_0000 | record.len() as u32).to_be_bytes());
        let _ = client.stream.write_all(&record);
        found = client.receive().map(|_| client);
        found.is_some()
    });
    found.unwrap()
}

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn connections_that_are_silent_keep_nobody_out() {
    let (server, _folder) = crowded(MINUTE, original());
    let address = server.addresses()[0];
    let mut silent: Vec<Client> = (0..8).map(|_| Client::connect(address)).collect();
    // Two of them have begun a request.
    for client in &mut silent[..2] {
        client.stream.write_all(&[0x80, 0]).unwrap();
    }
    until("all are there", || server.sizes().connections == 8);
    let mut newcomers = Vec::new();
    for _ in 0..16 {
        let mut newcomer = Client::connect(address);
        newcomer.null();
        newcomers.push(newcomer);
        assert_eq!(server.sizes().connections, 8);
    }
    assert_eq!(server.metrics().replaced_connections, 16);
    assert_eq!(server.metrics().refused_connections, 0);
}

#[test]
fn nobody_gives_way_to_a_stranger() {
    let (server, _folder) = crowded(MINUTE, original());
    let address = server.addresses()[0];
    let mut kept: Vec<Client> = (0..4).map(|_| Client::connect(address)).collect();
    kept.iter_mut().for_each(Client::null);
    // Strangers hear that they may not, and have one place of the eight.
    let strangers: Vec<Client> = (0..20)
        .map(|_| {
            let mut client = stranger_let_in(address);
            assert_eq!(client.mount("/export"), Err(Stat::NFS3ERR_ACCES as u32));
            client
        })
        .collect();
    assert_eq!(server.sizes().connections, 5);
    for client in &strangers[..19] {
        assert!(is_ended(&client.stream), "ended");
    }
    // They are the first to give way.
    kept.extend((0..4).map(|_| Client::connect(address)));
    kept.iter_mut().for_each(Client::null);
    assert!(is_ended(&strangers[19].stream), "ended");
    assert!(is_ended(&stranger(address).stream), "refused");
    kept.iter_mut().for_each(Client::null);
}

#[test]
fn connections_with_something_to_do_are_limited() {
    let gate = crate::duplicates::Gate::new(true);
    let (server, _folder) = crowded(MINUTE, gate.clone());
    let address = server.addresses()[0];
    let mut kept: Vec<Client> = (0..8).map(|_| Client::connect(address)).collect();
    let root = kept[0].mount("/export").unwrap();
    let file = kept[0].make_file(&root, "f");
    gate.set(false);
    let calls: Vec<u32> = kept
        .iter_mut()
        .map(|client| {
            let write = packed(&WRITE3args {
                file: file.clone(),
                offset: 0,
                count: 4,
                stable: stable_how::UNSTABLE,
                data: Opaque::borrowed(b"slow"),
            });
            let xid = next_xid();
            let record = client.record(NFS, Procedure::Write as u32, xid, &write);
            client.send(&record);
            xid
        })
        .collect();
    until("all are under way", || gate.writes.load(Ordering::SeqCst) == 8);
    assert!(is_ended(&TcpStream::connect(address).unwrap()));
    assert_eq!(server.metrics().refused_connections, 1);
    gate.set(true);
    for (client, xid) in kept.iter_mut().zip(calls) {
        assert_eq!(client.results(xid)[..4], [0; 4]);
    }
}

#[test]
fn half_a_request_does_not_wait_for_ever() {
    let (server, _folder) = crowded(Duration::from_millis(100), original());
    let mut client = Client::connect(server.addresses()[0]);
    client.null();
    client.stream.write_all(&[0x80, 0]).unwrap();
    until("it is ended", || server.sizes().connections == 0);
    assert_eq!(client.receive(), None);
}

/// Requests that wait for others of their connection are not "half a request".
#[test]
fn requests_that_wait_are_not_given_up() {
    let gate = crate::duplicates::Gate::new(true);
    let folder = folder();
    let config = config(vec![export("/export", folder.path(), open_rule())]);
    let pause = PauseLimits { requests_max: 1, ..config.pause };
    let request_timeout = Duration::from_millis(100);
    let config = ServerConfig { pause, request_timeout, ..config };
    let server = Server::start(config, gate.clone()).unwrap();
    let mut client = Client::connect(server.addresses()[0]);
    let root = client.mount("/export").unwrap();
    let file = client.make_file(&root, "f");
    gate.set(false);
    let write = packed(&WRITE3args {
        file: file.clone(),
        offset: 0,
        count: 4,
        stable: stable_how::UNSTABLE,
        data: Opaque::borrowed(b"slow"),
    });
    let calls = [next_xid(), next_xid(), next_xid()];
    let mut out = Vec::new();
    for record in [
        client.record(NFS, 7, calls[0], &write),
        client.record(NFS, 1, calls[1], &packed(&file)),
        client.record(NFS, 1, calls[2], &packed(&file)),
    ] {
        out.extend_from_slice(&(0x8000_0000 | record.len() as u32).to_be_bytes());
        out.extend_from_slice(&record);
    }
    client.stream.write_all(&out).unwrap();
    until("it is paused", || server.metrics().pauses > 0);
    // Another one's half request is given up, so it was looked for those.
    let mut other = Client::connect(server.addresses()[0]);
    for _ in 0..2 {
        other.stream.write_all(&[0x80, 0]).unwrap();
        assert_eq!(other.receive(), None);
        other = Client::connect(server.addresses()[0]);
    }
    gate.set(true);
    for results in client.results_of(calls) {
        assert_eq!(results[..4], [0; 4]);
    }
}

/// Any bytes at all, on many connections; the server is as it was.
#[test]
fn noise() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let file = client.make_file(&root, "f");
    client.write(&file, 0, b"kept", stable_how::FILE_SYNC).unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..300 {
        let mut noisy = world.client();
        let mut arguments = packed(&file);
        arguments.extend((0..random.usize(..200)).map(|_| random.u8(..)));
        let mut record = noisy.record(NFS, random.u32(1..22), random.u32(..), &arguments);
        for _ in 0..random.usize(..4) {
            let at = random.usize(..record.len());
            record[at] = if random.bool() { 0xff } else { random.u8(..) };
        }
        let _ = noisy.stream.write_all(&(0x8000_0000 | record.len() as u32).to_be_bytes());
        let _ = noisy.stream.write_all(&record);
        let _ = noisy.stream.shutdown(Shutdown::Write);
        noisy.stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let _ = noisy.stream.read_to_end(&mut Vec::new());
    }
    client.getattr(&root).unwrap();
}
