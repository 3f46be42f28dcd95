use super::*;
use crate::sessions::{SessionConfig, Sessions};

const LOG: &[u8] = b"a.example - - [01/Aug/1995:00:00:01 -0400] \"GET /x HTTP/1.0\" 200 1839\n\
    141.243.1.172 - - [01/Aug/1995:00:00:01 -0400] \"GET /y HTTP/1.0\" 200 1497\n\
    b - u [01/Aug/1995:00:00:02 -0400] \"HEAD /x HTTP/1.1\" 200 9000 \"http://r/\" \"Agent \\\"7\\\"\"\n\
    b - - [01/Aug/1995:00:00:02 -0400] \"GET /with\"quote HTTP/1.0\" 206 10\n\
    b - - [01/Aug/1995:00:00:03 -0400] \"GET /old\" 304 0\n\
    a.example - - [01/Aug/1995:00:00:09 -0400] \"GET /x HTTP/1.0\" 200 100\n\
    b - - [01/Aug/1995:00:00:03 -0400] \"GET /gone HTTP/1.0\" 404 -\n\
    b - - [01/Aug/1995:00:00:03 -0400] \"POST /x HTTP/1.0\" 200 5\n\
    nonsense\n\n\
    b - - [01/Aug/1995:00:00:03 -0400] \"GET\" 400 0\n\
    b - - [01/Aug/1995:00:00:03 -0400] \"GET /x HTTP/1.0\" 200 many\n\
    b - - [soon] \"GET /x HTTP/1.0\" 200 1839\n\
    \xff\xfe [01/Aug/1995:00:00:03 -0400] \"\x16\x03 \x01\" 400 226\n";

#[test]
fn requests_are_read_and_the_rest_is_counted() {
    let (trace, format) = Trace::read(LOG, None).unwrap();
    assert_eq!(format, Format::Common);
    assert_eq!(trace.requests.len(), 6);
    assert_eq!((trace.objects.len(), trace.clients), (4, 3));
    assert_eq!(trace.objects[0].bytes, 1839);
    let head = TraceRequest {
        second: 807_249_602,
        bytes: 0,
        object: 0,
        client: 2,
        status: 200,
        head: true,
    };
    assert_eq!(trace.requests[2], head);
    assert_eq!(trace.footprint_bytes(), 1839 + 1497 + 10);
    let counts = TraceCounts {
        bad_lines: 5,
        other_methods: 1,
        other_statuses: 1,
        not_modified: 1,
        partial: 1,
        other_sizes: 1,
        objects_of_other_sizes: 1,
        objects_without_size: 1,
    };
    assert_eq!(trace.counts, counts);
}

#[test]
fn a_line_without_end_is_bad_and_the_next_is_read() {
    let mut log = vec![b'x'; 200_000];
    log.extend_from_slice(b"\nb - - [01/Aug/1995:00:00:03 -0400] \"GET /x HTTP/1.0\" 200 1\n");
    let (trace, _) = Trace::read(&log[..], Some(Format::Common)).unwrap();
    assert_eq!((trace.requests.len(), trace.counts.bad_lines), (1, 1));
}

#[test]
fn columns_are_recognised() {
    let (trace, format) =
        Trace::read(&b"#unix_time\tclient\n1\t0\tGET\t/\t200\t5\n2\t1\tGET\t/\t304\t-\n"[..], None)
            .unwrap();
    assert_eq!((format, trace.requests.len(), trace.clients), (Format::Tsv, 2, 2));
    assert_eq!(trace.counts.bad_lines, 0);
    let (trace, _) = Trace::read(&b"1\t0\tGET\t/\t200\t5\n"[..], Some(Format::Common)).unwrap();
    assert_eq!(trace.counts.bad_lines, 1);
}

#[test]
fn binary_records_are_recognised_and_a_cut_off_one_is_bad() {
    let mut log = worldcup(894_016_802, 5, 7, 1234, 0, 0x42);
    log.extend(worldcup(894_016_803, 6, 7, 1235, 0, 0x42));
    log.extend(worldcup(894_016_803, 6, 7, 1235, 99, 0x42));
    let (_, format) = Trace::read(&log[..40], None).unwrap();
    assert_eq!(format, Format::WorldCup);
    let (trace, format) = Trace::read(&log[..], Some(format)).unwrap();
    assert_eq!((format, trace.requests.len(), trace.clients), (Format::WorldCup, 2, 2));
    assert_eq!((trace.objects[0].bytes, trace.counts.bad_lines), (1235, 1));
    log.truncate(53);
    let (trace, _) = Trace::read(&log[..], Some(format)).unwrap();
    assert_eq!((trace.requests.len(), trace.counts.bad_lines), (2, 1));
}

/// A record of WorldCup98.
fn worldcup(second: u32, client: u32, object: u32, size: u32, method: u8, status: u8) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        [second, client, object, size].iter().flat_map(|number| number.to_be_bytes()).collect();
    bytes.extend([method, status, 1, 3]);
    bytes
}

