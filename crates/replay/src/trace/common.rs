//! The common and the combined log format.
//!
//! A line is `host ident user [time] "METHOD target HTTP/x.y" status bytes ...`. Idents and users are not looked at, so
//! logs that leave them out (the EPA log) are read, too. A time is `day/month/year:hour:minute:second zone` or, in the
//! EPA log, `day:hour:minute:second` without a month.

use super::{Record, Verb, bytes_of, id_of, number_of, status_of};

const SECONDS_PER_DAY: i64 = 86_400;
const MONTHS: [&[u8]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// A line; `None`: bad.
pub fn parse(line: &[u8], clock: &mut DayClock) -> Option<Record> {
    let host = line.split(|&byte| byte == b' ').next().filter(|host| !host.is_empty())?;
    let time_end = line.windows(2).position(|pair| pair == b"] ")?;
    let time_start = line[..time_end].iter().rposition(|&byte| byte == b'[')?;
    let quoted = line[time_end + 2..].strip_prefix(b"\"")?;
    // A target may hold quotes, so the request ends at the last quote that status and bytes follow.
    let mut ends = quoted.windows(2).enumerate().rev().filter(|(_, pair)| pair == b"\" ").map(|(at, _)| at);
    let (request, (status, bytes)) = ends.find_map(|at| Some((&quoted[..at], outcome(&quoted[at + 2..])?)))?;
    let mut words = request.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let verb = Verb::of(words.next()?)?;
    let object = id_of(words.next()?);
    let second = second_of(&line[time_start + 1..time_end], clock)?;
    Some(Record { second, client: id_of(host), object, verb, status, bytes })
}

/// Status and bytes at the beginning of what follows the request.
fn outcome(rest: &[u8]) -> Option<(u16, Option<u64>)> {
    let mut words = rest.split(|&byte| byte == b' ');
    Some((status_of(words.next()?)?, bytes_of(words.next()?)?))
}

fn second_of(time: &[u8], clock: &mut DayClock) -> Option<u64> {
    let mut words = time.split(|&byte| byte == b' ');
    let mut parts = words.next()?.split(|&byte| byte == b':');
    let date = parts.next()?;
    let mut below = |bound: i64| parts.next().and_then(number_of).map(|n| n as i64).filter(|n| (0..bound).contains(n));
    // A leap second is 60.
    let of_day = below(24)? * 3600 + below(60)? * 60 + below(61)?;
    let day = match number_of(date) {
        Some(day) => clock.day(u8::try_from(day).ok()?)?,
        None => day_of(date)?,
    };
    let zone = words.next().map_or(Some(0), zone_seconds)?;
    u64::try_from(day * SECONDS_PER_DAY + of_day - zone).ok()
}

/// Days since 1970 of `day/month/year`.
fn day_of(date: &[u8]) -> Option<i64> {
    let mut parts = date.split(|&byte| byte == b'/');
    let day = number_of(parts.next()?).filter(|day| (1..=31).contains(day))? as i64;
    let name = parts.next()?;
    let month = MONTHS.iter().position(|month| *month == name)? as i64;
    let year = number_of(parts.next()?).filter(|year| (1970..10_000).contains(year))? as i64;
    // Years that begin in March have the leap day at their end.
    let (year, month) = if month < 2 { (year - 1, month + 10) } else { (year, month - 2) };
    Some(year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 719_469)
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
/// The month is not known either, so a month is taken to end with the last day seen of it; and a step of more than half
/// a month is taken for a step over the end of the month, in either direction, since lines of a log may be a little out
/// of order. A hole of more than half a month in such a log is not seen right.
#[derive(Clone, Copy, Debug, Default)]
pub struct DayClock {
    /// The day of the month last seen, and days counted until then.
    last: Option<(u8, i64)>,
    /// Days counted until the day before the first of this month.
    month: i64,
    /// The last day of the month before.
    month_days: i64,
}

impl DayClock {
    /// Days since the beginning of the log's first month; `None` for a day that no month has.
    pub fn day(&mut self, day: u8) -> Option<i64> {
        const HALF: i64 = 15;
        if !(1..=31).contains(&day) {
            return None;
        }
        let (last, counted) = self.last.unwrap_or((day, i64::from(day)));
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
        second_of(time.as_bytes(), &mut DayClock::default())
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
        let mut clock = DayClock::default();
        let mut at = |time: &str| second_of(time.as_bytes(), &mut clock).unwrap();
        let start = at("30:23:59:58");
        assert_eq!(at("30:23:59:59") - start, 1);
        assert_eq!(at("31:00:00:00") - start, 2);
        assert_eq!(at("01:00:00:00") - start, 2 + 86_400);
        // A line of the day before that comes late.
        assert_eq!(at("31:23:59:59") - start, 1 + 86_400);
        assert_eq!(at("01:00:00:01") - start, 3 + 86_400);
        assert_eq!(at("02:00:00:00") - start, 2 + 2 * 86_400);
        assert_eq!(clock.day(0), None);
        assert_eq!(clock.day(32), None);
    }

    proptest::proptest! {
        #[test]
        fn whole_days_are_counted_on_whatever_the_months(first in 1u8..=31, lengths in proptest::collection::vec(28u8..=31, 1..6)) {
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
