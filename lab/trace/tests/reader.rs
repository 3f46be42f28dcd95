//! Formats are recognised, what is bad is told, and nothing that is read is an error.

use std::io::{Cursor, Read, Write};

use nicache_trace::{
    BadRecords, Defect, Format, NoTrace, Packing, ReadError, Reader, Record, id_of,
};

const COMMON: &[u8] = b"h - - [01/Aug/1995:00:00:01 -0400] \"GET /x HTTP/1.0\" 200 1839\n";
const NGINX: &[u8] =
    b"{\"time_iso8601\":\"2025-05-17T08:05:32+02:00\",\"request\":\"GET / HTTP/1.1\",\"status\":200}\n";
const TSV: &[u8] = b"#unix_time\tclient\n1\t0\tGET\t/\t200\t5\n";
const NFS: &[u8] = b"time_s,client,server,operation,filehandle,name,offset,bytes,file_size,mtime_ns\n1.5,c,s,read,04,,8192,4096,16384,1\n";

const PRETTY: &[u8] =
    b"{\n  \"ts\": 1.5,\n  \"request\": {\n    \"method\": \"GET\",\n    \"uri\": \"/p\"\n  },\n  \"status\": 200\n}\n";

fn reader(bytes: &[u8]) -> Reader<'_> {
    Reader::new(bytes, None).unwrap()
}

fn all(reader: &mut Reader<'_>) -> Vec<Record> {
    std::iter::from_fn(|| reader.read().unwrap()).collect()
}

fn worldcup(second: u32, object: u32) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        [second, 5, object, 1234].iter().flat_map(|number| number.to_be_bytes()).collect();
    bytes.extend([0, 0x42, 1, 3]);
    bytes
}

#[test]
fn formats_are_recognised() {
    let worldcup: Vec<u8> =
        (0..100).flat_map(|at| worldcup(894_016_802 + at / 9, at % 7)).collect();
    for (bytes, format) in [
        (COMMON, Format::Common),
        (b"query2 [29:23:53:36] \"GET / HTTP/1.0\" 200 1325", Format::Common),
        (NGINX, Format::Json),
        (TSV, Format::Tsv),
        (NFS, Format::Nfs),
        (&worldcup, Format::WorldCup),
        (&worldcup[..20], Format::WorldCup),
        (b"a\nb\na\n", Format::Keys),
        (b"1,2\n3,4\n", Format::Keys),
        (b"/a 17\n", Format::Keys),
        (b"/a?b=(c)\nhttp://x/'y'\nq:q:1:8WTfjZU14ee=\n", Format::Keys),
        (b"", Format::Common),
        (b"\n\n", Format::Common),
        (b"version,time,op,size,lbn\n1,5633898,2a,512,42932745\n", Format::Csv(None)),
        (b"key;size\n", Format::Csv(None)),
        (b"42932745 8 0 1\n42932753 1 0 2\n", Format::Lis),
        (PRETTY, Format::Json),
    ] {
        assert_eq!(
            reader(bytes).format(),
            format,
            "{}",
            String::from_utf8_lossy(&bytes[..bytes.len().min(60)])
        );
    }
}

#[test]
fn a_bad_beginning_does_not_hide_the_format() {
    let log = [b"x\n{}\n", COMMON, COMMON, COMMON].concat();
    let mut reader = reader(&log);
    assert_eq!(
        (reader.format(), all(&mut reader).len(), reader.bad().count),
        (Format::Common, 3, 2)
    );
}

#[test]
fn a_byte_order_mark_is_passed_over() {
    for (text, format) in [(COMMON, Format::Common), (NGINX, Format::Json), (NFS, Format::Nfs)] {
        for given in [None, Some(format)] {
            let marked = [b"\xef\xbb\xbf", text].concat();
            let mut reader = Reader::new(&marked[..], given).unwrap();
            assert_eq!(
                (reader.format(), all(&mut reader).len(), reader.bad().count),
                (format, 1, 0)
            );
        }
    }
    // A binary one may begin so by chance.
    let records =
        [&[0xef, 0xbb, 0xbf, 0x01], &worldcup(0, 7)[4..], &worldcup(u32::MAX, 7)].concat();
    let mut reader = reader(&records);
    let records = all(&mut reader);
    assert_eq!(
        (reader.format(), records.len(), records[0].time_us),
        (Format::WorldCup, 2, 0xefbb_bf01 * 1_000_000)
    );
}

#[test]
fn what_is_bad_is_told_with_its_place() {
    let long = "x".repeat(300_000);
    let log = format!(
        "{0}\n# comment\n\nbad\x1b\n{long}\n{0}{0}worse",
        std::str::from_utf8(COMMON).unwrap()
    );
    let mut reader = Reader::new(log.as_bytes(), Some(Format::Common)).unwrap();
    assert_eq!(all(&mut reader).len(), 3);
    let told: Vec<_> =
        reader.bad().first.iter().map(|bad| (bad.number, bad.text.as_str(), bad.defect)).collect();
    let expected = [
        (5, "bad\\x1b", Defect::Time),
        (6, &long[..BadRecords::TEXT_BYTES_MAX], Defect::TooLong),
        (9, "worse", Defect::Time),
    ];
    assert_eq!(told, expected);
    assert_eq!(reader.read().unwrap(), None);
    assert_eq!((reader.bad().count, reader.position(), reader.size()), (3, log.len() as u64, None));
}

