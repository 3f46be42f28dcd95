//! Between a network interface and a card: AF_XDP sockets, and which frames a card gets at all.
//!
//! [`Steering`] loads programs (`ebpf/steer.bpf.c`) at two interfaces, the one toward the wire and
//! the one toward the host. Frames of a [`Service`] go to the card, by a packet socket or an AF_XDP
//! socket; the rest takes the way that [`Rest`] names, inside of the kernel. The card shows by a
//! [`Heartbeat`] that it is alive; once that is over, everything takes the way of the rest, but for
//! connections that are lost with the card ([`Steering::end_term`]).
//!
//! [`Sieve`] does the same for a forwarder at one interface: all frames are its own, except what
//! this machine keeps.
//!
//! [`XdpSocket`] is a [`Port`](nicache_port::Port) on one queue of an interface, [`LinkPort`] one
//! on all queues.
//!
//! [`l0::L0`] answers single-segment hits before a card hears of them.
//!
//! Everything hangs on file descriptors: programs, maps and memberships end with the last process
//! that holds them. A supervisor may hold them all ([`Steering::held`]), so one card takes
//! over from another.
//!
//! Read first: `steering.rs`, then `ebpf/steer.bpf.c`; Linux `Documentation/networking/af_xdp.rst`
//! for the sockets.
//!
//! Deliberately absent: changing an interface's settings (offloads, number of queues, flow rules of
//! the network card), and TCP.

#![deny(unsafe_code)]

mod error;
mod filter;
mod heartbeat;
pub mod l0;
mod link;
mod link_port;
mod log;
mod maps;
mod probe;
mod program;
mod service;
mod side;
mod sieve;
mod socket;
mod steering;
mod term;
mod verify;

pub use error::SteeringError;
pub use heartbeat::{HEARTBEAT_INTERVAL, Heartbeat, LEASE};
pub use link_port::LinkPort;
pub use maps::Counts;
pub use probe::{ProbeError, ProbeFiles, ProbeSide, ProbeSockets, probe, probe_link};
pub use service::{SERVICES_MAX, Service};
pub use side::{CardPort, Rest, Side};
pub use sieve::{Kept, KeptPorts, Sieve};
pub use socket::{Settings, XdpConfig, XdpError, XdpSocket};
pub use steering::{FirstFiles, SideFiles, Steering, SteeringConfig, SteeringFiles};
pub use term::Connection;
pub use verify::{verify_l0_at_driver, verify_l0_at_tap, verify_sieve, verify_steering};
