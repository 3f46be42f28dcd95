//! The fast path's programs at the interfaces, which the supervisor keeps while card and forwarder
//! come and go.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result};
use nicache_fastpath::{FastPathError, Handles, Programs};
use nicache_forward::fast_path::PLACES_MAX;
use nicache_router::config::Plan;

use super::place::Place;
use super::ports::Ports;
use crate::cli::{FastPathArg, ForwardArgs};

/// The programs, or why there are none.
pub(super) enum KernelPath {
    /// The programs are at all links with packet sockets.
    On(Programs),
    /// Nobody wants them, or the kernel has none.
    Off(String),
}

impl KernelPath {
    /// Loads the programs and attaches them, if the arguments say so. A kernel that has none is not
    /// an error: the card forwards everything then.
    pub(super) fn start(
        arguments: &ForwardArgs,
        plan: &Plan,
        ports: &Ports,
        place: &Place,
    ) -> Self {
        let default = if arguments.demo { FastPathArg::Off } else { FastPathArg::Auto };
        if arguments.fast_path.unwrap_or(default) == FastPathArg::Off {
            return Self::Off("off".to_owned());
        }
        let connections = plan.config.limits.connections.min(PLACES_MAX);
        let interfaces = ports.fast();
        if interfaces.is_empty() {
            return Self::Off("off: no link has packet sockets".to_owned());
        }
        let started = place.run(move || -> Result<Programs, FastPathError> {
            let mut programs = Programs::load(connections)?;
            interfaces.into_iter().try_for_each(|interface| programs.attach(interface))?;
            Ok(programs)
        });
        match started {
            Ok(programs) => Self::On(programs),
            Err(error) => {
                tracing::warn!("no fast path, every packet goes by the card: {error}");
                Self::Off(format!("off: {error}"))
            }
        }
    }

    /// Attaches the programs to an interface in place of another one, which is gone; that counts
    /// from the next forwarder on. False: they are not there.
    pub(super) fn attach(&mut self, interface: u32, gone: u32, place: &Place) -> bool {
        let mut programs = match std::mem::replace(self, Self::Off(String::new())) {
            Self::On(programs) => programs,
            off => {
                *self = off;
                return true;
            }
        };
        let (programs, attached) = place.run(move || {
            programs.detach(gone);
            let attached = programs.attach(interface);
            (programs, attached)
        });
        *self = Self::On(programs);
        if let Err(error) = &attached {
            tracing::warn!("every packet of this interface goes by the card: {error}");
        }
        attached.is_ok()
    }

    fn programs(&self) -> Option<&Programs> {
        match self {
            Self::On(programs) => Some(programs),
            Self::Off(_) => None,
        }
    }

    /// What a forwarder is told of the maps.
    pub(super) fn handles(&self) -> Option<Handles> {
        self.programs().map(|programs| programs.handles().0)
    }

    /// The program that goes with them.
    pub(super) fn take(&self) -> Option<BorrowedFd<'_>> {
        self.programs().map(|programs| programs.handles().1)
    }

    /// The filter for the card's packet sockets.
    pub(super) fn filter(&self) -> Result<Option<OwnedFd>> {
        let filter = self.programs().map(|programs| programs.filter().as_fd().try_clone_to_owned());
        filter.transpose().context("no descriptor for the fast path")
    }

    /// Whether the fast path is on, in words for viewers.
    pub(super) fn status(&self, ports: &Ports) -> String {
        match (self, &*ports.slow()) {
            (Self::On(_), []) => "on".to_owned(),
            (Self::On(_), slow) => {
                format!("on, off at {}: AF_XDP and TAPs go before it", slow.join(", "))
            }
            (Self::Off(why), _) => why.clone(),
        }
    }
}
