//! Validators that cannot lie, and conditions (RFC 9110 sections 8.8 and 13).
//!
//! A client that has an old version must never hear that it is the present one. Times of files have
//! gaps (a clock tick, a second), in which a file can change twice; so
//! *  times are those of the last change of the inode, which no program sets;
//! *  a tag of a file that has just changed has its revision in it, which is of this process alone;
//! *  `Last-Modified` is not before the time at which the path was first seen to lead to the file:
//!    a link that leads elsewhere makes a new version of an old file;
//! *  what has just changed has no `Last-Modified`.

use nicache_http::{Conditional, HttpDate, Judgement, if_range_applies};

use crate::files::OpenFile;

/// How old a change must be to be told by its time: two of the seconds that dates are made of.
const SETTLED_NS: i128 = 2_000_000_000;

/// What a client can hold a file against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validators {
    /// A strong entity tag, with its quotes.
    pub tag: String,
    /// Seconds since 1970 of the last change; `None`: too young.
    pub modified_s: Option<u64>,
}

impl Validators {
    /// Validators of a file to which a path has led since `since_ns`; as of `now_ns`. Nanoseconds
    /// since 1970.
    pub fn of(file: &OpenFile, since_ns: i128, now_ns: i128) -> Self {
        Self::new((file.changed_ns, file.ino, file.bytes), file.revision.0, since_ns, now_ns)
    }

    /// Validators by parts: a file's last change, inode and bytes, and a number that tells its
    /// versions apart while this process lives. A path has led to the file since `since_ns`; as of
    /// `now_ns`. Nanoseconds since 1970.
    pub fn new(file: (i128, u64, u64), revision: u64, since_ns: i128, now_ns: i128) -> Self {
        let (file_ns, ino, bytes) = file;
        let changed_ns = file_ns.max(since_ns);
        let is_settled = |at_ns: i128| at_ns >= 0 && now_ns - at_ns >= SETTLED_NS;
        let tag = match is_settled(file_ns) {
            true => format!("\"{file_ns:x}-{ino:x}-{bytes:x}\""),
            false => {
                format!("\"{file_ns:x}-{ino:x}-{bytes:x}-{:x}.{revision:x}\"", std::process::id())
            }
        };
        Self {
            tag,
            modified_s: is_settled(changed_ns).then_some((changed_ns / 1_000_000_000) as u64),
        }
    }

    /// The last change as `Last-Modified` says it, in whole seconds; `None`: it is too young to
    /// say.
    pub fn date(&self) -> Option<HttpDate> {
        self.modified_s.map(HttpDate::from_unix_s)
    }
}

/// What the conditions of a request come to (RFC 9110 section 13.2.2).
pub fn judge(condition: &Conditional<'_>, validators: &Validators) -> Judgement {
    let modified = validators.modified_s;
    nicache_http::judge(
        condition,
        validators.tag.as_bytes(),
        |since| modified.is_none_or(|modified| modified > since),
        // A date that is not ours is of the client's clock, or of a reply that said nothing of its
        // age.
        |since| modified.is_some_and(|modified| since == modified || since > modified + 1),
    )
}

/// RFC 9110 section 13.1.5: whether a range may be sent.
pub fn range_applies(if_range: Option<&[u8]>, validators: &Validators) -> bool {
    if_range.is_none_or(|value| {
        if_range_applies(value, validators.tag.as_bytes(), validators.modified_s)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i128 = 1_000_000_000;

    #[test]
    fn what_has_just_changed_has_no_date() {
        let file = (100 * S, 7, 5);
        let young = Validators::new(file, 1, 100 * S, 101 * S);
        let younger = Validators::new(file, 2, 100 * S, 101 * S);
        assert!(young.modified_s.is_none() && young.tag != younger.tag);
        let old = Validators::new(file, 2, 100 * S, 102 * S);
        assert_eq!((old.modified_s, old.tag.as_str()), (Some(100), "\"174876e800-7-5\""));
        let moved = Validators::new(file, 2, 101 * S, 102 * S);
        assert_eq!(
            (moved.modified_s, moved.tag),
            (None, old.tag),
            "the path has just been led here"
        );
        assert!(
            Validators::new((200 * S, 7, 5), 2, 200 * S, 102 * S).modified_s.is_none(),
            "the clock was set back"
        );
    }

    #[test]
    fn conditions() {
        let validators =
            Validators::new((784_111_777 * S, 7, 5), 1, 784_111_777 * S, 800_000_000 * S);
        let tag = validators.tag.clone();
        let weak = format!("\"x\", W/{tag}");
        let same = b"Sun, 06 Nov 1994 08:49:37 GMT";
        let (before, next, after) = (
            b"Sun, 06 Nov 1994 08:49:36 GMT",
            b"Sun, 06 Nov 1994 08:49:38 GMT",
            b"Sun, 06 Nov 1994 08:49:39 GMT",
        );
        let ask = |change: &dyn Fn(&mut Conditional<'_>)| {
            let mut asked = Conditional::default();
            change(&mut asked);
            judge(&asked, &validators)
        };
        assert_eq!(ask(&|_| {}), Judgement::Proceed);
        for (list, verdict) in [
            (tag.as_str(), Judgement::NotModified),
            (&weak, Judgement::NotModified),
            ("*", Judgement::NotModified),
            ("\"x\"", Judgement::Proceed),
        ] {
            let asked = Conditional {
                if_none_match: Some(list.as_bytes()),
                if_modified_since: Some(same),
                ..Conditional::default()
            };
            assert_eq!(judge(&asked, &validators), verdict, "{list}");
        }
        for (date, verdict) in [
            (same, Judgement::NotModified),
            (before, Judgement::Proceed),
            (next, Judgement::Proceed),
            (after, Judgement::NotModified),
        ] {
            let asked = Conditional { if_modified_since: Some(date), ..Conditional::default() };
            assert_eq!(judge(&asked, &validators), verdict);
        }
        let failed = Conditional { if_match: Some(weak.as_bytes()), ..Conditional::default() };
        assert_eq!(
            judge(&failed, &validators),
            Judgement::Failed,
            "weak tags do not match strongly"
        );
        let failed = Conditional { if_unmodified_since: Some(before), ..Conditional::default() };
        assert_eq!(judge(&failed, &validators), Judgement::Failed);
        let right = Conditional {
            if_unmodified_since: Some(same),
            if_match: None,
            ..Conditional::default()
        };
        assert_eq!(judge(&right, &validators), Judgement::Proceed);
        for (value, applies) in [
            (tag.as_bytes(), true),
            (weak.as_bytes(), false),
            (same, true),
            (after, false),
            (b"x", false),
        ] {
            assert_eq!(range_applies(Some(value), &validators), applies);
        }
    }
}
