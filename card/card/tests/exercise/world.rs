//! Connections of real clients to a real server through a card, and what may happen to them:
//! everything that TCP must bear, and what it must not believe.

use std::sync::PoisonError;

use nicache_http::{ProxyVersion, proxy_header};
use nicache_port::Offload;
use nicache_tcp::{Flags, Seq, SynOptions, Timestamps};

use super::choices::Choices;
use super::client::{Asked, Client};
use super::content::PATHS;
use super::oracle;
use super::traffic::{Change, Outcome, SERVER, Traffic};

/// Connections at a time.
const SLOTS: usize = 4;
/// Things that happen in a run at most.
const STEPS_MAX: usize = 400;
/// Connections of a run at most.
const CLIENTS_MAX: usize = 120;
/// Bytes of a client's segments at most.
const SEGMENT_BYTES: usize = 1400;

/// A run that the bytes decide. Expected requests are answered the short way; the general way leads
/// to the same.
pub(crate) fn connections(bytes: &[u8]) -> u64 {
    let (short, general) = (run(bytes, true), run(bytes, false));
    assert_eq!(general.predicted, 0);
    assert_eq!(
        (short.frames, &short.counters),
        (general.frames, &general.counters),
        "the two ways differ"
    );
    short.predicted
}

fn run(bytes: &[u8], prediction: bool) -> Outcome {
    let mut choices = Choices::new(bytes);
    let mut traffic = Traffic::new(&mut choices, prediction);
    let mut slots = [None; SLOTS];
    for _ in 0..STEPS_MAX {
        if choices.is_over() {
            break;
        }
        step(&mut traffic, &mut slots, &mut choices);
        traffic.settle();
    }
    let versions = traffic.versions();
    let is_honest = !traffic.lies.host_order && !traffic.lies.host_content && !traffic.lies.anybody;
    for client in traffic.clients.iter().filter(|client| is_honest && !client.has_lied) {
        oracle::check_replies(client, &versions);
        oracle::check_requests(client, &traffic.ends);
    }
    traffic.end();
    traffic.outcome()
}

fn step(traffic: &mut Traffic, slots: &mut [Option<usize>; SLOTS], choices: &mut Choices<'_>) {
    let what = choices.byte();
    let slot = usize::from(what >> 6);
    match what & 63 {
        // Whoever wants to speak opens a connection first.
        0..=23 => ask(traffic, slots, slot, choices),
        24..=25 => {
            slots[slot] = open(traffic, slots[slot], choices);
        }
        26 => with(traffic, slots, slot, |traffic, number| {
            let at = traffic.clients[number].sent;
            traffic.send_client(number, Flags::ACK, at, at);
        }),
        27..=28 => with(traffic, slots, slot, |traffic, number| {
            let client = &traffic.clients[number];
            if client.peer_first.is_none() {
                traffic.send_client(number, Flags::SYN, 0, 0);
            } else {
                let (from, to) = client.unacknowledged();
                send(traffic, number, from, to, choices.byte());
            }
        }),
        29 => with(traffic, slots, slot, |traffic, number| {
            let client = &mut traffic.clients[number];
            client.fin = true;
            let at = client.out.len();
            traffic.send_client(number, Flags::ACK | Flags::FIN, at, at);
        }),
        30 => with(traffic, slots, slot, |traffic, number| {
            let at = traffic.clients[number].sent;
            traffic.clients[number].is_dead = true;
            traffic.send_client(number, Flags::RST | Flags::ACK, at, at);
        }),
        31 => with(traffic, slots, slot, |traffic, number| {
            // RFC 9293 section 3.8.4, as Linux asks.
            if let Some(before) = traffic.clients[number].sent.checked_sub(1) {
                traffic.send_client(number, Flags::ACK, before, before);
            }
        }),
        32 => with(traffic, slots, slot, |traffic, number| {
            traffic.clients[number].window = [60_000, 0, 1, 3000][choices.below(4)];
        }),
        33..=36 => with_end(traffic, slots, slot, |traffic, number| {
            traffic.serve(number);
            traffic.flush_host(number, choices.below(12));
        }),
        37 => with_end(traffic, slots, slot, |traffic, number| {
            traffic.send_host(number, true);
        }),
        38 => with_end(traffic, slots, slot, |traffic, number| {
            traffic.ends[number].fin = true;
            traffic.flush_host(number, 20);
        }),
        39 => with_end(traffic, slots, slot, |traffic, number| {
            traffic.ends[number].is_dead = true;
            traffic.ack_host(number, Flags::RST | Flags::ACK);
        }),
        40 => with_end(traffic, slots, slot, |traffic, number| {
            let flags = if choices.byte() & 1 == 0 { Flags::ACK } else { Flags::SYN | Flags::ACK };
            traffic.ack_host(number, flags);
        }),
        41..=45 => traffic.wait(1 << choices.below(16)),
        46..=47 => traffic.wait(u64::from(choices.word())),
        48..=49 => traffic.write(choices.below(PATHS) as u8),
        50 => traffic.table.record_change(super::watcher::slot(choices.below(PATHS) as u8)),
        51 => traffic.losses[0] = u32::from(choices.byte()),
        52 => traffic.losses[1] = u32::from(choices.byte()),
        53..=54 => {
            let (at, bits) = (usize::from(choices.byte()), choices.byte());
            let change = Change { at, bits, is_summed: slot & 2 == 0 };
            traffic.changes[slot & 1] = Some(change);
        }
        55..=56 => traffic.give_again(slot & 1, choices.below(32)),
        57 => too_big(traffic, choices),
        58 => garbage(traffic, slot & 1, choices),
        59 => operate(traffic, choices.byte()),
        60 => mood(traffic, choices.byte()),
        61 => flood(traffic, choices.byte()),
        62 if slot == 3 => go_on_behind_fin(traffic),
        62 => traffic.at_once[slot] ^= true,
        _ => traffic.turn_gap(),
    }
}

