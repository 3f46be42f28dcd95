//! What a target's answer means for the command that it answers.
//!
//! Read first: SPC-4, sections 4.5 (sense data) and 5.4 (status), SAM-5 section 5.3.

/// GOOD.
pub(crate) const GOOD: i32 = 0x00;
/// CHECK CONDITION: the sense data say what is the matter.
const CHECK_CONDITION: i32 = 0x02;
/// CONDITION MET.
const CONDITION_MET: i32 = 0x04;
/// BUSY.
const BUSY: i32 = 0x08;
/// RESERVATION CONFLICT: the unit belongs to another initiator.
const RESERVATION_CONFLICT: i32 = 0x18;
/// TASK SET FULL.
const TASK_SET_FULL: i32 = 0x28;
/// ACA ACTIVE.
const ACA_ACTIVE: i32 = 0x30;
/// TASK ABORTED.
const TASK_ABORTED: i32 = 0x40;
/// libiscsi: the session ended first.
pub(crate) const CANCELLED: i32 = 0x0F00_0000;

/// What CHECK CONDITION comes with: a response code, a sense key, and the additional sense code
/// with its qualifier (ASC in the high byte).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sense {
    /// The response code: 0x70 and 0x72 are about this command, 0x71 and 0x73 (deferred) about an
    /// earlier one. Anything else is not sense data: a target need not send any.
    pub response: u8,
    /// The sense key, 0 to 15.
    pub key: u8,
    /// The additional sense code and its qualifier: 0x2900 is "power on, reset, or bus device reset
    /// occurred".
    pub code: u16,
}

impl Sense {
    /// Whether the unit says that its size changed.
    pub(crate) fn is_resized(self) -> bool {
        (self.key, self.code) == (0x6, 0x2A09)
    }
}

/// What to do with a command that was answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The command was executed.
    Done,
    /// The command was not executed, for a reason that passes: send it again at once.
    Again,
    /// The command was not executed, and the target may have lost writes that it acknowledged:
    /// write again what no flush has covered, then send it again.
    Forgot(String),
    /// The target is busy: send it again after a pause.
    Later(String),
    /// The session is gone: send it again in the next one.
    NextSession,
    /// The target's storage is full.
    Full(String),
    /// The unit is another initiator's.
    Taken(String),
    /// The command failed for good.
    Failed(String),
}

/// Judges an answer: a SCSI status (or libiscsi's own) and, for CHECK CONDITION, the sense.
pub fn judge(status: i32, sense: Sense) -> Verdict {
    match status {
        GOOD | CONDITION_MET => Verdict::Done,
        CHECK_CONDITION => judge_sense(sense),
        BUSY | TASK_SET_FULL | ACA_ACTIVE => {
            Verdict::Later(format!("the target is busy (status {status:#04x})"))
        }
        // Another initiator's command (CLEAR TASK SET) or a reset; SAM-5 section 5.3.1.
        TASK_ABORTED => Verdict::Again,
        RESERVATION_CONFLICT => {
            Verdict::Taken("another initiator has reserved the unit".to_owned())
        }
        status if status & 0x0F00_0000 != 0 => Verdict::NextSession,
        status => Verdict::Failed(format!("unknown status {status:#x}")),
    }
}

