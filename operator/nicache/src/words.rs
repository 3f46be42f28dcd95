//! Every reason why the card did not answer a request, or did not keep a reply, in words for an
//! operator: what it means, and what there is to do.
//!
//! The names of reasons are those of the counters (`bypass_cookie`, `fill_refused_wrote`). Texts
//! are matched with the enums, so a new reason without words does not compile.

use nicache_cache::FillAbort;
use nicache_card::CardBypass;
use nicache_coherence::RefusalReason;
use nicache_http::{BypassReason, NotShared};

/// A reason in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Words {
    /// What it means: the end of a sentence that begins with "because", without a period.
    pub because: &'static str,
    /// What there is to do, as a sentence. `None`: nothing, or it goes away by itself.
    pub advice: Option<&'static str>,
}

const fn just(because: &'static str) -> Words {
    Words { because, advice: None }
}

const fn with(because: &'static str, advice: &'static str) -> Words {
    Words { because, advice: Some(advice) }
}

/// The words for a reason by the name of its counter.
pub(crate) fn of(name: &str) -> Option<Words> {
    if let Some(label) = name.strip_prefix("bypass_") {
        let by_request = BypassReason::ALL.iter().find(|reason| reason.label() == label);
        let by_card = CardBypass::ALL.iter().find(|reason| reason.label() == label);
        return by_request
            .map(|reason| bypass(*reason))
            .or_else(|| by_card.map(|reason| bypass_of_card(*reason)));
    }
    if let Some(label) = name.strip_prefix("fill_refused_") {
        let reason = RefusalReason::ALL.iter().find(|reason| reason.label() == label);
        return reason.map(|reason| refusal(*reason));
    }
    if let Some(label) = name.strip_prefix("fill_not_shared_") {
        let reason = NotShared::ALL.iter().find(|reason| reason.label() == label);
        return reason.map(|reason| not_shared(*reason));
    }
    if let Some(label) = name.strip_prefix("fill_aborted_") {
        let reason = FillAbort::ALL.iter().find(|reason| reason.label() == label);
        return reason.map(|reason| abort(*reason));
    }
    Some(match name {
        "first" => with(
            "it is a dynamic page, which is kept once a second reply, for another client, has been the same",
            "Ask for it again, from another address or a few seconds later.",
        ),
        "differed" => with(
            "it is a dynamic page, and two replies differed although nothing had changed",
            "Look for a time, a random number or a counter in it; `mask` it if it means nothing.",
        ),
        _ => return None,
    })
}

