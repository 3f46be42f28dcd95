//! Whatever the page cache and the directory do, a packet has the bytes of the pages that it was
//! made of.

use std::sync::Arc;

use nicache_bus::attachment::COMMANDS;
use nicache_bus::{Attachment, BusClass, Window};
use nicache_firmware::{Firmware, Progress};
use nicache_host::driver::HEADER_BYTES;
use nicache_host::{
    BLOCK_BYTES, Block, Directory, Driver, FileNumber, Headers, Lookup, Mbuf, Owner, Page,
    PageCache, PageNumber, Revision, TransmitError,
};
use nicache_policy::Lru;
use nicache_port::{Burst, Capabilities, MemoryPort, Port, memory_wire};
use proptest::prelude::*;

const HEADER: [u8; 54] = [0x11; 54];

/// A host without files: the bytes of a block follow from its name and revision.
struct Machine {
    window: Arc<Window>,
    pages: PageCache,
    driver: Driver,
    card: Firmware<MemoryPort>,
    wire: MemoryPort,
    scratch: u64,
}

fn content(block: Block, revision: Revision, len: usize) -> Vec<u8> {
    let seed =
        u64::from(block.file.0) * 1_000_003 + u64::from(block.index) * 7919 + revision.0 * 104_729;
    (0..len as u64).map(|at| (seed.wrapping_mul(at / 8 + 1) >> (at % 8)) as u8).collect()
}

impl Machine {
    fn new(pages: u32, places: u32) -> Self {
        let made = Attachment::create().unwrap();
        let files = made.files().map(|file| file.try_clone_to_owned().unwrap());
        let scratch = HEADER_BYTES + u64::from(pages) * BLOCK_BYTES;
        let window = Arc::new(Window::create("test", (scratch + 4096) as usize).unwrap());
        let seen = Arc::new(Window::map(window.file().try_clone_to_owned().unwrap()).unwrap());
        let (port, wire) = memory_wire(64, Capabilities::FULL, Capabilities::FULL);
        let cache_bytes = places * BLOCK_BYTES as u32;
        let card = Firmware::new(
            port,
            Attachment::from_files(files).unwrap().card(),
            seen,
            cache_bytes,
            None,
        )
        .unwrap();
        let policy = Lru::new(u64::from(cache_bytes), places);
        let driver = Driver::new(made.host(), Directory::new(places, Box::new(policy)), 0);
        Self { window, pages: PageCache::new(HEADER_BYTES, pages), driver, card, wire, scratch }
    }

    /// The page of a block, read if it is not there; pinned.
    fn page(&mut self, block: Block, revision: Revision) -> Option<PageNumber> {
        match self.pages.find(block, revision) {
            Lookup::Here(page) => {
                self.pages.pin(page);
                return Some(page);
            }
            Lookup::Outdated => self.driver.directory().invalidate(block),
            Lookup::Missing => {}
        }
        let (page, evicted) =
            self.pages.allocate(Page { block, revision, len: BLOCK_BYTES as u16 })?;
        if let Some(evicted) = evicted {
            self.driver.directory().exclude(evicted);
        }
        let bytes = content(block, revision, BLOCK_BYTES as usize);
        self.window.write(self.pages.mmaddr(page), &bytes).unwrap();
        Some(page)
    }

    fn transmit(&mut self, payload: &[Mbuf]) -> Result<(), TransmitError> {
        let headers = Headers { bytes: &HEADER, transport: 34, segment: 0 };
        self.driver.transmit(&headers, payload, &mut self.pages, &self.window)
    }

    fn settle(&mut self) {
        self.driver.flush();
        while self.card.turn(0).unwrap() != Progress::Idle {}
        self.driver.poll_done().unwrap();
        self.driver.reap(&mut self.pages).unwrap();
        assert_eq!(self.driver.counters().refused, 0);
    }

    fn frames(&mut self) -> Vec<Vec<u8>> {
        let mut burst = Burst::new(16);
        let mut frames = Vec::new();
        while self.wire.receive(&mut burst).unwrap() > 0 {
            frames.extend(burst.iter().map(|frame| frame.data().to_vec()));
        }
        frames
    }
}

fn block(file: u32, index: u32) -> Block {
    Block { file: FileNumber(file), index }
}

#[test]
fn only_headers_cross_for_what_is_cached() {
    let mut machine = Machine::new(8, 8);
    machine.driver.init_cache().unwrap();
    let page = machine.page(block(1, 0), Revision(1)).unwrap();
    let mbuf = Mbuf::Pages {
        first: page,
        block: block(1, 0),
        revision: Revision(1),
        start: 96,
        len: 4000,
    };
    machine.transmit(&[mbuf]).unwrap();
    machine.settle();
    let first = *machine.card.bus();
    assert_eq!(first.of(BusClass::Content), BLOCK_BYTES);
    for _ in 0..100 {
        machine.transmit(&[mbuf]).unwrap();
        machine.settle();
    }
    let rest = machine.card.bus().since(&first);
    assert_eq!((rest.of(BusClass::Content), rest.of(BusClass::NetworkHeaders)), (0, 5400));
    assert_eq!(rest.of(BusClass::Overhead), 100 * 2 * 16);
    let frames = machine.frames();
    let expected = [&HEADER[..], &content(block(1, 0), Revision(1), 4096)[96..]].concat();
    assert!(
        frames.len() == 64 && frames.iter().all(|frame| *frame == expected),
        "as many as the wire holds"
    );
}

