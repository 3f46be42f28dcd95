//! Forwarding between ports where whole frames are at hand: the mode without a card, and the base
//! that the others are compared with.

use std::io::{self, IoSlice};

use nicache_port::{Burst, FrameBuf, Offload, Port, send_with_fallback};
use nicache_tcp::Time;
use nicache_tcp::checksum::sum;

use crate::cutting;
use crate::decision::{Decision, Head, Incoming, Moment, Outgoing};
use crate::forwarder::Forwarder;
use crate::segmenting;
use crate::waiting::{FRAMES_MAX, WAITING_FOR, Waiting};

/// What has been sent, and what not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyingCounters {
    /// Frames that a port took.
    pub sent: u64,
    /// Frames that a port did not take.
    pub send_failed: u64,
    /// Frames that waited for a neighbour and were sent then.
    pub held: u64,
    /// Frames that waited for a neighbour in vain.
    pub held_lost: u64,
}

#[derive(Debug)]
struct Held {
    frame: FrameBuf,
    port: u8,
}

/// Forwards between ports where whole frames are at hand: the mode without a card. Ports are
/// numbered as the interfaces of the forwarder name them.
#[derive(Debug)]
pub struct Copying<P> {
    forwarder: Forwarder,
    ports: Vec<P>,
    burst: Burst,
    head: Head,
    held: Waiting<Held>,
    spare: Vec<FrameBuf>,
    counters: CopyingCounters,
}

impl<P: Port> Copying<P> {
    /// Between ports, so many frames of each in a turn.
    pub fn new(forwarder: Forwarder, ports: Vec<P>, burst: usize) -> Self {
        Self {
            forwarder,
            ports,
            burst: Burst::new(burst),
            head: Head::new(),
            held: Waiting::new(),
            // One more comes in before another one goes.
            spare: (0..=FRAMES_MAX).map(|_| FrameBuf::new()).collect(),
            counters: CopyingCounters::default(),
        }
    }

    /// The forwarder that decides.
    pub fn forwarder(&self) -> &Forwarder {
        &self.forwarder
    }

    /// The forwarder, for changes.
    pub fn forwarder_mut(&mut self) -> &mut Forwarder {
        &mut self.forwarder
    }

    /// The ports that frames cross.
    pub fn ports(&self) -> &[P] {
        &self.ports
    }

    /// What has been sent.
    pub fn counters(&self) -> &CopyingCounters {
        &self.counters
    }

    /// One turn over all ports; returns how many frames there were. `random` is called for each
    /// frame.
    ///
    /// # Errors
    /// A port is broken.
    pub fn turn(&mut self, now: Time, mut random: impl FnMut() -> u32) -> io::Result<usize> {
        let mut frames = 0;
        self.forwarder.expire(now);
        let learned = self.forwarder.learned();
        for port in 0..self.ports.len() {
            frames += self.ports[port].receive(&mut self.burst)?;
            let burst = std::mem::replace(&mut self.burst, Burst::new(0));
            for frame in &burst {
                let moment = Moment { now, random: random() };
                self.pass(
                    frame.data(),
                    frame.offload(),
                    port as u8,
                    moment,
                    Some(now + WAITING_FOR),
                );
            }
            self.burst = burst;
        }
        if self.forwarder.learned() != learned || self.held.is_due(now) {
            self.try_again(now, &mut random);
        }
        while let Some((interface, question)) = self.forwarder.poll_question() {
            self.send(interface, &question, &[], Offload::default());
        }
        while let Some((interface, frame)) = self.forwarder.poll_own() {
            self.send(interface, &frame, &[], Offload::default());
        }
        for port in &mut self.ports {
            port.flush()?;
        }
        Ok(frames)
    }

