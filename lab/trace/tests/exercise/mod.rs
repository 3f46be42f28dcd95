//! What the fuzz targets and the replay of their corpus have in common: read arbitrary bytes as a
//! trace, and check what must hold for all input.

use nicache_trace::{BadRecords, Format, ReadError, Reader, Record, TsvWriter};

/// Lines, in each format and in the one that they seem to be in; packed ones, too.
pub(crate) fn log(bytes: &[u8]) {
    for format in [Format::Common, Format::Tsv, Format::Nfs, Format::Keys, Format::Lis]
        .map(Some)
        .into_iter()
        .chain([None])
    {
        read(bytes, format);
    }
}

/// Tables: the columns are those of the first line, if it begins with `csv:` as a format does, or
/// those that it names.
pub(crate) fn table(bytes: &[u8]) {
    let end = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
    let named = std::str::from_utf8(&bytes[..end]).ok().filter(|line| line.starts_with("csv:"));
    match named.map(str::parse) {
        Some(Ok(format)) => read(&bytes[end..], Some(format)),
        Some(Err(_)) => {}
        None => [Some(Format::Csv(None)), None].into_iter().for_each(|format| read(bytes, format)),
    }
}

/// Lines of JSON.
pub(crate) fn json(bytes: &[u8]) {
    read(bytes, Some(Format::Json));
}

/// Binary records, in each format and in the one that they seem to be in.
pub(crate) fn binary(bytes: &[u8]) {
    for format in [Format::WorldCup, Format::Vscsi, Format::OracleGeneral, Format::U32, Format::U64]
        .map(Some)
        .into_iter()
        .chain([None])
    {
        read(bytes, format);
    }
}

fn read(bytes: &[u8], format: Option<Format>) {
    let mut reader = match Reader::new(bytes, format) {
        Ok(reader) => reader,
        Err(ReadError::Damaged { .. } | ReadError::NoTrace(_)) => return,
        Err(error) => panic!("{error}"),
    };
    let has_no_names = reader.format().is_binary() || reader.format() == Format::Lis;
    let mut columns = TsvWriter::new(Vec::new()).unwrap();
    let mut records: Vec<Record> = Vec::new();
    loop {
        match reader.read() {
            Ok(Some(record)) => {
                assert_eq!(
                    reader.target().is_empty(),
                    has_no_names || (record.object == nicache_trace::id_of(b""))
                );
                columns.write(&record, reader.target()).unwrap();
                records.push(record);
            }
            Ok(None) => break,
            Err(error) => panic!("{error}"),
        }
        // What is packed may be far larger.
        if records.len() > 100_000 {
            return;
        }
    }
    let bad = reader.bad();
    assert_eq!(bad.first.len() as u64, bad.count.min(BadRecords::FIRST_MAX as u64));
    for bad in &bad.first {
        assert!(bad.text.len() <= BadRecords::TEXT_BYTES_MAX);
        assert!(bad.text.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{}", bad.text);
    }
    assert!(reader.position() <= bytes.len() as u64);
    read_back(&columns.into_inner(), &records);
}

/// Any record can be written as columns and is read back: its time, verb, status and bytes.
fn read_back(columns: &[u8], records: &[Record]) {
    let mut reader = Reader::new(columns, Some(Format::Tsv)).unwrap();
    for record in records {
        let back = reader.read().unwrap().unwrap_or_else(|| panic!("{:?}", reader.bad()));
        assert_eq!(
            (back.time_us, back.client, back.verb, back.status, back.bytes),
            (record.time_us, record.client, record.verb, record.status, record.bytes)
        );
    }
    assert_eq!((reader.read().unwrap(), reader.bad().count), (None, 0));
}
