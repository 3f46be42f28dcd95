//! F8: what a card says of a buffer is believed only if it can be.

use nicache_bus::Received;

use super::bench::{Bench, direct};
use super::*;
use crate::backend::PAYLOAD_AT;

/// A report of so many bytes, of which so many are headers of a frame that was split.
fn report(len: u32, split_at: Option<u8>) -> Received {
    Received {
        len,
        header_len: split_at.unwrap_or(0),
        is_split: split_at.is_some(),
        is_first: true,
        is_last: true,
        ..Received::default()
    }
}

/// Whether a frame comes of a report about the next buffer.
fn is_believed(bench: &mut Bench, report: Received) -> bool {
    let mmaddr = bench.take_post().mmaddr;
    bench.report(Received { mmaddr, ..report });
    let refused = bench.engine.counters().refused_receipts;
    bench.engine.poll().unwrap();
    let is_refused = bench.engine.counters().refused_receipts == refused + 1;
    let frame = bench.engine.take();
    assert_ne!(frame.is_some(), is_refused);
    frame.into_iter().map(|frame| bench.engine.finish(frame)).count() == 1
}

/// No more than was posted: behind it are the bytes of another packet (F1).
#[test]
fn a_buffer_has_no_more_than_it_has_room_for() {
    let split = |headers: u8, payload: u32| report(u32::from(headers) + payload, Some(headers));
    for (told, expected) in [
        (report(BUFFER_BYTES, None), true),
        (report(BUFFER_BYTES + 1, None), false),
        (report(0, None), false),
        (split(60, ENTRY_BYTES), true),
        (split(60, ENTRY_BYTES + 1), false),
        (split(60, 1), true),
        (split(60, 0), false),
        // Headers that go on where the payload begins would be read from there.
        (split(u8::MAX, 1), u32::from(u8::MAX) <= PAYLOAD_AT),
        // Headers of one that was not split.
        (Received { header_len: 60, ..report(100, None) }, false),
        (Received { is_first: false, ..split(60, 1) }, false),
    ] {
        let mut bench = Bench::new(direct());
        assert_eq!(is_believed(&mut bench, told), expected, "{told:?}");
        // Whatever it was, the next frame is received.
        assert!(is_believed(&mut bench, report(100, None)), "after {told:?}");
    }
}

/// Nothing was posted in which payload could stay.
#[test]
fn without_an_entry_nothing_is_split() {
    for mode in [Mode::Copy, Mode::Direct] {
        let mut bench = Bench::new(config(mode, 32));
        let is_split = is_believed(&mut bench, report(100, Some(60)));
        assert_eq!(is_split, mode == Mode::Direct, "{mode}");
    }
}

/// A buffer that is not posted is not the card's to fill.
#[test]
fn a_buffer_is_reported_once() {
    let mut bench = Bench::new(direct());
    let mmaddr = bench.take_post().mmaddr;
    let told = Received { mmaddr, ..report(100, None) };
    bench.report(told);
    bench.report(told);
    bench.engine.poll().unwrap();
    assert_eq!((bench.engine.queued(), bench.engine.counters().refused_receipts), (1, 1));
}
