//! Many that ask at once: for connections, by segments of unknown ones, and for names of nobody.

use std::time::Duration;

use nicache_forward::Drop;
use nicache_forward::first_bytes::By;
use nicache_forward::switch::LOOK_TIME;
use nicache_tcp::{Flags, HeadRepr, Seq, Timestamps};

use super::{ACK, CLIENT, FIN, SYN, Switching, data, hello, linux, service};
use crate::world::OUTSIDE;

/// A flood of SYNs leaves nothing, and who answers his cookie comes through (RFC 4987 section 3.6).
#[test]
fn a_flood_of_syns() {
    let mut switching = Switching::new(service(By::Host, false, true));
    let syn = HeadRepr {
        seq: Seq(CLIENT),
        flags: SYN,
        window: 64_000,
        syn_options: Some(linux()),
        ..HeadRepr::default()
    };
    for port in 1..=5000 {
        switching.port = port;
        assert!(switching.client(syn, &[]).unwrap()[0].tcp.flags.syn());
    }
    let [half_open, ..] = switching.world.forwarder.waiting_counts();
    assert!(half_open <= 520, "{half_open}");
    assert_eq!(switching.counter("switch_cookies_sent"), 5000 - u64::from(half_open));
    switching.port = 60_000;
    let ours = switching.handshake(linux());
    assert_eq!(switching.counter("switch_cookies_answered"), 1);
    let stamps = Some(Timestamps { val: 505, ecr: 1 });
    let request = HeadRepr { timestamps: stamps, ..data(Seq(CLIENT) + 1, ours, 500) };
    let all = switching.client(request, b"GET / HTTP/1.1\r\nHost: a.shop.example\r\n\r\n").unwrap();
    let asked = all[1].tcp.syn_options.unwrap();
    assert_eq!(
        (all[1].tcp.flags, asked.window_scale, asked.sack_permitted),
        (SYN, Some(7), true),
        "what the cookie has kept"
    );
    // Whoever guesses is reset, and does not get in.
    switching.port = 60_001;
    let guess = switching.client(data(Seq(9), Seq(10), 500), b"x").unwrap().remove(0);
    assert!(guess.tcp.flags.rst());
    // Those that nobody completes are forgotten without a word.
    assert!(
        switching
            .wait(Duration::from_secs(11))
            .iter()
            .all(|segment| segment.interface == usize::from(OUTSIDE))
    );
    assert_eq!(switching.world.forwarder.waiting_counts()[0], 0);
}

/// Whoever sends segments of connections that nobody knows is answered, but not as often as he
/// likes; and who is refused meanwhile is told.
#[test]
fn a_flood_of_strays() {
    let mut switching = Switching::new(service(By::Sni, false, false));
    let first = Seq(CLIENT) + 1;
    // How many of so many are answered.
    let flood = |switching: &mut Switching, count: u32| {
        let mut resets = 0;
        for number in 0..count {
            switching.port = 1 + (number % 4000) as u16;
            let flags = [ACK, FIN, ACK | FIN, Flags::default()][number as usize % 4];
            match switching.client(HeadRepr { flags, ..data(Seq(number), Seq(9), 500) }, b"x") {
                Ok(all) => {
                    assert!(all.len() == 1 && all[0].tcp.flags.rst(), "{all:?}");
                    resets += 1;
                }
                Err(why) => assert_eq!(why, Drop::ResetLimit),
            }
        }
        resets
    };
    assert_eq!(flood(&mut switching, 5000), 200);
    switching.port = 50_000;
    let ours = switching.handshake(linux());
    let refused =
        switching.client(data(first, ours, 500), &hello("nobody.example")).unwrap().remove(0);
    assert!(refused.tcp.flags.rst(), "{refused:?}");
    // Over ten seconds they are a thousand in each.
    let mut sum = 0u64;
    for _ in 0..100 {
        switching.wait(Duration::from_millis(100));
        sum += flood(&mut switching, 300);
    }
    assert_eq!(sum, 100 * 100);
    assert_eq!(switching.counter("switch_stray"), 200 + sum);
    let held_back = 5000 + 30_000 - 200 - sum;
    assert_eq!(switching.counter("resets_held_back"), held_back);
    assert_eq!(switching.world.forwarder.counters().dropped_for(Drop::ResetLimit), held_back);
    // A while later, one is answered as ever.
    switching.wait(Duration::from_secs(1));
    assert_eq!(flood(&mut switching, 1), 1);
}

/// Connections that are refused by the thousand are not all told, and their next segments are those
/// of unknown ones.
#[test]
fn a_flood_of_refusals() {
    let mut switching = Switching::new(service(By::Sni, false, false));
    let (first, hello) = (Seq(CLIENT) + 1, hello("nobody.example"));
    let mut told = 0;
    for port in 1..=1000 {
        switching.port = port;
        let ours = switching.handshake(linux());
        match switching.client(data(first, ours, 500), &hello) {
            Ok(all) => told += u32::from(all[0].tcp.flags.rst()),
            Err(why) => assert_eq!(why, Drop::ResetLimit),
        }
    }
    assert_eq!((told, switching.counter("switch_unknown_name")), (200, 1000));
    assert_eq!(switching.world.forwarder.waiting_counts(), [0; 3]);
    assert!(
        switching.client(data(first, Seq(7), 500), &hello).unwrap()[0].tcp.flags.rst(),
        "it comes again"
    );
    // Those that wait in vain end all at once.
    let mut switching = Switching::new(service(By::Sni, false, false));
    for port in 1..=1000 {
        switching.port = port;
        switching.handshake(linux());
    }
    assert_eq!(switching.wait(LOOK_TIME + Duration::from_secs(1)).len(), 200);
    assert_eq!(
        (switching.counter("switch_late"), switching.counter("resets_held_back")),
        (1000, 800)
    );
}
