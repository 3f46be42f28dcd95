//! The port mapper, version 2 (RFC 1833, section 3): an own small one that knows this server's
//! programs, and registration with one that runs.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::protocol::{PORTMAP, Program};
use crate::rpc::Refusal;
use crate::xdr::{Reader, put};

/// Protocol number of TCP in the port mapper's calls.
pub const PROTOCOL_TCP: u32 = 6;
/// Protocol number of UDP in the port mapper's calls.
pub const PROTOCOL_UDP: u32 = 17;

/// Where a program is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// The program.
    pub program: Program,
    /// [`PROTOCOL_TCP`] or [`PROTOCOL_UDP`].
    pub protocol: u32,
    /// The port.
    pub port: u16,
}

/// Executes procedure number `procedure` and appends its results. Nobody can register anything
/// here.
pub fn execute(
    mappings: &[Mapping],
    procedure: u32,
    arguments: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Refusal> {
    let mut reader = Reader::new(arguments);
    let mut word = || reader.u32().map_err(|_| Refusal::GarbageArguments);
    match procedure {
        0 => {}
        1 | 2 => put::bool(out, false),
        3 => {
            let program = Program { number: word()?, version: word()? };
            let protocol = word()?;
            let of_number = |mapping: &&Mapping| {
                mapping.program.number == program.number && mapping.protocol == protocol
            };
            // A program of another version is told, too: it says itself which versions it has.
            let found =
                mappings.iter().filter(of_number).max_by_key(|mapping| mapping.program == program);
            put::u32(out, found.map_or(0, |mapping| mapping.port.into()));
        }
        4 => {
            for mapping in mappings {
                put::bool(out, true);
                let words = [
                    mapping.program.number,
                    mapping.program.version,
                    mapping.protocol,
                    mapping.port.into(),
                ];
                words.into_iter().for_each(|word| put::u32(out, word));
            }
            put::bool(out, false);
        }
        _ => return Err(Refusal::NoProcedure),
    }
    Ok(())
}

/// Tells the port mapper at `address` (usually 127.0.0.1:111) where programs are served, in place
/// of what it knew of them. An error also if it refuses.
pub fn register(address: SocketAddr, mappings: &[Mapping]) -> io::Result<()> {
    change(address, mappings, true)
}

/// Tells the port mapper at `address` that programs are no longer served.
pub fn unregister(address: SocketAddr, mappings: &[Mapping]) -> io::Result<()> {
    change(address, mappings, false)
}

fn change(address: SocketAddr, mappings: &[Mapping], is_set: bool) -> io::Result<()> {
    const TIMEOUT: Duration = Duration::from_secs(5);
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut xid = std::process::id();
    for mapping in mappings {
        for procedure in [2, 1] {
            if procedure == 1 && !is_set {
                continue;
            }
            xid = xid.wrapping_add(1);
            let is_done = call(&mut stream, xid, procedure, mapping)?;
            if procedure == 1 && !is_done {
                return Err(io::Error::other(format!(
                    "the port mapper refused port {}",
                    mapping.port
                )));
            }
        }
    }
    Ok(())
}

fn call(stream: &mut TcpStream, xid: u32, procedure: u32, mapping: &Mapping) -> io::Result<bool> {
    let mut out = Vec::new();
    let head =
        [0x8000_0000 | 56, xid, 0, 2, PORTMAP.number, PORTMAP.version, procedure, 0, 0, 0, 0];
    let arguments =
        [mapping.program.number, mapping.program.version, mapping.protocol, mapping.port.into()];
    head.into_iter().chain(arguments).for_each(|word| put::u32(&mut out, word));
    stream.write_all(&out)?;
    // A mark, the call's number, REPLY, MSG_ACCEPTED, no verifier, SUCCESS, and a boolean.
    let mut reply = [0; 32];
    stream.read_exact(&mut reply)?;
    let word = |i: usize| {
        u32::from_be_bytes([reply[4 * i], reply[4 * i + 1], reply[4 * i + 2], reply[4 * i + 3]])
    };
    if (word(0), word(1), word(2), word(3), word(6)) != (0x8000_0000 | 28, xid, 1, 0, 0) {
        return Err(io::Error::other("the port mapper gave an answer that is none"));
    }
    Ok(word(7) != 0)
}
