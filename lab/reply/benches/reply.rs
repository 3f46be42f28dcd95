//! What a reply costs a client besides its system calls. `cargo bench -p nicache-reply`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use nicache_reply::{Method, ReplyReader, WholeReader};

const RUN: Duration = Duration::from_millis(200);
/// The best of so many is told: others have the CPU, too.
const RUNS: usize = 10;

fn reply(body_bytes: usize) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Mon, 13 Nov 2023 10:00:00 GMT\r\n\
         Content-Type: application/octet-stream\r\nContent-Length: {body_bytes}\r\n\
         Last-Modified: Mon, 13 Nov 2023 10:00:00 GMT\r\nConnection: keep-alive\r\n\
         ETag: \"6551f2a0-{body_bytes:x}\"\r\nAccept-Ranges: bytes\r\n\r\n"
    );
    [head.as_bytes(), &vec![b'x'; body_bytes]].concat()
}

/// Prints what one `step` costs.
fn measure(name: &str, body_bytes: usize, mut step: impl FnMut()) {
    let best = (0..RUNS)
        .map(|_| {
            let (start, mut steps) = (Instant::now(), 0u64);
            while start.elapsed() < RUN {
                (0..64).for_each(|_| step());
                steps += 64;
            }
            start.elapsed().as_nanos() as f64 / steps as f64
        })
        .fold(f64::INFINITY, f64::min);
    println!("{name:<40} {body_bytes:>6} B {best:>8.0} ns");
}

fn take(reader: &mut ReplyReader, pieces: &[&[u8]]) {
    for mut piece in pieces.iter().copied() {
        if !reader.is_in_body() && reader.read_head(&mut piece, Method::Get).unwrap().is_none() {
            continue;
        }
        reader.read_body(&mut piece, |bytes| _ = black_box(bytes)).unwrap();
    }
    assert!(reader.is_between_replies());
}

fn main() {
    for body_bytes in [100, 10_000] {
        let reply = reply(body_bytes);
        let mut slots = [httparse::EMPTY_HEADER; 16];
        measure("httparse alone", body_bytes, || {
            let mut tokens = httparse::Response::new(&mut slots);
            black_box(tokens.parse(black_box(&reply)).unwrap());
        });
        let mut reader = ReplyReader::default();
        measure("ReplyReader, one piece", body_bytes, || take(&mut reader, &[black_box(&reply)]));
        let (first, second) = reply.split_at(50);
        measure("ReplyReader, a head in two pieces", body_bytes, || {
            take(&mut reader, black_box(&[first, second]));
        });
        let mut reader = WholeReader::new(1 << 20);
        measure("WholeReader, one piece", body_bytes, || {
            reader.space().extend_from_slice(black_box(&reply));
            black_box(reader.next(Method::Get).unwrap().unwrap().body);
        });
    }
}
