//! Which statements the kernel's program takes for certain to change nothing: what would make one
//! uncertain at every place, and at the edges of what it looks at at once. The bytes go over a real
//! socket to a process that is taken for MariaDB by its name.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nicache_coherence::{RevisionTable, SourceSlot};
use nicache_watch::{EventKind, LookupRing, SqlStep};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{directory_on_ext4, watcher};

const PATIENCE: Duration = Duration::from_secs(20);

/// Greets, and answers each packet, header and rest read by themselves, with an OK.
const SERVER: &str = r#"
    syswrite(STDOUT, pack("C3Ca*", 5, 0, 0, 0, "hello"));
    while (sysread(STDIN, my $header, 4)) {
        my ($low, $high) = unpack("vC", $header);
        sysread(STDIN, my $text, $low + ($high << 16));
        syswrite(STDOUT, pack("C3CC7", 7, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0));
    }
"#;

/// The ring has one reader at a time.
static READER: Mutex<()> = Mutex::new(());

struct Database {
    _reader: MutexGuard<'static, ()>,
    stream: UnixStream,
    connection: u64,
    ring: LookupRing,
    table: &'static RevisionTable,
    process: Child,
    _program: TempDir,
}

impl Database {
    fn start() -> Self {
        let reader = READER.lock().unwrap_or_else(PoisonError::into_inner);
        let (watcher, table) = watcher();
        let folder = directory_on_ext4();
        let program = folder.path().join("mariadbd");
        std::fs::copy("/usr/bin/perl", &program).unwrap();
        let (stream, served) = UnixStream::pair().unwrap();
        let served = OwnedFd::from(served);
        let connection = rustix::fs::fstat(&served).unwrap().st_ino;
        let process = Command::new(program)
            .args(["-e", SERVER])
            .stdin(Stdio::from(served.try_clone().unwrap()))
            .stdout(Stdio::from(served))
            .spawn()
            .unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let ring = LookupRing::map(watcher.ring_fd()).unwrap();
        let mut database =
            Self { _reader: reader, stream, connection, ring, table, process, _program: folder };
        database.hear(9);
        // Who the client is; the first command has number 0.
        database.send(1, b"handshake");
        database
    }

    fn hear(&mut self, bytes: usize) {
        self.stream.read_exact(&mut vec![0; bytes]).unwrap();
    }

    fn send(&mut self, sequence: u8, payload: &[u8]) {
        let mut packet = (payload.len() as u32).to_le_bytes()[..3].to_vec();
        packet.push(sequence);
        packet.extend(payload);
        self.stream.write_all(&packet).unwrap();
        self.hear(11);
    }

    /// Was the query certain to change nothing, and told in full?
    fn is_certain(&mut self, text: &[u8]) -> bool {
        let payload = [&[3], text].concat();
        self.send(0, &payload);
        let deadline = Instant::now() + PATIENCE;
        let mut found = None;
        while found.is_none() {
            assert!(Instant::now() < deadline, "the statement is not told");
            let connection = self.connection;
            self.ring.drain(|event| {
                if let EventKind::Sql(sql) = event.kind
                    && sql.connection == connection
                    && let SqlStep::Received { certain, .. } = sql.what
                    && event.path.ends_with(&payload)
                {
                    found = Some(certain);
                }
            });
        }
        found.unwrap()
    }

