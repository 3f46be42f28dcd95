//! What the fuzz target and the replay of its corpus have in common: read arbitrary bytes as a log, and check what must hold for all input.

use nicache_replay::{Format, SessionConfig, Sessions, Trace};

/// A log, in each format and in the one that it seems to be in.
pub fn log(bytes: &[u8]) {
    for format in [None, Some(Format::Common), Some(Format::Tsv), Some(Format::WorldCup)] {
        let Ok((trace, _)) = Trace::read(bytes, format) else { continue };
        assert!(trace.requests.iter().all(|request| (request.object as usize) < trace.objects.len()));
        assert!(trace.requests.iter().all(|request| request.client < trace.clients));
        assert!(trace.objects.len() <= trace.requests.len());
        let lines = bytes.iter().filter(|&&byte| byte == b'\n').count() + 1;
        assert!(trace.requests.len() <= lines.max(bytes.len() / 20));
        let sessions = Sessions::of(&trace, &SessionConfig::default());
        assert_eq!(sessions.requests_len(), trace.requests.len());
    }
}
