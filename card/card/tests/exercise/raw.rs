//! Frames as they are, from either side.

use super::choices::Choices;
use super::line;
use super::traffic::Traffic;

/// Bytes of a frame at most.
const FRAME_BYTES_MAX: usize = 1600;

/// Records of a byte that says from where a frame comes and what is done before, its length, and
/// the frame.
pub(crate) fn frames(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let mut traffic = Traffic::new(&mut choices, true);
    // Whoever sends these frames is nobody whom the models know.
    traffic.lies.host_order = true;
    traffic.lies.anybody = true;
    while !choices.is_over() {
        let (how, len) = (choices.byte(), usize::from(choices.word()).min(FRAME_BYTES_MAX));
        let mut frame = choices.bytes(len).to_vec();
        if how & 2 != 0 {
            line::sum_again(&mut frame);
        }
        traffic.give(usize::from(how & 1), frame, Default::default(), None);
        match how >> 2 & 3 {
            0 | 1 => traffic.settle(),
            2 => {}
            _ => traffic.wait(1 << (how >> 4)),
        }
    }
    traffic.settle();
    traffic.end();
}
