//! An authenticated, encrypted stream of messages: TCP with the Noise protocol, pattern `NNpsk0`
//! (Noise Protocol Framework, revision 34).
//!
//! Both sides know the key; each connection has fresh keys of its own besides, so nothing
//! recorded can be read later or repeated. A frame is a length of two bytes, big-endian, and one
//! Noise message of that length.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use snow::{Builder, StatelessTransportState};

use crate::key::Key;
use crate::message::MESSAGE_BYTES_MAX;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// Both sides speak the same version.
const PROLOGUE: &[u8] = b"nicache relay 1";
/// How long the handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(3);
/// Bytes of an encrypted message's check.
const TAG_BYTES: usize = 16;
const FRAME_BYTES_MAX: usize = MESSAGE_BYTES_MAX + TAG_BYTES;

fn refused(error: snow::Error) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("not with this key: {error}"))
}

/// Sends messages. What it does not send at once because the other side does not read is an error.
#[derive(Debug)]
pub struct Sender {
    stream: TcpStream,
    cipher: Arc<StatelessTransportState>,
    count: u64,
    out: Vec<u8>,
}

/// The end of an encrypted channel that receives messages.
#[derive(Debug)]
pub struct Receiver {
    stream: TcpStream,
    cipher: Arc<StatelessTransportState>,
    count: u64,
    buffer: Vec<u8>,
    plain: Vec<u8>,
}

/// The side that has connected.
///
/// # Errors
/// What the stream says; [`io::ErrorKind::PermissionDenied`]: the other side has another key.
pub fn initiate(stream: TcpStream, key: &Key) -> io::Result<(Sender, Receiver)> {
    let mut noise = builder(key).and_then(Builder::build_initiator).map_err(refused)?;
    prepare(&stream)?;
    let mut message = [0; 256];
    let len = noise.write_message(&[], &mut message).map_err(refused)?;
    write_frame(&stream, &message[..len])?;
    let answer = read_handshake(&stream)?;
    noise.read_message(&answer, &mut message).map_err(refused)?;
    finish(stream, noise)
}

/// The side that was connected to.
///
/// # Errors
/// As [`initiate`].
pub fn respond(stream: TcpStream, key: &Key) -> io::Result<(Sender, Receiver)> {
    let mut noise = builder(key).and_then(Builder::build_responder).map_err(refused)?;
    prepare(&stream)?;
    let mut message = [0; 256];
    let first = read_handshake(&stream)?;
    noise.read_message(&first, &mut message).map_err(refused)?;
    let len = noise.write_message(&[], &mut message).map_err(refused)?;
    write_frame(&stream, &message[..len])?;
    finish(stream, noise)
}

fn builder(key: &Key) -> Result<Builder<'_>, snow::Error> {
    let pattern = PATTERN.parse()?;
    Builder::new(pattern).prologue(PROLOGUE)?.psk(0, &key.0)
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(HANDSHAKE))?;
    stream.set_write_timeout(Some(HANDSHAKE))
}

fn finish(stream: TcpStream, noise: snow::HandshakeState) -> io::Result<(Sender, Receiver)> {
    let cipher = Arc::new(noise.into_stateless_transport_mode().map_err(refused)?);
    let sender = Sender {
        stream: stream.try_clone()?,
        cipher: Arc::clone(&cipher),
        count: 0,
        out: Vec::new(),
    };
    let receiver =
        Receiver { stream, cipher, count: 0, buffer: Vec::new(), plain: vec![0; FRAME_BYTES_MAX] };
    Ok((sender, receiver))
}

fn write_frame(mut stream: &TcpStream, message: &[u8]) -> io::Result<()> {
    let len = u16::try_from(message.len()).map_err(io::Error::other)?;
    stream.write_all(&[&len.to_be_bytes(), message].concat())
}

/// A handshake message is short; whoever sends it byte by byte gets no extra time for it.
fn read_handshake(mut stream: &TcpStream) -> io::Result<Vec<u8>> {
    let deadline = std::time::Instant::now() + HANDSHAKE;
    let mut read = |bytes: &mut [u8]| -> io::Result<()> {
        let mut at = 0;
        while at < bytes.len() {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(Some(left))?;
            match stream.read(&mut bytes[at..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => at += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    };
    let mut len = [0; 2];
    read(&mut len)?;
    let len = usize::from(u16::from_be_bytes(len));
    if len > 128 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "no handshake"));
    }
    let mut message = vec![0; len];
    read(&mut message)?;
    Ok(message)
}

impl Sender {
    /// Puts a message into the next [`Sender::flush`].
    ///
    /// # Errors
    /// The message is too long.
    pub fn push(&mut self, message: &[u8]) -> io::Result<()> {
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(io::Error::other("a message is too long"));
        }
        let at = self.out.len();
        self.out.resize(at + 2 + message.len() + TAG_BYTES, 0);
        let len = self
            .cipher
            .write_message(self.count, message, &mut self.out[at + 2..])
            .map_err(refused)?;
        let prefix = u16::try_from(len).map_err(io::Error::other)?;
        self.out[at..at + 2].copy_from_slice(&prefix.to_be_bytes());
        self.out.truncate(at + 2 + len);
        self.count += 1;
        Ok(())
    }

    /// Sends what was pushed.
    ///
    /// # Errors
    /// What the stream says; nothing can be sent any longer then.
    pub fn flush(&mut self) -> io::Result<()> {
        let sent = self.stream.write_all(&self.out);
        self.out.clear();
        sent
    }

    /// How long a [`Sender::flush`] may take.
    ///
    /// # Errors
    /// What the socket says.
    pub fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.stream.set_write_timeout(Some(timeout))
    }

    /// Ends the connection for both directions.
    pub fn close(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

impl Receiver {
    /// How long a [`Receiver::receive`] waits.
    ///
    /// # Errors
    /// What the socket says.
    pub fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(timeout))
    }

    /// Waits for bytes, and gives all messages that are whole to `take`. False: nothing came within
    /// the time.
    ///
    /// # Errors
    /// What the stream says, [`io::ErrorKind::UnexpectedEof`] at its end,
    /// [`io::ErrorKind::PermissionDenied`] for what was not encrypted by the other side for this
    /// place in the stream, and what `take` says.
    pub fn receive(&mut self, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<bool> {
        let at = self.buffer.len();
        self.buffer.resize(at + FRAME_BYTES_MAX + 2, 0);
        let read = self.stream.read(&mut self.buffer[at..]);
        self.buffer.truncate(at + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) => {
                use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
                return match error.kind() {
                    Interrupted => Ok(true),
                    WouldBlock | TimedOut => Ok(false),
                    _ => Err(error),
                };
            }
        }
        let mut begin = 0;
        while let Some(prefix) = self.buffer[begin..].first_chunk() {
            let len = usize::from(u16::from_be_bytes(*prefix));
            let Some(frame) = self.buffer.get(begin + 2..begin + 2 + len) else { break };
            let plain =
                self.cipher.read_message(self.count, frame, &mut self.plain).map_err(refused)?;
            self.count += 1;
            begin += 2 + len;
            take(&self.plain[..plain])?;
        }
        self.buffer.drain(..begin);
        Ok(true)
    }
}
