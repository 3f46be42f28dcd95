//! A block device of the kernel's ublk driver.
//!
//! The device owner ([`owner`]), a process between the kernel and the server, takes its requests.
//! [`control`] makes the device and takes it away, [`abi`] is what the driver understands,
//! [`slots`] what owner and server say to each other, [`server`] the server's side, and [`node`]
//! the device as the supervisor sees it.

mod abi;
pub(crate) mod control;
pub(crate) mod node;
pub(crate) mod owner;
pub(crate) mod server;
mod slots;