#[test]
fn a_page_that_goes_takes_its_block_with_it() {
    let mut machine = Machine::new(2, 8);
    for index in 0..3 {
        let page = machine.page(block(1, index), Revision(1)).unwrap();
        let mbuf = Mbuf::Pages {
            first: page,
            block: block(1, index),
            revision: Revision(1),
            start: 0,
            len: 4096,
        };
        machine.transmit(&[mbuf]).unwrap();
        machine.pages.unpin(page);
        machine.settle();
    }
    assert!(
        !machine.driver.directory().knows(block(1, 0))
            && machine.driver.directory().knows(block(1, 2))
    );
    assert_eq!(machine.driver.directory().len(), 2);
}

#[test]
fn a_full_ring_is_told() {
    let mut machine = Machine::new(2, 2);
    let bytes = Mbuf::Bytes {
        mmaddr: machine.scratch,
        len: 10,
        class: BusClass::ApplicationHeaders,
        owner: Owner::Nobody,
    };
    let mut sent = 0;
    while machine.transmit(&[bytes]).is_ok() {
        sent += 1;
    }
    assert_eq!(machine.transmit(&[bytes]), Err(TransmitError::Full));
    assert_eq!(sent, COMMANDS / 2 - 1 + COMMANDS % 2);
    machine.settle();
    assert!(machine.transmit(&[bytes]).is_ok());
    assert_eq!(machine.transmit(&[bytes; 63]), Err(TransmitError::TooLong));
}

#[derive(Debug, Clone)]
enum Step {
    /// A packet of parts of blocks: file, block, start, length.
    Send(Vec<(u32, u32, u16, u16)>),
    /// A file changes.
    Change(u32),
    /// The packet before is sent once more, as TCP does it.
    Again,
    /// The card does what it was told.
    Settle,
    /// The card's cache is emptied.
    Init,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let any = (0u32..3, 0u32..6, 0u16..4096, 1u16..4096).prop_map(|part| vec![part]);
    // Blocks that follow each other, whole but for the first and the last.
    let run = (0u32..3, 0u32..4, 1u32..4, 0u16..4096, 1u16..=4096).prop_map(
        |(file, index, more, start, len)| {
            let middle = (1..more).map(|number| (file, index + number, 0, 4096));
            std::iter::once((file, index, start, 4096))
                .chain(middle)
                .chain([(file, index + more, 0, len)])
                .collect()
        },
    );
    let part = prop_oneof![any, run];
    let step = prop_oneof![
        8 => proptest::collection::vec(part, 0..4)
            .prop_map(|parts: Vec<Vec<_>>| Step::Send(parts.concat())),
        2 => (0u32..3).prop_map(Step::Change),
        3 => Just(Step::Again),
        3 => Just(Step::Settle),
        1 => Just(Step::Init),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #[test]
    fn packets_have_the_bytes_of_their_pages(
        steps in steps(),
        pages in 3u32..12,
        places in 0u32..8,
    ) {
        let mut machine = Machine::new(pages, places);
        let mut revisions = [Revision(1); 3];
        let mut expected: Vec<Vec<u8>> = Vec::new();
        let mut last: Option<(Vec<Mbuf>, Vec<u8>)> = None;
        let mut got = Vec::new();
        for step in steps {
            match step {
                Step::Send(parts) => {
                    if let Some((mbufs, _)) = last.take() {
                        unpin(&mut machine, &mbufs);
                    }
                    let (mut mbufs, mut bytes) = (Vec::<Mbuf>::new(), HEADER.to_vec());
                    for (file, index, start, len) in parts {
                        let (block, revision) = (block(file, index), revisions[file as usize]);
                        let Some(page) = machine.page(block, revision) else { continue };
                        let len = len.min(4096 - start);
                        let (last_len, len32) = (mbufs.last().map_or(0, Mbuf::len), u32::from(len));
                        match mbufs.last_mut() {
                            // Pages that follow each other are one buffer.
                            Some(Mbuf::Pages {
                                first,
                                block: before,
                                revision: same,
                                start: at,
                                len: all,
                            }) if start == 0
                                && (u32::from(*at) + last_len).is_multiple_of(4096)
                                && first.0 + (u32::from(*at) + last_len) / 4096 == page.0
                                && before.index + (u32::from(*at) + last_len) / 4096
                                    == block.index
                                && (before.file, *same) == (block.file, revision) =>
                            {
                                *all += len32;
                            }
                            _ => mbufs.push(Mbuf::Pages {
                                first: page,
                                block,
                                revision,
                                start,
                                len: len32,
                            }),
                        }
                        bytes.extend(
                            &content(block, revision, 4096)[start.into()..(start + len).into()],
                        );
                    }
                    if machine.transmit(&mbufs).is_ok() {
                        expected.push(bytes.clone());
                    }
                    last = Some((mbufs, bytes));
                }
                Step::Again => {
                    if let Some((mbufs, bytes)) = &last
                        && machine.transmit(&mbufs.clone()).is_ok()
                    {
                        expected.push(bytes.clone());
                    }
                }
                Step::Change(file) => revisions[file as usize].0 += 1,
                Step::Settle => {
                    machine.settle();
                    got.extend(machine.frames());
                }
                Step::Init => {
                    machine.settle();
                    machine.driver.init_cache().unwrap();
                }
            }
            // Inclusion: what the directory knows is in the page cache.
            for file in 0..3 {
                for index in 0..8 {
                    let known = machine.driver.directory().knows(block(file, index));
                    prop_assert!(!known || machine.pages.holds(block(file, index)));
                }
            }
        }
        machine.settle();
        got.extend(machine.frames());
        prop_assert_eq!(got, expected);
    }
}

fn unpin(machine: &mut Machine, mbufs: &[Mbuf]) {
    for mbuf in mbufs {
        machine.pages.unpin_all(mbuf);
    }
}
