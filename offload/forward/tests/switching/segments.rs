//! First bytes and numbers, however the two ends cut them and whatever they agree to.

use std::time::Duration;

use nicache_forward::conntrack::ConnectionId;
use nicache_forward::first_bytes::By;
use nicache_forward::saved::Saved;
use nicache_tcp::{HeadRepr, Seq, SynOptions, Timestamps};
use proptest::prelude::*;

use super::{
    ACK, CLIENT, RST, SERVER, SYN, Switching, data, hello, linux, long_hello, service, switched,
};
use crate::world::OUTSIDE;

proptest! {
    /// However a client cuts its first bytes, a back end gets them in segments that it takes (RFC
    /// 9293 section 3.7.1, RFC 6691), whatever is lost of them.
    #[test]
    fn first_bytes_in_segments_that_a_back_end_takes(
        more in 0u16..12_000,
        cut in prop_oneof![1usize..40, 40usize..1500, 1500usize..9000],
        mss in prop_oneof![Just(None), (48u16..600).prop_map(Some), (600u16..9000).prop_map(Some)],
        has_stamps in any::<bool>(),
        window in 1u16..,
        // Which ones of all. More of them, and it is given up after two minutes.
        lost in proptest::collection::btree_set(0usize..40, 0..6),
    ) {
        let mut switching = Switching::new(service(By::Sni, false, true));
        let asked = linux();
        let asked = SynOptions { timestamps: asked.timestamps.filter(|_| has_stamps), ..asked };
        let ours = switching.handshake(asked);
        let hello = long_hello("shop.example", more);
        let first = Seq(CLIENT) + 1;
        let stamped = |repr: HeadRepr| HeadRepr {
            timestamps: repr.timestamps.filter(|_| has_stamps),
            ..repr
        };
        let mut said = Vec::new();
        for (number, part) in hello.chunks(cut).enumerate() {
            let seq = first + (number * cut) as u32;
            said.extend(switching.client(stamped(data(seq, ours, 500)), part).unwrap());
        }
        let syn = said.into_iter().find(|out| out.tcp.flags == SYN).unwrap();
        let theirs = Timestamps { val: 90_000, ecr: 510 };
        let answer = HeadRepr {
            seq: Seq(SERVER),
            ack: syn.tcp.seq + 1,
            flags: SYN | ACK,
            window,
            syn_options: Some(SynOptions {
                mss,
                timestamps: has_stamps.then_some(theirs),
                ..linux()
            }),
            ..HeadRepr::default()
        };
        let longest = usize::from(mss.unwrap_or(536)) - if has_stamps { 12 } else { 0 };
        let mut sent = switching.server(&syn, answer, &[]).unwrap();
        let mut count = 0;
        let mut got = vec![None; hello.len()];
        for turn in 0.. {
            prop_assert!(turn < 3000, "it does not come to an end");
            let mut is_news = false;
            for out in std::mem::take(&mut sent) {
                let at = out.tcp.seq.since(first) as usize;
                prop_assert_eq!(out.interface, usize::from(OUTSIDE));
                prop_assert!(
                    (1..=longest).contains(&out.payload.len()),
                    "{} bytes, {longest} at most",
                    out.payload.len()
                );
                prop_assert_eq!(&out.payload[..], &hello[at..at + out.payload.len()]);
                prop_assert_eq!(out.tcp.flags.psh(), at + out.payload.len() == hello.len());
                prop_assert_eq!(out.tcp.timestamps.is_some(), has_stamps);
                count += 1;
                if lost.contains(&(count - 1)) {
                    continue;
                }
                is_news = true;
                for (place, byte) in got[at..].iter_mut().zip(&out.payload) {
                    *place = Some(*byte);
                }
            }
            let whole = got.iter().take_while(|byte| byte.is_some()).count();
            if is_news {
                let ack = stamped(data(Seq(SERVER) + 1, first + whole as u32, 8000));
                let all = switching.server(&syn, ack, &[]).unwrap();
                sent.extend(all.into_iter().filter(|out| out.interface == usize::from(OUTSIDE)));
            }
            if whole == hello.len() {
                break;
            }
            if sent.is_empty() {
                sent = switching.wait(Duration::from_millis(100));
            }
        }
        prop_assert_eq!(
            (switching.counter("switch_spliced"), switching.world.forwarder.waiting_counts()),
            (1, [0; 3])
        );
    }
}

/// What an end agrees to.
fn options() -> impl Strategy<Value = SynOptions> {
    let mss = prop_oneof![Just(None), (536u16..1460).prop_map(Some)];
    (mss, proptest::option::of(0u8..15), any::<bool>(), any::<bool>()).prop_map(
        |(mss, window_scale, sack, stamps)| {
            let timestamps = stamps.then_some(Timestamps { val: 500, ecr: 0 });
            SynOptions { mss, window_scale, sack_permitted: sack, timestamps, ecn: false }
        },
    )
}

