//! IMF-fixdate, the one form of a date that servers write (RFC 9110 section 5.6.7): `Sun, 06 Nov
//! 1994 08:49:37 GMT`.
//!
//! Deliberately absent: the two obsolete forms, which a recipient should accept; who gets one falls
//! back to the server.

/// Length of an IMF-fixdate in bytes.
pub const IMF_FIXDATE_BYTES: usize = 29;

const DAYS: [&[u8; 3]; 7] = [b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun"];
const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// 9999-12-31 23:59:59, the last second with a year of four digits.
const UNIX_S_MAX: u64 = 253_402_300_799;

/// A moment with its IMF-fixdate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HttpDate {
    unix_s: u64,
    bytes: [u8; IMF_FIXDATE_BYTES],
}

impl HttpDate {
    /// The date of a Unix time in seconds, at most the end of the year 9999.
    pub fn from_unix_s(unix_s: u64) -> Self {
        let unix_s = unix_s.min(UNIX_S_MAX);
        let (days, second_of_day) = (unix_s / 86_400, unix_s % 86_400);
        let (year, month, day) = civil_from_days(days);
        let mut bytes = *b"Thu, 01 Jan 1970 00:00:00 GMT";
        bytes[0..3].copy_from_slice(DAYS[((days + 3) % 7) as usize]);
        put_two(&mut bytes, 5, day);
        bytes[8..11].copy_from_slice(MONTHS[(month - 1) as usize]);
        put_two(&mut bytes, 12, year / 100);
        put_two(&mut bytes, 14, year % 100);
        put_two(&mut bytes, 17, second_of_day / 3600);
        put_two(&mut bytes, 20, second_of_day / 60 % 60);
        put_two(&mut bytes, 23, second_of_day % 60);
        Self { unix_s, bytes }
    }

    /// The date in the form that HTTP prefers (IMF-fixdate, RFC 9110 section 5.6.7).
    pub fn as_bytes(&self) -> &[u8; IMF_FIXDATE_BYTES] {
        &self.bytes
    }

    /// The Unix time in seconds.
    pub fn unix_s(&self) -> u64 {
        self.unix_s
    }
}

impl core::fmt::Debug for HttpDate {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "HttpDate({})", self.bytes.escape_ascii())
    }
}

/// The current date, written anew at most once per second.
#[derive(Clone, Debug)]
pub struct DateCache {
    date: HttpDate,
}

impl Default for DateCache {
    fn default() -> Self {
        Self { date: HttpDate::from_unix_s(0) }
    }
}

impl DateCache {
    /// The date at `unix_s`, the time now in seconds.
    #[inline]
    pub fn at(&mut self, unix_s: u64) -> &HttpDate {
        if self.date.unix_s != unix_s {
            self.date = HttpDate::from_unix_s(unix_s);
        }
        &self.date
    }
}

/// Reads an IMF-fixdate from 1970 to 9999 as a Unix time in seconds. The weekday must be right, and
/// there is no leap second.
pub fn parse_imf_fixdate(value: &[u8]) -> Option<u64> {
    let value: &[u8; IMF_FIXDATE_BYTES] = value.try_into().ok()?;
    let day = two(value, 5)?;
    let month = MONTHS.iter().position(|month| value[8..11] == **month)? as u64 + 1;
    let year = two(value, 12)? * 100 + two(value, 14)?;
    let (hour, minute, second) = (two(value, 17)?, two(value, 20)?, two(value, 23)?);
    if year < 1970 || day == 0 || day > 31 || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let unix_s = days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    // Writing it again checks the punctuation, the weekday and the day's existence in its month.
    (HttpDate::from_unix_s(unix_s).bytes == *value).then_some(unix_s)
}

fn put_two(bytes: &mut [u8; IMF_FIXDATE_BYTES], at: usize, number: u64) {
    bytes[at] = b'0' + (number / 10 % 10) as u8;
    bytes[at + 1] = b'0' + (number % 10) as u8;
}

fn two(bytes: &[u8; IMF_FIXDATE_BYTES], at: usize) -> Option<u64> {
    let digit = |byte: u8| byte.is_ascii_digit().then(|| u64::from(byte - b'0'));
    Some(digit(bytes[at])? * 10 + digit(bytes[at + 1])?)
}

/// Year, month and day of a day number since 1970-01-01 (Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms").
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// The inverse of [`civil_from_days`], for years from 1970.
fn days_from_civil(year: u64, month: u64, day: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let (era, year_of_era) = (year / 400, year % 400);
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn the_example_of_rfc_9110() {
        assert_eq!(HttpDate::from_unix_s(784_111_777).as_bytes(), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(parse_imf_fixdate(b"Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(HttpDate::from_unix_s(u64::MAX).as_bytes(), b"Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn anything_else_is_no_imf_fixdate() {
        for odd in [
            "",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:60 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Thu, 30 Feb 1995 00:00:00 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Wed, 31 Dec 1969 23:59:59 GMT",
            "Sun, 06 Nov 1994 08:49:+7 GMT",
            "Sun, 06 Nov 0000 08:49:37 GMT",
            "Sun, 00 Mar 1970 00:00:00 GMT",
        ] {
            assert_eq!(parse_imf_fixdate(odd.as_bytes()), None, "{odd}");
        }
    }

    #[test]
    fn cache_follows_the_clock_both_ways() {
        let mut cache = DateCache::default();
        for unix_s in [0, 5, 5, 6, 4, 1_763_683_200] {
            assert_eq!(*cache.at(unix_s), HttpDate::from_unix_s(unix_s));
        }
    }

    proptest! {
        #[test]
        fn equals_an_independent_implementation(unix_s in 0..=UNIX_S_MAX) {
            let date = HttpDate::from_unix_s(unix_s);
            let theirs = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(unix_s));
            prop_assert_eq!(date.as_bytes(), theirs.as_bytes());
            prop_assert_eq!(parse_imf_fixdate(date.as_bytes()), Some(unix_s));
        }

        #[test]
        fn reads_only_what_it_writes(bytes: [u8; 29], at in 0..29usize, byte: u8) {
            prop_assert_eq!(parse_imf_fixdate(&bytes), None);
            let mut nearly = *b"Sun, 06 Nov 1994 08:49:37 GMT";
            nearly[at] = byte;
            if let Some(unix_s) = parse_imf_fixdate(&nearly) {
                prop_assert_eq!(*HttpDate::from_unix_s(unix_s).as_bytes(), nearly);
            }
        }
    }
}
