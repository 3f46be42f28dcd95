//! Loads programs and lets them go again, to hear what the verifier says.

use std::os::fd::{AsFd, BorrowedFd};

use nicache_kernel::verified_instructions;

use crate::error::SteeringError;
use crate::{l0, program, sieve};

/// Loads the programs of [`Steering`](crate::Steering); the largest number of instructions that the
/// verifier went through for one, 0 if the kernel does not say. Nothing is attached, and nothing
/// stays.
///
/// # Errors
/// Why the kernel refuses one of them.
pub fn verify_steering() -> Result<u32, SteeringError> {
    let loaded = program::load(1, 1)?;
    let sides = [&loaded.wire, &loaded.host]
        .into_iter()
        .flat_map(|side| [&side.driver, &side.filter, &side.ingress]);
    let programs = sides.chain([&loaded.host_queue, &loaded.wire_rest]);
    Ok(programs.filter_map(|program| verified_instructions(program.as_fd())).max().unwrap_or(0))
}

/// Loads the program of [`Sieve`](crate::Sieve); the number of instructions that the verifier went
/// through, 0 if the kernel does not say. Nothing is attached, and nothing stays.
///
/// # Errors
/// Why the kernel refuses the program.
pub fn verify_sieve() -> Result<u32, SteeringError> {
    let loaded = sieve::load(1)?;
    Ok(verified_instructions(loaded.program.as_fd()).unwrap_or(0))
}

/// Loads the program of [`L0`](crate::l0::L0) at a TAP; the number of instructions that the
/// verifier went through, 0 if the kernel does not say. Nothing is attached, and nothing stays.
/// `control`: the control page of the kernel's revision table.
///
/// # Errors
/// Why the kernel refuses the program.
pub fn verify_l0_at_tap(control: BorrowedFd<'_>) -> Result<u32, SteeringError> {
    l0::verify_at_egress(control)
}

/// Loads the program of [`L0`](crate::l0::L0) at an interface's driver; the number of instructions
/// that the verifier went through, 0 if the kernel does not say. Nothing is attached, and nothing
/// stays. `control`: the control page of the kernel's revision table.
///
/// # Errors
/// Why the kernel refuses the program.
pub fn verify_l0_at_driver(control: BorrowedFd<'_>) -> Result<u32, SteeringError> {
    l0::verify_at_driver(control)
}