fn judge_sense(sense: Sense) -> Verdict {
    let code = format!(
        "sense key {:#x}, code {:02x}/{:02x}",
        sense.key,
        sense.code >> 8,
        sense.code & 0xFF
    );
    match sense.response {
        // Current errors, in fixed and in descriptor format.
        0x70 | 0x72 => {}
        // Deferred errors: of a command that was acknowledged. This one was not executed (SPC-4,
        // section 4.5.6).
        0x71 | 0x73 => {
            return Verdict::Forgot(format!("an acknowledged command failed later ({code})"));
        }
        _ => return Verdict::Failed("the target does not say why".to_owned()),
    }
    match (sense.key, sense.code) {
        // NO SENSE and RECOVERED ERROR: the command was completed.
        (0x0 | 0x1, _) => Verdict::Done,
        // NOT READY: becoming ready, or an operation in progress.
        (0x2, 0x0400..=0x041F) => Verdict::Later(format!("the unit is not ready ({code})")),
        (0x2, _) => Verdict::Failed(format!("the unit is not ready ({code})")),
        (0x3, _) => Verdict::Failed(format!("medium error ({code})")),
        (0x4, _) => Verdict::Failed(format!("hardware error ({code})")),
        (0x5, _) => Verdict::Failed(format!("illegal request ({code})")),
        // UNIT ATTENTION: something changed, and the command was not executed. It may be the size:
        // a larger unit does no harm, and the next session finds a smaller one.
        // A reset, a loss of power, or a unit that went away and came back: caches may be empty.
        (0x6, 0x2900..=0x29FF | 0x2800) => Verdict::Forgot(format!("the unit was reset ({code})")),
        (0x6, _) => Verdict::Again,
        // SPACE ALLOCATION FAILED WRITE PROTECT: a thin unit is full.
        (0x7, 0x2707) => Verdict::Full(format!("space allocation failed ({code})")),
        (0x7, _) => Verdict::Failed(format!("the unit is write-protected ({code})")),
        (0xB, _) => Verdict::Later(format!("the target aborted the command ({code})")),
        _ => Verdict::Failed(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(key: u8, code: u16) -> Verdict {
        judge(CHECK_CONDITION, Sense { response: 0x70, key, code })
    }

    #[test]
    fn a_target_that_may_have_lost_writes_says_so_in_three_ways() {
        assert!(matches!(check(0x6, 0x2900), Verdict::Forgot(reason) if reason.contains("29/00")));
        assert!(matches!(check(0x6, 0x2904), Verdict::Forgot(_)));
        assert!(matches!(check(0x6, 0x2800), Verdict::Forgot(_)));
        for response in [0x71, 0x73] {
            for key in [0x0, 0x1, 0x3, 0x4, 0xB] {
                let verdict = judge(CHECK_CONDITION, Sense { response, key, code: 0x0C00 });
                assert!(matches!(verdict, Verdict::Forgot(_)), "{verdict:?}");
            }
        }
    }

    #[test]
    fn a_changed_size_fails_no_command() {
        let sense = Sense { response: 0x70, key: 0x6, code: 0x2A09 };
        assert_eq!(judge(CHECK_CONDITION, sense), Verdict::Again);
        assert!(sense.is_resized() && !Sense { code: 0x2A03, ..sense }.is_resized());
    }

    #[test]
    fn a_check_condition_without_sense_is_a_failure() {
        for response in [0x00, 0x6F, 0x74, 0x7F] {
            let sense = Sense { response, ..Sense::default() };
            assert!(matches!(judge(CHECK_CONDITION, sense), Verdict::Failed(_)));
        }
        assert_eq!(check(0x0, 0), Verdict::Done);
        let sense = Sense { response: 0x72, key: 0x1, code: 0x1701 };
        assert_eq!(judge(CHECK_CONDITION, sense), Verdict::Done);
    }

    #[test]
    fn what_passes_is_sent_again_and_what_does_not_fails() {
        assert_eq!(judge(GOOD, Sense::default()), Verdict::Done);
        assert_eq!(check(0x6, 0x2A03), Verdict::Again);
        assert!(matches!(check(0x2, 0x0401), Verdict::Later(_)));
        assert!(matches!(check(0x3, 0x1100), Verdict::Failed(reason) if reason.contains("11/00")));
        assert!(matches!(check(0x7, 0x2707), Verdict::Full(_)));
        assert!(matches!(check(0x7, 0x2700), Verdict::Failed(_)));
        assert!(matches!(judge(BUSY, Sense::default()), Verdict::Later(_)));
        assert_eq!(judge(CANCELLED, Sense::default()), Verdict::NextSession);
        assert!(matches!(judge(RESERVATION_CONFLICT, Sense::default()), Verdict::Taken(_)));
    }

    proptest::proptest! {
        #[test]
        fn any_answer_has_a_verdict(status: i32, response: u8, key: u8, code: u16) {
            let verdict = judge(status, Sense { response, key, code });
            // No failure is taken for success: only GOOD, CONDITION MET and a recovered error are.
            if verdict == Verdict::Done {
                proptest::prop_assert!(
                    status == GOOD
                        || status == CONDITION_MET
                        || (status == CHECK_CONDITION
                            && key < 2
                            && matches!(response, 0x70 | 0x72))
                );
            }
        }
    }
}
