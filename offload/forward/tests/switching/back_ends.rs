//! What is known of back ends, and connections that wait for one that does not answer.

use std::time::Duration;

use nicache_forward::Drop;
use nicache_forward::first_bytes::By;
use nicache_port::Offload;
use nicache_tcp::{HeadRepr, Seq, SynOptions, Timestamps};

use super::{
    ACK, CLIENT, FIN, RST, SERVER, SYN, Switching, data, frame_of, hello, linux, service, switched,
    syn_ack,
};
use crate::packets::verify;
use crate::world::{CLIENTS, INSIDE, OUTSIDE, address};

/// What one back end has said counts for the clients that come later, and a segment that would be
/// too long with timestamps is cut.
#[test]
fn what_back_ends_have_said() {
    let mut switching = Switching::new(service(By::Sni, false, true));
    let asked_of = |switching: &mut Switching| {
        switching.port += 1;
        let syn = HeadRepr {
            seq: Seq(CLIENT),
            flags: SYN,
            syn_options: Some(linux()),
            ..HeadRepr::default()
        };
        switching.client(syn, &[]).unwrap().remove(0).tcp.syn_options.unwrap()
    };
    assert_eq!(asked_of(&mut switching).mss, Some(1460));
    let (syn, _) = switched(&mut switching, linux(), SynOptions { mss: Some(1460), ..linux() });
    assert_eq!(syn.tcp.syn_options.unwrap().mss, Some(1448));
    switching.port += 1;
    // One has timestamps, so the next one is not expected to do without. It does.
    let theirs = SynOptions { mss: Some(1200), timestamps: None, ..linux() };
    let ours = switching.handshake(linux());
    let first = data(Seq(CLIENT) + 1, ours, 500);
    let syn = switching.client(first, &hello("shop.example")).unwrap().pop().unwrap();
    assert_eq!(syn.tcp.syn_options.unwrap().mss, Some(1460));
    let answer = syn_ack(&syn, theirs);
    let sent = switching.server(&syn, answer, &[]).unwrap();
    assert!(
        sent.iter()
            .all(|out| out.tcp.timestamps.is_none() && out.interface == usize::from(OUTSIDE)),
        "{sent:?}"
    );
    let end = Seq(CLIENT) + 1 + hello("shop.example").len() as u32;
    let plain = HeadRepr { timestamps: None, ..data(Seq(SERVER) + 1, end, 4000) };
    switching.server(&syn, plain, &[]).unwrap();
    // 1500 bytes, which would become 1512, are cut, and nobody is asked for less.
    let cut = switching.server(&syn, plain, &vec![7; 1460]).unwrap().remove(0);
    assert_eq!((cut.payload.len(), cut.cut, cut.segment_bytes()), (1460, Some(1448), 1460));
    assert_eq!(switching.counter("switch_cut"), 1);
    let frame = |len: usize| {
        let from = syn.destination.0.to_string();
        frame_of(
            false,
            (&from, 443),
            (&syn.source.0.to_string(), syn.source.1),
            plain,
            &vec![7; len],
        )
    };
    let (interface, passed, _) =
        switching.world.handle(&frame(1448), OUTSIDE, Offload::default()).unwrap();
    assert_eq!((interface, passed.len()), (usize::from(INSIDE), 14 + 1500));
    // A router on the client's side takes 1400: the back end may send 12 less.
    let error = router_error(&passed, 1400);
    let (interface, error, _) = switching.world.handle(&error, INSIDE, Offload::default()).unwrap();
    let seen = verify(&error, Offload::default()).unwrap();
    let at = seen.transport_at + 6;
    assert_eq!(
        (interface, u16::from_be_bytes([error[at], error[at + 1]])),
        (usize::from(OUTSIDE), 1388)
    );
    // Later ones are not offered timestamps, nor longer segments than that one takes.
    let offered = asked_of(&mut switching);
    assert_eq!((offered.timestamps, offered.mss), (None, Some(1200)));
}

/// What a router says that has a frame of ours, and a next link that takes less.
fn router_error(frame: &[u8], mtu: u16) -> Vec<u8> {
    let recipe = crate::packets::Recipe::error(address(CLIENTS[1]), frame, 200, (3, 4), mtu);
    recipe.raw_frame()
}

