//! Paths that swallow segments which are too long without a word of it (RFC 4821): what silence
//! means.

/// Segment sizes to try (RFC 4821 section 7.7: 1024 first; then what RFC 9293 section 3.7.1 assumes
/// of any path).
const LADDER: [u32; 2] = [1_024, 536];

/// The segment size to try after `expiries` of the timer without progress, in place of `mss`.
#[must_use]
pub fn after_silence(mss: u32, expiries: u8) -> Option<u32> {
    // A single expiry is more likely a loss; with the second, the sizes are gone through one by
    // one.
    if expiries < 2 { None } else { LADDER.into_iter().find(|size| *size < mss) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_shortens_step_by_step() {
        assert_eq!(after_silence(1_448, 1), None);
        assert_eq!(after_silence(1_448, 2), Some(1_024));
        assert_eq!(after_silence(1_024, 3), Some(536));
        assert_eq!(after_silence(536, 9), None);
    }
}
