//! Operations per second of an NFS server, and what each costs it.
//!
//! `load NFS-ADDRESS MOUNT-ADDRESS EXPORT PID SECONDS OPERATION...`: makes files below the export,
//! asks for each operation for so long on two connections with eight calls under way on each, and
//! prints calls per second and the CPU time of process PID per call. Operations: null getattr
//! lookup access fsstat read4k read64k read1m write4k write64k write1m create readdirplus.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nicache_nfs::protocol::{MOUNT, NFS, Procedure, Program};
use nicache_nfs::xdr::{Reader, put};

type Error = Box<dyn std::error::Error + Send + Sync>;

const CONNECTIONS: u32 = 2;
const UNDER_WAY: u32 = 8;
const FILES: u32 = 64;
const FILE_BYTES: u64 = 4 << 20;
/// NFSERR_EXIST and NFSERR_NOENT: CREATE and REMOVE overtake each other.
const HARMLESS: [u32; 3] = [0, 2, 17];

struct Client {
    stream: TcpStream,
    xid: u32,
    reply: Vec<u8>,
}

impl Client {
    fn connect(address: &str, first_xid: u32) -> Result<Self, Error> {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let address: std::net::SocketAddr = address.parse()?;
        for port in (512..1024).rev() {
            let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
            if bind(socket.as_fd(), &std::net::SocketAddr::from(([127, 0, 0, 1], port))).is_err() {
                continue;
            }
            connect(socket.as_fd(), &address)?;
            let stream = TcpStream::from(socket);
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(Duration::from_secs(20)))?;
            return Ok(Self { stream, xid: first_xid, reply: Vec::new() });
        }
        Err("no reserved port is free".into())
    }

    fn put_call(&mut self, out: &mut Vec<u8>, program: Program, procedure: u32, arguments: &[u8]) {
        self.xid += 1;
        let head = [self.xid, 0, 2, program.number, program.version, procedure, 1, 24, 0, 4];
        put::u32(out, 0x8000_0000 | (4 * (head.len() as u32 + 6) + arguments.len() as u32));
        head.iter().for_each(|&word| put::u32(out, word));
        out.extend_from_slice(b"load");
        // user, group, no groups, no verifier
        [0, 0, 0, 0, 0].iter().for_each(|&word| put::u32(out, word));
        out.extend_from_slice(arguments);
    }

    /// The results of the next reply.
    fn receive(&mut self) -> Result<&[u8], Error> {
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark)?;
        self.reply.resize((u32::from_be_bytes(mark) & 0x7fff_ffff) as usize, 0);
        self.stream.read_exact(&mut self.reply)?;
        if self.reply[4..24] != [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] {
            return Err("a call was refused".into());
        }
        Ok(&self.reply[24..])
    }

    fn call(
        &mut self,
        program: Program,
        procedure: u32,
        arguments: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        self.put_call(&mut out, program, procedure, arguments);
        self.stream.write_all(&out)?;
        let results = self.receive()?.to_vec();
        if results.len() >= 4 && results[..4] != [0; 4] {
            return Err(format!("procedure {procedure} answered {:?}", &results[..4]).into());
        }
        Ok(results)
    }
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put::opaque(&mut out, bytes);
    out
}

/// The handle behind a status and, if `is_optional`, a flag.
fn handle(results: &[u8], is_optional: bool) -> Result<Vec<u8>, Error> {
    Ok(Reader::new(&results[if is_optional { 8 } else { 4 }..]).opaque(64)?.to_vec())
}

struct Target {
    root: Vec<u8>,
    files: Vec<Vec<u8>>,
}

fn prepare(nfs: &str, mount: &str, export: &str) -> Result<Target, Error> {
    let root =
        handle(&Client::connect(mount, 1)?.call(MOUNT, 1, &opaque(export.as_bytes()))?, false)?;
    let mut client = Client::connect(nfs, 1000)?;
    let mut files = Vec::new();
    for i in 0..FILES {
        let name = opaque(format!("load-{i}").as_bytes());
        let place = [opaque(&root), name].concat();
        // UNCHECKED, mode 0644, nothing else.
        let how = [0, 1, 0o644, 0, 0, 0, 0, 0].iter().flat_map(|word: &u32| word.to_be_bytes());
        client.call(NFS, 8, &[&place[..], &how.collect::<Vec<_>>()].concat())?;
        let file = handle(&client.call(NFS, 3, &place)?, false)?;
        for block in 0..FILE_BYTES >> 20 {
            client.call(NFS, 7, &write(&file, block << 20, 1 << 20))?;
        }
        files.push(file);
    }
    Ok(Target { root, files })
}

fn write(file: &[u8], offset: u64, len: u32) -> Vec<u8> {
    let mut out = opaque(file);
    put::u64(&mut out, offset);
    put::u32(&mut out, len);
    put::u32(&mut out, 0);
    put::opaque(&mut out, &vec![0x5a; len as usize]);
    out
}

