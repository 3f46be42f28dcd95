//! What the fuzz target and the replay of its corpus have in common: run arbitrary bytes through
//! the public functions and check what must hold for all input.

use std::cell::RefCell;
use std::io::IoSlice;
use std::ops::Range;

use nicache_port::{
    Burst, Capabilities, Checksum, FRAME_BYTES_MAX, GsoKind, HEADER_BYTES_MAX, MemoryPort, Offload,
    Port, Segments, VIRTIO_NET_HEADER_BYTES, decode_header, encode_header, memory_wire,
    send_with_fallback,
};

/// Frames that a super-frame of a test is cut into at most.
const SEGMENTS_MAX: usize = 32;

/// Ports of different abilities: all, sums only, none.
const CAPABILITIES: [Capabilities; 3] = [
    Capabilities::FULL,
    Capabilities { tso: false, uso: false, ..Capabilities::FULL },
    Capabilities::PLAIN,
];

thread_local! {
    /// A wire for each of [`CAPABILITIES`], and where frames arrive: touching fresh buffers would
    /// take most of the time.
    static WIRES: RefCell<([(MemoryPort, MemoryPort); 3], Burst)> = RefCell::new((
        CAPABILITIES.map(|capabilities| memory_wire(SEGMENTS_MAX, capabilities, capabilities)),
        Burst::new(SEGMENTS_MAX),
    ));
}

/// A frame as a TAP or a packet socket gives it: a byte that says where its gather list is cut, a
/// virtio-net header, and the frame.
pub(crate) fn frame(bytes: &[u8]) {
    let Some((&cut, bytes)) = bytes.split_first() else { return };
    let Some((header, frame)) = bytes.split_first_chunk::<VIRTIO_NET_HEADER_BYTES>() else {
        return;
    };
    let Ok(offload) = decode_header(header, frame) else { return };
    check_positions(&offload, frame.len());
    let again = encode_header(&offload, frame.len()).expect("what was understood can be said");
    assert_eq!(decode_header(&again, frame), Ok(offload));

    let (front, back) = frame.split_at(usize::from(cut).min(frame.len()));
    let parts = [IoSlice::new(front), IoSlice::new(back)];
    let segments = offload.gso.and_then(|_| Segments::new(&parts, &offload).ok());
    if let Some(segments) = &segments {
        check_segments(segments, &parts, &offload, frame);
    }
    if segments.as_ref().is_none_or(|segments| segments.count() <= SEGMENTS_MAX) {
        WIRES.with_borrow_mut(|(wires, burst)| {
            for wire in wires {
                pass(wire, burst, &parts, &offload, frame, segments.as_ref());
            }
        });
    }
}

/// The positions lie in the frame, as [`Port::receive`] promises.
fn check_positions(offload: &Offload, len: usize) {
    if let Checksum::Partial { start, offset } = offload.checksum {
        assert!(usize::from(start) + usize::from(offset) + 2 <= len);
    }
    if let Some(gso) = offload.gso {
        assert!(gso.size > 0 && usize::from(gso.header_len) < len);
        assert!(matches!(offload.checksum, Checksum::Partial { .. }));
    }
}

