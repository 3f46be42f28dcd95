//! Units, and numbers with them as a reader wants to see them.
//!
//! The page's script (`html/report.js`) writes numbers by the same rules; a browser test compares
//! the two.

use serde::Serialize;

/// How numbers are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Bytes: "24 MB"; 1 KB is 1,024 bytes, as everywhere in nicache.
    Bytes,
    /// Hundredths: 71.3 is "71.3 %".
    Percent,
    /// How many: "121 480".
    Count,
    /// Seconds: 0.0042 is "4.2 ms".
    Seconds,
    /// A number without a unit.
    #[default]
    Number,
}

/// What stands where there is no number.
pub(crate) const MISSING: &str = "–";

/// A part of a unit: how much it is, and what is written after a number of them.
type Part = (f64, &'static str);

const BYTES: [Part; 6] = [
    (1.0, " B"),
    (1024.0, " KB"),
    (1_048_576.0, " MB"),
    (1_073_741_824.0, " GB"),
    (1_099_511_627_776.0, " TB"),
    (1_125_899_906_842_624.0, " PB"),
];
const SECONDS: [Part; 4] = [(1e-9, " ns"), (1e-6, " µs"), (1e-3, " ms"), (1.0, " s")];
const COUNTS: [Part; 4] = [(1.0, ""), (1e3, " k"), (1e6, " M"), (1e9, " G")];

/// Numbers at or above it are written with an exponent.
const PLAIN_MAX: f64 = 1e15;
/// Numbers below it are, too.
const PLAIN_MIN: f64 = 1e-6;
const PERCENT_DECIMALS_MAX: usize = 5;

impl Unit {
    /// A number with its unit, to three or four digits: "24 MB", "71.3 %", "121 480", "4.2 ms". A
    /// dash for what is not finite.
    pub fn format(self, value: f64) -> String {
        if !value.is_finite() {
            return MISSING.to_owned();
        }
        let (sign, size) = (if value < 0.0 { "−" } else { "" }, value.abs());
        sign.to_owned() + &self.format_size(size)
    }

    fn format_size(self, size: f64) -> String {
        match self {
            Self::Bytes => in_parts(size, &BYTES, 1024.0),
            Self::Seconds => in_parts(size, &SECONDS, 1000.0),
            Self::Percent => plain(size, percent_decimals(size)) + " %",
            Self::Count if size.fract() == 0.0 || size >= 1000.0 => plain(size, 0),
            Self::Count | Self::Number => significant(size, 4),
        }
    }

    /// Numbers of one column, with the same number of digits after the point where the unit is the
    /// same for all.
    pub(crate) fn format_column(self, values: &[Option<f64>]) -> Vec<String> {
        let finite = || values.iter().flatten().copied().filter(|value| value.is_finite());
        let suffix = match self {
            Self::Percent => " %",
            Self::Number
                if finite()
                    .all(|value| (PLAIN_MIN..PLAIN_MAX).contains(&value.abs()) || value == 0.0) =>
            {
                ""
            }
            _ => {
                return values
                    .iter()
                    .map(|value| value.map_or(MISSING.to_owned(), |it| self.format(it)))
                    .collect();
            }
        };
        let of_one = |value: f64| match self {
            Self::Percent => percent_decimals(value.abs()).min(3),
            _ => decimals_of(&significant(value.abs(), 4)).min(4),
        };
        let decimals = finite().map(of_one).max().unwrap_or(0);
        let one = |value: &Option<f64>| match value {
            Some(value) if value.is_finite() => {
                format!(
                    "{}{}{suffix}",
                    if *value < 0.0 { "−" } else { "" },
                    plain(value.abs(), decimals)
                )
            }
            _ => MISSING.to_owned(),
        };
        values.iter().map(one).collect()
    }

    /// Labels for the ticks of one axis. Those of a linear axis all have the part of the unit that
    /// suits the largest.
    pub(crate) fn format_ticks(self, values: &[f64], linear: bool) -> Vec<String> {
        let largest = values.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
        let one = |value: f64| -> String {
            let sign = if value < 0.0 { "−" } else { "" };
            let size = value.abs();
            let (of, suffix) = match (self, linear) {
                _ if size == 0.0 => (1.0, if self == Self::Percent { " %" } else { "" }),
                (Self::Bytes, true) => part(largest, &BYTES),
                (Self::Seconds, true) => part(largest, &SECONDS),
                (Self::Count, true) => part(largest / 10.0, &COUNTS),
                (Self::Bytes, false) => part(size, &BYTES),
                (Self::Seconds, false) => part(size, &SECONDS),
                (Self::Count, false) => part(size, &COUNTS),
                (Self::Percent, _) => (1.0, " %"),
                (Self::Number, _) => (1.0, ""),
            };
            let of = if largest / 10.0 < 1.0 && self == Self::Count && linear { 1.0 } else { of };
            format!("{sign}{}{suffix}", significant(size / of, 6))
        };
        values.iter().map(|value| one(*value)).collect()
    }

    /// The part of the unit that numbers up to `largest` are multiples of: ticks are round in it.
    pub(crate) fn tick_base(self, largest: f64) -> f64 {
        if self == Self::Bytes { part(largest, &BYTES).0 } else { 1.0 }
    }

    /// The unit in words, for the head of a column of bare numbers.
    pub(crate) fn word(self) -> Option<&'static str> {
        match self {
            Self::Bytes => Some("bytes"),
            Self::Percent => Some("percent"),
            Self::Seconds => Some("seconds"),
            Self::Count | Self::Number => None,
        }
    }
}