/// Acts on the client in a slot, unless it was reset.
fn with(
    traffic: &mut Traffic,
    slots: &[Option<usize>; SLOTS],
    slot: usize,
    act: impl FnOnce(&mut Traffic, usize),
) {
    if let Some(number) = slots[slot].filter(|&number| !traffic.clients[number].is_dead) {
        act(traffic, number);
    }
}

/// Acts on the host's end of what is in a slot.
fn with_end(
    traffic: &mut Traffic,
    slots: &[Option<usize>; SLOTS],
    slot: usize,
    act: impl FnOnce(&mut Traffic, usize),
) {
    let Some(number) = slots[slot] else { return };
    let client = &traffic.clients[number];
    let key = (client.address, client.port);
    let found = traffic.ends.iter().rposition(|end| (end.address, end.port) == key && !end.is_dead);
    if let Some(end) = found {
        act(traffic, end);
    }
}

/// A client opens a connection: by another port, or by the one that it had.
fn open(traffic: &mut Traffic, before: Option<usize>, choices: &mut Choices<'_>) -> Option<usize> {
    let (what, size) = (choices.byte(), choices.below(8));
    if traffic.clients.len() == CLIENTS_MAX {
        return before;
    }
    let number = traffic.clients.len();
    let again = before.filter(|_| what & 1 == 1).map(|before| &traffic.clients[before]);
    let options = SynOptions {
        mss: [Some(1460), None, Some(536), Some(100), Some(0), Some(65_535), Some(1200), Some(47)]
            [size],
        window_scale: (what & 2 == 0).then_some(7),
        sack_permitted: what & 4 == 0,
        timestamps: (what & 8 == 0).then_some(Timestamps::default()),
        ecn: what & 16 != 0,
    };
    let address = if what & 32 == 0 { 1 } else { 2 };
    let first = if what & 64 == 0 {
        Seq(1000 + 5_000_000 * number as u32)
    } else {
        Seq(0u32.wrapping_sub(100))
    };
    let (address, port) =
        again.map_or((address, 40_000 + number as u16), |again| (again.address, again.port));
    let mut client = Client::new(address, port, first, options);
    if what & 128 != 0 {
        let version = if number.is_multiple_of(2) { ProxyVersion::V1 } else { ProxyVersion::V2 };
        let named =
            (!number.is_multiple_of(5)).then_some(([198, 18, 0, number as u8].into(), 4711));
        client.preface = proxy_header(version, named, ([10, 0, 0, 9].into(), 80));
        client.out.extend(&client.preface);
    }
    // What is said to one may be taken for what is said to the other.
    if let Some(before) = before.filter(|_| what & 1 == 1) {
        client.has_lied = true;
        traffic.clients[before].has_lied = true;
    }
    traffic.clients.push(client);
    traffic.send_client(number, Flags::SYN, 0, 0);
    Some(number)
}

