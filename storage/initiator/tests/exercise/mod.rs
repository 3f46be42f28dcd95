//! What the fuzz targets do with an input.

use nicache_initiator::{Sense, TargetUrl, Verdict, judge};

/// The address of a unit: what parses prints and parses again.
pub fn url(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(url) = text.parse::<TargetUrl>() {
        let again: TargetUrl = url.to_string().parse().expect("what is printed parses");
        assert_eq!(again, TargetUrl { credentials: None, ..url });
        assert!(!again.portals.is_empty() && again.portals.iter().all(|portal| portal.contains(':')));
    }
}

/// A target's answer: no failure is taken for success.
pub fn sense(bytes: &[u8]) {
    let Some((status, rest)) = bytes.split_first_chunk::<4>() else { return };
    let [key, high, low, ..] = *rest else { return };
    let status = i32::from_le_bytes(*status);
    if judge(status, Sense { key, code: u16::from_be_bytes([high, low]) }) == Verdict::Done {
        assert!(status == 0 || status == 4 || (status == 2 && key < 2));
    }
}
