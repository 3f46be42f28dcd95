//! Times as logs write them, in microseconds since 1970.

use crate::field::{fraction_us, number_of, seconds_us};

const SECONDS_PER_DAY: i64 = 86_400;
const US_PER_SECOND: u64 = 1_000_000;
const MONTHS: [&[u8]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];
/// Bytes of `day/month/year`.
const DATE_BYTES: usize = 11;

/// Reads the times of one log, in its order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Calendar {
    /// The date last read, and its days since 1970: the lines of a log have few dates.
    last: Option<([u8; DATE_BYTES], i64)>,
    days: DayClock,
}

impl Calendar {
    /// `day/month/year:hour:minute:second zone`, or `day:hour:minute:second` without a month, whose
    /// epoch is the log's first month.
    pub(crate) fn common_us(&mut self, time: &[u8]) -> Option<u64> {
        let (date, rest) = time.split_at_checked(memchr::memchr(b':', time)?)?;
        let (of_day, rest) = of_day(&rest[1..])?;
        let day = self.day(date)?;
        let zone = match rest {
            [] => 0,
            [b' ', zone @ ..] => zone_seconds(zone)?,
            _ => return None,
        };
        to_us(day * SECONDS_PER_DAY + of_day - zone)
    }

    /// Any of these, ISO 8601, or a number that counts from 1970.
    pub(crate) fn any_us(&mut self, text: &[u8]) -> Option<u64> {
        match text {
            [_, _, _, _, b'-' | b'/', ..] => iso_us(text),
            [_, _, b'/', ..] => self.common_us(text),
            _ => number_us(text),
        }
    }

    fn day(&mut self, date: &[u8]) -> Option<i64> {
        let key = <[u8; DATE_BYTES]>::try_from(date).ok();
        match (key, self.last) {
            (Some(key), Some((last, day))) if key == last => return Some(day),
            _ => {}
        }
        match number_of(date) {
            Some(day) => self.days.day(u8::try_from(day).ok()?),
            None => {
                let day = day_of(date)?;
                self.last = key.map(|key| (key, day));
                Some(day)
            }
        }
    }
}

/// ISO 8601 as RFC 3339 profiles it: `year-month-dayThour:minute:second`, then a fraction or none,
/// then `Z`, `+hh:mm`, `+hhmm` or nothing.
pub(crate) fn iso_us(time: &[u8]) -> Option<u64> {
    let (date, rest) = time.split_at_checked(10)?;
    // Caddy's "wall" times have slashes.
    let &[_, _, _, _, b'-' | b'/', _, _, b'-' | b'/', _, _] = date else { return None };
    let month = number_of(&date[5..7]).filter(|month| (1..=12).contains(month))? as i64 - 1;
    let day = day_since_1970(number_of(&date[..4])?, month, number_of(&date[8..])?)?;
    let rest = rest.strip_prefix(b"T").or_else(|| rest.strip_prefix(b" "))?;
    let (of_day, mut rest) = of_day(rest)?;
    let mut us = 0;
    if let Some(fraction) = rest.strip_prefix(b".") {
        let length = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
        us = fraction_us(&fraction[..length]).filter(|_| length > 0)?;
        rest = &fraction[length..];
    }
    let zone = match rest {
        b"" | b"Z" | b"z" => 0,
        &[sign, a, b, b':', c, d] => zone_seconds(&[sign, a, b, c, d])?,
        zone => zone_seconds(zone)?,
    };
    to_us(day * SECONDS_PER_DAY + of_day - zone)?.checked_add(us)
}

/// A time that counts from 1970, in a unit that shows by its size.
fn number_us(text: &[u8]) -> Option<u64> {
    let point = memchr::memchr(b'.', text).unwrap_or(text.len());
    let number = number_of(&text[..point])?;
    Some(match number {
        // The unit shows by the size: a second count of 10^11 is after the year 5000.
        0..100_000_000_000 => seconds_us(text)?,
        100_000_000_000..100_000_000_000_000 => {
            number * 1000 + text.get(point + 1..).map_or(0, thousandths)
        }
        100_000_000_000_000..100_000_000_000_000_000 => number,
        _ => number / 1000,
    })
}