fn read(file: &[u8], offset: u64, len: u32) -> Vec<u8> {
    let mut out = opaque(file);
    put::u64(&mut out, offset);
    put::u32(&mut out, len);
    out
}

/// The next call of an operation: its procedure and arguments.
fn next(
    operation: &str,
    target: &Target,
    random: &mut fastrand::Rng,
    connection: u32,
    round: u32,
) -> Result<(Procedure, Vec<u8>), Error> {
    let index = random.u32(..FILES);
    let file = &target.files[index as usize];
    let at = |random: &mut fastrand::Rng, len: u64| random.u64(..FILE_BYTES / len) * len;
    let place = |name: String| [opaque(&target.root), opaque(name.as_bytes())].concat();
    Ok(match operation {
        "null" => (Procedure::Null, vec![]),
        "getattr" => (Procedure::GetAttr, opaque(file)),
        "lookup" => (Procedure::Lookup, place(format!("load-{index}"))),
        "access" => (Procedure::Access, [opaque(file), vec![0, 0, 0, 0x3f]].concat()),
        "fsstat" => (Procedure::FsStat, opaque(&target.root)),
        "read4k" => (Procedure::Read, read(file, at(random, 4096), 4096)),
        "read64k" => (Procedure::Read, read(file, at(random, 65_536), 65_536)),
        "read1m" => (Procedure::Read, read(file, at(random, 1 << 20), 1 << 20)),
        "write4k" => (Procedure::Write, write(file, at(random, 4096), 4096)),
        "write64k" => (Procedure::Write, write(file, at(random, 65_536), 65_536)),
        "write1m" => (Procedure::Write, write(file, at(random, 1 << 20), 1 << 20)),
        "create" => {
            // Each name is created and, some calls later, removed.
            let name = |round: u32| place(format!("new-{connection}-{round}"));
            if round.is_multiple_of(2) {
                let how =
                    [0, 1, 0o644, 0, 0, 0, 0, 0].iter().flat_map(|word: &u32| word.to_be_bytes());
                (Procedure::Create, name(round).into_iter().chain(how).collect())
            } else {
                (Procedure::Remove, name((round - 1).saturating_sub(2 * UNDER_WAY)))
            }
        }
        "readdirplus" => {
            let mut out = opaque(&target.root);
            [0, 0, 0, 0, 8192, 32_768].iter().for_each(|&word| put::u32(&mut out, word));
            (Procedure::ReadDirPlus, out)
        }
        other => return Err(format!("'{other}' is not an operation").into()),
    })
}

/// Calls within `time` on one connection.
fn ask(
    nfs: &str,
    operation: &str,
    target: &Target,
    connection: u32,
    time: Duration,
) -> Result<u64, Error> {
    let mut client = Client::connect(nfs, (connection + 1) << 24 | fastrand::u32(..1 << 23))?;
    let mut random = fastrand::Rng::with_seed(connection.into());
    let (mut sent, mut received, mut out) = (0, 0u64, Vec::new());
    let end = Instant::now() + time;
    loop {
        let is_over = Instant::now() >= end;
        if is_over && received == u64::from(sent) {
            return Ok(received);
        }
        while !is_over && u64::from(sent) - received < u64::from(UNDER_WAY) {
            let (procedure, arguments) = next(operation, target, &mut random, connection, sent)?;
            client.put_call(&mut out, NFS, procedure as u32, &arguments);
            sent += 1;
        }
        client.stream.write_all(&out)?;
        out.clear();
        let results = client.receive()?;
        if let Some(status) = results.first_chunk().map(|word| u32::from_be_bytes(*word))
            && !HARMLESS.contains(&status)
        {
            return Err(format!("{operation} answered {status}").into());
        }
        received += 1;
    }
}

/// CPU time of all threads of a process.
fn cpu_time(pid: &str) -> Result<Duration, Error> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        sum += text.split(' ').next().ok_or("no time")?.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(sum))
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [nfs, mount, export, pid, seconds, operations @ ..] = &arguments[..] else {
        return Err("load NFS-ADDRESS MOUNT-ADDRESS EXPORT PID SECONDS OPERATION...".into());
    };
    let target = prepare(nfs, mount, export)?;
    let time = Duration::from_secs_f64(seconds.parse()?);
    for operation in operations {
        let (begun, cpu) = (Instant::now(), cpu_time(pid)?);
        let calls: Result<Vec<u64>, Error> = std::thread::scope(|scope| {
            let target = &target;
            let threads: Vec<_> = (0..CONNECTIONS)
                .map(|i| scope.spawn(move || ask(nfs, operation, target, i, time)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Err("a thread ended".into())))
                .collect()
        });
        let calls: u64 = calls?.iter().sum();
        let (elapsed, cpu) = (begun.elapsed(), cpu_time(pid)?.saturating_sub(cpu));
        println!(
            "{operation:12} {:9.0} calls/s {:8.2} us CPU/call",
            calls as f64 / elapsed.as_secs_f64(),
            cpu.as_secs_f64() * 1e6 / calls as f64
        );
    }
    Ok(())
}
