//! What the fuzz target and the replay of its corpus have in common: run arbitrary bytes through
//! what reads the values of flags, and check what must hold for all input.

use crate::options::study::{RoomOption, SizesOption};

/// The value of a flag: a byte that says of which, and its text.
pub(super) fn value(bytes: &[u8]) {
    let Some((&which, text)) = bytes.split_first() else { return };
    let text = &*String::from_utf8_lossy(text);
    if which % 2 == 1 {
        match text.parse::<SizesOption>() {
            Ok(SizesOption(sizes)) => {
                assert!(!sizes.is_empty() && sizes[0].0 > 0);
                assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]));
            }
            Err(error) => assert!(!error.is_empty()),
        }
    } else if let Err(error) = text.parse::<RoomOption>() {
        assert!(!error.is_empty());
    }
}