#[test]
fn keys_are_whole_objects_of_their_sizes() {
    let (trace, format) = Trace::read(&b"/a,100\n/b,200\n/a,100\n"[..], None).unwrap();
    assert_eq!((format, trace.requests.len(), trace.footprint_bytes()), (Format::Keys, 3, 300));
}

#[test]
fn blocks_are_not_replayed() {
    let log = &b"1,c,s,read,04,,8192,4096,16384,1\n"[..];
    assert!(matches!(Trace::read(log, None), Err(TraceError::Blocks(Format::Nfs))));
}

fn shared(name: &str) -> Option<Trace> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces").join(name);
    if !path.exists() {
        println!("skipped: {} is not there", path.display());
        return None;
    }
    Some(Trace::open(&path, None).unwrap())
}

#[test]
fn the_epa_log() {
    let Some(trace) = shared("epa-http.txt.zst") else { return };
    let counts = trace.counts;
    let all = trace.requests.len() as u64
        + counts.bad_lines
        + counts.other_methods
        + counts.other_statuses;
    assert_eq!(all, 47_748);
    assert!(counts.bad_lines < 50, "{counts:?}");
    // A whole day, from the evening of the 29th.
    let seconds = trace.requests.iter().map(|request| request.second);
    let (first, last) = (seconds.clone().min().unwrap(), seconds.max().unwrap());
    assert_eq!((first % 86_400, last - first), (23 * 3600 + 53 * 60 + 25, 86_382));
}

#[test]
fn the_wordpress_log() {
    let Some(trace) = shared("wp-blog-2016.tsv.zst") else { return };
    let counts = trace.counts;
    assert_eq!((counts.bad_lines, counts.not_modified, counts.partial), (0, 1260, 85));
    let all = trace.requests.len() as u64 + counts.other_methods + counts.other_statuses;
    assert_eq!(all, 206_860);
    assert!(counts.objects_of_other_sizes > 0);
}

#[test]
fn errors_say_what_is_wrong() {
    let missing = Trace::open(Path::new("/no/such/log"), None).unwrap_err().to_string();
    assert!(missing.contains("/no/such/log"), "{missing}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let empty = Trace::open(file.path(), None).unwrap_err().to_string();
    assert!(empty.contains("common or combined"), "{empty}");
}

#[test]
fn what_is_no_trace_or_mostly_not_is_refused() {
    let elf = [&b"\x7fELF\x02\x01\x01\0"[..], &[0; 100]].concat();
    for format in [None, Some(Format::U32)] {
        let refused = Trace::read(&elf[..], format).map(|_| ()).unwrap_err();
        assert!(
            matches!(refused, TraceError::Read { source: ReadError::NoTrace(_), .. }),
            "{refused}"
        );
    }
    let mostly = b"a [01/Aug/1995:00:00:01 -0400] \"GET /x\" 200 1\nx\ny\n";
    let refused = Trace::read(&mostly[..], None).map(|_| ()).unwrap_err().to_string();
    assert!(
        refused.contains("only 1 lines") && refused.contains("line 2: no time: x"),
        "{refused}"
    );
}

/// A rotated log that is not finished: what is there is replayed, and the end is told.
#[test]
fn a_log_that_is_cut_off_is_read_as_far_as_it_goes() {
    let Ok(packed) = std::fs::read(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces/epa-http.txt.zst"),
    ) else {
        println!("skipped: the log is not there");
        return;
    };
    let (trace, _) = Trace::read(&packed[..packed.len() / 2], None).unwrap();
    assert!((10_000..40_000).contains(&trace.requests.len()), "{}", trace.requests.len());
    assert!(
        trace.cut_off.as_ref().is_some_and(|told| told.contains("cut off near byte")),
        "{:?}",
        trace.cut_off
    );
}

proptest::proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
        for format in Format::ALL.map(Some).into_iter().chain([None]) {
            let Ok((trace, _)) = Trace::read(&bytes[..], format) else { continue };
            proptest::prop_assert!(
                trace.requests.iter().all(|request| request.client < trace.clients)
            );
            let sessions = Sessions::of(&trace, &SessionConfig::default());
            proptest::prop_assert_eq!(sessions.requests_len(), trace.requests.len());
        }
        let mut line = b"h [01/Aug/1995:00:00:03 -0400] \"".to_vec();
        line.extend_from_slice(&bytes);
        line.extend_from_slice(b"\" 200 1");
        let _ = Trace::read(&line[..], Some(Format::Common));
        let mut line = b"h [".to_vec();
        line.extend_from_slice(&bytes);
        line.extend_from_slice(b"] \"GET / HTTP/1.0\" 200 1");
        let _ = Trace::read(&line[..], Some(Format::Common));
    }
}