fn field(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

/// Each segment has the right lengths, sums and numbers, and together they have the payload once.
fn check_segments(segments: &Segments, parts: &[IoSlice<'_>], offload: &Offload, frame: &[u8]) {
    let gso = offload.gso.expect("a super-frame");
    let Checksum::Partial { start, .. } = offload.checksum else {
        unreachable!("a super-frame has a partial sum")
    };
    let transport = usize::from(start);
    let mut at = usize::from(gso.header_len);
    for index in 0..segments.count() {
        let payload = segments.payload(index);
        assert!(
            payload.start == at && !payload.is_empty() && payload.len() <= usize::from(gso.size)
        );
        at = payload.end;
        if !(index < SEGMENTS_MAX || index + 1 == segments.count()) {
            continue;
        }
        let mut header = [0; HEADER_BYTES_MAX];
        let (header_len, of_segment) = segments.emit_header(index, parts, false, &mut header);
        assert_eq!((header_len, of_segment), (usize::from(gso.header_len), Offload::default()));
        let segment = [&header[..header_len], &frame[payload.clone()]].concat();
        let network = network(&segment, transport);
        assert!(is_right(&segment, network.clone(), gso.kind), "segment {index}");
        if gso.kind != GsoKind::Udp {
            let seq = |bytes: &[u8]| {
                u32::from_be_bytes(bytes[transport + 4..transport + 8].try_into().expect("four"))
            };
            let moved = (payload.start - header_len) as u32;
            assert_eq!(seq(&segment), seq(frame).wrapping_add(moved));
        }
        let mut partial = [0; HEADER_BYTES_MAX];
        let (_, of_partial) = segments.emit_header(index, parts, true, &mut partial);
        assert_eq!(of_partial, Offload { gso: None, ..*offload });
        let sum = transport + if gso.kind == GsoKind::Udp { 6 } else { 16 };
        (header[sum], header[sum + 1], partial[sum], partial[sum + 1]) = (0, 0, 0, 0);
        assert_eq!(header, partial, "but for the sum they are the same");
    }
    assert_eq!(at, frame.len());
}

/// From the IP header to the transport header. Both lengths of tags are tried: the type in front
/// says which.
fn network(frame: &[u8], transport: usize) -> Range<usize> {
    let start = [14, 18, 22]
        .into_iter()
        .find(|&at| matches!(field(frame, at - 2), 0x0800 | 0x86dd))
        .expect("IP");
    start..transport
}

/// Whether lengths and sums are right, found the slow way.
fn is_right(frame: &[u8], network: Range<usize>, kind: GsoKind) -> bool {
    let is_v4 = field(frame, network.start - 2) == 0x0800;
    let (protocol, transport) = (if kind == GsoKind::Udp { 17 } else { 6 }, &frame[network.end..]);
    let ip = &frame[network.clone()];
    let (packet_len, addresses) =
        if is_v4 { (field(ip, 2), &ip[12..20]) } else { (40 + field(ip, 4), &ip[8..40]) };
    let all = [addresses, &(transport.len() as u32).to_be_bytes(), &[0, 0, 0, protocol], transport]
        .concat();
    network.start + packet_len == frame.len()
        && (!is_v4 || sum(ip) == 0xffff)
        && sum(&all) == 0xffff
        && (kind != GsoKind::Udp
            || (field(transport, 4) == transport.len() && field(transport, 6) != 0))
}

fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).fold(0, |sum, pair| {
        let sum = sum + u32::from(pair[0]) * 256 + pair.get(1).map_or(0, |low| u32::from(*low));
        (sum & 0xffff) + (sum >> 16)
    })
}

/// Sends the frame through a wire, and looks at what arrives.
fn pass(
    (here, there): &mut (MemoryPort, MemoryPort),
    burst: &mut Burst,
    parts: &[IoSlice<'_>],
    offload: &Offload,
    frame: &[u8],
    segments: Option<&Segments>,
) {
    let capabilities = here.capabilities();
    let sent = send_with_fallback(here, parts, *offload);
    let arrived = there.receive(burst).expect("in memory");
    let Ok(sent) = sent else { return };
    assert_eq!(arrived, sent);
    let is_whole = capabilities.supports(offload);
    let expected =
        if is_whole || offload.gso.is_none() { 1 } else { segments.expect("it was cut").count() };
    assert_eq!(sent, expected);
    for (index, arrived) in burst.iter().enumerate() {
        let is_super = arrived.offload().gso.is_some();
        assert!(capabilities.supports(&arrived.offload()));
        assert!(
            arrived.len() <= if is_super { FRAME_BYTES_MAX } else { capabilities.frame_bytes_max }
        );
        check_positions(&arrived.offload(), arrived.len());
        match (is_whole, segments) {
            (true, _) => assert_eq!(arrived.data(), frame),
            (false, Some(segments)) => {
                assert!(
                    arrived.data().ends_with(&frame[segments.payload(index)]),
                    "the payload of segment {index}"
                );
            }
            (false, None) => assert_eq!(arrived.len(), frame.len()),
        }
    }
}
