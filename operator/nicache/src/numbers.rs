//! Numbers for people.

/// `1234567` as `1 234 567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes for people: `1.2 GB`, powers of 1000.
#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
pub fn bytes(number: u64) -> String {
    let (mut value, mut unit) = (number as f64, "B");
    for larger in ["kB", "MB", "GB", "TB", "PB", "EB"] {
        if value < 999.95 {
            break;
        }
        value /= 1000.0;
        unit = larger;
    }
    if unit == "B" { format!("{number} B") } else { format!("{value:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(
            (grouped(0), grouped(999), grouped(1_234_567)),
            ("0".into(), "999".into(), "1 234 567".into())
        );
        assert_eq!(
            (bytes(0), bytes(999), bytes(1234)),
            ("0 B".into(), "999 B".into(), "1.2 kB".into())
        );
        assert_eq!((bytes(999_999), bytes(u64::MAX)), ("1.0 MB".into(), "18.4 EB".into()));
    }
}
