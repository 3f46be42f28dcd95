//! Somebody who answers in a target's place: a portal that logs everybody in without a proof.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use nicache_initiator::{Credentials, IscsiLun, IscsiOptions, TargetUrl, discover};

/// Opcodes of PDUs (RFC 7143, section 11.2.1.2).
const SCSI_COMMAND: u8 = 0x01;
const LOGIN: u8 = 0x03;
const LOGGED_IN: u8 = 0x23;
const SCSI_RESPONSE: u8 = 0x21;
/// A reply to a login: into the full-feature phase, out of the one in which parameters are agreed
/// on; and into that one, out of the one in which both sides prove themselves (RFC 7143, section
/// 11.13).
const TO_FULL_FEATURE: u8 = 0x87;
const TO_PARAMETERS: u8 = 0x81;
const TARGET: &str = "iqn.2026-11.com.example:disk";

/// How the portal answers logins: flags and keys, each once, and then `TO_FULL_FEATURE` without
/// keys.
type Replies = &'static [(u8, &'static [u8])];

/// A portal that takes every initiator and every command, and has nothing.
fn portal(replies: Replies) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((client, _)) = listener.accept() {
            std::thread::spawn(move || serve(client, replies));
        }
    });
    address
}

fn serve(mut client: TcpStream, replies: Replies) -> io::Result<()> {
    let mut replies = replies.iter();
    for number in 0.. {
        let mut call = [0; 48];
        client.read_exact(&mut call)?;
        let data = u32::from_be_bytes([0, call[5], call[6], call[7]]) as usize;
        let bytes = usize::from(call[4]) * 4 + data.next_multiple_of(4);
        client.read_exact(&mut vec![0; bytes])?;
        let (opcode, flags, keys) = match call[0] & 0x3F {
            LOGIN => {
                let (flags, keys) = replies.next().copied().unwrap_or((TO_FULL_FEATURE, &[]));
                (LOGGED_IN, flags, keys)
            }
            SCSI_COMMAND => (SCSI_RESPONSE, 0x80, &[][..]),
            _ => return Ok(()),
        };
        let mut reply = [0; 48];
        (reply[0], reply[1]) = (opcode, flags);
        reply[5..8].copy_from_slice(&(keys.len() as u32).to_be_bytes()[1..]);
        // The task's tag; the numbers of this reply, of the next command and of the last. A login
        // takes none of these.
        reply[16..20].copy_from_slice(&call[16..20]);
        reply[24..28].copy_from_slice(&u32::to_be_bytes(number));
        let own = u32::from_be_bytes([call[24], call[25], call[26], call[27]]);
        let next = own.wrapping_add(u32::from(opcode == SCSI_RESPONSE));
        reply[28..32].copy_from_slice(&next.to_be_bytes());
        reply[32..36].copy_from_slice(&next.wrapping_add(32).to_be_bytes());
        let mut reply = reply.to_vec();
        reply.extend_from_slice(keys);
        reply.resize(reply.len().next_multiple_of(4), 0);
        client.write_all(&reply)?;
    }
    Ok(())
}

fn credentials(user: &str, password: &str) -> Option<Credentials> {
    Some(Credentials { user: user.to_owned(), password: password.to_owned() })
}

/// What comes of opening a unit there, of which a proof is asked.
fn open(replies: Replies) -> String {
    let mut url: TargetUrl = format!("iscsi://{}/{TARGET}/1", portal(replies)).parse().unwrap();
    url.credentials = credentials("initiator", "secret-of-12-letters");
    url.target_credentials = credentials("target", "another-secret-12");
    let options = IscsiOptions { login_max: Duration::from_secs(60), ..IscsiOptions::default() };
    IscsiLun::open(&url, &options).map(drop).unwrap_err().to_string()
}

#[test]
fn a_target_that_skips_its_proof_is_refused() {
    let told = open(&[]);
    assert!(told.contains("did not prove who it is"), "{told}");
}

#[test]
fn zeroes_before_any_challenge_are_no_proof() {
    const ZEROES: Replies =
        &[(TO_PARAMETERS, b"CHAP_N=target\0CHAP_R=0x00000000000000000000000000000000\0")];
    let told = open(ZEROES);
    assert!(told.contains("did not prove who it is"), "{told}");
}

#[test]
fn a_portal_that_skips_its_proof_is_not_believed_what_it_lists() {
    let own = credentials("initiator", "secret-of-12-letters");
    let target = credentials("target", "another-secret-12");
    let told = discover(
        &portal(&[]).to_string(),
        own.as_ref(),
        target.as_ref(),
        "iqn.2026-11.org.nicache:test",
        Duration::from_secs(60),
    );
    let told = told.unwrap_err().to_string();
    assert!(told.contains("did not prove who it is"), "{told}");
}
