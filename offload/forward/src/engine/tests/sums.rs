//! F2: sums of payloads in several parts, which may begin in the middle of a word.

use nicache_bus::Received;

use super::bench::{Bench, direct};
use super::*;

#[test]
fn parts_of_odd_lengths_add_up() {
    for lens in [[100, 60, 40], [101, 60, 40], [100, 61, 41], [101, 61, 41], [101, 60, 41]] {
        let mut bench = Bench::new(direct());
        let mut all = Vec::new();
        for (number, len) in lens.into_iter().enumerate() {
            let bytes: Vec<u8> = (0..len).map(|at| byte(number as u32, at)).collect();
            let mmaddr = bench.take_post().mmaddr;
            bench.window.write(mmaddr, &bytes).unwrap();
            bench.report(Received {
                mmaddr,
                len: len as u32,
                is_first: number == 0,
                is_last: number == 2,
                ..Received::default()
            });
            all.extend(bytes);
        }
        bench.engine.poll().unwrap();
        let frame = bench.engine.take().unwrap();
        for start in [0, 42, 43, lens[0], lens[0] + 1] {
            for end in [lens[0] + lens[1], all.len() - 1, all.len()] {
                let found = bench.engine.payload_sum(&frame, &(start..end)).unwrap();
                assert_eq!(found, Some(sum(&all[start..end])), "{lens:?}, {start}..{end}");
            }
        }
    }
}