    /// False: it has to wait. `until`: how long it may be held.
    fn pass(
        &mut self,
        data: &[u8],
        offload: Offload,
        port: u8,
        moment: Moment,
        until: Option<Time>,
    ) -> bool {
        let mut head = std::mem::take(&mut self.head);
        let incoming = Incoming { look: data, len: data.len(), port, offload };
        let decision = match self.forwarder.handle(&incoming, &mut head, moment) {
            Decision::Look => self.forwarder.handle_whole(&incoming, &mut head, moment),
            other => other,
        };
        let waits = decision == Decision::Wait;
        match decision {
            Decision::Forward(out) => self.send_out(&head, data, out),
            Decision::Cut { whole, network_at, mtu } => {
                self.send_cut(&mut head, data, whole, network_at, mtu);
            }
            Decision::Segment { whole, network_at } => {
                self.send_segments(&mut head, data, whole, network_at);
            }
            Decision::Answer { interface } => self.send(interface, &head, &[], Offload::default()),
            Decision::FanOut { group, targets } => {
                for target in 0..targets {
                    let one =
                        self.forwarder.fan_out(&incoming, (group, target), &mut head, moment.now);
                    match one {
                        Decision::Forward(out) => self.send_out(&head, data, out),
                        Decision::Cut { whole, network_at, mtu } => {
                            self.send_cut(&mut head, data, whole, network_at, mtu);
                        }
                        Decision::Answer { interface } => {
                            self.send(interface, &head, &[], Offload::default());
                        }
                        _ => {}
                    }
                }
            }
            Decision::Wait => {
                if let Some(until) = until {
                    self.hold(data, offload, port, until, moment.now);
                }
            }
            Decision::Look | Decision::Taken | Decision::Drop(_) => {}
        }
        self.head = head;
        !waits
    }

    fn hold(&mut self, data: &[u8], offload: Offload, port: u8, until: Time, now: Time) {
        let Some(mut frame) = self.spare.pop() else { return self.forwarder.give_up() };
        if frame.copy_from(&[IoSlice::new(data)], offload).is_ok() {
            self.wait(Held { frame, port }, until, now);
        } else {
            self.forwarder.give_up();
            self.spare.push(frame);
        }
    }

    fn wait(&mut self, held: Held, until: Time, now: Time) {
        if let Some(lost) = self.held.add(held, self.forwarder.waits_for(), until, now) {
            self.counters.held_lost += 1;
            self.forwarder.give_up();
            self.spare.push(lost.frame);
        }
    }

    fn try_again(&mut self, now: Time, random: &mut impl FnMut() -> u32) {
        for _ in 0..self.held.len() {
            let Some((held, until)) = self.held.take() else { break };
            let moment = Moment { now, random: random() };
            if self.pass(held.frame.data(), held.frame.offload(), held.port, moment, None) {
                self.counters.held += 1;
                self.spare.push(held.frame);
            } else {
                self.wait(held, until, now);
            }
        }
    }

    fn send_out(&mut self, head: &[u8], data: &[u8], out: Outgoing) {
        self.send(out.interface, head, &data[out.rest], out.offload);
    }

    fn send_cut(
        &mut self,
        head: &mut Head,
        data: &[u8],
        whole: Outgoing,
        network_at: usize,
        mtu: u32,
    ) {
        let Outgoing { interface, rest, offload } = whole;
        let Some(offload) = cutting::complete(head, network_at, offload, sum(&data[rest.clone()]))
        else {
            self.counters.send_failed += 1;
            return;
        };
        let mut one = Head::new();
        for number in 0.. {
            let Some(range) = cutting::piece(head, network_at, &rest, mtu, number, &mut one) else {
                break;
            };
            self.send(interface, &one, &data[range], offload);
        }
    }

    /// Sends a packet as a super-frame, or as it is if its checksum is wrong.
    fn send_segments(&mut self, head: &mut Head, data: &[u8], whole: Outgoing, network_at: usize) {
        let Outgoing { interface, rest, offload } = whole;
        let rest = &data[rest];
        let opened = segmenting::open_checksum(head, network_at, offload, (rest.len(), sum(rest)));
        let offload = opened.unwrap_or(Offload { gso: None, ..offload });
        self.send(interface, head, rest, offload);
    }

    fn send(&mut self, interface: usize, head: &[u8], rest: &[u8], offload: Offload) {
        let port = usize::from(self.forwarder.interfaces()[interface].port);
        let parts = [IoSlice::new(head), IoSlice::new(rest)];
        let parts = if rest.is_empty() { &parts[..1] } else { &parts[..] };
        match self.ports.get_mut(port).map(|port| send_with_fallback(port, parts, offload)) {
            Some(Ok(_)) => self.counters.sent += 1,
            _ => self.counters.send_failed += 1,
        }
    }
}
