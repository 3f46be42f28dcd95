//! What the card does about clients that take their time ([`nicache_tcp::patience`]).

use std::time::Duration;

use nicache_cache::FillAbort;
use nicache_port::Port;
use nicache_tcp::patience::{Impatience, KeepAliveRules, KeepAliveStep};
use nicache_tcp::{Flags, Time, earliest};

use crate::card::{Card, Keep};
use crate::flow::{Flow, HostPhase, Phase};
use crate::limits::{FILL_BYTES_PER_SECOND, FILL_LOOK};
use crate::timers::FIN_WAIT;

/// How long a client must have been silent for its connection to give way to another one.
const SILENT_MIN: Duration = Duration::from_secs(5);
/// How long a client that has not acknowledged all must have been silent for its connection to give
/// way to another one: longer than several repetitions that are lost.
const SILENT_OWING_MIN: Duration = Duration::from_secs(30);
/// How the host is asked whether it still knows a connection. Silence says little: its reset may
/// have been lost on the way to the card, or it has taken one that the card did not believe. It is
/// next door, so asking costs little, and the client hears nothing of it.
const ASKING_HOST: KeepAliveRules =
    KeepAliveRules { idle: Duration::from_secs(300), interval: Duration::from_secs(10), probes: 5 };
/// Places of the flow table looked at for such a connection.
const SILENT_TRIES: usize = 32;

impl<W: Port, H: Port> Card<W, H> {
    /// When a flow is to be looked at because of them.
    pub(crate) fn patience_deadline(&self, flow: &Flow) -> Option<Time> {
        let rules = &self.config.patience;
        let reading = if flow.card_speaks() {
            flow.reading.next_timeout(&rules.read, flow.sender.window_closed_since())
        } else {
            None
        };
        let keep_alive = is_probed(flow).then(|| flow.keep_alive.next_timeout(&rules.keep_alive));
        let host = is_host_asked(flow).then(|| flow.host_alive.next_timeout(&ASKING_HOST));
        let fin_wait = flow.fin_wait.map(|since| since + FIN_WAIT);
        let fill = flow.fill.is_some().then(|| flow.fill_looked_at.0 + FILL_LOOK);
        earliest([
            fill,
            reading,
            keep_alive,
            host,
            fin_wait,
            flow.head_timer.next_timeout(rules.head),
        ])
    }

    /// Whether the client of a flow has had its time.
    pub(crate) fn lose_patience(&mut self, flow: &mut Flow, now: Time) -> Option<Impatience> {
        let rules = self.config.patience;
        if let Some(slow) = flow.head_timer.handle_timeout(rules.head, now) {
            return Some(slow);
        }
        if flow.card_speaks()
            && let Some(slow) =
                flow.reading.handle_timeout(&rules.read, flow.sender.window_closed_since(), now)
        {
            return Some(slow);
        }
        if flow.fin_wait.is_some_and(|since| now >= since + FIN_WAIT) {
            return Some(Impatience::Gone);
        }
        if is_probed(flow) {
            match flow.keep_alive.handle_timeout(&rules.keep_alive, now) {
                KeepAliveStep::Wait => {}
                KeepAliveStep::Gone => return Some(Impatience::Gone),
                KeepAliveStep::Probe => {
                    if matches!(flow.phase, Phase::Opaque(_)) {
                        // What the host has taken since the card stopped to follow.
                        flow.rcv_nxt =
                            flow.rcv_nxt.max(flow.splice.in_to_client(flow.host_acked_in));
                    }
                    let seq = crate::transmit::out_position(flow) - 1;
                    self.send_to_client(flow, seq, Flags::ACK, now);
                }
            }
        }
        None
    }

    /// Asks the host, if it is time to, whether it still knows the connection.
    pub(crate) fn ask_host(&mut self, flow: &mut Flow, now: Time) -> KeepAliveStep {
        if !is_host_asked(flow) {
            return KeepAliveStep::Wait;
        }
        let step = flow.host_alive.handle_timeout(&ASKING_HOST, now);
        if step == KeepAliveStep::Probe {
            self.send_host_probe(flow);
        }
        step
    }