/// Why a request is not looked up.
pub(crate) const fn bypass(reason: BypassReason) -> Words {
    match reason {
        BypassReason::HeadTooLong => just("the head of the request is longer than servers take"),
        BypassReason::TooManyHeaders => just("the request has too many header fields"),
        BypassReason::LeadingEmptyLine => just("the request begins with empty lines"),
        BypassReason::RequestLine => just("the first line of the request is not that of HTTP"),
        BypassReason::HttpVersion => with(
            "the request is in a version other than HTTP/1.0 and HTTP/1.1",
            "Have the proxy in front speak HTTP/1.1 to nicache.",
        ),
        BypassReason::BareLineBreak => just("a line of the request does not end with CR LF"),
        BypassReason::ObsFold => just("a header field of the request goes over several lines"),
        BypassReason::SpaceBeforeColon => {
            just("there is a space between the name of a header field and its colon")
        }
        BypassReason::ControlByte => just("there is a control character in the request"),
        BypassReason::HeaderName => just("a header field of the request has no valid name"),
        BypassReason::OddWhitespace => {
            just("there is unusual white space around a value in the request")
        }
        BypassReason::Method => just("its method is not GET or HEAD: it may change something"),
        BypassReason::Connect => just("it asks for a tunnel (CONNECT)"),
        BypassReason::TargetAbsolute => with(
            "it names a whole URL where a path is usual, as requests to a proxy do",
            "Have the client, or the proxy in front, send the path and a Host header.",
        ),
        BypassReason::TargetAsterisk => just("it is for the server as a whole (`*`)"),
        BypassReason::TargetAuthority => just("what it asks for does not begin with /"),
        BypassReason::TargetFragment => just("there is a # in what it asks for"),
        BypassReason::TargetByte => {
            just("there is a character in the path that a URL must not have")
        }
        BypassReason::TargetPath => just(
            "its path leads above the root, or has a percent sign that encodes nothing: some servers refuse that",
        ),
        BypassReason::HostMissing => just("it has no Host header"),
        BypassReason::HostDuplicate => just("it has two Host headers"),
        BypassReason::HostMalformed => just("its Host header is not a name with a port"),
        BypassReason::ContentLength => just("its Content-Length is not one plain number"),
        BypassReason::TransferEncoding => just("it has a Transfer-Encoding: a body may follow"),
        BypassReason::Body => just("it is a GET with a body"),
        BypassReason::ConnectionOption => with(
            "its Connection header names more than `close` or `keep-alive`",
            "Have the proxy in front clear it (nginx: proxy_set_header Connection \"\").",
        ),
        BypassReason::Upgrade => just("it asks for another protocol (Upgrade), as WebSockets do"),
        BypassReason::Expect => just("it has an Expect header"),
        BypassReason::Authorization => {
            just("it carries a user name or a token (Authorization): the page is for one client")
        }
        BypassReason::Cookie => with(
            "it carries a cookie, so the page may be for one client",
            "If no page depends on the cookie, write --ignore-cookie NAME; for those of analytics, --ignore-cookie @analytics.",
        ),
        BypassReason::DuplicateHeader => just("a header field that may come once comes twice"),
        BypassReason::UnknownHeader => with(
            "it carries a header that nicache does not know, which the page may depend on",
            "`nicache status` names it. Write --ignore-header NAME if no page depends on it, --vary NAME if one does.",
        ),
    }
}

/// Why the card looks nothing up.
pub(crate) const fn bypass_of_card(reason: CardBypass) -> Words {
    match reason {
        CardBypass::Operator => {
            with("caching is switched off by command", "Switch it on again: nicache bypass off")
        }
        CardBypass::Lease => with(
            "the watcher does not vouch for what is kept",
            "`nicache status` and the log say why; `nicache check` says what the kernel lacks.",
        ),
        CardBypass::Conditional => {
            just("servers differ in how they answer its conditions (If-None-Match and the like)")
        }
        CardBypass::Resources => with(
            "the card had no room for one more request",
            "Many slow clients? See docs/siege.md; --connections sets how many there may be.",
        ),
        CardBypass::Range => {
            just("it asks for a part of a page in a way in which servers differ (Range)")
        }
    }
}

