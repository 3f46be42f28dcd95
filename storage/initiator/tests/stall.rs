//! A target that answers some commands and not others, or is away for one gateway alone: Debian's
//! tgtd behind a relay that keeps answers back and cuts the link.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bytes::Bytes;
use nicache_initiator::{
    BLOCK_BYTES, IscsiLun, IscsiOptions, Lun as _, LunError, ReservationOptions,
};
use nicache_target::{NAME, Target, TargetOptions};

/// Beginnings of commands.
const SYNCHRONIZE_CACHE: &[u8] = &[0x35];
const WRITE: &[u8] = &[0x8A];
const PREEMPT: &[u8] = &[0x5F, 0x04];
/// Opcodes of PDUs (RFC 7143, section 11.2.1.2).
const SCSI_COMMAND: u8 = 0x01;
const SCSI_RESPONSE: u8 = 0x21;

#[derive(Default)]
struct Held {
    /// How the commands begin whose answers are kept back.
    command: Option<&'static [u8]>,
    answers: usize,
    is_cut: bool,
    connections: Vec<TcpStream>,
}

#[derive(Default)]
struct Relay {
    held: Mutex<Held>,
    changed: Condvar,
}

impl Relay {
    fn set(&self, command: Option<&'static [u8]>) {
        self.held.lock().unwrap().command = command;
        self.changed.notify_all();
    }

    /// Ends all connections, and takes no further ones.
    fn cut(&self) {
        let mut held = self.held.lock().unwrap();
        held.is_cut = true;
        for connection in held.connections.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    fn mend(&self) {
        self.held.lock().unwrap().is_cut = false;
    }

    fn until_held(&self) {
        let held = self.held.lock().unwrap();
        let limit = Duration::from_secs(100);
        let (held, _) =
            self.changed.wait_timeout_while(held, limit, |held| held.answers == 0).unwrap();
        assert!(held.answers > 0, "no such command comes");
    }

    fn serve(self: &Arc<Self>, listener: &TcpListener) {
        while let Ok((client, _)) = listener.accept() {
            let Ok(target) = TcpStream::connect("127.0.0.1:3260") else { continue };
            {
                let mut held = self.held.lock().unwrap();
                if held.is_cut {
                    continue;
                }
                held.connections.extend([client.try_clone().unwrap(), target.try_clone().unwrap()]);
            }
            let tasks = Arc::<Mutex<HashSet<[u8; 4]>>>::default();
            let (from, to) = (client.try_clone().unwrap(), target.try_clone().unwrap());
            let (relay, known) = (Arc::clone(self), Arc::clone(&tasks));
            std::thread::spawn(move || relay.pass_commands(from, to, &known));
            let relay = Arc::clone(self);
            std::thread::spawn(move || relay.pass_answers(target, client, &tasks));
        }
    }

    fn pass_commands(
        &self,
        mut from: TcpStream,
        mut to: TcpStream,
        tasks: &Mutex<HashSet<[u8; 4]>>,
    ) {
        while let Ok(pdu) = read_pdu(&mut from) {
            let held = self.held.lock().unwrap().command;
            if pdu[0] & 0x3F == SCSI_COMMAND && held.is_some_and(|held| pdu[32..].starts_with(held))
            {
                tasks.lock().unwrap().insert(task(&pdu));
            }
            if to.write_all(&pdu).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    }

    fn pass_answers(
        self: &Arc<Self>,
        mut from: TcpStream,
        to: TcpStream,
        tasks: &Mutex<HashSet<[u8; 4]>>,
    ) {
        let to = Arc::new(Mutex::new(to));
        while let Ok(pdu) = read_pdu(&mut from) {
            if pdu[0] & 0x3F == SCSI_RESPONSE && tasks.lock().unwrap().remove(&task(&pdu)) {
                let (relay, to) = (Arc::clone(self), Arc::clone(&to));
                std::thread::spawn(move || {
                    let mut held = relay.held.lock().unwrap();
                    held.answers += 1;
                    relay.changed.notify_all();
                    drop(relay.changed.wait_while(held, |held| held.command.is_some()).unwrap());
                    let _ = to.lock().unwrap().write_all(&pdu);
                });
            } else if to.lock().unwrap().write_all(&pdu).is_err() {
                break;
            }
        }
        let _ = to.lock().unwrap().shutdown(Shutdown::Both);
    }
}

fn task(pdu: &[u8]) -> [u8; 4] {
    pdu[16..20].try_into().unwrap()
}

/// One PDU (RFC 7143, section 11.2); no digests.
fn read_pdu(from: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut pdu = vec![0; 48];
    from.read_exact(&mut pdu)?;
    let data = u32::from_be_bytes([0, pdu[5], pdu[6], pdu[7]]) as usize;
    let bytes = 48 + usize::from(pdu[4]) * 4 + data.next_multiple_of(4);
    pdu.resize(bytes, 0);
    from.read_exact(&mut pdu[48..])?;
    Ok(pdu)
}

/// A target and a unit of it through a relay; None where there can be no target.
fn unit(options: &IscsiOptions) -> Option<(Target, tempfile::TempDir, Arc<Relay>, IscsiLun)> {
    if let Some(missing) = nicache_target::missing() {
        println!("skipped: there is no {missing}");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("unit");
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let target = Target::start(&image, &TargetOptions::default()).unwrap();
    target.enter().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("iscsi://{}/{NAME}/1", listener.local_addr().unwrap());
    let relay = Arc::new(Relay::default());
    let serving = Arc::clone(&relay);
    std::thread::spawn(move || serving.serve(&listener));
    let lun = IscsiLun::open(&url.parse().unwrap(), options).unwrap();
    Some((target, folder, relay, lun))
}

fn block() -> Bytes {
    Bytes::from(vec![7; BLOCK_BYTES])
}

#[test]
fn a_flush_may_take_longer_than_a_connection_may_be_silent() {
    let options = IscsiOptions { silence_max: Duration::from_secs(4), ..IscsiOptions::default() };
    let Some((_target, _folder, relay, lun)) = unit(&options) else { return };
    lun.write(0, &[block()]).unwrap();
    relay.set(Some(SYNCHRONIZE_CACHE));
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| lun.flush());
        relay.until_held();
        std::thread::sleep(Duration::from_secs(9));
        relay.set(None);
        flush.join().unwrap().unwrap();
    });
    assert_eq!(lun.sessions(), 1);
}