/// The first three digits of a fraction.
fn thousandths(digits: &[u8]) -> u64 {
    fraction_us(digits).unwrap_or(0) / 1000
}

fn to_us(second: i64) -> Option<u64> {
    u64::try_from(second).ok()?.checked_mul(US_PER_SECOND)
}

/// Seconds of `hour:minute:second`, and what follows.
fn of_day(time: &[u8]) -> Option<(i64, &[u8])> {
    let &[h0, h1, b':', m0, m1, b':', s0, s1, ref rest @ ..] = time else { return None };
    let two = |tens: u8, ones: u8, bound: i64| {
        let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
        let number = i64::from(tens) * 10 + i64::from(ones);
        (tens <= 9 && ones <= 9 && number < bound).then_some(number)
    };
    // A leap second is 60.
    Some((two(h0, h1, 24)? * 3600 + two(m0, m1, 60)? * 60 + two(s0, s1, 61)?, rest))
}

/// Days since 1970 of `day/month/year`.
fn day_of(date: &[u8]) -> Option<i64> {
    let mut parts = date.split(|&byte| byte == b'/');
    let day = number_of(parts.next()?)?;
    let name = parts.next()?;
    let month = MONTHS.iter().position(|month| *month == name)? as i64;
    day_since_1970(number_of(parts.next()?)?, month, day)
}

/// Days since 1970 of a date whose month counts from 0.
fn day_since_1970(year: u64, month: i64, day: u64) -> Option<i64> {
    if !(1970..10_000).contains(&year) || !(1..=31).contains(&day) {
        return None;
    }
    // Years that begin in March have the leap day at their end.
    let (year, month) =
        if month < 2 { (year as i64 - 1, month + 10) } else { (year as i64, month - 2) };
    Some(
        year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day as i64
            - 719_469,
    )
}

/// Seconds of `+hhmm` or `-hhmm` east of UTC.
fn zone_seconds(zone: &[u8]) -> Option<i64> {
    let (sign, digits) = zone.split_first()?;
    let digits = number_of(digits).filter(|_| digits.len() == 4)? as i64;
    let seconds = digits / 100 * 3600 + digits % 100 * 60;
    match sign {
        b'+' => Some(seconds),
        b'-' => Some(-seconds),
        _ => None,
    }
}

/// Counts days of which only the day of the month is known.
///
/// The month is not known either, so a month is taken to end with the last day seen of it; and a
/// step of more than half a month is taken for a step over the end of the month, in either
/// direction, because lines of a log may be a little out of order. A hole of more than half a month
/// in such a log is not seen right.
#[derive(Clone, Copy, Debug, Default)]
struct DayClock {
    /// The day of the month last seen, and days counted until then.
    last: Option<(u8, i64)>,
    /// Days counted until the day before the first of this month.
    month: i64,
    /// The last day of the month before.
    month_days: i64,
}

