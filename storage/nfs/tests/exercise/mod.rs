//! What the fuzz targets and the replay of their corpus have in common: arbitrary bytes through the
//! public functions, and what must hold for all of them.

#![allow(dead_code, reason = "each user takes some of the functions")]

use nfs3_types::nfs3 as other;
use nfs3_types::xdr_codec::Unpack;
use nicache_nfs::arguments::{Arguments, Special};
use nicache_nfs::limits::{HEAD_BYTES_MAX, PAYLOAD_BYTES_MAX};
use nicache_nfs::protocol::Procedure;
use nicache_nfs::rpc::{Call, Refusal, Replies};
use nicache_nfs::{ChunkPool, Claim, RecordError, RecordReader};

/// Records as bytes: what is in front of a WRITE's data, and the data.
type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// All records of a stream of which at most `step` bytes are received at a time.
fn records(stream: &[u8], step: usize) -> (Records, Option<RecordError>) {
    let mut reader = RecordReader::new(ChunkPool::new(1 << 20));
    let (mut records, mut rest) = (Records::new(), stream);
    loop {
        loop {
            match reader.next_record() {
                Ok(Some(record)) => {
                    let data = record.data.concat();
                    assert!(
                        record.head.len() <= HEAD_BYTES_MAX
                            && data.len() <= PAYLOAD_BYTES_MAX as usize
                    );
                    assert!(record.copied_bytes <= data.len());
                    records.push((record.head, data));
                }
                Ok(None) => break,
                Err(error) => return (records, Some(error)),
            }
        }
        if rest.is_empty() {
            return (records, None);
        }
        let mut received = 0;
        for mut slice in reader.room() {
            let len = slice.len().min(step - received).min(rest.len());
            slice[..len].copy_from_slice(&rest[..len]);
            rest = &rest[len..];
            received += len;
        }
        assert!(received > 0, "a reader that needs bytes has room for some");
        reader.handle_received(received);
    }
}

/// The first byte says how much is received at a time.
pub(crate) fn record(bytes: &[u8]) {
    let Some((&step, stream)) = bytes.split_first() else { return };
    let whole = records(stream, usize::MAX);
    assert_eq!(records(stream, usize::from(step) + 1), whole);
    for (head, _) in whole.0 {
        answer(&head);
    }
}

/// A call's head leads to a refusal or to a procedure, and either has a reply of its size.
fn answer(head: &[u8]) {
    let Ok(call) = Call::read(head) else { return };
    let _ = Claim::from_auth_sys(call.credential);
    let mut replies = Replies::default();
    replies.refuse(call.xid, Refusal::GarbageArguments);
    assert_eq!(replies.len(), 28);
    if let Some(procedure) = Procedure::from_number(call.procedure) {
        check(procedure, call.arguments);
    }
}

/// A call with any head.
pub(crate) fn credential(bytes: &[u8]) {
    let mut head =
        vec![0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0x86, 0xa3, 0, 0, 0, 3, 0, 0, 0, 1];
    head.extend_from_slice(bytes);
    answer(&head);
    if let Ok(Claim::User(user)) = Claim::from_auth_sys(bytes) {
        assert!(
            user.uid != u32::MAX
                && user.gid != u32::MAX
                && user.groups.iter().all(|&group| group != u32::MAX)
        );
    }
}

/// The first byte is the procedure's number.
pub(crate) fn arguments(bytes: &[u8]) {
    let Some((&number, bytes)) = bytes.split_first() else { return };
    let Some(procedure) = Procedure::from_number(u32::from(number) % 22) else { return };
    check(procedure, bytes);
}

fn is_taken<T: Unpack>(mut bytes: &[u8]) -> bool {
    T::unpack(&mut bytes).is_ok()
}

/// What is taken here is taken there; only there is no bound to lengths, so it is asked about
/// nothing else.
fn check(procedure: Procedure, bytes: &[u8]) {
    if procedure == Procedure::Write
        && let Ok(Some((at, data_bytes))) = Arguments::write_data(bytes)
    {
        let Ok(Arguments::Write { data_bytes: said, .. }) =
            Arguments::read(procedure, &bytes[..at])
        else {
            // What is left is the stability, which may be none.
            assert!(u32::from_be_bytes(bytes[at - 8..at - 4].try_into().unwrap()) > 2);
            return;
        };
        assert_eq!(data_bytes, said);
    }
    let Ok(arguments) = Arguments::read(procedure, bytes) else { return };
    let is_same = match (procedure, arguments) {
        (Procedure::Null | Procedure::Write, _) => true,
        (Procedure::MkNod, Arguments::MkNod { special: Special::Other, .. }) => true,
        (Procedure::GetAttr, _) => is_taken::<other::GETATTR3args>(bytes),
        (Procedure::SetAttr, _) => is_taken::<other::SETATTR3args>(bytes),
        (Procedure::Lookup, _) => is_taken::<other::LOOKUP3args<'_>>(bytes),
        (Procedure::Access, _) => is_taken::<other::ACCESS3args>(bytes),
        (Procedure::ReadLink, _) => is_taken::<other::READLINK3args>(bytes),
        (Procedure::Read, _) => is_taken::<other::READ3args>(bytes),
        (Procedure::Create, _) => is_taken::<other::CREATE3args<'_>>(bytes),
        (Procedure::MkDir, _) => is_taken::<other::MKDIR3args<'_>>(bytes),
        (Procedure::SymLink, _) => is_taken::<other::SYMLINK3args<'_>>(bytes),
        (Procedure::MkNod, _) => is_taken::<other::MKNOD3args<'_>>(bytes),
        (Procedure::Remove, _) => is_taken::<other::REMOVE3args<'_>>(bytes),
        (Procedure::RmDir, _) => is_taken::<other::RMDIR3args<'_>>(bytes),
        (Procedure::Rename, _) => is_taken::<other::RENAME3args<'_, '_>>(bytes),
        (Procedure::Link, _) => is_taken::<other::LINK3args<'_>>(bytes),
        (Procedure::ReadDir, _) => is_taken::<other::READDIR3args>(bytes),
        (Procedure::ReadDirPlus, _) => is_taken::<other::READDIRPLUS3args>(bytes),
        (Procedure::FsStat, _) => is_taken::<other::FSSTAT3args>(bytes),
        (Procedure::FsInfo, _) => is_taken::<other::FSINFO3args>(bytes),
        (Procedure::PathConf, _) => is_taken::<other::PATHCONF3args>(bytes),
        (Procedure::Commit, _) => is_taken::<other::COMMIT3args>(bytes),
    };
    assert!(is_same, "{arguments:?}");
}