#[test]
fn a_write_that_is_never_answered_gives_the_unit_up_although_looks_are_answered() {
    let reservation = Some(ReservationOptions { identity: 1, take_over: false });
    let patience = Duration::from_secs(5);
    let options = IscsiOptions { patience, reservation, ..IscsiOptions::default() };
    let Some((_target, _folder, relay, lun)) = unit(&options) else { return };
    relay.set(Some(WRITE));
    let (done, result) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let written = lun.write(0, &[block()]);
        // The end of the unit does not wait either.
        drop(lun);
        let _ = done.send(written);
    });
    let error = result.recv_timeout(Duration::from_secs(100)).unwrap().unwrap_err();
    assert!(matches!(&error, LunError::Lost { .. }), "{error}");
    assert!(error.to_string().contains("does not answer a write"), "{error}");
}

/// The link breaks while a new session takes the unit from the one before, and once more.
#[test]
fn a_session_that_never_heard_that_it_took_the_unit_does_not_end_the_gateway() {
    let reservation = Some(ReservationOptions { identity: 1, take_over: false });
    let options = IscsiOptions { reservation, ..IscsiOptions::default() };
    let Some((_target, _folder, relay, lun)) = unit(&options) else { return };
    relay.set(Some(PREEMPT));
    relay.cut();
    relay.mend();
    relay.until_held();
    relay.cut();
    relay.set(None);
    relay.mend();
    lun.write(0, &[block()]).unwrap();
    assert_eq!((lun.sessions(), lun.lost()), (2, None));
}

/// A gateway is cut off, and its target loses its power. Another one comes, uses the unit and goes,
/// so nobody has the unit, and what this one would write again is older than what is there.
#[test]
fn a_unit_that_another_gateway_used_and_left_is_not_taken_back() {
    let reserved = |machine: &str, identity| IscsiOptions {
        initiator: format!("iqn.2026-11.org.nicache:{machine}"),
        reservation: Some(ReservationOptions { identity, take_over: false }),
        ..IscsiOptions::default()
    };
    let Some((mut target, folder, relay, first)) = unit(&reserved("one", 1)) else { return };
    first.write(0, &[block()]).unwrap();
    relay.cut();
    target.restart().unwrap();
    let second = IscsiLun::open(&target.url().parse().unwrap(), &reserved("two", 2)).unwrap();
    second.write(0, &[Bytes::from(vec![8; BLOCK_BYTES])]).unwrap();
    second.flush().unwrap();
    drop(second);
    relay.mend();
    let error = first.write(0, &[block()]).unwrap_err();
    assert!(matches!(&error, LunError::Taken { .. }), "{error}");
    let image = std::fs::read(folder.path().join("unit")).unwrap();
    assert!(image[..BLOCK_BYTES].iter().all(|byte| *byte == 8));
}