/// A client makes a request, and sends it as a whole, in pieces or out of order.
fn ask(
    traffic: &mut Traffic,
    slots: &mut [Option<usize>; SLOTS],
    slot: usize,
    choices: &mut Choices<'_>,
) {
    let is_usable =
        |number: &usize| !traffic.clients[*number].is_dead && !traffic.clients[*number].fin;
    let number = match slots[slot].filter(is_usable) {
        Some(number) => number,
        None => {
            slots[slot] = open(traffic, None, choices);
            let Some(number) = slots[slot] else { return };
            traffic.settle();
            number
        }
    };
    let (what, how) = (choices.byte(), choices.byte());
    let path = what & 7;
    let floor = traffic.versions()[usize::from(path)];
    let client = &mut traffic.clients[number];
    if client.is_dead || client.fin {
        return;
    }
    let bytes = request(path, what >> 3, client.asked.len());
    let from = if client.asked.is_empty() { 0 } else { client.out.len() };
    client.out.extend(&bytes);
    let is_partial = what >> 3 == 4 || what >> 3 == 5;
    client.asked.push(Asked { path, floor, is_partial, bytes });
    let to = client.out.len();
    if client.peer_first.is_some() {
        send(traffic, number, from, to, how);
    }
}

/// The how manieth of a client's requests, of a kind. Those of the last kinds are all the same.
fn request(path: u8, kind: u8, number: usize) -> Vec<u8> {
    let number = if kind < 16 { number } else { 0 };
    let (method, version, more, content) = match kind {
        1 => ("HEAD", "1.1", "", ""),
        2 => ("POST", "1.1", "Content-Length: 5\r\n", "hello"),
        3 => ("GET", "1.1", "If-None-Match: \"0\"\r\n", ""),
        4 => ("GET", "1.1", "Range: bytes=4-99\r\n", ""),
        5 => ("GET", "1.1", "Range: bytes=0-3,40-59,-8\r\n", ""),
        6 => ("GET", "1.1", "Cookie: s=1\r\n", ""),
        7 => ("GET", "1.1", "Connection: close\r\n", ""),
        8 => ("GET", "1.0", "", ""),
        9 => ("GET", "1.1", "Cache-Control: no-cache\r\n", ""),
        10 => ("GET", "1.1", "Accept-Encoding: gzip\r\n", ""),
        11 => ("POST", "1.1", "Expect: 100-continue\r\nContent-Length: 9\r\n", "something"),
        12 => ("GET", "1.1", "If-Modified-Since: Tue, 14 Nov 2023 22:00:00 GMT\r\n", ""),
        13 => ("GET", "1.1", "X-Unknown: 1\r\n", ""),
        _ => ("GET", "1.1", "", ""),
    };
    format!(
        "{method} /p{path} HTTP/{version}\r\nHost: a\r\nUser-Agent: {number}\r\n{more}\r\n{content}"
    )
    .into_bytes()
}

fn send(traffic: &mut Traffic, number: usize, from: usize, to: usize, how: u8) {
    let size = [SEGMENT_BYTES, 1, 7, 40][usize::from(how & 3)].max((to - from).div_ceil(30));
    let mut cuts: Vec<(usize, usize)> =
        (from..to).step_by(size).map(|at| (at, to.min(at + size))).collect();
    if how & 4 != 0 {
        cuts.reverse();
    }
    if how & 8 != 0 {
        cuts.extend(cuts.clone());
    }
    if how & 16 != 0 {
        cuts.pop();
    }
    let is_last_fin = how & 96 == 96;
    for (from, to) in cuts {
        traffic.send_client(number, Flags::ACK | Flags::PSH, from, to);
    }
    if is_last_fin {
        traffic.clients[number].fin = true;
        let at = traffic.clients[number].out.len();
        traffic.send_client(number, Flags::ACK | Flags::FIN, at, at);
    }
}

