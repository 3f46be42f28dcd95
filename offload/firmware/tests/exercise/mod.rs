//! What the fuzz target and the replay of its corpus have in common: let a card carry out arbitrary
//! descriptors, and check what must hold for all of them.

use std::sync::Arc;

use nicache_bus::attachment::{COMMANDS, DONE};
use nicache_bus::{Attachment, BusClass, Completion, Window};
use nicache_firmware::{Firmware, Progress};
use nicache_port::{Capabilities, Port, memory_wire};

#[allow(dead_code, reason = "not all who use this use all of it")]
const WINDOW_BYTES: usize = 64 << 10;
const CACHE_BYTES: u32 = 32 << 10;

/// Posts of sixteen bytes each, and a frame of what is left; then one of each kind that is as it
/// should be.
#[allow(dead_code, reason = "not all who use this use all of it")]
pub(crate) fn receive(bytes: &[u8]) {
    let made = Attachment::create().unwrap();
    let files = made.files().map(|file| file.try_clone_to_owned().unwrap());
    let window = Arc::new(Window::create("exercise", WINDOW_BYTES).unwrap());
    let (port, mut wire) = memory_wire(16, Capabilities::FULL, Capabilities::FULL);
    let mut host = made.host();
    let side = Attachment::from_files(files).unwrap().card();
    let mut card = Firmware::new(port, side, Arc::clone(&window), CACHE_BYTES, None).unwrap();
    let (count, rest) = bytes.split_first().unwrap_or((&0, &[]));
    let posts = (usize::from(*count) % 32).min(rest.len() / 16);
    let (posts, frame) = rest.split_at(16 * posts);
    for post in posts.chunks_exact(16) {
        let word = |at: usize| u64::from_le_bytes(post[at..at + 8].try_into().unwrap());
        host.free.push([word(0), word(8)]).unwrap();
    }
    let _ = host.free.publish();
    let mut frame = frame.to_vec();
    frame.resize(frame.len().max(14), 0);
    for _ in 0..2 {
        let _ = wire.send(&[std::io::IoSlice::new(&frame)], nicache_port::Offload::default());
    }
    while card.turn(0).unwrap() != Progress::Idle {}
    let mut told = 0;
    while let Some(entry) = host.received.pop().unwrap() {
        told += 1;
        let report = nicache_bus::Received::decode(entry);
        assert!(
            report.len as usize <= frame.len()
                && usize::from(report.header_len) <= report.len as usize
        );
    }
    assert!(told <= posts.len() as u64 / 16);
    let _ = (host.received.release(), host.free.room().unwrap());
    // Another buffer, and what waits goes there or is refused; then there is an end.
    for _ in 0..80 {
        let _ = host.free.push(nicache_bus::Post::whole(0, 4096).encode());
    }
    let _ = host.free.publish();
    while card.turn(0).unwrap() != Progress::Idle {}
    // Whoever comes has one of those that are left, and at last one that is as it should be.
    let goes_on = (0..40).any(|_| {
        wire.send(&[std::io::IoSlice::new(&[1; 60])], nicache_port::Offload::default()).unwrap();
        while card.turn(0).unwrap() != Progress::Idle {}
        let mut last = None;
        while let Some(entry) = host.received.pop().unwrap() {
            last = Some(nicache_bus::Received::decode(entry));
        }
        let _ = host.received.release();
        last.is_some_and(|report| report.len == 60 && !report.is_unused)
    });
    assert!(goes_on);
}

#[allow(dead_code, reason = "not all who use this use all of it")]
/// Descriptors of sixteen bytes each, as many as a ring has, after as many bytes of main memory as
/// they leave.
pub(crate) fn commands(bytes: &[u8]) {
    let made = Attachment::create().unwrap();
    let files = made.files().map(|file| file.try_clone_to_owned().unwrap());
    let window = Arc::new(Window::create("exercise", WINDOW_BYTES).unwrap());
    let (port, _wire) = memory_wire(64, Capabilities::PLAIN, Capabilities::FULL);
    let mut host = made.host();
    let side = Attachment::from_files(files).unwrap().card();
    let mut card = Firmware::new(port, side, Arc::clone(&window), CACHE_BYTES, None).unwrap();
    let (entries, rest) = bytes.as_chunks::<16>();
    window.write(0, rest).unwrap();
    window.write(4096, &bytes[..bytes.len().min(4096)]).unwrap();
    let mut said = 0;
    for entry in entries.iter().take(COMMANDS) {
        let (words, _) = entry.as_chunks::<8>();
        host.commands.push([u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])]).unwrap();
        said += 1;
    }
    let _ = host.commands.publish();
    while card.turn(0).unwrap() != Progress::Idle {}
    let counters = *card.counters();
    assert_eq!(counters.commands + counters.refused, said);
    assert_eq!(host.commands.released(), Ok(said), "all are done with");
    let mut refused = 0;
    while let Some(entry) = host.done.pop().unwrap() {
        match Completion::decode(entry) {
            Some(Completion::Refused { descriptor, .. }) => {
                assert!(descriptor < said);
                refused += 1;
            }
            Some(Completion::CacheSize { bytes }) => assert_eq!(bytes, u64::from(CACHE_BYTES)),
            None => panic!("an answer that is none"),
        }
    }
    assert!(refused <= counters.refused && (counters.untold > 0 || refused == counters.refused));
    assert!(counters.untold == 0 || said > DONE as u64);
    assert!(
        card.bus().of(BusClass::Content) <= said * u64::from(CACHE_BYTES.max(WINDOW_BYTES as u32))
    );
}