#[test]
fn a_record_that_is_cut_off_is_bad() {
    let mut bytes: Vec<u8> = (0..3).flat_map(|at| worldcup(894_016_802, at)).collect();
    bytes[36] = 99;
    bytes.truncate(53);
    // Half of so few records is too little to recognise it by.
    assert!(matches!(Reader::new(&bytes[..], None), Err(ReadError::NoTrace(_))));
    let mut reader = Reader::new(&bytes[..], Some(Format::WorldCup)).unwrap();
    assert_eq!(all(&mut reader).len(), 1);
    let told: Vec<_> = reader.bad().first.iter().map(|bad| (bad.number, bad.defect)).collect();
    assert_eq!(told, [(2, Defect::Method), (3, Defect::Truncated)]);
    assert!(reader.bad().first[1].text.starts_with("35499d22000000050000"), "{:?}", reader.bad());
}

#[test]
fn a_reader_can_go_to_another_thread() {
    let mut reader = Reader::new(Cursor::new(COMMON), None).unwrap();
    assert_eq!(std::thread::spawn(move || all(&mut reader).len()).join().unwrap(), 1);
}

#[test]
fn targets_are_those_of_the_last_record() {
    let mut reader = Reader::new(&b"/a\n/b,7\n"[..], None).unwrap();
    for (target, bytes) in [(&b"/a"[..], None), (b"/b", Some(7))] {
        let record = reader.read().unwrap().unwrap();
        assert_eq!((record.object, record.bytes, reader.target()), (id_of(target), bytes, target));
    }
    let bytes = worldcup(1, 1);
    let mut reader = Reader::new(&bytes[..], Some(Format::WorldCup)).unwrap();
    reader.read().unwrap().unwrap();
    assert_eq!(reader.target(), b"");
}

#[test]
fn packed_files_are_unpacked_and_what_is_cut_off_is_read_as_far_as_it_goes() {
    let log = COMMON.repeat(50_000);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&log).unwrap();
    for (packing, packed) in [
        (Packing::Gzip, gzip.finish().unwrap()),
        (Packing::Zstd, zstd::encode_all(&log[..], 1).unwrap()),
        (Packing::None, log.clone()),
    ] {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&packed).unwrap();
        let mut reader = Reader::open(file.path(), None).unwrap();
        assert_eq!((reader.packing(), reader.size()), (packing, Some(packed.len() as u64)));
        assert_eq!(
            (all(&mut reader).len(), reader.bad().count, reader.position()),
            (50_000, 0, packed.len() as u64)
        );
        if packing != Packing::None {
            let half = &packed[..packed.len() / 2];
            let mut reader = Reader::new(Cursor::new(half), None).unwrap();
            let records = all(&mut reader).len();
            assert!((1..50_000).contains(&records), "{records}");
            let damage = reader.damage().expect("the end is not the log's");
            assert!(
                matches!(damage, ReadError::Damaged { packing: told, .. } if *told == packing),
                "{damage}"
            );
            assert_eq!(reader.read().unwrap(), None);
            assert!(matches!(
                Reader::new(Cursor::new(&packed[..5]), None),
                Err(ReadError::Damaged { .. })
            ));
        }
    }
    assert!(matches!(
        Reader::open(std::path::Path::new("/no/such/trace"), None),
        Err(ReadError::Open { .. })
    ));
}

/// The last line of what is cut off could pass for one with fewer bytes.
#[test]
fn a_line_that_is_cut_off_with_its_packing_is_not_taken() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    gzip.write_all(&COMMON.repeat(2)).unwrap();
    let packed = gzip.finish().unwrap();
    // The trailer has 8 bytes; then the line's end and its last digits.
    for cut in 10..14 {
        let mut reader = Reader::new(&packed[..packed.len() - cut], None).unwrap();
        assert_eq!(
            all(&mut reader).iter().map(|record| record.bytes).collect::<Vec<_>>(),
            [Some(1839)],
            "{cut}"
        );
        assert_eq!(reader.bad().first[0].defect, Defect::Truncated);
        assert!(reader.damage().is_some());
    }
}

#[test]
fn objects_over_several_lines_are_read_and_one_without_end_is_bad() {
    let log = [
        PRETTY,
        b"{\n \"ts\": 2,\n",
        PRETTY,
        NGINX,
        b"[\n  {\n   \"ts\": 1,\n \"request\": \"GET /q\", \"status\": 200\n  },\n]\n{",
    ]
    .concat();
    let mut reader = Reader::new(&log[..], None).unwrap();
    assert_eq!((reader.format(), all(&mut reader).len()), (Format::Json, 4));
    assert_eq!(reader.target(), b"/q");
    let told: Vec<_> = reader.bad().first.iter().map(|bad| (bad.number, bad.defect)).collect();
    assert_eq!(told, [(11, Defect::Json), (27, Defect::Json)]);
}

