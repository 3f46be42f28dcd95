//! What the fuzz targets and the replay of their corpus have in common: run arbitrary bytes through
//! the public functions and check what must hold for all input.

use nicache_tcp::frame::{
    Addresses, ETHERNET_BYTES, HEADERS_BYTES_MAX, Packet, TAG_BYTES, TAGS_MAX, Tags, write_headers,
};
use nicache_tcp::options::{SACK_BLOCKS_MAX, WINDOW_SCALE_MAX};
use nicache_tcp::wire::{CHECKSUM_OFFSET, HEADER_BYTES_MAX, HEADER_BYTES_MIN};
use nicache_tcp::{
    AckRewrite, HeadRepr, Rewrite, SackBlocks, SackRewrite, SegmentHead, Seq, checksum, parse,
    rewrite,
};
use smoltcp::wire::IpProtocol;

/// A frame from the wire.
pub(crate) fn frame(bytes: &[u8]) {
    if let Some((tags, _)) = Tags::parse(bytes) {
        assert!(tags.len() <= TAGS_MAX * TAG_BYTES && tags.len().is_multiple_of(TAG_BYTES));
        assert_eq!(Tags::from_bytes(tags.bytes()), Some(tags));
        assert_eq!(tags.bytes(), &bytes[ETHERNET_BYTES - 2..ETHERNET_BYTES - 2 + tags.len()]);
        assert!(!tags.is_empty() || tags.vlans() == 0);
    }
    let Some(packet) = Packet::parse(bytes) else { return };
    assert!(
        packet.ip_at < packet.transport_at
            && packet.transport_at <= packet.end
            && packet.end <= bytes.len()
    );
    assert_eq!(packet.source.is_v4(), packet.destination.is_v4());
    let is_right = packet.is_header_right(bytes) && packet.is_segment_right(bytes);
    assert_eq!(packet.is_message_right(bytes), packet.message_sum(bytes) == 0xffff);
    if packet.protocol != IpProtocol::Tcp {
        return;
    }
    let segment = &bytes[packet.transport_at..packet.end];
    let Ok(mut head) = parse(segment) else { return };
    head.ecn = packet.ecn(bytes);
    again(bytes, &packet, &head, &segment[head.header_len..]);
    if is_right && segment.len() > HEADER_BYTES_MIN {
        let mut wrong = bytes.to_vec();
        wrong[packet.end - 1] ^= 1;
        assert!(!packet.is_segment_right(&wrong), "one bit is seen");
    }
}

/// What is said of a frame suffices to make one that says the same.
fn again(bytes: &[u8], packet: &Packet, head: &SegmentHead, payload: &[u8]) {
    let addresses = Addresses {
        source_mac: bytes[6..12].try_into().expect("six bytes"),
        destination_mac: bytes[..6].try_into().expect("six bytes"),
        tags: packet.tags,
        source: packet.source,
        destination: packet.destination,
    };
    let repr = repr(head);
    let mut headers = [0; HEADERS_BYTES_MAX];
    let len = write_headers(&addresses, &repr, payload.len() as u32, 7, &mut headers);
    assert_eq!(len, addresses.tcp_at() + repr.len());
    let mut made = [&headers[..len], payload].concat();
    let sum = !checksum::sum(&made[addresses.tcp_at()..]);
    let field = addresses.tcp_at() + CHECKSUM_OFFSET;
    made[field..field + 2].copy_from_slice(&sum.to_be_bytes());

    let read = Packet::parse(&made).expect("a packet");
    assert_eq!(
        (read.tags, read.source, read.destination),
        (packet.tags, packet.source, packet.destination)
    );
    assert_eq!((read.protocol, read.end), (IpProtocol::Tcp, made.len()));
    assert!(read.is_header_right(&made) && read.is_segment_right(&made));
    assert_eq!((&made[..12], read.ecn(&made)), (&bytes[..12], head.ecn));
    let head = parse(&made[read.transport_at..]).expect("a header");
    assert_eq!(&made[read.transport_at + head.header_len..], payload);
}

/// How a rewrite changes a segment, in bytes of fixed places, and the segment.
pub(crate) fn segment(bytes: &[u8]) {
    let Some((how, tcp)) = bytes.split_first_chunk::<24>() else { return };
    let head = parse(tcp);
    if let Ok(head) = &head {
        check_head(head, tcp);
    }
    let word = |at: usize| u32::from_be_bytes([how[at], how[at + 1], how[at + 2], how[at + 3]]);
    let change = Rewrite {
        seq_delta: word(1),
        ack: if how[0] & 1 == 0 { AckRewrite::Add(word(5)) } else { AckRewrite::Set(Seq(word(5))) },
        window: (how[0] & 2 != 0).then_some(word(20) as u16),
        tsval_delta: word(9),
        tsecr_delta: word(13),
        sack_delta: word(17),
        sack: if how[0] & 4 == 0 { SackRewrite::Keep } else { SackRewrite::Strip },
    };
    let mut partial = tcp.to_vec();
    rewrite(&mut partial, &change, false);
    let Ok(head) = head else { return };
    assert_eq!(
        partial[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2],
        tcp[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2]
    );

    let mut whole = tcp.to_vec();
    whole[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].fill(0);
    let sum = !checksum::sum(&whole);
    whole[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&sum.to_be_bytes());
    let before = whole.clone();
    rewrite(&mut whole, &change, true);
    assert_eq!(checksum::sum(&whole), 0xffff, "the sum is right again");
    assert_eq!(whole[head.header_len..], tcp[head.header_len..]);
    check_rewritten(&head, &change, &parse(&whole).expect("still a header"));
    if change.sack == SackRewrite::Keep {
        rewrite(&mut whole, &inverse(&head, &change), true);
        let field = CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2;
        let fields = [&whole[field.clone()], &before[field]].concat();
        // Nought has two forms in ones' complement.
        if fields[..2] != fields[2..] {
            assert!(matches!(fields[..], [0, 0, 255, 255] | [255, 255, 0, 0]));
        }
        assert_eq!(whole[..CHECKSUM_OFFSET], before[..CHECKSUM_OFFSET]);
        assert_eq!(
            whole[CHECKSUM_OFFSET + 2..],
            before[CHECKSUM_OFFSET + 2..],
            "the way back leads back"
        );
    }
}

