//! How fast one CPU writes what the other has just read, as the card and a client on the same
//! machine do with every reply.
//!
//! `cargo bench -p nicache-bench --bench handover`. Virtual CPUs may be two threads of one core now
//! and two cores after the next pause; then the figures have levels, and so have those of every
//! benchmark in which both CPUs touch the same bytes.

use std::hint::{black_box, spin_loop};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use nicache_bench::wire::cpu::bind_to;

const BUFFER_BYTES: usize = 64 << 10;
const WINDOW: Duration = Duration::from_millis(20);
/// Between two windows neither CPU has anything to do.
const PAUSE: Duration = Duration::from_millis(80);
const WINDOWS: usize = 100;
const READER_CPU: usize = 0;
const WRITER_CPU: usize = 1;

fn main() {
    let (to_reader, from_writer) = channel();
    let (to_writer, from_reader) = channel();
    let reader = std::thread::spawn(move || read(&from_writer, &to_writer));
    bind_to(WRITER_CPU).expect("a machine with two CPUs");
    let source = vec![1; BUFFER_BYTES];
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut rates: Vec<f64> = Vec::new();
    while rates.len() < WINDOWS {
        let (begin, mut writing, mut written) = (Instant::now(), Duration::ZERO, 0);
        while begin.elapsed() < WINDOW {
            let start = Instant::now();
            black_box(&mut buffer).copy_from_slice(&source);
            writing += start.elapsed();
            written += BUFFER_BYTES;
            to_reader.send(buffer).expect("the reader waits");
            buffer = receive(&from_reader).expect("the reader gives it back");
        }
        rates.push(written as f64 / writing.as_nanos() as f64);
        to_reader.send(Vec::new()).expect("the reader waits");
        std::thread::sleep(PAUSE);
        from_reader.recv().expect("the reader goes on");
    }
    drop(to_reader);
    reader.join().expect("the reader does not panic");
    rates.sort_by(f64::total_cmp);
    let of = |share: f64| rates[((WINDOWS - 1) as f64 * share).round() as usize];
    println!(
        "64 KiB that the other CPU has just read, written at (GB/s, {WINDOWS} windows of {WINDOW:?}):"
    );
    for (name, share) in
        [("least", 0.0), ("10 %", 0.1), ("median", 0.5), ("90 %", 0.9), ("most", 1.0)]
    {
        println!("  {name:<7} {:>6.1}", of(share));
    }
}

fn read(buffers: &Receiver<Vec<u8>>, back: &Sender<Vec<u8>>) {
    bind_to(READER_CPU).expect("a machine with two CPUs");
    let mut copy = vec![0; BUFFER_BYTES];
    while let Some(buffer) = receive(buffers) {
        if buffer.is_empty() {
            std::thread::sleep(PAUSE);
            back.send(buffer).expect("the writer waits");
            continue;
        }
        black_box(&mut copy).copy_from_slice(&buffer);
        back.send(buffer).expect("the writer waits");
    }
}

/// The next one, without sleeping; `None` at the end.
fn receive<T>(from: &Receiver<T>) -> Option<T> {
    loop {
        match from.try_recv() {
            Ok(got) => return Some(got),
            Err(std::sync::mpsc::TryRecvError::Empty) => spin_loop(),
            Err(std::sync::mpsc::TryRecvError::Disconnected) => return None,
        }
    }
}
