//! What is written is read back.

use nicache_trace::{
    Format, KeyWriter, Reader, Record, TsvWriter, Verb, id_of, write_oracle_general,
};
use proptest::prelude::*;

fn read(bytes: &[u8], format: Option<Format>) -> (Vec<(Record, Vec<u8>)>, Format, u64) {
    let mut reader = Reader::new(bytes, format).unwrap();
    let mut records = Vec::new();
    while let Some(record) = reader.read().unwrap() {
        records.push((record, reader.target().to_vec()));
    }
    (records, reader.format(), reader.bad().count)
}

fn verb() -> impl Strategy<Value = Verb> {
    prop_oneof![Just(Verb::Get), Just(Verb::Head), Just(Verb::Write), Just(Verb::Other)]
}

prop_compose! {
    fn record()(
        time_us in 0u64..1 << 53,
        client in any::<u64>(),
        object in prop_oneof![any::<u64>(), 0u64..8],
        verb in verb(),
        status in 0u16..1000,
        bytes in proptest::option::of(any::<u64>()),
        offset in any::<u64>(),
        object_bytes in proptest::option::of(any::<u64>()),
        revision in proptest::option::of(any::<u64>()),
    ) -> Record {
        Record { time_us, client, object, verb, status, bytes, offset, object_bytes, revision,
            ..Record::default() }
    }
}

fn target() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "/[a-z]{0,3}(\\.php)?(\\?[a-z]=\\d)?".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..30),
    ]
}

proptest! {
    #[test]
    fn columns(records in proptest::collection::vec((record(), target()), 0..20)) {
        let mut writer = TsvWriter::new(Vec::new()).unwrap();
        for (record, target) in &records {
            writer.write(record, target).unwrap();
        }
        let written = writer.into_inner();
        let (back, _, bad) = read(&written, Some(Format::Tsv));
        prop_assert_eq!((back.len(), bad), (records.len(), 0));
        for ((record, target), (back, back_target)) in records.iter().zip(&back) {
            let can_stand =
                !target.is_empty() && !target.iter().any(|byte| b"\t\r\n".contains(byte));
            let name = if can_stand {
                target.clone()
            } else {
                format!("/{:016x}", record.object).into_bytes()
            };
            let expected = Record {
                object: id_of(&name),
                marks: back.marks,
                offset: 0,
                object_bytes: None,
                revision: None,
                ..*record
            };
            prop_assert_eq!((back, back_target), (&expected, &name));
        }
        if !records.is_empty() {
            prop_assert_eq!(read(&written, None).1, Format::Tsv);
        }
        // Once read, nothing is lost any longer.
        let mut writer = TsvWriter::new(Vec::new()).unwrap();
        for (record, target) in &back {
            writer.write(record, target).unwrap();
        }
        prop_assert_eq!(writer.into_inner(), written);
    }

    #[test]
    fn keys(records in proptest::collection::vec(record(), 1..20)) {
        let mut writer = KeyWriter::new(Vec::new());
        for record in &records {
            writer.write(record).unwrap();
        }
        let (back, format, bad) = read(&writer.into_inner(), None);
        prop_assert_eq!((back.len(), format, bad), (records.len(), Format::Keys, 0));
        for (record, (back, target)) in records.iter().zip(&back) {
            let bytes = record.object_bytes.or(record.bytes);
            let expected =
                Record { object: record.object, bytes, object_bytes: bytes, ..Record::default() };
            prop_assert_eq!((back, target), (&expected, &record.object.to_string().into_bytes()));
        }
    }

    #[test]
    fn oracle_general(records in proptest::collection::vec(record(), 1..60)) {
        let mut written = Vec::new();
        write_oracle_general(&mut written, &records).unwrap();
        prop_assert_eq!(written.len(), 24 * records.len());
        let (back, _, bad) = read(&written, Some(Format::OracleGeneral));
        prop_assert_eq!((back.len(), bad), (records.len(), 0));
        let seconds: Vec<u64> = records.iter().map(|record| record.time_us / 1_000_000).collect();
        let epoch = if seconds.iter().all(|&second| second <= u64::from(u32::MAX)) {
            0
        } else {
            *seconds.iter().min().unwrap()
        };
        for (at, (record, (back, target))) in records.iter().zip(&back).enumerate() {
            let bytes =
                Some(record.object_bytes.or(record.bytes).unwrap_or(0).min(u64::from(u32::MAX)));
            let time_us = (seconds[at] - epoch).min(u64::from(u32::MAX)) * 1_000_000;
            let expected = Record {
                time_us,
                object: record.object,
                bytes,
                object_bytes: bytes,
                ..Record::default()
            };
            prop_assert_eq!((back, target.is_empty()), (&expected, true));
            let next = records[at + 1..].iter().position(|after| after.object == record.object);
            let told = i64::from_le_bytes(written[24 * at + 16..24 * at + 24].try_into().unwrap());
            prop_assert_eq!(told, next.map_or(-1, |after| (at + 2 + after) as i64));
        }
    }

    /// Traces in the order of time, with objects that come again, as real ones are, are recognised.
    #[test]
    fn oracle_general_is_recognised(
        steps in proptest::collection::vec((0u64..100, 0u64..30, 1u64..10_000_000), 3..300),
        start in 0u64..2_000_000_000,
    ) {
        let mut time_us = start * 1_000_000;
        let records: Vec<Record> = steps
            .iter()
            .map(|&(step, object, bytes)| {
                time_us += step * 1_000_000;
                Record {
                    time_us,
                    object: id_of(&object.to_le_bytes()),
                    bytes: Some(bytes),
                    ..Record::default()
                }
            })
            .collect();
        let mut written = Vec::new();
        write_oracle_general(&mut written, &records).unwrap();
        prop_assert_eq!(read(&written, None).1, Format::OracleGeneral);
    }
}