proptest! {
    /// Whatever a client and its back end agree to, each sees what it has agreed to and no more,
    /// and all bytes arrive (RFC 7323, RFC 2018).
    #[test]
    fn ends_that_do_not_agree(
        asked in options(),
        theirs in options(),
        is_taken_over in any::<bool>(),
        steps in proptest::collection::vec(
            (any::<bool>(), 0usize..1400, 0u64..3000, 1u16.., any::<bool>()),
            1..30,
        ),
    ) {
        let mut switching = Switching::new(service(By::Sni, false, true));
        let (syn, ours) = switched(&mut switching, asked, theirs);
        let client_stamps = asked.timestamps.is_some();
        let server_stamps = client_stamps && theirs.timestamps.is_some();
        let sack = asked.sack_permitted && theirs.sack_permitted;
        let scales = asked.window_scale.zip(theirs.window_scale);
        let client_scale = asked.window_scale.unwrap_or(0);
        let (server_scale, seen_scale) = scales.map_or((0, 0), |(asked, theirs)| (theirs, asked));
        let card_scale = if asked.window_scale.is_some() { 8 } else { 0 };
        let mut client = Seq(CLIENT) + 1 + hello("shop.example").len() as u32;
        let mut server = Seq(SERVER) + 1;
        let server_clock =
            |switching: &Switching| 90_000 + (switching.world.now.0 / 1_000_000) as u32 - 1_000_000;
        let ack = HeadRepr {
            timestamps: server_stamps.then_some(Timestamps { val: 90_000, ecr: 510 }),
            ..data(server, client, 60_000 >> server_scale)
        };
        let passed = switching.server(&syn, ack, &[]).unwrap().remove(0);
        prop_assert_eq!(passed.tcp.timestamps.is_some(), client_stamps);
        prop_assert_eq!(switching.counter("switch_spliced"), 1);
        prop_assert_eq!(
            switching.counter("switch_unstamped"),
            u64::from(client_stamps && !server_stamps)
        );
        let mut last = passed.tcp.timestamps.map_or(0, |stamps| stamps.val);
        let (mut told, mut acked) = (510, Some(client));
        if is_taken_over {
            let id =
                ConnectionId(switching.world.forwarder.connections().iter().next().unwrap().0.0);
            let saved: Saved = switching.world.forwarder.save(id).unwrap();
            let mut next = Switching::new(service(By::Sni, false, true));
            next.world.now = switching.world.now;
            prop_assert!(next.world.forwarder.restore(&saved, next.world.now));
            switching = next;
            // From the client's next segment on, it is echoed.
            (told, acked) = (if server_stamps { 510 } else { 0 }, None);
        }
        let mut ends = server - SERVER;
        let mut value = 600;
        for (is_client, len, pause, window, has_gap) in steps {
            switching.wait(Duration::from_millis(pause));
            let payload: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let mut blocks = nicache_tcp::SackBlocks::EMPTY;
            if is_client {
                value += 1 + pause as u32;
                if has_gap && asked.sack_permitted {
                    blocks.push(ours + ends.0, ours + (ends.0 + 9));
                }
                let repr = HeadRepr {
                    timestamps: client_stamps.then_some(Timestamps { val: value, ecr: last }),
                    sack: blocks,
                    ..data(client, ours + (server - (SERVER + 1)).0, window)
                };
                let out = switching.client(repr, &payload).unwrap().remove(0);
                // RFC 7323 section 4.3: the timestamp of what was the next one to be acknowledged.
                if server_stamps || acked.is_none_or(|acked| client == acked) {
                    told = value;
                }
                prop_assert_eq!(
                    (out.tcp.seq, out.tcp.ack, &out.payload),
                    (client, server, &payload)
                );
                prop_assert!(out.segment_bytes() <= theirs.mss.unwrap_or(536).into(), "{out:?}");
                prop_assert_eq!(out.tcp.timestamps.is_some(), server_stamps);
                if let Some(stamps) = out.tcp.timestamps {
                    prop_assert_eq!(stamps.val, value);
                }
                prop_assert_eq!(!out.tcp.sack.is_empty(), !blocks.is_empty() && sack);
                let (granted, shown) =
                    (u64::from(window) << client_scale, u64::from(out.tcp.window) << seen_scale);
                prop_assert!(
                    shown <= granted
                        && (granted - shown < 1 << seen_scale || out.tcp.window == u16::MAX)
                );
                client += len as u32;
            } else {
                if has_gap && sack {
                    for number in 0..4 - usize::from(server_stamps) as u32 {
                        blocks.push(client + 100 * number, client + (100 * number + 9));
                    }
                }
                let stamps = Timestamps { val: server_clock(&switching), ecr: told };
                let repr = HeadRepr {
                    timestamps: server_stamps.then_some(stamps),
                    sack: blocks,
                    ..data(server, client, window)
                };
                let out = switching.server(&syn, repr, &payload).unwrap().remove(0);
                prop_assert_eq!((out.tcp.ack, &out.payload), (client, &payload));
                prop_assert_eq!(out.tcp.seq, ours + (server - (SERVER + 1)).0);
                prop_assert!(out.segment_bytes() <= asked.mss.unwrap_or(536).into(), "{out:?}");
                prop_assert_eq!(out.tcp.timestamps.is_some(), client_stamps);
                if let Some(stamps) = out.tcp.timestamps {
                    prop_assert!(
                        stamps.val.wrapping_sub(last) <= 3000 * 30,
                        "{} after {last}",
                        stamps.val
                    );
                    prop_assert!(stamps.ecr == told, "{stamps:?}, not {told}");
                    last = stamps.val;
                }
                let most = if client_stamps { 3 } else { 4 };
                prop_assert_eq!(
                    out.tcp.sack.as_slice(),
                    &blocks.as_slice()[..blocks.len().min(most)]
                );
                let (granted, shown) =
                    (u64::from(window) << server_scale, u64::from(out.tcp.window) << card_scale);
                prop_assert!(
                    shown <= granted
                        && (granted - shown < 1 << card_scale || out.tcp.window == u16::MAX)
                );
                acked = Some(client);
                server += len as u32;
                ends = server - SERVER;
            }
        }
        // A reset passes.
        let reset = switching
            .server(&syn, HeadRepr { seq: server, flags: RST, ..HeadRepr::default() }, &[])
            .unwrap();
        prop_assert!(reset[0].tcp.flags.rst() && reset[0].tcp.timestamps.is_none());
        prop_assert_eq!(reset[0].tcp.seq, ours + (server - (SERVER + 1)).0);
    }
}
