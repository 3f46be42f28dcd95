//! Times as they are written in settings: `500ms`, `90s`, `2m` or `2h`. How long one may be, and
//! what to say if it is not, is for whoever reads the setting.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

/// Units and their milliseconds.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// Milliseconds of a time. `None`: it is not a whole number and a unit, or too long to count.
pub fn milliseconds(text: &str) -> Option<u64> {
    UNITS.into_iter().find_map(|(unit, factor)| {
        text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(factor)
    })
}

/// A time in milliseconds as text, in the longest unit that leaves a whole number: `120000` is
/// "2m".
pub fn text(milliseconds: u64) -> String {
    let fits = |(_, factor): &&(&str, u64)| milliseconds.is_multiple_of(*factor);
    let (unit, factor) = UNITS.iter().rev().find(fits).expect("everything is a multiple of 1");
    format!("{}{unit}", milliseconds / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for (written, ms) in [("500ms", 500), ("90s", 90_000), ("2m", 120_000), ("2h", 7_200_000)] {
            assert_eq!((milliseconds(written), text(ms)), (Some(ms), written.to_owned()));
        }
        assert_eq!((milliseconds("3600s"), text(3_600_000)), (Some(3_600_000), "1h".to_owned()));
        assert_eq!(milliseconds("0s"), Some(0));
    }

    #[test]
    fn everything_else_is_refused() {
        for odd in ["", "0", "1", "h", "-1s", "1d", "1.5s", "1 s", "s1", "1sm"] {
            assert_eq!(milliseconds(odd), None, "{odd}");
        }
        // 2^64 milliseconds and less.
        assert_eq!(milliseconds("18446744073709551s"), Some(18_446_744_073_709_551_000));
        assert_eq!(milliseconds("18446744073709552s"), None);
        assert_eq!(milliseconds("99999999999999999999h"), None);
    }
}
