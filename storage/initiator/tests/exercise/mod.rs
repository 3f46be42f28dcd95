//! What the fuzz targets do with an input.

use nicache_initiator::{Sense, TargetUrl, Verdict, judge, parse_capacity, parse_reserved};

/// The address of a unit: what parses prints and parses again.
pub(crate) fn url(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(url) = text.parse::<TargetUrl>() {
        let again: TargetUrl = url.to_string().parse().expect("what is printed parses");
        assert_eq!(again, TargetUrl { credentials: None, ..url });
        assert!(
            !again.portals.is_empty() && again.portals.iter().all(|portal| portal.contains(':'))
        );
    }
}

/// A target's answer: no failure is taken for success.
pub(crate) fn sense(bytes: &[u8]) {
    let Some((status, rest)) = bytes.split_first_chunk::<4>() else { return };
    let [key, high, low, response, ..] = *rest else { return };
    let status = i32::from_le_bytes(*status);
    let sense = Sense { response, key, code: u16::from_be_bytes([high, low]) };
    if judge(status, sense) == Verdict::Done {
        let is_told = key < 2 && matches!(response, 0x70 | 0x72);
        assert!(status == 0 || status == 4 || (status == 2 && is_told));
    }
}

/// What a target answers about a unit: its size, or its reservation. The first byte says which.
pub(crate) fn response(bytes: &[u8]) {
    let Some((which, data)) = bytes.split_first() else { return };
    if which % 2 == 0 {
        if let Ok(capacity) = parse_capacity(data) {
            assert!(
                data.len() >= 12 && capacity.bytes > 0 && i64::try_from(capacity.bytes).is_ok()
            );
            assert!(capacity.bytes.is_multiple_of(u64::from(capacity.block_bytes)));
        }
    } else if let Some(found) = parse_reserved(data) {
        assert_eq!(data[..4], found.generation.to_be_bytes());
        assert_eq!(found.holder.is_none(), data[4..8] == [0; 4]);
        assert!(found.holder.is_none_or(|holder| data[8..16] == holder.0.to_be_bytes()));
    }
}
