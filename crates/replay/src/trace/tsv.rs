//! Columns divided by tabs: unix_time, client, method, URL, status, bytes (`-`: not told). Lines with `#` are comments.

use super::{Record, Verb, bytes_of, id_of, number_of, status_of};

/// Columns of a line; more are not looked at.
pub const COLUMNS: usize = 6;

/// A line; `None`: bad.
pub fn parse(line: &[u8]) -> Option<Record> {
    let mut columns = line.split(|&byte| byte == b'\t');
    // Fractions of a second are dropped: sessions are made of whole seconds in the other formats, too.
    let second = number_of(columns.next()?.split(|&byte| byte == b'.').next()?)?;
    let client = id_of(columns.next().filter(|name| !name.is_empty())?);
    let verb = Verb::of(columns.next()?)?;
    let object = id_of(columns.next().filter(|target| !target.is_empty())?);
    let status = status_of(columns.next()?)?;
    let bytes = bytes_of(columns.next()?)?;
    Some(Record { second, client, object, verb, status, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let record = parse(b"1455944445.25\t7\tGET\t/a?b=c\t200\t187").unwrap();
        assert_eq!((record.second, record.status, record.bytes), (1_455_944_445, 200, Some(187)));
        assert_eq!((record.object, record.client), (id_of(b"/a?b=c"), id_of(b"7")));
        assert_eq!(parse(b"1455944445\t7\tHEAD\t/\t200\t-").unwrap().bytes, None);
        assert_eq!(parse(b"1455944445\t7\tPOST\t/\t200\t5\tmore").unwrap().verb, Verb::Other);
        for bad in [
            &b"1455944445\t7\tGET\t/\t200"[..],
            b"yesterday\t7\tGET\t/\t200\t1",
            b"1\t\tGET\t/\t200\t1",
            b"1\t7\tGET\t\t200\t1",
            b"1\t7\tGET\t/\t20\t1",
            b"1\t7\tget\t/\t200\t1",
            b"1\t7\tGET\t/\t200\t99999999999999999999",
        ] {
            assert_eq!(parse(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }
}