/// What was read fits the bytes, and is read again from what it is written as.
fn check_head(head: &SegmentHead, tcp: &[u8]) {
    assert!((HEADER_BYTES_MIN..=HEADER_BYTES_MAX.min(tcp.len())).contains(&head.header_len));
    assert_eq!(head.syn_options.is_some(), head.flags.syn());
    assert!(
        head.sack.len() <= SACK_BLOCKS_MAX
            && head.window_bytes(u8::MAX) <= 0xffff << WINDOW_SCALE_MAX
    );
    let without_payload = parse(&tcp[..head.header_len]);
    assert_eq!(without_payload.as_ref(), Ok(head), "the payload makes no difference");

    let repr = repr(head);
    let mut bytes = [0xff; HEADER_BYTES_MAX];
    let len = repr.emit(&mut bytes);
    assert!(
        len == repr.len()
            && (HEADER_BYTES_MIN..=HEADER_BYTES_MAX).contains(&len)
            && len.is_multiple_of(4)
    );
    let read = parse(&bytes[..len]).expect("what is written can be read");
    let mut sack = SackBlocks::EMPTY;
    let fit = if head.syn_options.is_some() {
        0
    } else {
        SACK_BLOCKS_MAX - usize::from(head.timestamps.is_some())
    };
    for (left, right) in head.sack.as_slice().iter().take(fit) {
        sack.push(*left, *right);
    }
    assert_eq!(read, SegmentHead { header_len: len, sack, unknown_option: false, ..*head });
    assert_eq!(self::repr(&read).emit(&mut [0; HEADER_BYTES_MAX]), len);
}

fn repr(head: &SegmentHead) -> HeadRepr {
    HeadRepr {
        src_port: head.src_port,
        dst_port: head.dst_port,
        seq: head.seq,
        ack: head.ack,
        flags: head.flags,
        window: head.window,
        timestamps: head.timestamps,
        sack: head.sack,
        syn_options: head.syn_options,
        ecn: head.ecn,
    }
}

fn check_rewritten(old: &SegmentHead, change: &Rewrite, new: &SegmentHead) {
    let has_ack = old.flags.ack();
    assert_eq!(new.seq, old.seq + change.seq_delta);
    let ack = match change.ack {
        _ if !has_ack => old.ack,
        AckRewrite::Set(ack) => ack,
        AckRewrite::Add(delta) => old.ack + delta,
    };
    assert_eq!((new.ack, new.window), (ack, change.window.unwrap_or(old.window)));
    assert_eq!(
        (new.flags, new.header_len, new.unknown_option),
        (old.flags, old.header_len, old.unknown_option)
    );
    assert_eq!((new.src_port, new.dst_port), (old.src_port, old.dst_port));
    let echo = if has_ack { change.tsecr_delta } else { 0 };
    let moved = old
        .timestamps
        .map(|at| (at.val.wrapping_add(change.tsval_delta), at.ecr.wrapping_add(echo)));
    assert_eq!(new.timestamps.map(|at| (at.val, at.ecr)), moved);
    let blocks: Vec<_> = match change.sack {
        SackRewrite::Strip => Vec::new(),
        SackRewrite::Keep => old
            .sack
            .as_slice()
            .iter()
            .map(|(left, right)| (*left + change.sack_delta, *right + change.sack_delta))
            .collect(),
    };
    assert_eq!(new.sack.as_slice(), blocks);
}

/// The change that takes a change back.
fn inverse(old: &SegmentHead, change: &Rewrite) -> Rewrite {
    Rewrite {
        seq_delta: change.seq_delta.wrapping_neg(),
        ack: match change.ack {
            AckRewrite::Set(_) => AckRewrite::Set(old.ack),
            AckRewrite::Add(delta) => AckRewrite::Add(delta.wrapping_neg()),
        },
        window: change.window.map(|_| old.window),
        tsval_delta: change.tsval_delta.wrapping_neg(),
        tsecr_delta: change.tsecr_delta.wrapping_neg(),
        sack_delta: change.sack_delta.wrapping_neg(),
        sack: SackRewrite::Keep,
    }
}
