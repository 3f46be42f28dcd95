use super::*;
use crate::frame::Burst;
use crate::memory_wire::memory_wire;
use crate::port::Capabilities;
use crate::test_frames::Recipe;
use proptest::prelude::*;

/// Cuts bytes into a gather list at random places.
fn scatter<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<IoSlice<'a>> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|cut| IoSlice::new(&bytes[cut[0]..cut[1]])).collect()
}

/// What arrives at the other end of a wire with these capabilities.
fn through(
    capabilities: Capabilities,
    parts: &[IoSlice<'_>],
    offload: Offload,
) -> Result<Vec<(Vec<u8>, Offload)>, SendError> {
    let (mut a, mut b) = memory_wire(64, capabilities, capabilities);
    let sent = send_with_fallback(&mut a, parts, offload)?;
    let mut burst = Burst::new(64);
    assert_eq!(b.receive(&mut burst).unwrap(), sent);
    Ok(burst.iter().map(|frame| (frame.data().to_vec(), frame.offload())).collect())
}

fn recipe() -> impl Strategy<Value = Recipe> {
    let layout = (any::<bool>(), any::<bool>(), 0usize..=2, 0usize..=3, 0usize..=10);
    let values =
        (any::<u8>(), any::<u32>(), any::<u16>(), proptest::collection::vec(any::<u8>(), 1..6000));
    (layout, values).prop_map(
        |(
            (ipv6, udp, vlan_tags, ip_extra, tcp_options),
            (tcp_flags, seq, identification, payload),
        )| Recipe {
            ipv6,
            udp,
            vlan_tags,
            ip_extra,
            tcp_options,
            tcp_flags,
            seq,
            identification,
            payload,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn segments_carry_the_super_frame(
        recipe in recipe(),
        size in 100u16..1300,
        cuts in proptest::collection::vec(0usize..7000, 0..12),
    ) {
        let (frame, offload) = recipe.build(Some(size));
        let frames = through(Capabilities::PLAIN, &scatter(&frame, &cuts), offload).unwrap();
        let header_len = recipe.header_len();
        prop_assert_eq!(frames.len(), recipe.payload.len().div_ceil(usize::from(size)));
        let mut payload: Vec<u8> = Vec::new();
        for (index, (segment, offload)) in frames.iter().enumerate() {
            prop_assert_eq!(recipe.verify(segment), Ok(()));
            prop_assert_eq!(*offload, Offload::default());
            prop_assert_eq!(&segment[..recipe.network()], &frame[..recipe.network()]);
            let ip = &segment[recipe.network()..];
            if !recipe.ipv6 {
                prop_assert_eq!(
                    u16::from_be_bytes([ip[4], ip[5]]),
                    recipe.identification.wrapping_add(index as u16)
                );
            }
            if !recipe.udp {
                let tcp = &segment[recipe.transport()..];
                let seq = u32::from_be_bytes(tcp[4..8].try_into().unwrap());
                prop_assert_eq!(seq, recipe.seq.wrapping_add(payload.len() as u32));
                let mut flags = recipe.tcp_flags;
                if index + 1 < frames.len() {
                    flags &= !(TCP_FIN | TCP_PSH);
                }
                if index > 0 {
                    flags &= !TCP_CWR; // RFC 3168, section 6.1.2
                }
                prop_assert_eq!(tcp[13], flags);
            }
            if index + 1 < frames.len() {
                prop_assert_eq!(segment.len(), header_len + usize::from(size));
            }
            payload.extend(&segment[header_len..]);
        }
        prop_assert_eq!(payload, recipe.payload);
    }

    /// With checksum offload only, segments stay partial; completing them gives what the full
    /// fallback gives.
    #[test]
    fn partial_segments_complete_to_the_same(recipe in recipe(), size in 100u16..1300) {
        let (frame, offload) = recipe.build(Some(size));
        let parts = [IoSlice::new(&frame)];
        let complete = through(Capabilities::PLAIN, &parts, offload).unwrap();
        let partial =
            through(Capabilities { checksum: true, ..Capabilities::PLAIN }, &parts, offload)
                .unwrap();
        prop_assert_eq!(complete.len(), partial.len());
        for ((complete, _), (mut partial, metadata)) in complete.into_iter().zip(partial) {
            prop_assert_eq!(metadata, Offload { gso: None, ..offload });
            complete_in_place(&mut partial, recipe.transport(), if recipe.udp { 6 } else { 16 })
                .unwrap();
            prop_assert_eq!(partial, complete);
        }
    }

    #[test]
    fn a_partial_checksum_is_completed(
        recipe in recipe(),
        cuts in proptest::collection::vec(0usize..7000, 0..12),
    ) {
        let mut recipe = recipe;
        recipe.payload.truncate(1300);
        let (frame, offload) = recipe.build(None);
        let frames = through(Capabilities::PLAIN, &scatter(&frame, &cuts), offload).unwrap();
        prop_assert_eq!(frames.len(), 1);
        prop_assert_eq!(recipe.verify(&frames[0].0), Ok(()));
        prop_assert_eq!(&frames[0].0[recipe.header_len()..], &recipe.payload);
    }

    /// Whatever the bytes and the metadata: frames or an error, no panic.
    #[test]
    fn hostile_super_frames_are_refused_or_cut(
        recipe in recipe(),
        size in 1u16..3000,
        flips in proptest::collection::vec((0usize..120, any::<u8>()), 0..4),
        start in 0u16..200,
        header_len in 0u16..300,
        wild in any::<bool>(),
    ) {
        let (mut frame, mut offload) = recipe.build(Some(size));
        for (at, value) in flips {
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
        }
        if wild {
            offload.checksum = Checksum::Partial { start, offset: 16 };
            offload.gso = offload.gso.map(|gso| Gso { header_len, ..gso });
        }
        let (mut a, _b) = memory_wire(2, Capabilities::PLAIN, Capabilities::PLAIN);
        let _ = send_with_fallback(&mut a, &[IoSlice::new(&frame)], offload);
    }
}

#[test]
fn a_capable_port_gets_the_frame_as_it_is() {
    let (frame, offload) = Recipe { payload: vec![1; 3000], ..Recipe::default() }.build(Some(1000));
    let frames = through(Capabilities::FULL, &[IoSlice::new(&frame)], offload).unwrap();
    assert_eq!(frames, [(frame, offload)]);
}

#[test]
fn the_longest_super_frame() {
    let recipe =
        Recipe { payload: (0..65_535 - 52).map(|n| n as u8).collect(), ..Recipe::default() };
    let (frame, offload) = recipe.build(Some(1448));
    let frames = through(Capabilities::PLAIN, &[IoSlice::new(&frame)], offload).unwrap();
    assert_eq!(frames.len(), 46);
    for (segment, _) in &frames {
        recipe.verify(segment).unwrap();
        assert!(segment.len() <= 1514);
    }
}

/// RFC 768: a computed checksum of zero is transmitted as all ones.
#[test]
fn a_udp_checksum_of_zero_is_sent_as_ones() {
    let mut recipe = Recipe { udp: true, payload: vec![0; 2], ..Recipe::default() };
    let checksum = |recipe: &Recipe| {
        let (frame, offload) = recipe.build(None);
        let frames = through(Capabilities::PLAIN, &[IoSlice::new(&frame)], offload).unwrap();
        recipe.verify(&frames[0].0).unwrap();
        u16::from_be_bytes([frames[0].0[40], frames[0].0[41]])
    };
    // The payload word that brings the sum to all ones.
    recipe.payload = checksum(&recipe).to_be_bytes().to_vec();
    assert_eq!(checksum(&recipe), 0xffff);
}

#[test]
fn contradictions_are_refused() {
    let recipe = Recipe { payload: vec![1; 3000], ..Recipe::default() };
    let (frame, offload) = recipe.build(Some(1000));
    let gso = offload.gso.unwrap();
    let refused = |frame: &[u8], offload| {
        let result = through(Capabilities::PLAIN, &[IoSlice::new(frame)], offload);
        assert!(matches!(result, Err(SendError::Invalid)), "{result:?}");
    };
    let with = |edit: fn(&mut Vec<u8>)| {
        let mut frame = frame.clone();
        edit(&mut frame);
        frame
    };
    refused(&frame, Offload { checksum: Checksum::Valid, ..offload });
    refused(&frame, Offload { gso: Some(Gso { kind: GsoKind::Tcp6, ..gso }), ..offload });
    refused(&frame, Offload { gso: Some(Gso { kind: GsoKind::Udp, ..gso }), ..offload });
    refused(&frame, Offload { gso: Some(Gso { size: 0, ..gso }), ..offload });
    refused(&frame, Offload { gso: Some(Gso { header_len: 62, ..gso }), ..offload });
    refused(&frame, Offload { gso: Some(Gso { header_len: u16::MAX, ..gso }), ..offload });
    refused(&frame, Offload { checksum: Checksum::Partial { start: 38, offset: 16 }, ..offload });
    refused(&frame, Offload { checksum: Checksum::Partial { start: 34, offset: 6 }, ..offload });
    refused(&with(|frame| frame[14] = 0x46), offload);
    refused(&with(|frame| frame[20] = 0x20), offload); // a fragment
    refused(&with(|frame| frame[23] = 17), offload);
    refused(&with(|frame| frame[46] = 0xf0), offload);
    refused(&frame, Offload { checksum: Checksum::Partial { start: 3000, offset: 16 }, gso: None });
    refused(&frame, Offload { checksum: Checksum::Partial { start: 13, offset: 16 }, gso: None });
}

#[test]
fn a_gather_list_of_the_longest_kind() {
    let recipe = Recipe { payload: vec![3; 2000], ..Recipe::default() };
    let (frame, offload) = recipe.build(Some(1000));
    let mut parts = vec![IoSlice::new(&frame[..recipe.header_len()])];
    parts.extend(recipe.payload.chunks(2000 / (PARTS_MAX - 1) + 1).map(IoSlice::new));
    assert_eq!(parts.len(), PARTS_MAX);
    assert_eq!(through(Capabilities::PLAIN, &parts, offload).unwrap().len(), 2);
    let too_many = vec![IoSlice::new(&frame); PARTS_MAX + 1];
    assert!(matches!(
        through(Capabilities::PLAIN, &too_many, offload),
        Err(SendError::TooManyParts)
    ));
}