    /// Was the query certain to change nothing? Asks again until no other database of this machine
    /// has meanwhile defined anything that a SELECT could call.
    fn is_question(&mut self, text: &[u8]) -> bool {
        // The one statement that is told may be another test's: then this one is certain the next
        // time.
        let mut uncertain = 0;
        while uncertain < 3 {
            let told = self.table.definitions_told();
            self.table.set_strict_sql(false, Some(told));
            if self.is_certain(text) {
                return true;
            }
            uncertain += u32::from(self.table.definitions_told() == told + 1);
        }
        false
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn what_makes_a_statement_uncertain_is_found_wherever_it_stands() {
    let mut database = Database::start();
    for text in [
        "SELECT 1",
        "  /* a */ select a from t where b = 'c'",
        "(SELECT 1)",
        "SHOW TABLES",
        "SELECT intl, nex, tva FROM tv",
    ] {
        assert!(database.is_question(text.as_bytes()), "{text}");
    }
    for needle in ["INTO", "into", "nextval", "SETVAL", "Next", ";"] {
        for before in 0..40 {
            for behind in [0, 1, 7, 30] {
                let text = format!("SELECT {}{needle}{}", "a".repeat(before), "b".repeat(behind));
                assert!(!database.is_question(text.as_bytes()), "{text}");
            }
        }
        let far = format!("SELECT {}{needle}", "a".repeat(4000));
        assert!(!database.is_question(far.as_bytes()), "{needle} far behind");
    }
}

#[test]
fn what_an_earlier_statement_left_behind_the_end_is_not_looked_at() {
    let mut database = Database::start();
    // What is longer leaves its end in the scratch memory, where a shorter one ends in front of it.
    for cut in 0..24 {
        let long = format!("SELECT {}into {}", "a".repeat(cut), ";".repeat(24));
        assert!(!database.is_question(long.as_bytes()), "{long}");
        let short = format!("SELECT {}", "a".repeat(cut + 1));
        assert!(database.is_question(short.as_bytes()), "{short}");
        let partial = format!("SELECT {}in", "a".repeat(cut));
        assert!(!database.is_question(long.as_bytes()), "{long}");
        assert!(database.is_question(partial.as_bytes()), "{partial}");
    }
}

/// A process that is taken for PostgreSQL by its name, and answers whatever it gets but the end.
struct Postgres {
    _reader: MutexGuard<'static, ()>,
    stream: UnixStream,
    connection: u64,
    ring: LookupRing,
    table: &'static RevisionTable,
    process: Child,
    _program: TempDir,
}

/// What serves a connection of [`Postgres`].
const SERVES: &str =
    "while (sysread(STDIN, my $text, 8192)) { $text =~ /^X/ or syswrite(STDOUT, 'Z') }";

impl Postgres {
    fn start() -> Self {
        Self::start_with(SERVES)
    }

    fn start_with(script: &str) -> Self {
        let reader = READER.lock().unwrap_or_else(PoisonError::into_inner);
        let (watcher, table) = watcher();
        let folder = directory_on_ext4();
        let program = folder.path().join("postgres");
        std::os::unix::fs::symlink("/usr/bin/perl", &program).unwrap();
        let (stream, served) = UnixStream::pair().unwrap();
        let served = OwnedFd::from(served);
        let connection = rustix::fs::fstat(&served).unwrap().st_ino;
        let process = Command::new(program)
            .args(["-e", script])
            .stdin(Stdio::from(served.try_clone().unwrap()))
            .stdout(Stdio::from(served))
            .spawn()
            .unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let ring = LookupRing::map(watcher.ring_fd()).unwrap();
        Self { _reader: reader, stream, connection, ring, table, process, _program: folder }
    }

    /// Is it certain that the message changes nothing?
    fn is_certain(&mut self, message: &[u8]) -> bool {
        self.stream.write_all(message).unwrap();
        if message[0] != b'X' {
            self.stream.read_exact(&mut [0]).unwrap();
        }
        let deadline = Instant::now() + PATIENCE;
        let mut found = None;
        while found.is_none() {
            assert!(Instant::now() < deadline, "the message is not told");
            let connection = self.connection;
            self.ring.drain(|event| {
                if let EventKind::Sql(sql) = event.kind
                    && sql.connection == connection
                    && let SqlStep::Received { certain, .. } = sql.what
                    && *event.path == *message
                {
                    found = Some(certain);
                }
            });
        }
        found.unwrap()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Nothing is known any longer of a connection that its client has ended: a transaction that begins
/// on it may be one that goes on.
#[test]
fn a_connection_of_postgresql_that_its_client_has_ended_takes_no_place() {
    const STARTUP: &[u8] = b"\0\0\0\x10\0\x03\0\0user\0a\0\0";
    const BEGIN: &[u8] = b"Q\0\0\0\x0aBEGIN\0";
    const SYNC: &[u8] = b"S\0\0\0\x04";
    const END: &[u8] = b"X\0\0\0\x04";
    let mut database = Postgres::start();
    // Another test's database may define something that a new connection could call.
    let begins = (0..50).any(|_| {
        let told = database.table.definitions_told();
        database.table.set_strict_sql(false, Some(told));
        database.is_certain(STARTUP)
    });
    assert!(begins);
    assert!(database.is_certain(BEGIN) && database.is_certain(SYNC) && database.is_certain(BEGIN));
    assert!(database.is_certain(END));
    assert!(!database.is_certain(BEGIN), "it is known for the one from before");
}

/// A statement concerns the pages of its own server, and of no other one; once the server's first
/// process has ended, all.
#[test]
fn a_statement_stamps_its_own_server() {
    const CHANGE: &[u8] = b"Q\0\0\0\x0bDROP a\0";
    let mut database = Postgres::start_with(&format!("if (fork) {{ wait; }} else {{ {SERVES} }}"));
    let (table, first) = (database.table, database.process.id());
    let slots = [first, first + 1].map(SourceSlot::of_database);
    let mut stamped = || {
        let stamp = table.advance_clock();
        assert!(!database.is_certain(CHANGE));
        [slots[0], slots[1], SourceSlot::DATABASES].map(|slot| table.stamp_of(slot) >= stamp)
    };
    // Another test's database may have the slot of a neighbor, begin or crash.
    assert!((0..50).any(|_| {
        let [own, neighbors, all] = stamped();
        assert!(own);
        !neighbors && !all
    }));
    kill_process(Pid::from_raw(first as i32).unwrap(), Signal::KILL).unwrap();
    let gone = || std::fs::read_to_string(format!("/proc/{first}/stat")).unwrap().contains(") Z ");
    while !gone() {
        std::thread::yield_now();
    }
    assert!((0..50).any(|_| {
        let [own, _, all] = stamped();
        assert!(all, "it goes on without its first process");
        !own
    }));
}

/// PostgreSQL reads what an import sends by 8 KB. The ring has room for a moment of that, until the
/// watcher comes.
#[test]
fn the_ring_has_room_for_an_import() {
    let mut database = Postgres::start();
    let message = [b'd'; 8192];
    let fits = (0..5).any(|_| {
        database.ring.drain(|_| ());
        let before = database.table.lost();
        for _ in 0..500 {
            database.stream.write_all(&message).unwrap();
            database.stream.read_exact(&mut [0]).unwrap();
        }
        // Those of other tests' databases are there, too.
        database.table.lost() == before
    });
    assert!(fits, "events are lost");
}

/// Reads by a call of 32-bit programs.
const COMPAT: &str = r#"
import ctypes, mmap, os, struct
memory = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40,
                   mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
# mov eax, 3 (read); mov ebx, 0; mov ecx, address + 2048; mov edx, 16; int 0x80; ret: ebx is kept.
code = b"\x53\xb8\x03\0\0\0\xbb\0\0\0\0\xb9" + struct.pack("<I", address + 2048) + b"\xba\x10\0\0\0\xcd\x80\x5b\xc3"
memory[:len(code)] = code
read = ctypes.CFUNCTYPE(ctypes.c_int)(address)
os.write(1, b"u")
os.read(0, 1)
os.write(1, b"%d" % (read() == 16))
os.read(0, 1)
"#;

/// What it receives would not be seen.
#[test]
fn a_database_server_of_32_bits_is_a_stranger() {
    let _reader = READER.lock().unwrap_or_else(PoisonError::into_inner);
    let (watcher, table) = watcher();
    let folder = directory_on_ext4();
    let program = folder.path().join("mariadbd");
    std::os::unix::fs::symlink("/usr/bin/python3", &program).unwrap();
    let (mut stream, served) = UnixStream::pair().unwrap();
    let served = OwnedFd::from(served);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut process = Command::new(program)
        .args(["-c", COMPAT])
        .stdin(Stdio::from(served.try_clone().unwrap()))
        .stdout(Stdio::from(served))
        .spawn()
        .unwrap();
    let mut ask = || -> std::io::Result<(bool, [u8; 1], bool)> {
        // It is up.
        stream.read_exact(&mut [0])?;
        let was_followed = watcher.databases().contains(process.id());
        stream.write_all(&[b'?'; 17])?;
        // Some kernels have no such calls: it is ended for one, or gets an error.
        let mut answer = [b'0'];
        match stream.read_exact(&mut answer) {
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => return Err(error),
            _ => {}
        }
        Ok((was_followed, answer, watcher.databases().contains(process.id())))
    };
    let stamp = table.advance_clock();
    let asked = ask();
    let _ = process.kill();
    let _ = process.wait();
    let (was_followed, answer, is_followed) = asked.unwrap();
    assert!(was_followed);
    if answer == *b"1" {
        assert!(!is_followed);
        assert!(table.stamp_of(SourceSlot::DATABASES) >= stamp);
    }
}