#[test]
fn what_is_no_trace_is_refused() {
    let elf = [&b"\x7fELF\x02\x01\x01\0"[..], &[0; 200]].concat();
    for (bytes, no_trace) in [
        (&elf[..], NoTrace::Program),
        (b"#!/bin/sh\nfalse\n", NoTrace::Script),
        (b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", NoTrace::Binary),
        (&[0; 4000], NoTrace::Binary),
        (b"one two three\n", NoTrace::Text),
        (b"x = 1\nif x:\n    exit\n", NoTrace::Text),
        (b"\x01\x02\x03", NoTrace::Text),
        (b"a,b,c\n1,2,3\n", NoTrace::Text),
        (b"require('../es')\nmodule.exports=x\n", NoTrace::Text),
        (b"[Unit]\nAfter=x\n", NoTrace::Text),
        (b"-----BEGIN CERTIFICATE-----\nMIID\n", NoTrace::Known("a certificate or a key")),
    ] {
        let error = Reader::new(bytes, None).unwrap_err();
        assert!(
            matches!(error, ReadError::NoTrace(told) if told == no_trace),
            "{error} {no_trace:?}"
        );
    }
    // Whatever its format is said to be.
    for format in Format::ALL {
        assert!(
            matches!(
                Reader::new(&elf[..], Some(format)),
                Err(ReadError::NoTrace(NoTrace::Program))
            ),
            "{format}"
        );
    }
}

/// Programs, scripts, libraries, pictures, documents: none of them is a trace.
#[test]
fn files_of_a_system_are_refused() {
    const FILES_MAX: usize = 400;
    let mut files: Vec<_> =
        ["/usr/bin", "/usr/sbin", "/usr/lib/python3/dist-packages", "/usr/share/perl5"]
            .iter()
            .filter_map(|folder| std::fs::read_dir(folder).ok())
            .flat_map(|folder| folder.flatten().map(|entry| entry.path()).collect::<Vec<_>>())
            .filter(|path| {
                path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0)
            })
            .collect();
    files.sort();
    // Spread over all of them.
    let step = files.len().div_ceil(FILES_MAX).max(1);
    for file in files.iter().step_by(step) {
        let opened = Reader::open(file, None);
        assert!(
            matches!(opened, Err(ReadError::NoTrace(_) | ReadError::Open { .. })),
            "{}",
            file.display()
        );
    }
}

proptest::proptest! {
    /// Random bytes are not a trace, whether there are zeros among them or not.
    #[test]
    fn noise_is_refused(
        bytes in proptest::collection::vec(proptest::num::u8::ANY, 200..4000),
        start in proptest::num::u8::ANY,
    ) {
        let bytes = [&[start], &bytes[..]].concat();
        let opened = Reader::new(&bytes[..], None);
        let taken_for = opened.as_ref().ok().map(Reader::format);
        proptest::prop_assert!(
            matches!(opened, Err(ReadError::NoTrace(_) | ReadError::Damaged { .. })),
            "{taken_for:?}"
        );
    }
}

/// A program's bytes behind the sign of a comment; and a log in which nothing has happened.
#[test]
fn a_comment_is_text() {
    for (bytes, is_log) in
        [(&b"#\x01\x02ELF\xff\xfe and so on"[..], false), (b"# nothing yet\n", true), (b"", true)]
    {
        let refused = matches!(Reader::new(bytes, None), Err(ReadError::NoTrace(_)));
        assert_eq!(refused, !is_log, "{}", bytes.escape_ascii());
    }
}

/// A file of a few kilobytes that unpacks to gigabytes of one line.
#[test]
fn a_line_without_end_takes_no_memory() {
    assert!(matches!(
        Reader::new(std::io::repeat(b'x').take(1 << 30), None),
        Err(ReadError::NoTrace(_))
    ));
    let mut reader = Reader::new(std::io::repeat(b'x').take(1 << 30), Some(Format::Keys)).unwrap();
    assert_eq!((reader.read().unwrap(), reader.bad().count), (None, 1));
}

proptest::proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
        for format in Format::ALL.map(Some).into_iter().chain([None]) {
            let Ok(mut reader) = Reader::new(&bytes[..], format) else { continue };
            let mut records = 0;
            while let Ok(Some(_)) = reader.read() {
                records += 1;
            }
            let lines = bytes.split(|&byte| byte == b'\n').count();
            proptest::prop_assert!(records <= lines.max(bytes.len() / 4));
        }
    }

    #[test]
    fn no_line_that_is_nearly_good_panics(
        which in 0usize..4,
        at in 0usize..200,
        with in proptest::collection::vec(proptest::num::u8::ANY, 0..4),
    ) {
        let mut bytes = [COMMON, NGINX, TSV, NFS][which].to_vec();
        let at = at % bytes.len();
        bytes.splice(at..(at + with.len()).min(bytes.len()), with);
        let Ok(mut reader) = Reader::new(&bytes[..], None) else { return Ok(()) };
        while reader.read().unwrap().is_some() {}
    }
}