/// What has heard of a connection that ends hears of its end, at the number that it expects (RFC
/// 5961 section 3.2).
#[test]
fn ends_of_connections_that_wait() {
    let first = Seq(CLIENT) + 1;
    // The client resets while its back end is asked.
    let mut switching = Switching::new(service(By::Sni, false, true));
    let ours = switching.handshake(linux());
    let end = first + hello("shop.example").len() as u32;
    let syn =
        switching.client(data(first, ours, 500), &hello("shop.example")).unwrap().pop().unwrap();
    // First it only sends no more, which is taken later.
    let fin = switching
        .client(HeadRepr { flags: ACK | FIN, ..data(end, ours, 500) }, &[])
        .unwrap()
        .remove(0);
    assert_eq!((fin.tcp.ack, fin.tcp.flags), (end, ACK));
    let told =
        switching.client(HeadRepr { seq: end, flags: RST, ..HeadRepr::default() }, &[]).unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        (told[0].interface, told[0].tcp.flags, told[0].tcp.seq),
        (usize::from(OUTSIDE), RST, syn.tcp.seq + 1)
    );
    assert_eq!(
        (switching.world.forwarder.connections().len(), switching.world.forwarder.waiting_counts()),
        (0, [0; 3])
    );

    // A back end that has said something, and then nothing more.
    let mut switching = Switching::new(service(By::Sni, false, true));
    let theirs = SynOptions { mss: Some(60), ..linux() };
    let (syn, ours) = switched(&mut switching, linux(), theirs);
    let stamps = Some(Timestamps { val: 90_001, ecr: 510 });
    let greeting = HeadRepr { timestamps: stamps, ..data(Seq(SERVER) + 1, first + 48, 4000) };
    assert_eq!(switching.server(&syn, greeting, b"hello").unwrap()[0].payload, b"hello");
    switching.client(data(end, ours + 5, 500), &[]).unwrap();
    let mut told = Vec::new();
    for _ in 0..400 {
        told.extend(
            switching.wait(Duration::from_secs(1)).into_iter().filter(|out| out.tcp.flags.rst()),
        );
    }
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!((told[0].interface, told[0].tcp.seq), (usize::from(INSIDE), ours + 5));
    assert_eq!((told[1].interface, told[1].tcp.seq), (usize::from(OUTSIDE), first + 48));
    assert_eq!((told[1].tcp.ack, switching.counter("switch_silent")), (Seq(SERVER) + 6, 1));

    // A back end that resets before it has all of the first bytes.
    let mut switching = Switching::new(service(By::Sni, false, true));
    let (syn, ours) = switched(&mut switching, linux(), linux());
    let reset = HeadRepr { seq: Seq(SERVER) + 1, flags: RST, ..HeadRepr::default() };
    let told = switching.server(&syn, reset, &[]).unwrap();
    assert_eq!((told.len(), told[0].tcp.seq, told[0].interface), (1, ours, usize::from(INSIDE)));
    assert_eq!(switching.world.forwarder.waiting_counts(), [0; 3]);
    assert!(switching.wait(Duration::from_secs(5)).is_empty(), "nothing is sent again");
}

/// A back end that answers a SYN from an old connection is told that this is over (RFC 9293 section
/// 3.10.7.3), and its answer to a SYN is for nobody but us.
#[test]
fn a_back_end_with_an_old_connection() {
    let mut switching = Switching::new(service(By::Sni, false, true));
    let ours = switching.handshake(linux());
    let syn = switching
        .client(data(Seq(CLIENT) + 1, ours, 500), &hello("shop.example"))
        .unwrap()
        .pop()
        .unwrap();
    let challenge = HeadRepr { timestamps: None, ..data(Seq(99_000), Seq(33_000), 500) };
    let told = switching.server(&syn, challenge, &[]).unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        (told[0].interface, told[0].tcp.flags, told[0].tcp.seq),
        (usize::from(OUTSIDE), RST, Seq(33_000))
    );
    assert_eq!((told[0].source, told[0].destination), (syn.source, syn.destination));
    let again = switching.wait(Duration::from_secs(2)).remove(0);
    assert_eq!((again.tcp.flags, again.tcp.seq), (SYN, syn.tcp.seq));
    let theirs = Timestamps { val: 90_000, ecr: 510 };
    let answer = HeadRepr {
        seq: Seq(SERVER),
        ack: syn.tcp.seq + 1,
        flags: SYN | ACK,
        window: 60_000,
        syn_options: Some(SynOptions { timestamps: Some(theirs), ..linux() }),
        ..HeadRepr::default()
    };
    let sent = switching.server(&syn, answer, &[]).unwrap();
    assert!(!sent.is_empty() && sent[0].interface == usize::from(OUTSIDE));
    // All of that is lost, and it answers the SYN once more.
    assert_eq!(switching.server(&syn, answer, &[]).unwrap_err(), Drop::Switch);
    assert!(!switching.wait(Duration::from_secs(2)).is_empty());
}

/// A client's segment that was late does not turn back the clock that its back end sees: what comes
/// behind would be taken for an old one (RFC 7323 section 5).
#[test]
fn a_late_segment_does_not_turn_back_the_clock() {
    let mut switching = Switching::new(service(By::Sni, false, true));
    let ours = switching.handshake(linux());
    let hello = hello("shop.example");
    let at = |seq, val| HeadRepr {
        timestamps: Some(Timestamps { val, ecr: 9 }),
        ..data(seq, ours, 500)
    };
    let first = Seq(CLIENT) + 1;
    switching.client(at(first, 600), &hello[..20]).unwrap();
    switching.client(at(first, 550), &hello[..10]).unwrap();
    let echoed = switching.client(at(first + 40, 610), &hello[40..50]).unwrap().remove(0);
    assert_eq!(echoed.tcp.timestamps.unwrap().ecr, 600, "RFC 7323 section 4.3");
    let syn = switching.client(at(first + 20, 620), &hello[20..]).unwrap().pop().unwrap();
    assert_eq!(syn.tcp.timestamps.unwrap().val, 620);
    let theirs = SynOptions { timestamps: Some(Timestamps { val: 90_000, ecr: 620 }), ..linux() };
    let answer = syn_ack(&syn, theirs);
    switching.server(&syn, answer, &[]).unwrap();
    switching.client(at(first, 560), &hello[..10]).unwrap();
    let again = switching.wait(Duration::from_secs(2));
    assert_eq!(again[0].tcp.timestamps.unwrap().val, 620, "{again:?}");
}
