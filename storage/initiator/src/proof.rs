//! Whether a target proved who it is (mutual CHAP), by what libiscsi logs of a login.

/// The level at which libiscsi logs the keys of a reply to a login.
pub(crate) const LOGIN_REPLIES: i32 = 6;
/// How such a message begins for the target's proof. libiscsi has compared it by then: a wrong one
/// ends the login without this message.
const PROOF: &[u8] = b"TargetLoginReply: CHAP_R=0x";
/// Hexadecimal digits of a proof: it is an MD5.
const PROOF_DIGITS: usize = 32;

/// Whether a message of libiscsi says that the target proved who it is. Before a challenge was
/// sent, libiscsi compares with zeroes, and they prove nothing.
pub(crate) fn is_proof(level: i32, message: &[u8]) -> bool {
    let Some((digits, rest)) =
        message.strip_prefix(PROOF).and_then(|text| text.split_at_checked(PROOF_DIGITS))
    else {
        return false;
    };
    level == LOGIN_REPLIES
        && digits.iter().all(u8::is_ascii_hexdigit)
        && digits.iter().any(|digit| *digit != b'0')
        // The target's name may follow.
        && rest.first().is_none_or(|byte| *byte == b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_digest_that_was_compared_is_a_proof() {
        let digest = "00112233445566778899aabbccddeeFF";
        let message = format!("TargetLoginReply: CHAP_R=0x{digest}");
        assert!(is_proof(6, message.as_bytes()));
        assert!(is_proof(6, format!("{message} [iqn.2026-11.com.example:disk]").as_bytes()));
        let zeroes = "0".repeat(32);
        for wrong in [
            String::new(),
            "TargetLoginReply: CHAP_R=0x".to_owned(),
            format!("TargetLoginReply: CHAP_R=0x{zeroes}"),
            // libiscsi takes these for zeroes, too.
            format!("TargetLoginReply: CHAP_R=0x{}@{}", &zeroes[..15], &zeroes[..16]),
            message[..message.len() - 1].to_owned(),
            format!("{message}0"),
            format!("TargetLoginReply: X=TargetLoginReply: CHAP_R=0x{digest}"),
            format!("a target named TargetLoginReply: CHAP_R=0x{digest}"),
        ] {
            assert!(!is_proof(6, wrong.as_bytes()), "{wrong}");
        }
        assert!(!is_proof(1, message.as_bytes()), "an error may quote anything");
    }
}
