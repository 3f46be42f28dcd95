//! Card and forwarder as children of the supervisor: what they share, and how each is started.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nicache_bus::{Attachment, Window};
use nicache_forward::modes::Mode;
use nicache_router::config::Plan;
use nicache_router::keep::Keep;
use nicache_router::kernel::Kernel;
use nicache_router::router::window_bytes;

use super::kernel_path::KernelPath;
use super::messages::{ForwarderSetup, FromForwarder, ToForwarder};
use super::place::Place;
use super::ports::Ports;
use crate::cli::ForwardArgs;
use crate::serve::attachments::Attachments;
use crate::serve::messages::{FirmwareSetup, FromFirmware};
use crate::setup::send_message;
use crate::supervisor::children::{Child, Role, first_word};

/// How long a child may take to start.
pub(super) const START: Duration = Duration::from_secs(60);

/// What card and forwarder share from now on.
pub(super) struct Shared {
    pub(super) number: u64,
    window: Window,
    attachment: Attachment,
}

impl Shared {
    pub(super) fn create(attachments: &mut Attachments, memory: u32) -> Result<Self> {
        let window = Window::create("nicache-forward", window_bytes(memory))
            .context("no memory for the forwarder: try a smaller --memory")?;
        let attachment = Attachment::create()?;
        Ok(Self { number: attachments.begin(), window, attachment })
    }

    /// The window, then the three files of the attachment.
    pub(super) fn files(&self) -> Vec<BorrowedFd<'_>> {
        [self.window.file()].into_iter().chain(self.attachment.files()).collect()
    }
}

/// The forwarder process of a program, once it is ready.
pub(super) fn start_forwarder(
    program: &Path,
    setup: &ForwarderSetup,
    kernel: &Kernel,
    keep: &Keep,
    kernel_path: &KernelPath,
) -> Result<Child> {
    let mut child = Child::start_program(program, Role::Forwarder)?;
    let files: Vec<BorrowedFd<'_>> =
        kernel.files().into_iter().chain([keep.file()]).chain(kernel_path.take()).collect();
    send_message(&child.channel, setup, &files)?;
    match first_word(&mut child, START)?.0 {
        FromForwarder::Ready => Ok(child),
        _ => bail!("the forwarder began with an attachment that is broken"),
    }
}

/// The card process of a program, once it is ready on all links, by what each of them can do.
pub(super) fn start_card(
    program: &Path,
    arguments: &ForwardArgs,
    plan: &Plan,
    place: &Place,
    (kernel_path, ports): (&KernelPath, &mut Ports),
    shared: &Shared,
) -> Result<Child> {
    loop {
        let (setups, files) = ports.open(place, kernel_path.filter()?)?;
        let mut child = Child::start_program(program, Role::Firmware)?;
        let setup = FirmwareSetup {
            log_format: arguments.log_format,
            card: 0,
            cache_bytes: plan.memory,
            ports: setups,
            bus: None,
            tells: true,
            attachment: Some(shared.number),
        };
        let files: Vec<BorrowedFd<'_>> =
            files.iter().map(AsFd::as_fd).chain(shared.files()).collect();
        send_message(&child.channel, &setup, &files)?;
        match first_word(&mut child, START)?.0 {
            FromFirmware::Ready => {
                ports.handle_ready();
                return Ok(child);
            }
            FromFirmware::Broken { .. } => {
                bail!("the card began with an attachment that is broken")
            }
            FromFirmware::Counted(_) => bail!("the card counted before it was ready"),
            FromFirmware::Unfit { port, reason } => {
                // Its queues are free once it has ended.
                child.wait(START)?;
                if !ports.step_down(port, reason.clone()) {
                    let link = plan.links.get(port).map_or("a link", |link| &link.name);
                    bail!("the card cannot use its port on {link}: {reason}");
                }
            }
        }
    }
}

/// Gives the forwarder what it shares with the card from now on.
pub(super) fn attach(forwarder: &Child, shared: &Shared, mode: Mode) -> Result<()> {
    let message = ToForwarder::Attach { mode: mode.to_string(), attachment: Some(shared.number) };
    send_message(&forwarder.channel, &message, &shared.files())
}
