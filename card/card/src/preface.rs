//! Takes the header of the PROXY protocol off a connection's first bytes, and hands it to the host
//! in front of the first request that goes there.

use nicache_coherence::Rule;
use nicache_http::{ClientClass, Preface, Signs, Tokens, Trait, parse_preface};
use nicache_port::Port;
use nicache_tcp::Time;

use crate::card::Card;
use crate::flow::preface::{FlowPreface, PREFACE_PATIENCE};
use crate::flow::{Flow, HostPhase, Phase};
use crate::timers::DELAYED_ACK;

/// What the first bytes of a connection are.
pub(crate) enum Opening {
    /// Nothing is known yet.
    Partial,
    /// So many bytes are a header, which is kept; 0: there is none.
    Taken(usize),
    /// Nobody knows what follows.
    Unclear,
}

impl<W: Port, H: Port> Card<W, H> {
    /// Looks at the first bytes of a connection. Nothing is done a second time.
    #[inline]
    pub(crate) fn take_preface(&mut self, flow: &mut Flow, bytes: &[u8], now: Time) -> Opening {
        if !matches!(flow.preface, FlowPreface::Unread) || bytes.is_empty() {
            return Opening::Taken(0);
        }
        match parse_preface(bytes) {
            Preface::Absent => {
                flow.preface = FlowPreface::Absent;
                Opening::Taken(0)
            }
            Preface::Partial => Opening::Partial,
            Preface::Malformed => Opening::Unclear,
            Preface::Header(header) => {
                let kept = self.prefaces.keep(
                    &bytes[..header.len],
                    header.version,
                    header.client.is_some(),
                    now,
                );
                let Some(kept) = kept else { return Opening::Unclear };
                flow.preface = FlowPreface::Header(kept);
                self.counters.proxy_headers += 1;
                // Carried by the reply, if that comes soon.
                flow.ack_due = flow.ack_due.or(Some(now + DELAYED_ACK));
                Opening::Taken(header.len)
            }
        }
    }

    /// Puts the header in front of what is held for the host, if this has yet to get it. Returns
    /// how many bytes it has.
    pub(crate) fn prepend_preface(&mut self, flow: &mut Flow) -> usize {
        let FlowPreface::Header(kept) = &mut flow.preface else { return 0 };
        if !kept.is_owed {
            return 0;
        }
        if flow.hold.is_none() {
            flow.hold = self.holds.take();
        }
        let Some(hold) = &mut flow.hold else { return 0 };
        let bytes = self.prefaces.bytes(kept);
        if !hold.prepend(bytes) {
            return 0;
        }
        kept.is_owed = false;
        bytes.len()
    }

    /// When the host gets the header although no request has come.
    pub(crate) fn preface_due(&self, flow: &Flow) -> Option<Time> {
        let kept = flow.preface.header().filter(|kept| kept.is_owed)?;
        let is_alone =
            flow.phase == Phase::Requests && flow.last_hit.is_none() && flow.hold.is_none();
        is_alone.then_some(kept.since + PREFACE_PATIENCE)
    }

    /// Gives it then.
    pub(crate) fn hand_over_preface(&mut self, flow: &mut Flow, now: Time) {
        let is_due = self.preface_due(flow).is_some_and(|due| now >= due);
        if is_due
            && flow.may_hand_over()
            && matches!(flow.host.phase, HostPhase::Open | HostPhase::Absent)
        {
            self.hand_to_host(flow, 0, now);
        }
    }

    /// The client's class, by the class that its fields have and the signs of a proxy among them.
    #[inline]
    pub(crate) fn class_of(
        &self,
        flow: &Flow,
        mut class: ClientClass,
        signs: Signs,
    ) -> ClientClass {
        let preface = flow.preface.of_class();
        if (!signs.is_empty() || preface.is_some()) && Rule::Proxies.holds() {
            class.0[Trait::Proxy as usize] =
                signs.class(flow.key.client.to_ip(), preface, &self.config.keys);
        }
        class
    }

    /// What in the request is of one client or one request alone.
    pub(crate) fn tokens_of(&self, flow: &Flow, headers: &[nicache_http::Header<'_>]) -> Tokens {
        let mut tokens = Tokens::of(headers, &self.config.keys);
        if let Some(client) = self.prefaces.client(&flow.preface) {
            tokens.add_address(client, &self.config.keys);
        }
        tokens
    }
}