    /// Gives up the fill of a reply whose client takes it too slowly. The reply goes on.
    pub(crate) fn look_at_fill(&mut self, flow: &mut Flow, now: Time) {
        let (since, from) = flow.fill_looked_at;
        let time = now.since(since);
        if flow.fill.is_none() || time < FILL_LOOK {
            return;
        }
        let wanted = f64::from(FILL_BYTES_PER_SECOND) * time.as_secs_f64();
        // Not the server, which may take its time.
        let is_slow =
            flow.owes_acks() && f64::from(flow.host.rcv_nxt.saturating_since(from)) < wanted;
        if is_slow && let Some(fill) = flow.fill.take() {
            let key = self.fills.key_of(fill);
            self.fills.abort(
                fill,
                FillAbort::SlowClient,
                &mut self.store,
                &mut self.counters.cache,
            );
            // If all who ask read slowly, an entry that has lapsed would never come back: the card
            // asks for itself.
            if self.config.rechecker.is_some()
                && let Some(recheck) = key.and_then(|key| self.store.revive(&key, now))
            {
                self.rechecks.ask(recheck, &mut self.counters.cache);
            }
        }
        flow.fill_looked_at = (now, flow.host.rcv_nxt);
    }

    /// Ends a connection that is `wanted` and has been silent for long, to make room for another
    /// one: of some that are looked at the one that has been silent for longest.
    pub(crate) fn end_one_silent(&mut self, now: Time, wanted: impl Fn(&Flow) -> bool) {
        let ago = |time: Duration| Time(now.0.saturating_sub(time.as_nanos() as u64));
        let found =
            self.flows.find_silent(SILENT_TRIES, ago(SILENT_MIN), ago(SILENT_OWING_MIN), wanted);
        if let Some(index) = found {
            self.with_flow(index, now, |card, flow| card.end_silent(flow, now));
        }
    }

    fn end_silent(&mut self, flow: &mut Flow, now: Time) -> Keep {
        let is_idle = flow.phase == Phase::Requests
            && flow.host.phase == HostPhase::Absent
            && flow.output_idle()
            && flow.held() == 0
            && !flow.client_fin
            && !flow.card_fin;
        if is_idle {
            // As a server closes: what the client says to it is answered from the table of those
            // that are over.
            let seq = crate::transmit::out_position(flow);
            self.send_to_client(flow, seq, Flags::FIN | Flags::ACK, now);
            self.enter_time_wait(flow, seq + 1, now);
        } else {
            self.abort_client(flow, now);
            self.reset_host(flow);
        }
        self.counters.silent_evicted += 1;
        Keep::No
    }

    /// Ends a connection whose client has had its time. A client that has closed hears nothing of
    /// it: it has what was sent.
    pub(crate) fn end_impatiently(&mut self, flow: &mut Flow, why: Impatience, now: Time) -> Keep {
        let counters = &mut self.counters;
        *match why {
            Impatience::Gone => &mut counters.clients_gone,
            Impatience::SlowReader => &mut counters.clients_slow,
            Impatience::ClosedWindow => &mut counters.clients_window_closed,
            Impatience::SlowHead => &mut counters.clients_head_slow,
        } += 1;
        self.abort_client(flow, now);
        self.reset_host(flow);
        Keep::No
    }
}

/// Is the connection one whose client is asked whether it still lives? What is sent and not
/// acknowledged asks by itself, and what can be forgotten need not be asked.
fn is_probed(flow: &Flow) -> bool {
    is_shared(flow)
        && !flow.card_speaks()
        && !flow.lacks_acks()
        && !flow.is_closing()
        && !flow.is_forgettable()
}

/// Is the connection one whose host is asked whether it still knows it? A host that waits for an
/// acknowledgment repeats what it has sent by itself, and need not be asked.
fn is_host_asked(flow: &Flow) -> bool {
    is_shared(flow)
        && flow.host.sender.all_acked()
        && !flow.lacks_acks()
        && !flow.host.fin_passed
        && !flow.is_forgettable()
}

/// Do both ends know the connection?
fn is_shared(flow: &Flow) -> bool {
    matches!(flow.phase, Phase::Requests | Phase::Opaque(_)) && flow.host.phase == HostPhase::Open
}