/// Why the watcher does not vouch for a reply.
pub(crate) const fn refusal(reason: RefusalReason) -> Words {
    match reason {
        RefusalReason::NoMatchingFile => with(
            "the server looked at files and sent something else, and dynamic pages are switched off for it",
            "Leave --recheck above 0 to have dynamic pages kept.",
        ),
        RefusalReason::NotLookedUp => with(
            "the server looked at no file, and dynamic pages are switched off for it",
            "Leave --recheck above 0 to have dynamic pages kept.",
        ),
        RefusalReason::OpenForWriting => with(
            "a program has one of its files open for writing",
            "Close the file: `fuser -v FILE` names the program.",
        ),
        RefusalReason::Changed => {
            just("something that it depends on changed while it was made; the next one may be kept")
        }
        RefusalReason::TooManySources => just("it depends on more files than one entry can have"),
        RefusalReason::UnwatchedFilesystem => with(
            "one of its files is on a file system where nobody sees every change",
            "The log names file and file system; docs/filesystems.md says which are watched.",
        ),
        RefusalReason::EventsLost => {
            just("more happened than the watcher could follow; it begins anew by itself")
        }
        RefusalReason::Unseen => with(
            "a program that may have had a part in it does what nobody sees: it asks the kernel by io_uring, by 32-bit calls or by file handles",
            "The log names it. docs/dynamic.md says when a page is kept again.",
        ),
        RefusalReason::ModifiedMismatch => just(
            "its Last-Modified is not the time of the file that it would be, so it is not that file as it is",
        ),
        RefusalReason::EmptyBody => {
            just("it has no content, so it cannot be told which file it is")
        }
        RefusalReason::Io => just(
            "one of its files could not be looked up as the server saw it: it could not be read, or the \
             program that read it has ended since; the next reply may be kept",
        ),
        RefusalReason::Wrote => with(
            "the server changed a file or a row while it made the page, which a hit would leave out",
            "Declare session files (`session-files`); run cron jobs outside of requests.",
        ),
        RefusalReason::UnwatchedPeer => with(
            "the server asked a program that is not watched",
            "Start that program with --with, or name its unit with --follow-unit. PHP-FPM of this machine is followed once it has been reloaded: the log says whether it was, or what to do; its port needs --share. A database on this machine is recognized by itself, one elsewhere needs a relay (docs/fleet.md).",
        ),
        RefusalReason::Dirty => with(
            "a file that the server keeps in its memory has changed, and the server has not read it since",
            "PHP: opcache.revalidate_freq=0. Data that programs read anew each time: `data-folder`. Others: reload the server after a deploy.",
        ),
        RefusalReason::TooManyRetained => {
            just("the server keeps more files in its memory than can be followed")
        }
        RefusalReason::DatabaseUnclear => with(
            "what it read from the database cannot be told apart from what others were changing",
            "Pages that read outside of long transactions are kept.",
        ),
        RefusalReason::ServerOlder => with(
            "a program of the server was started before the watcher was ready, so what it has in its memory is not known: only files are kept",
            "Start the server's programs again, or nicache.",
        ),
        RefusalReason::Decided => with(
            "it is a file, and a program or a database may have decided that the server sends it, and dynamic pages are switched off for it",
            "Leave --recheck above 0 to have dynamic pages kept.",
        ),
    }
}

/// Why a reply is not for everybody.
pub(crate) const fn not_shared(reason: NotShared) -> Words {
    match reason {
        NotShared::RequestMethod => just("it was the reply to a method other than GET"),
        NotShared::Status => just("its status was not 200: only such replies are kept"),
        NotShared::HttpVersion => with(
            "the server answered in HTTP/1.0 on a connection that persists",
            "Have the server speak HTTP/1.1.",
        ),
        NotShared::StatusLine => just("the first line of the reply is not as HTTP has it"),
        NotShared::SetCookie => with(
            "the reply sets a cookie, so it is for one client",
            "If the cookie means nothing for this page: `drop-set-cookie` in the settings for paths (docs/dynamic.md).",
        ),
        NotShared::Private => with(
            "the server says that the reply is for one client (Cache-Control: private)",
            "If that is not true for this page: `share-private` in the settings for paths (docs/dynamic.md).",
        ),
        NotShared::NoStore => with(
            "the server forbids keeping the reply (Cache-Control: no-store)",
            "If that is not true for this page: `share-no-store` in the settings for paths (docs/dynamic.md).",
        ),
        NotShared::CacheControlOdd => with(
            "its Cache-Control is not a list of directives, or one looks like a misspelled private or no-store",
            "Have the server send Cache-Control as in RFC 9111.",
        ),
        NotShared::VaryStar => {
            just("the server says that the page depends on more than the request (Vary: *)")
        }
        NotShared::VaryOdd => just("its Vary is not a list of names"),
        NotShared::VaryTooLarge => just("its Vary names more headers than nicache keeps apart"),
        NotShared::ContentRange => just("it is a part of a page (Content-Range)"),
        NotShared::Authentication => just("it asks for a password, or answers one"),
        NotShared::Trailer => just("header fields may follow its body (Trailer)"),
        NotShared::Nonce => {
            just("its Content-Security-Policy has a nonce, which must not be used twice")
        }
        NotShared::UnusualHeader => with(
            "it has a header that nicache does not know, which may be for one client",
            "Have the server leave it out for pages that are for everybody (nginx: proxy_hide_header, fastcgi_hide_header).",
        ),
        NotShared::DuplicateHeader => {
            just("a header field that may come once comes twice in the reply")
        }
        NotShared::ConnectionOdd => {
            just("its Connection header names more than `close` or `keep-alive`")
        }
        NotShared::Date => with(
            "it has a Date that cannot be read, or an Expires without a Date",
            "Have the server send a Date.",
        ),
        NotShared::LastModifiedOdd => with(
            "its Last-Modified cannot be read, so it is not a file's",
            "Have the server say `Sun, 06 Nov 1994 08:49:37 GMT` for such a date.",
        ),
        NotShared::ExpiresPinned => {
            just("its Expires may hang on a time of day, so it would not be right later")
        }
        NotShared::HeadTooLong => just("the head of the reply is longer than nicache keeps"),
    }
}