/// The largest part that is not larger than `size`; the smallest if all are.
fn part(size: f64, parts: &[Part]) -> Part {
    *parts.iter().rev().find(|(of, _)| *of <= size).unwrap_or(&parts[0])
}

fn in_parts(size: f64, parts: &[Part], next: f64) -> String {
    if size == 0.0 {
        return format!(
            "0{}",
            if parts[0].0 == 1.0 { parts[0].1 } else { parts[parts.len() - 1].1 }
        );
    }
    let mut index = parts.iter().rposition(|(of, _)| *of <= size).unwrap_or(0);
    // 1023.9 KB would be written as 1024 KB.
    if index + 1 < parts.len()
        && rounded(size / parts[index].0, decimals(size / parts[index].0, 3)) >= next
    {
        index += 1;
    }
    significant(size / parts[index].0, 3) + parts[index].1
}

/// Digits after the point that leave `digits` significant ones.
fn decimals(size: f64, digits: i32) -> usize {
    let magnitude = if size > 0.0 { size.log10().floor() as i32 } else { 0 };
    (digits - 1 - magnitude).clamp(0, 12) as usize
}

/// One, but more where one would show something small as nothing, or something incomplete as
/// everything.
fn percent_decimals(size: f64) -> usize {
    let rest = if size < 50.0 { size } else { 100.0 - size };
    if rest <= 0.0 || rest >= 0.1 { 1 } else { decimals(rest, 2).min(PERCENT_DECIMALS_MAX) }
}

fn decimals_of(text: &str) -> usize {
    text.split_once('.').map_or(0, |(_, decimals)| decimals.len())
}

/// Half of the last digit rounds away from zero, as the script's does.
fn rounded(size: f64, decimals: usize) -> f64 {
    let power = 10_f64.powi(decimals as i32);
    (size * power).round() / power
}