impl DayClock {
    /// Days since the beginning of the log's first month; `None` for a day that no month has.
    fn day(&mut self, day: u8) -> Option<i64> {
        const HALF: i64 = 15;
        if !(1..=31).contains(&day) {
            return None;
        }
        let (last, counted) = self.last.unwrap_or_else(|| (day, i64::from(day)));
        let step = i64::from(day) - i64::from(last);
        let days = if step < -HALF {
            self.month = counted;
            self.month_days = i64::from(last);
            counted + i64::from(day)
        } else if step > HALF && self.month_days != 0 {
            // A late line of the month before; the month stays.
            return Some((self.month + i64::from(day) - self.month_days).max(0));
        } else {
            counted + step
        };
        self.last = Some((day, days));
        Some(days)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(time: &str) -> Option<u64> {
        Calendar::default().common_us(time.as_bytes()).map(|us| us / US_PER_SECOND)
    }

    #[test]
    fn iso_times() {
        assert_eq!(iso_us(b"1970-01-01T00:00:01Z"), Some(1_000_000));
        assert_eq!(iso_us(b"1995-08-01T00:00:01-04:00"), Some(807_249_601_000_000));
        assert_eq!(iso_us(b"2016-02-29T23:59:59.25+0530"), Some(1_456_770_599_250_000));
        assert_eq!(iso_us(b"2000-03-01 00:00:00"), Some(951_868_800_000_000));
        for bad in [
            "",
            "2000-03-01",
            "2000-13-01T00:00:00Z",
            "2000-03-00T00:00:00Z",
            "2000-03-01T00:00:00.Z",
            "2000-03-01T24:00:00Z",
            "2000-03-01T00:00:00X",
            "2000_03_01T00:00:00Z",
            "1969-12-31T23:59:59Z",
        ] {
            assert_eq!(iso_us(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn a_date_read_twice_is_the_same_day() {
        let mut calendar = Calendar::default();
        let day = calendar.common_us(b"01/Aug/1995:00:00:01 +0000");
        assert_eq!(
            calendar.common_us(b"01/Aug/1995:00:00:02 +0000"),
            day.map(|us| us + US_PER_SECOND)
        );
        assert_eq!(
            calendar.common_us(b"02/Aug/1995:00:00:01 +0000"),
            day.map(|us| us + 86_400 * US_PER_SECOND)
        );
        assert_eq!(calendar.common_us(b"01/Aug/1995:00:00:01 +0000"), day);
    }

    #[test]
    fn times_with_a_date() {
        assert_eq!(second("01/Jan/1970:00:00:01 +0000"), Some(1));
        assert_eq!(second("01/Aug/1995:00:00:01 -0400"), Some(807_249_601));
        assert_eq!(second("29/Feb/2016:23:59:59 +0530"), Some(1_456_770_599));
        assert_eq!(second("01/Mar/2000:00:00:00"), Some(951_868_800));
        assert_eq!(second("31/Dec/2025:23:59:60 +0000"), Some(1_767_225_600));
        for bad in [
            "32/Jan/1999:00:00:00 +0000",
            "01/Foo/1999:00:00:00",
            "01/Jan/1999:24:00:00",
            "01/Jan/1999:00:00",
            "01/Jan/1969:23:59:59",
            "01/Jan/1970:00:00:00 +0100",
            "01/Jan/1999:00:00:00 0100",
            "",
            "t",
        ] {
            assert_eq!(second(bad), None, "{bad}");
        }
    }

    #[test]
    fn times_without_a_month_go_on_over_its_end() {
        let mut calendar = Calendar::default();
        let mut at = |time: &str| calendar.common_us(time.as_bytes()).unwrap() / US_PER_SECOND;
        let start = at("30:23:59:58");
        assert_eq!(at("30:23:59:59") - start, 1);
        assert_eq!(at("31:00:00:00") - start, 2);
        assert_eq!(at("01:00:00:00") - start, 2 + 86_400);
        // A line of the day before that comes late.
        assert_eq!(at("31:23:59:59") - start, 1 + 86_400);
        assert_eq!(at("01:00:00:01") - start, 3 + 86_400);
        assert_eq!(at("02:00:00:00") - start, 2 + 2 * 86_400);
        assert_eq!(calendar.days.day(0), None);
        assert_eq!(calendar.days.day(32), None);
    }

    proptest::proptest! {
        #[test]
        fn whole_days_are_counted_on_whatever_the_months(
            first in 1u8..=31,
            lengths in proptest::collection::vec(28u8..=31, 1..6),
        ) {
            let mut clock = DayClock::default();
            let mut before = None;
            for (month, &length) in lengths.iter().enumerate() {
                for day in (if month == 0 { first.min(length) } else { 1 })..=length {
                    let now = clock.day(day).unwrap();
                    proptest::prop_assert!(before.is_none_or(|before| now == before + 1));
                    before = Some(now);
                }
            }
        }
    }
}