/// Why the card gave a reply up.
pub(crate) const fn abort(reason: FillAbort) -> Words {
    match reason {
        FillAbort::Resources => {
            just("too many replies were being copied at that moment, or the request was too long")
        }
        FillAbort::TooLarge => {
            with("it is larger than one object may be", "More --memory allows larger ones.")
        }
        FillAbort::NoRoom => {
            with("what is in card memory is asked for more often", "More --memory keeps both.")
        }
        FillAbort::NotAdmitted => with(
            "it is not asked for often enough to be worth the room",
            "More --memory, or another --policy.",
        ),
        FillAbort::HeadTooLarge => just("the head of the reply is longer than nicache keeps"),
        FillAbort::NoBody => just("the reply has no body, as its status says"),
        FillAbort::ChunkExtras => just("its chunks have extensions or trailers"),
        FillAbort::Incomplete => just("the reply ended early, or bytes of it came out of order"),
        FillAbort::NoVerdict => with(
            "the watcher did not answer in time",
            "Is the machine overloaded? `nicache status` says whether the watcher is there.",
        ),
        FillAbort::ChangedAtInsert => just(
            "something that it depends on changed at the last moment; the next one may be kept",
        ),
        FillAbort::Superseded => just(
            "the server said nothing to that request, and another one for the same page went ahead",
        ),
        FillAbort::Volatile => with(
            "it is a dynamic page that is different each time; it is put aside for a while",
            "Look for a time, a random number or a counter in it; `mask` it if it means nothing.",
        ),
        FillAbort::SlowClient => just("the client took it so slowly that nobody could wait for it"),
    }
}

/// All names of reasons, as counters have them.
#[cfg(test)]
pub(crate) fn all_names() -> Vec<String> {
    let bypass = BypassReason::ALL.iter().map(BypassReason::label);
    let bypass = bypass.chain(CardBypass::ALL.iter().map(CardBypass::label));
    let bypass = bypass.map(|label| format!("bypass_{label}"));
    let refused = RefusalReason::ALL.iter();
    let refused = refused.map(|reason| format!("fill_refused_{}", reason.label()));
    let not_shared =
        NotShared::ALL.iter().map(|reason| format!("fill_not_shared_{}", reason.label()));
    let aborted = FillAbort::ALL.iter();
    let aborted = aborted.map(|reason| format!("fill_aborted_{}", reason.label()));
    bypass
        .chain(refused)
        .chain(not_shared)
        .chain(aborted)
        .chain(["first", "differed"].map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_words() {
        let names = all_names();
        assert!(names.len() > 80, "{}", names.len());
        for name in names {
            let words = of(&name).unwrap_or_else(|| panic!("{name} has no words"));
            let because = words.because;
            assert!(because.len() >= 15 && !because.ends_with('.'), "{name}: {because}");
            assert!(
                because.starts_with(|c: char| c.is_ascii_lowercase() || c == 'H'),
                "{name}: {because}"
            );
            let texts = [Some(because), words.advice];
            for text in texts.into_iter().flatten() {
                // No name of the program's own, nothing as Rust writes it.
                let is_known_by_others =
                    ["nginx:", "opcache.", "io_uring"].iter().any(|known| text.contains(known));
                assert!(!text.contains('_') || is_known_by_others, "{name}: {text}");
                assert!(
                    !text.contains("::") && !text.contains("Some(") && !text.contains('{'),
                    "{name}: {text}"
                );
            }
            assert!(
                words.advice.is_none_or(|advice| advice.ends_with(['.', 'f'])),
                "{name}: {:?}",
                words.advice
            );
        }
        assert_eq!(of("bypass_nothing"), None);
        assert_eq!(of("hits"), None);
    }
}
