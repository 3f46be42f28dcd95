//! `nicache firmware`, the card process.

use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nicache_bus::{Attachment, BusModel, Meter, Peer, Window};
use nicache_firmware::{Broken, Firmware, Progress};
use nicache_port::{CpuPressure, Idle, IdlePolicy, IdleStep, NAP, Port, wait};

use super::channel::Inbox;
use super::counted::Teller;
use super::messages::{FirmwareSetup, FromFirmware, ToFirmware};
use super::ports::{CardPort, Unfit, open};
use crate::engine::monotonic;
use crate::logs;
use crate::setup::{CARD_NICENESS, child_start, go_first, send_message};

/// How many turns pass between two looks at the socket under load.
const TURNS_PER_LOOK: u32 = 256;

/// Works until the supervisor is gone.
pub(crate) fn execute() -> Result<ExitCode> {
    let (setup, files, socket) = child_start::<FirmwareSetup>(c"nicache-card")?;
    logs::start(setup.log_format);
    go_first(CARD_NICENESS);
    let mut files = files.into_iter();
    let mut inbox = Inbox::new(socket);
    let mut ports = match open(&setup.ports, &mut files) {
        Ok(ports) => ports,
        Err(Unfit { port, error }) => {
            let reason = format!("{error:#}");
            send_message(inbox.socket(), &FromFirmware::Unfit { port, reason }, &[])?;
            return Ok(ExitCode::FAILURE);
        }
    };
    let meter = match &setup.bus {
        None => None,
        Some(model) => {
            let model: BusModel = model.parse().map_err(anyhow::Error::msg)?;
            let clock = files.next().context("no clock of the bus came with the setup")?;
            Some(Arc::new(Meter::map(clock, model)?))
        }
    };
    let mut attached: Vec<OwnedFd> = files.collect();
    let mut number = setup.attachment;
    let mut teller = setup.tells.then(Teller::default);
    loop {
        let (window, attachment) = attachment(attached)?;
        let mut firmware = Firmware::with_ports(
            ports,
            attachment.card(),
            window,
            setup.cache_bytes,
            meter.clone(),
        )
        .context("no memory for the card's cache: try a smaller --memory")?;
        send_message(inbox.socket(), &FromFirmware::Ready, &[])?;
        (number, attached) = match work(&mut firmware, &mut inbox, &mut teller) {
            Ok(Some(next)) => next,
            Ok(None) => return Ok(ExitCode::SUCCESS),
            Err(Broken::Port(error)) => bail!("the wire port: {error}"),
            Err(error @ Broken::Host(_)) => {
                tracing::error!(card = setup.card, "{error}; waiting for another attachment");
                let broken = FromFirmware::Broken { attachment: number };
                send_message(inbox.socket(), &broken, &[])?;
                match inbox.wait::<ToFirmware>()? {
                    Some((ToFirmware::Attach { attachment }, files)) => (attachment, files),
                    None => return Ok(ExitCode::SUCCESS),
                }
            }
        };
        if let Some(teller) = &mut teller {
            teller.handle_end(&firmware);
        }
        ports = firmware.into_ports();
    }
}

fn attachment(files: Vec<OwnedFd>) -> Result<(Arc<Window>, Attachment)> {
    let mut files = files.into_iter();
    let window = files.next().context("no host memory came with the attachment")?;
    let window = Arc::new(Window::map(window).context("host memory")?);
    let files: [OwnedFd; 3] =
        files.collect::<Vec<_>>().try_into().ok().context("an attachment has three files")?;
    Ok((window, Attachment::from_files(files).context("an attachment from the supervisor")?))
}

/// The number of an attachment, and its files.
type Attached = (Option<u64>, Vec<OwnedFd>);

/// Until there is another attachment, or the supervisor is gone.
fn work(
    firmware: &mut Firmware<CardPort>,
    inbox: &mut Inbox,
    teller: &mut Option<Teller>,
) -> Result<Option<Attached>, Broken> {
    let mut idle = Idle::new(IdlePolicy::default());
    let mut pressure = CpuPressure::of_machine();
    let mut turns = 0u32;
    loop {
        let now = monotonic();
        turns = turns.wrapping_add(1);
        match firmware.turn(now.0)? {
            Progress::Busy { packets } => {
                idle.handle_work(now.0, packets);
                if !turns.is_multiple_of(TURNS_PER_LOOK) {
                    continue;
                }
            }
            Progress::Bus { until_ns } => {
                wait(&[], Some(Duration::from_nanos(until_ns.saturating_sub(monotonic().0))))?;
                if !turns.is_multiple_of(TURNS_PER_LOOK) {
                    continue;
                }
            }
            Progress::Idle => {
                idle.set_contended(pressure.is_contended(now.0));
                let step = idle.poll(now.0);
                // A host on the same processor can only go on when this one sleeps.
                let step =
                    if firmware.presence().pause() == Peer::Here { IdleStep::Sleep } else { step };
                match step {
                    IdleStep::Again => {
                        std::hint::spin_loop();
                        continue;
                    }
                    IdleStep::Nap => {
                        wait(&[], Some(NAP))?;
                        continue;
                    }
                    IdleStep::Sleep if firmware.prepare_sleep()? => {
                        let more = tell(firmware, inbox, teller, now.0)?;
                        let wires = if firmware.is_starved() { &[] } else { firmware.ports() };
                        let files = [firmware.bell().as_fd(), inbox.socket()].into_iter();
                        let files: Vec<_> =
                            files.chain(wires.iter().filter_map(Port::wait_fd)).collect();
                        firmware.presence().sleep();
                        wait(&files, more)?;
                        firmware.presence().wake();
                    }
                    IdleStep::Sleep => continue,
                }
            }
        }
        tell(firmware, inbox, teller, now.0)?;
        match inbox.take::<ToFirmware>() {
            Ok(None) => {}
            Ok(Some((ToFirmware::Attach { attachment }, files))) => {
                return Ok(Some((attachment, files)));
            }
            Err(error) => {
                tracing::debug!("{error:#}");
                return Ok(None);
            }
        }
    }
}

/// Tells the supervisor what has changed. After what time there is more to tell.
fn tell(
    firmware: &Firmware<CardPort>,
    inbox: &Inbox,
    teller: &mut Option<Teller>,
    now_ns: u64,
) -> Result<Option<Duration>, Broken> {
    match teller {
        Some(teller) => Ok(teller.tell(firmware, inbox.socket(), now_ns)),
        // Nobody opens it again.
        None => match firmware.ports().iter().find_map(CardPort::lost) {
            Some(why) => Err(Broken::Port(std::io::Error::other(why.to_owned()))),
            None => Ok(None),
        },
    }
}