/// A router says that an earlier segment of the host, or one like it, was too long.
fn too_big(traffic: &mut Traffic, choices: &mut Choices<'_>) {
    let (which, offset, mtu) = (choices.below(32), choices.byte(), choices.word());
    let Some(quoted) = traffic.memory(1, which) else { return };
    let mut quoted = quoted.clone();
    let seq_at = traffic.line.tcp_at() + 4;
    let moved = u32::from(offset) * 50;
    if let Some(seq) = quoted.get_mut(seq_at..seq_at + 4) {
        let number = u32::from_be_bytes([seq[0], seq[1], seq[2], seq[3]]).wrapping_add(moved);
        seq.copy_from_slice(&number.to_be_bytes());
        let frame = traffic.line.too_big(3, &quoted, mtu);
        traffic.give(0, frame, Offload::default(), None);
    }
}

/// Bytes that may be a frame.
fn garbage(traffic: &mut Traffic, side: usize, choices: &mut Choices<'_>) {
    let len = choices.below(128);
    let mut frame = choices.bytes(len).to_vec();
    // Nobody makes up bytes of bodies.
    frame.iter_mut().for_each(|byte| *byte &= 0x7f);
    if super::line::segment(&frame).is_some() {
        *if side == 0 { &mut traffic.lies.anybody } else { &mut traffic.lies.host_order } = true;
    }
    traffic.give(side, frame, Offload::default(), None);
}

/// Both ends say more on connections that they have closed, right behind their FIN.
fn go_on_behind_fin(traffic: &mut Traffic) {
    let more = request(1, 0, 0);
    for number in 0..traffic.clients.len() {
        let now_ms = traffic.now_ms();
        let client = &mut traffic.clients[number];
        if !client.fin || client.is_dead {
            continue;
        }
        client.has_lied = true;
        let head = client.head(Flags::ACK | Flags::PSH, client.out.len() + 1, now_ms);
        let frame = traffic.line.segment(client.address, SERVER, &head, &more, false);
        traffic.give(0, frame, Offload::default(), Some(number));
    }
    for number in 0..traffic.ends.len() {
        let now_ms = traffic.now_ms();
        let end = &traffic.ends[number];
        if !end.fin || end.is_dead {
            continue;
        }
        let head = end.head(Flags::ACK | Flags::PSH, end.sent(), now_ms);
        traffic.lies.host_order = true;
        traffic.emit_host(number, &head, b"HTTP/1.1 408 Late\r\n\r\n");
    }
}

/// What an operator and the watcher's lease do.
fn operate(traffic: &mut Traffic, what: u8) {
    match what % 6 {
        0 => drop(traffic.card.purge(|_| true)),
        1 => traffic.card.set_bypass(true),
        2 => traffic.card.set_bypass(false),
        3 => traffic.table.renew_lease(0),
        4 => traffic.table.renew_lease(u64::MAX),
        _ => traffic.table.record_lost(),
    }
}

fn mood(traffic: &mut Traffic, what: u8) {
    let mut mood = traffic.mood.lock().unwrap_or_else(PoisonError::into_inner);
    mood.is_deaf = what & 1 != 0;
    mood.is_mute = what & 2 != 0;
    mood.is_contrary = what & 12 == 12;
}

/// SYNs of clients that say nothing more.
fn flood(traffic: &mut Traffic, many: u8) {
    for number in 0..u16::from(many % 40) {
        let client = Client::new(4, 20_000 + number, Seq(77), SynOptions::default());
        let head = client.head(Flags::SYN, 0, traffic.now_ms());
        let frame = traffic.line.segment(4, 9, &head, &[], false);
        traffic.give(0, frame, Offload::default(), None);
        traffic.settle();
    }
}
