//! What of a trace a card could answer, and why not the rest.

use nicache_trace::{Marks, Record, Verb};
use serde::Serialize;

/// What a request is to a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Its reply can come from the cache.
    Cacheable,
    /// It changes what it names.
    Write,
    /// Neither.
    Uncacheable(Reason),
}

/// Why a reply cannot come from the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Another method than GET and HEAD (or another operation than a read).
    Method,
    /// A status other than 200, 206 and 304.
    Status,
    /// The user gave a name, or the reply is marked as private or sets a cookie.
    Private,
    /// Made by a program, which the study was to leave out.
    Dynamic,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Method, Self::Status, Self::Private, Self::Dynamic];

    /// The sort's name in words, for tables.
    pub fn title(self) -> &'static str {
        match self {
            Self::Method => "other methods",
            Self::Status => "other statuses than 200, 206 and 304",
            Self::Private => "private replies",
            Self::Dynamic => "dynamic pages, left out",
        }
    }
}

/// Bytes of the body that went over the wire. What a server logs as the bytes of a reply that has
/// no body says nothing.
pub fn sent_bytes(record: &Record) -> u64 {
    if record.verb == Verb::Head || record.status == 304 { 0 } else { record.bytes.unwrap_or(0) }
}

/// What a record is. Replies made by programs count as cacheable if `dynamic`: a card sees when
/// their sources change.
pub fn sort(record: &Record, dynamic: bool) -> Sort {
    match record.verb {
        Verb::Get | Verb::Head => {}
        Verb::Write => return Sort::Write,
        Verb::Other => return Sort::Uncacheable(Reason::Method),
    }
    if !matches!(record.status, 0 | 200 | 206 | 304) {
        return Sort::Uncacheable(Reason::Status);
    }
    if record.marks.intersects(Marks::USER | Marks::SETS_COOKIE | Marks::PRIVATE) {
        return Sort::Uncacheable(Reason::Private);
    }
    if !dynamic && record.marks.intersects(Marks::QUERY | Marks::DYNAMIC) {
        return Sort::Uncacheable(Reason::Dynamic);
    }
    Sort::Cacheable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_sorted() {
        let get = Record { status: 200, ..Record::default() };
        assert_eq!(sort(&get, true), Sort::Cacheable);
        assert_eq!(sort(&Record { verb: Verb::Head, status: 304, ..get }, true), Sort::Cacheable);
        assert_eq!(sort(&Record { status: 404, ..get }, true), Sort::Uncacheable(Reason::Status));
        assert_eq!(sort(&Record { verb: Verb::Write, ..get }, true), Sort::Write);
        assert_eq!(
            sort(&Record { verb: Verb::Other, ..get }, true),
            Sort::Uncacheable(Reason::Method)
        );
        assert_eq!(
            sort(&Record { marks: Marks::SETS_COOKIE, ..get }, true),
            Sort::Uncacheable(Reason::Private)
        );
        let query = Record { marks: Marks::QUERY, ..get };
        assert_eq!(sort(&query, true), Sort::Cacheable);
        assert_eq!(sort(&query, false), Sort::Uncacheable(Reason::Dynamic));
    }
}
