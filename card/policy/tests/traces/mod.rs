//! Requests of real traces, and a simulation of a cache over them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use nicache_policy::{Admission, Incoming, Key, Policy, TableFull};

/// Beside the checkout.
const TRACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces");
const SECTOR_BYTES: u64 = 512;
const BLOCK_BYTES: u64 = 4096;
const VSCSI_RECORD_BYTES: usize = 32;

/// Key and size of each request.
pub(crate) type Requests = Vec<(u64, u64)>;

/// A trace by its name in the golden table.
pub(crate) fn load(name: &str) -> Requests {
    match name {
        "blog" => blog(),
        "epa" => epa(),
        "blocks" => blocks(),
        _ => panic!("no trace is called {name}"),
    }
}

/// The web log of a blog: time, client, method, URL, status, bytes.
fn blog() -> Requests {
    let log = unpack("wp-blog-2016.tsv.zst");
    let lines = log.split(|&byte| byte == b'\n').filter(|line| !line.is_empty() && line[0] != b'#');
    replies(lines.filter_map(|line| {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b'\t').collect();
        let [_, _, method, url, status, bytes] = fields[..] else {
            return None;
        };
        (method == b"GET" && status == b"200").then(|| (url, number(bytes)))
    }))
}

/// The web log of the EPA: the request stands in quotation marks, status and bytes behind.
fn epa() -> Requests {
    let log = unpack("epa-http.txt.zst");
    replies(log.split(|&byte| byte == b'\n').filter_map(|line| {
        let first = line.iter().position(|&byte| byte == b'"')?;
        let last = line.iter().rposition(|&byte| byte == b'"').filter(|&last| last > first)?;
        let mut request = words(&line[first + 1..last]);
        let (method, url) = (request.next()?, request.next()?);
        let mut reply = words(&line[last + 1..]);
        let (status, bytes) = (reply.next()?, reply.next()?);
        (method == b"GET" && status == b"200").then(|| (url, number(bytes)))
    }))
}

/// The 4 KiB blocks that a virtual machine touched: records of 32 bytes, in which the length in
/// bytes is at 4, the first sector at 16.
fn blocks() -> Requests {
    let records = unpack("cloudphysics.vscsi.zst");
    let mut requests = Requests::new();
    for record in records.chunks_exact(VSCSI_RECORD_BYTES) {
        let bytes = u64::from(u32::from_le_bytes(record[4..8].try_into().unwrap()));
        let start = u64::from_le_bytes(record[16..24].try_into().unwrap()) * SECTOR_BYTES;
        if bytes > 0 {
            let blocks = start / BLOCK_BYTES..=(start + bytes - 1) / BLOCK_BYTES;
            requests.extend(blocks.map(|block| (block, 1)));
        }
    }
    requests
}

/// A URL's key is its index by first appearance, its size that of its largest reply, at least 1.
fn replies<'a>(replies: impl Iterator<Item = (&'a [u8], u64)>) -> Requests {
    let mut keys: HashMap<&[u8], u64> = HashMap::new();
    let mut sizes: Vec<u64> = Vec::new();
    let mut order = Vec::new();
    for (url, bytes) in replies {
        let next = keys.len() as u64;
        let key = *keys.entry(url).or_insert(next);
        if key == next {
            sizes.push(1);
        }
        sizes[key as usize] = sizes[key as usize].max(bytes);
        order.push(key);
    }
    order.into_iter().map(|key| (key, sizes[key as usize])).collect()
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// 0 for a dash.
fn number(digits: &[u8]) -> u64 {
    str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

fn unpack(name: &str) -> Vec<u8> {
    let path = Path::new(TRACES).join(name);
    let packed = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut bytes = Vec::new();
    let mut decoder =
        ruzstd::decoding::StreamingDecoder::new(BufReader::new(packed)).expect("it is a zstd file");
    decoder.read_to_end(&mut bytes).expect("it is whole");
    bytes
}

/// Misses and missed bytes of a memory of `bytes_max`, whose directory is the policy.
pub(crate) fn simulate<P: Policy>(
    mut policy: P,
    bytes_max: u64,
    requests: &[(u64, u64)],
) -> (u64, u64) {
    let (mut misses, mut missed_bytes) = (0, 0);
    for &(key, bytes) in requests {
        let incoming = Incoming { key: Key(key), bytes };
        if policy.handle_request(incoming.key) {
            continue;
        }
        misses += 1;
        missed_bytes += bytes;
        let admissions = (
            policy.handle_miss(incoming.key, Some(bytes)),
            policy.handle_reply(incoming.key, bytes),
        );
        if admissions == (Admission::Admit, Admission::Admit) && bytes <= bytes_max {
            store(&mut policy, bytes_max, incoming);
        }
    }
    (misses, missed_bytes)
}

fn store<P: Policy>(policy: &mut P, bytes_max: u64, incoming: Incoming) {
    while policy.occupancy().bytes + incoming.bytes > bytes_max {
        if policy.evict(Some(incoming)).is_none() {
            return;
        }
    }
    while policy.handle_insert(incoming.key, incoming.bytes) == Err(TableFull) {
        if policy.evict(Some(incoming)).is_none() {
            return;
        }
    }
}
