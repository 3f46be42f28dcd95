//! Replies of an NFS server (RFC 1813), in columns divided by commas, as nfsdump-like tools'
//! outputs are turned into: time_s, client, server, operation, filehandle, name, offset, bytes,
//! file_size, mtime_ns.
//!
//! Any column after the operation may be empty: STATFS and NULL have no file handle here, GETATTR
//! no offset.

use memchr::memchr;

use crate::bad::Defect;
use crate::field::{number_of, seconds_us};
use crate::hash::id_of;
use crate::record::{Record, Verb};

/// The first line begins so.
pub(crate) const HEADER_START: &[u8] = b"time_s,";
/// Columns of a line; more are not looked at.
const COLUMNS: usize = 10;

/// A line; its file handle is put into `target`.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse(line: &[u8], target: &mut Vec<u8>) -> Result<Record, Defect> {
    let mut columns = [&[][..]; COLUMNS];
    let mut rest = Some(line);
    for column in &mut columns {
        let left = rest.ok_or(Defect::Columns)?;
        let end = memchr(b',', left);
        *column = &left[..end.unwrap_or(left.len())];
        rest = end.map(|end| &left[end + 1..]);
    }
    let [time, client, _server, operation, handle, _name, offset, bytes, file_bytes, mtime] =
        columns;
    let number = |text: &[u8]| match text {
        b"" => Ok(None),
        text => number_of(text).map(Some).ok_or(Defect::Size),
    };
    let time_us = seconds_us(time).ok_or(Defect::Time)?;
    if client.is_empty() {
        return Err(Defect::Client);
    }
    let verb = match operation {
        b"read" => Verb::Get,
        b"write" => Verb::Write,
        _ if !operation.is_empty() && operation.iter().all(u8::is_ascii_alphanumeric) => {
            Verb::Other
        }
        _ => return Err(Defect::Method),
    };
    if handle.is_empty() && verb != Verb::Other {
        return Err(Defect::Target);
    }
    let offset = number(offset)?.unwrap_or(0);
    let (bytes, object_bytes, revision) = (number(bytes)?, number(file_bytes)?, number(mtime)?);
    target.extend_from_slice(handle);
    let (client, object) = (id_of(client), id_of(handle));
    Ok(Record {
        time_us,
        client,
        object,
        verb,
        bytes,
        offset,
        object_bytes,
        revision,
        ..Record::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let mut target = Vec::new();
        let record = parse(
            b"1170089647.008074045,10.64.50.32,10.110.1.26,read,87d874,,19361792,16384,51643488,1159571873109631000",
            &mut target,
        );
        let expected = Record {
            time_us: 1_170_089_647_008_074,
            client: id_of(b"10.64.50.32"),
            object: id_of(b"87d874"),
            bytes: Some(16_384),
            offset: 19_361_792,
            object_bytes: Some(51_643_488),
            revision: Some(1_159_571_873_109_631_000),
            ..Record::default()
        };
        assert_eq!((record, &target[..]), (Ok(expected), &b"87d874"[..]));
        let other =
            parse(b"1063931188.266072035,10.12.11.89,10.110.1.16,statfs,,,,,,", &mut target)
                .unwrap();
        assert_eq!(
            (other.verb, other.bytes, other.object_bytes, other.revision),
            (Verb::Other, None, None, None)
        );
        let write =
            parse(b"1.5,c,s,write,04,,8192,4096,16384,1063931203560641000", &mut target).unwrap();
        assert_eq!((write.verb, write.offset, write.time_us), (Verb::Write, 8192, 1_500_000));
        for (bad, defect) in [
            (&b"1,c,s,read,04,,8192,4096,16384"[..], Defect::Columns),
            (
                b"time_s,client,server,operation,filehandle,name,offset,bytes,file_size,mtime_ns",
                Defect::Time,
            ),
            (b"1,,s,read,04,,8192,4096,16384,1", Defect::Client),
            (b"1,c,s,,04,,8192,4096,16384,1", Defect::Method),
            (b"1,c,s,read,,,8192,4096,16384,1", Defect::Target),
            (b"1,c,s,read,04,,8k,4096,16384,1", Defect::Size),
        ] {
            assert_eq!(parse(bad, &mut target), Err(defect), "{}", String::from_utf8_lossy(bad));
        }
    }
}
