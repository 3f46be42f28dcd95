//! How the kernel's requests for the block device come to the process that answers them.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ublk;

/// Which block device the file system is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// ublk where the kernel has it, else a loop device.
    Auto,
    /// A loop device over a file of a FUSE file system: on any kernel.
    #[default]
    Loop,
    /// A device of the kernel's ublk driver: no file and no FUSE in between.
    Ublk,
}

impl Transport {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Loop, Self::Ublk];

    /// The transport's name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Loop => "loop",
            Self::Ublk => "ublk",
        }
    }

    /// What is missing on this machine to have such a device, if anything.
    pub fn missing(self) -> Option<&'static str> {
        if !rustix::process::geteuid().is_root() {
            return Some("root");
        }
        let of_loop = || first_missing(&["/dev/fuse", "/dev/loop-control"]);
        match self {
            Self::Auto => of_loop().filter(|_| ublk::control::is_usable().is_err()),
            Self::Loop => of_loop(),
            Self::Ublk => first_missing(&[ublk::control::CONTROL]),
        }
    }
}

fn first_missing(paths: &[&'static str]) -> Option<&'static str> {
    paths.iter().copied().find(|path| !Path::new(path).exists())
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Transport {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|transport| transport.name() == text)
            .ok_or_else(|| format!("`{text}` is not a kind of device: auto, loop or ublk"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transport_is_read_as_it_is_written() {
        for transport in Transport::ALL {
            assert_eq!(transport.to_string().parse(), Ok(transport));
        }
        for text in ["", "Loop", "nbd", "ublk "] {
            assert!(text.parse::<Transport>().unwrap_err().contains("auto, loop or ublk"));
        }
    }
}
