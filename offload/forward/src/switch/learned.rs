//! What the back ends of a service have said in their SYN-ACKs, for what its next clients are
//! offered: their handshakes are answered before a back end is chosen.

use nicache_tcp::SynOptions;
use nicache_tcp::handshake::{MSS_DEFAULT_V4, MSS_DEFAULT_V6, MSS_MIN, TIMESTAMPS_BYTES};

/// What the back ends of a service have said in their SYN-ACKs, for what its next clients are
/// offered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Learned {
    service: u16,
    /// The shortest segments that one of them takes (RFC 9293 section 3.7.1).
    mss: u16,
    /// One of them uses timestamps; one of them was asked for some, and does not.
    has_stamped: bool,
    has_unstamped: bool,
}

/// Of all services.
#[derive(Debug, Default)]
pub(super) struct AllLearned(Vec<Learned>);

impl AllLearned {
    /// A back end of a service has answered `asked` with `answer`.
    pub(super) fn handle_answer(
        &mut self,
        service: u16,
        asked: &SynOptions,
        answer: &SynOptions,
        is_v6: bool,
    ) {
        let mss = mss_of(answer, is_v6);
        let place =
            self.0.iter().position(|learned| learned.service == service).unwrap_or_else(|| {
                self.0.push(Learned { service, mss, has_stamped: false, has_unstamped: false });
                self.0.len() - 1
            });
        let learned = &mut self.0[place];
        learned.mss = learned.mss.min(mss);
        if asked.timestamps.is_some() {
            learned.has_stamped |= answer.timestamps.is_some();
            learned.has_unstamped |= answer.timestamps.is_none();
        }
    }

    fn of(&self, service: u16) -> Option<&Learned> {
        self.0.iter().find(|learned| learned.service == service)
    }

    /// The size of segments that clients of a service are told, of at most `mss`.
    pub(super) fn mss(&self, service: u16, mss: u16) -> u16 {
        self.of(service).map_or(mss, |learned| learned.mss.min(mss))
    }

    /// Whether clients of a service are offered timestamps.
    pub(super) fn offers_timestamps(&self, service: u16) -> bool {
        self.of(service).is_none_or(|learned| !learned.has_unstamped)
    }

    /// What a back end is asked in the name of a client that has asked for this. Where none has
    /// shown yet that it uses timestamps, there is to be room for those that are put in.
    pub(super) fn question(&self, service: u16, asked: SynOptions) -> SynOptions {
        let is_sure = asked.timestamps.is_none()
            || self.of(service).is_some_and(|learned| learned.has_stamped);
        let less = if is_sure { 0 } else { TIMESTAMPS_BYTES };
        SynOptions { mss: asked.mss.map(|mss| mss.max(MSS_MIN + less) - less), ..asked }
    }
}

/// The size of segments that somebody takes, who has said this, options not deducted.
pub(super) fn mss_of(said: &SynOptions, is_v6: bool) -> u16 {
    said.mss.unwrap_or(if is_v6 { MSS_DEFAULT_V6 } else { MSS_DEFAULT_V4 }).max(MSS_MIN)
}
