//! Why frames cannot be steered.

use std::io;

use nicache_port::PacketError;

/// Why frames cannot be steered. Nothing is left behind in any case. Without steering, a card can
/// still forward all frames itself, through promiscuous packet sockets.
#[derive(Debug, thiserror::Error)]
pub enum SteeringError {
    /// The process may not load programs into the kernel or attach them to interfaces.
    #[error(
        "not allowed to steer frames by eBPF: run as root, or with CAP_BPF and CAP_NET_ADMIN; or let the card forward all frames ({0})"
    )]
    NotPermitted(String),
    /// There is none of that name in the calling thread's network namespace.
    #[error("there is no interface `{0}` in this network namespace: `ip link` lists them")]
    NoInterface(String),
    /// Both sides are the same interface.
    #[error("the wire and the host cannot be the same interface `{0}`")]
    SameInterface(String),
    /// Which queue a flow comes by is the network card's choice, and can be followed on the other
    /// side by packet sockets only.
    #[error(
        "several AF_XDP queues are possible toward the wire only, with packet sockets toward the host: use one queue"
    )]
    Queues,
    /// Another XDP program is at work there.
    #[error(
        "interface `{0}` has an XDP program already: `ip link set dev {0} xdp off` removes it, if nobody needs it"
    )]
    Busy(String),
    /// The driver runs no XDP programs there.
    #[error("interface `{interface}` has no native XDP: {error}")]
    NoXdp {
        /// The interface.
        interface: String,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// More services than the table holds.
    #[error("more than {} services", crate::SERVICES_MAX)]
    TooManyServices,
    /// The kernel refused a program that it should take.
    #[error("the kernel refused a steering program: {0}")]
    Refused(String),
    /// A packet socket that keeps an interface receiving frames for others could not be opened.
    #[error(transparent)]
    Reception(#[from] PacketError),
    /// A system call failed, with what was being done.
    #[error("{step}: {error}")]
    Io {
        /// What was being done.
        step: &'static str,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
}

/// Names what was being done.
pub(crate) fn step<E: Into<io::Error>>(step: &'static str) -> impl Fn(E) -> SteeringError {
    move |error| SteeringError::Io { step, error: error.into() }
}
