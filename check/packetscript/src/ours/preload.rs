//! Objects come into the card's memory as ever: a client asks for them, and the host's reply is
//! kept.

use std::time::Duration;

use crate::backend::{Backend, BackendError};
use crate::content;
use crate::endpoint;
use crate::option::TcpOption;
use crate::packet::{Frame, Packet, read};
use crate::script::{Method, Object, Request, Setup};

/// How long one object may take.
const TIME_MAX: Duration = Duration::from_secs(30);
const CLIENT_ISN: u32 = 5_000;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 0x10;

/// A card and its host, as far as this matters here.
pub(super) trait Keeper: Backend {
    /// Replies that the card has kept so far.
    fn stored(&self) -> u64;

    /// What the card counted, for an error.
    fn why_not(&self) -> String;
}

/// A client that has asked for one object.
struct Stranger {
    port: u16,
    ip: u8,
    seq: u32,
    /// Number of the server's next byte.
    ack: u32,
    received: usize,
}

/// Has the card keep the reply to each request of the script. A request that asks for the
/// connection's end has an entry of its own.
pub(super) fn preload(ours: &mut dyn Keeper, setup: &Setup) -> Result<(), BackendError> {
    let mut known: Vec<(&str, bool)> = Vec::new();
    for request in setup.streams.iter().flat_map(|(_, requests)| requests) {
        let key = (&*request.path, request.closes);
        let object = setup.objects.iter().find(|object| object.path == request.path);
        let Some(object) =
            object.filter(|_| request.method == Method::Get && !known.contains(&key))
        else {
            continue;
        };
        keep(ours, object, request.closes, setup.ip, known.len() as u16)?;
        known.push(key);
    }
    Ok(())
}

fn keep(
    ours: &mut dyn Keeper,
    object: &Object,
    closes: bool,
    ip: u8,
    number: u16,
) -> Result<(), BackendError> {
    let stored = ours.stored();
    let mut client = Stranger { port: 30_000 + number, ip, seq: CLIENT_ISN, ack: 0, received: 0 };
    client.send(ours, SYN, Vec::new())?;
    client.seq += 1;
    let until = ours.now() + TIME_MAX;
    let get = Request {
        method: Method::Get,
        path: object.path.clone(),
        head_bytes: 200,
        body_bytes: 0,
        closes,
    };
    while client.received < object.reply_bytes {
        let Some((_, frame)) = ours.receive(until)? else {
            let why = format!("{} of {} bytes have come", client.received, object.reply_bytes);
            return Err(BackendError::NotKept(object.path.clone(), why));
        };
        let Frame::Tcp(packet) = read(&frame) else { continue };
        if packet.flags & SYN != 0 {
            client.ack = packet.seq.wrapping_add(1);
            client.send(ours, ACK, Vec::new())?;
            let request = content::request(&get);
            let len = request.len() as u32;
            client.send(ours, ACK, request)?;
            client.seq += len;
        } else if !packet.payload.is_empty() {
            if packet.seq == client.ack {
                client.ack = client.ack.wrapping_add(packet.payload.len() as u32);
                client.received += packet.payload.len();
            }
            client.send(ours, ACK, Vec::new())?;
        }
    }
    // The verdict comes before the connection ends, and then everything else that is under way.
    wait(ours)?;
    client.send(ours, RST | ACK, Vec::new())?;
    wait(ours)?;
    if ours.stored() == stored {
        Err(BackendError::NotKept(object.path.clone(), ours.why_not()))
    } else {
        Ok(())
    }
}

fn wait(ours: &mut dyn Keeper) -> Result<(), BackendError> {
    let until = ours.now() + Duration::from_secs(1);
    while ours.receive(until)?.is_some() {}
    Ok(())
}

impl Stranger {
    fn send(&self, ours: &mut dyn Keeper, flags: u8, payload: Vec<u8>) -> Result<(), BackendError> {
        let syn = flags & SYN != 0;
        let packet = Packet {
            source: endpoint::stranger(self.ip),
            destination: endpoint::server(self.ip),
            ecn: 0,
            source_port: self.port,
            destination_port: endpoint::SERVER_PORT,
            seq: self.seq,
            ack: self.ack,
            flags,
            window: u16::MAX,
            urgent: 0,
            options: if syn { vec![TcpOption::Mss(1400)] } else { Vec::new() },
            payload,
        };
        ours.send(&packet.frame())
    }
}
