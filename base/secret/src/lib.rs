//! Bytes that nobody can guess, from the kernel's random numbers.

#![forbid(unsafe_code)]

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// `N` random bytes. Waits until the kernel has gathered enough randomness after the machine's
/// start.
///
/// # Errors
///
/// The kernel gives no random numbers; the error says so.
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(got) => filled += got,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                let error = io::Error::from(error);
                let text = format!("cannot get random numbers from the kernel: {error}");
                return Err(io::Error::new(error.kind(), text));
            }
        }
    }
    Ok(bytes)
}

/// A random number of 64 bits.
///
/// # Errors
///
/// As [`random_bytes`].
pub fn random_u64() -> io::Result<u64> {
    Ok(u64::from_ne_bytes(random_bytes()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_the_same() {
        let (first, second) = (random_bytes::<300>().unwrap(), random_bytes::<300>().unwrap());
        assert_ne!(first, second);
        assert_ne!(first[284..], [0; 16], "filled to its end");
        assert_ne!(random_u64().unwrap(), random_u64().unwrap());
    }
}