/// At least `digits` significant digits, without zeros at the end.
fn significant(size: f64, digits: i32) -> String {
    let text = plain(size, decimals(size, digits));
    if text.contains('.') && !text.contains('e') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// A number with so many digits after the point, and a space between thousands.
fn plain(size: f64, decimals: usize) -> String {
    if size >= PLAIN_MAX || (size > 0.0 && size < PLAIN_MIN) {
        return format!("{size:.2e}");
    }
    let text = format!("{:.decimals$}", rounded(size, decimals));
    let whole = text.split('.').next().unwrap_or(&text);
    let mut grouped = String::with_capacity(text.len() + 4);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped.push_str(&text[whole.len()..]);
    grouped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_read_as_people_write_them() {
        for (unit, value, text) in [
            (Unit::Bytes, 0.0, "0 B"),
            (Unit::Bytes, 1023.0, "1 023 B"),
            (Unit::Bytes, 24.0 * 1_048_576.0, "24 MB"),
            (Unit::Bytes, 1_048_575.9, "1 MB"),
            (Unit::Bytes, 1536.0, "1.5 KB"),
            (Unit::Bytes, 1e20, "88 818 PB"),
            (Unit::Percent, 71.3, "71.3 %"),
            (Unit::Percent, 71.0, "71.0 %"),
            (Unit::Percent, 100.0, "100.0 %"),
            (Unit::Percent, 0.0, "0.0 %"),
            (Unit::Percent, 0.0123, "0.012 %"),
            (Unit::Percent, 99.96, "99.960 %"),
            (Unit::Percent, 12.25, "12.3 %"),
            (Unit::Percent, -3.0, "−3.0 %"),
            (Unit::Count, 121_480.0, "121 480"),
            (Unit::Count, 2.5, "2.5"),
            (Unit::Count, 1e18, "1.00e18"),
            (Unit::Seconds, 0.0042, "4.2 ms"),
            (Unit::Seconds, 0.0, "0 s"),
            (Unit::Seconds, 9.999e-4, "1 ms"),
            (Unit::Seconds, 3.4e-7, "340 ns"),
            (Unit::Number, 0.25, "0.25"),
            (Unit::Number, 1e-9, "1.00e-9"),
            (Unit::Number, f64::NAN, "–"),
            (Unit::Number, f64::INFINITY, "–"),
        ] {
            assert_eq!(unit.format(value), text, "{unit:?} {value}");
        }
    }

    #[test]
    fn a_column_has_one_number_of_decimals() {
        let column = Unit::Number.format_column(&[Some(1.5), Some(0.125), None, Some(12.0)]);
        assert_eq!(column, ["1.500", "0.125", "–", "12.000"]);
        assert_eq!(Unit::Percent.format_column(&[Some(7.0), Some(0.05)]), ["7.000 %", "0.050 %"]);
    }

    #[test]
    fn ticks_of_a_linear_axis_share_a_part_of_the_unit() {
        let half = 524_288.0;
        assert_eq!(
            Unit::Bytes.format_ticks(&[0.0, half, 2.0 * half], true),
            ["0", "0.5 MB", "1 MB"]
        );
        assert_eq!(Unit::Bytes.format_ticks(&[half, 2.0 * half], false), ["512 KB", "1 MB"]);
        assert_eq!(Unit::Count.format_ticks(&[0.0, 5000.0, 10_000.0], true), ["0", "5 k", "10 k"]);
        assert_eq!(Unit::Count.format_ticks(&[0.0, 5.0], true), ["0", "5"]);
        assert_eq!(Unit::Percent.format_ticks(&[0.0, 50.0], true), ["0 %", "50 %"]);
    }

    proptest! {
        #[test]
        fn any_number_has_a_short_text(value in any::<f64>()) {
            for unit in [Unit::Bytes, Unit::Percent, Unit::Count, Unit::Seconds, Unit::Number] {
                let text = unit.format(value);
                prop_assert!(
                    !text.is_empty() && text.chars().count() <= 28,
                    "{unit:?} {value} {text}"
                );
                unit.format_column(&[Some(value), None]);
                unit.format_ticks(&[value, -value], true);
            }
        }

        #[test]
        fn bytes_read_back_are_near(bytes in 1.0..1e15_f64) {
            let text = Unit::Bytes.format(bytes).replace(' ', "");
            let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap();
            let of = BYTES.iter().find(|(_, suffix)| suffix.trim() == &text[at..]).unwrap().0;
            let read = text[..at].parse::<f64>().unwrap() * of;
            prop_assert!((read / bytes - 1.0).abs() < 0.006, "{bytes} {text}");
        }
    }
}
