//! What is in the traces beside the repository (`shared/traces`), counted also by another reader: a
//! script of regular expressions, `csv` and `struct` of Python's standard library.

use std::collections::HashSet;
use std::path::Path;

use nicache_trace::{BadRecord, Defect, Format, Marks, Packing, Reader, Verb};

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    records: u64,
    bad: u64,
    objects: usize,
    clients: usize,
    gets: u64,
    heads: u64,
    writes: u64,
    /// With status 200.
    ok: u64,
    /// Without bytes.
    unknown: u64,
    bytes: u64,
    offsets: u64,
    first_us: u64,
    last_us: u64,
    queries: u64,
    dynamic: u64,
}

fn read(name: &str, format: Format) -> Option<(Counts, Vec<BadRecord>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces").join(name);
    if !path.exists() {
        println!("skipped: {} is not there", path.display());
        return None;
    }
    let mut reader = Reader::open(&path, None).unwrap();
    assert_eq!((reader.format(), reader.packing()), (format, Packing::Zstd));
    let mut counts = Counts { first_us: u64::MAX, ..Counts::default() };
    let (mut objects, mut clients) = (HashSet::new(), HashSet::new());
    while let Some(record) = reader.read().unwrap() {
        objects.insert(record.object);
        clients.insert(record.client);
        counts.records += 1;
        match record.verb {
            Verb::Get => counts.gets += 1,
            Verb::Head => counts.heads += 1,
            Verb::Write => counts.writes += 1,
            Verb::Other => {}
        }
        counts.ok += u64::from(record.status == 200);
        counts.unknown += u64::from(record.bytes.is_none());
        counts.bytes += record.bytes.unwrap_or(0);
        counts.offsets += record.offset;
        counts.first_us = counts.first_us.min(record.time_us);
        counts.last_us = counts.last_us.max(record.time_us);
        counts.queries += u64::from(record.marks.contains(Marks::QUERY));
        counts.dynamic += u64::from(record.marks.contains(Marks::DYNAMIC));
    }
    (counts.objects, counts.clients, counts.bad) =
        (objects.len(), clients.len(), reader.bad().count);
    assert_eq!(Some(reader.position()), reader.size());
    Some((counts, reader.bad().first.clone()))
}

#[test]
fn epa() {
    let Some((counts, bad)) = read("epa-http.txt.zst", Format::Common) else { return };
    let expected = Counts {
        records: 47_727,
        bad: 21,
        objects: 6557,
        clients: 2333,
        gets: 45_999,
        heads: 106,
        writes: 1622,
        ok: 36_712,
        unknown: 5310,
        bytes: 311_863_990,
        first_us: 2_591_605_000_000,
        last_us: 2_677_987_000_000,
        queries: 1971,
        dynamic: 3516,
        ..Counts::default()
    };
    assert_eq!(counts, expected);
    assert!(
        bad[0]
            .text
            .starts_with("bastion.fdic.gov [30:09:36:04] \"GET /enviro/gif/blueball.gifalt= "),
        "{bad:?}"
    );
    assert!(
        bad.iter().all(|bad| matches!(bad.defect, Defect::Request | Defect::Status | Defect::Size)),
        "{bad:?}"
    );
}

#[test]
fn nasa() {
    let Some((counts, _)) = read("nasa-aug95-first20000.txt.zst", Format::Common) else { return };
    let expected = Counts {
        records: 20_000,
        objects: 1765,
        clients: 1656,
        gets: 19_952,
        heads: 46,
        writes: 2,
        ok: 18_083,
        unknown: 251,
        bytes: 321_739_411,
        first_us: 807_249_601_000_000,
        last_us: 807_289_169_000_000,
        queries: 244,
        dynamic: 384,
        ..Counts::default()
    };
    assert_eq!(counts, expected);
}

#[test]
fn wordpress() {
    let Some((counts, _)) = read("wp-blog-2016.tsv.zst", Format::Tsv) else { return };
    let expected = Counts {
        records: 206_860,
        objects: 24_903,
        clients: 8799,
        gets: 130_235,
        heads: 57_427,
        writes: 19_189,
        ok: 170_130,
        unknown: 72_568,
        bytes: 5_795_670_463,
        first_us: 1_455_944_445_000_000,
        last_us: 1_459_191_560_000_000,
        queries: 50_564,
        dynamic: 25_404,
        ..Counts::default()
    };
    assert_eq!(counts, expected);
}

#[test]
fn nfs() {
    let Some((counts, _)) = read("nfs-animation-2003-set6.csv.zst", Format::Nfs) else { return };
    let expected = Counts {
        records: 10_000,
        objects: 612,
        clients: 57,
        gets: 3736,
        writes: 38,
        unknown: 6226,
        bytes: 29_931_752,
        offsets: 6_663_643_136,
        first_us: 1_063_931_188_266_072,
        last_us: 1_063_931_192_806_407,
        ..Counts::default()
    };
    assert_eq!(counts, expected);

    let Some((counts, _)) = read("nfs-animation-2007-set0.csv.zst", Format::Nfs) else { return };
    let expected = Counts {
        records: 9967,
        objects: 103,
        clients: 40,
        gets: 8931,
        writes: 1,
        unknown: 1035,
        bytes: 146_056_966,
        offsets: 729_210_048_512,
        first_us: 1_170_089_647_008_074,
        last_us: 1_170_089_647_966_616,
        ..Counts::default()
    };
    assert_eq!(counts, expected);
}

#[test]
fn vscsi() {
    let Some((counts, _)) = read("cloudphysics.vscsi.zst", Format::Vscsi) else { return };
    let expected = Counts {
        records: 113_872,
        objects: 1,
        clients: 1,
        gets: 46_974,
        writes: 66_898,
        bytes: 4_205_978_112,
        offsets: 1_648_273_262_865_920,
        first_us: 5_633_898_368_802,
        last_us: 5_641_098_458_687,
        ..Counts::default()
    };
    assert_eq!(counts, expected);
}
