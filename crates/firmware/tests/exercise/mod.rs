//! What the fuzz target and the replay of its corpus have in common: let a card carry out arbitrary descriptors, and check what must hold for all of them.

use std::sync::Arc;

use nicache_bus::attachment::{COMMANDS, DONE};
use nicache_bus::{Attachment, BusClass, Completion, Window};
use nicache_firmware::{Firmware, Progress};
use nicache_port::{Capabilities, memory_wire};

const WINDOW_BYTES: usize = 64 << 10;
const CACHE_BYTES: u32 = 32 << 10;

/// Descriptors of sixteen bytes each, as many as a ring has, after as many bytes of main memory as they leave.
pub fn commands(bytes: &[u8]) {
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
    assert!(card.bus().of(BusClass::Content) <= said * u64::from(CACHE_BYTES.max(WINDOW_BYTES as u32)));
}
