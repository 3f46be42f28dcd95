//! What the kernel's ublk driver and its server say to each other, in bytes.
//!
//! Read first: Documentation/block/ublk.rst, include/uapi/linux/ublk_cmd.h. Numbers are in the
//! machine's own order.

/// Requests of the file system at once; the driver takes at most 4096.
pub(crate) const DEPTH: u16 = 64;
/// The longest request. Each of [`DEPTH`] has memory for as much.
pub(crate) const REQUEST_BYTES_MAX: usize = 256 << 10;

const SECTOR_BITS: u32 = 9;

/// A command to the driver: `_IOWR('u', number, struct ublksrv_ctrl_cmd)`, or `_IOR`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    DeviceInfo,
    Add,
    Start,
    Stop,
    SetParameters,
    Features,
    /// It does not wait for the last user (Linux 6.9).
    DeleteAsync,
}

const IOC_READ: u32 = 2;
const IOC_READ_WRITE: u32 = 3;

const fn ioc(direction: u32, number: u32, bytes: u32) -> u32 {
    direction << 30 | bytes << 16 | (b'u' as u32) << 8 | number
}

impl Command {
    pub(crate) const fn number(self) -> u32 {
        let (direction, number) = match self {
            Self::DeviceInfo => (IOC_READ, 0x02),
            Self::Add => (IOC_READ_WRITE, 0x04),
            Self::Start => (IOC_READ_WRITE, 0x06),
            Self::Stop => (IOC_READ_WRITE, 0x07),
            Self::SetParameters => (IOC_READ_WRITE, 0x08),
            Self::Features => (IOC_READ, 0x13),
            Self::DeleteAsync => (IOC_READ, 0x14),
        };
        ioc(direction, number, CONTROL_BYTES as u32)
    }
}

/// `UBLK_U_IO_FETCH_REQ`, `UBLK_U_IO_COMMIT_AND_FETCH_REQ`.
pub(crate) const FETCH: u32 = ioc(IOC_READ_WRITE, 0x20, 16);
pub(crate) const COMMIT_AND_FETCH: u32 = ioc(IOC_READ_WRITE, 0x21, 16);
/// A command ends so when the device is stopped (`UBLK_IO_RES_ABORT`).
pub(crate) const ABORTED: i32 = -libc::ENODEV;

const CONTROL_BYTES: usize = 32;

/// `struct ublksrv_ctrl_cmd` at the beginning of a long entry's command.
pub(crate) fn control_command(device: u32, address: u64, bytes: u16, data: u64) -> [u8; 80] {
    let mut command = [0; 80];
    command[..4].copy_from_slice(&device.to_ne_bytes());
    // No queue.
    command[4..6].copy_from_slice(&u16::MAX.to_ne_bytes());
    command[6..8].copy_from_slice(&bytes.to_ne_bytes());
    command[8..16].copy_from_slice(&address.to_ne_bytes());
    command[16..24].copy_from_slice(&data.to_ne_bytes());
    command
}

/// `struct ublksrv_io_cmd` of the only queue, for a request of that tag.
pub(crate) fn request_command(tag: u16, result: i32) -> [u8; 16] {
    let mut command = [0; 16];
    command[2..4].copy_from_slice(&tag.to_ne_bytes());
    command[4..8].copy_from_slice(&result.to_ne_bytes());
    command
}

/// The server copies by reading and writing the device's character file (Linux 6.5).
pub(crate) const FLAG_USER_COPY: u64 = 1 << 7;

/// `struct ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DeviceInfo(pub(crate) [u8; 64]);

/// In the upper half of what is the server's own in [`DeviceInfo`]: "nica".
const MARK: u64 = 0x6E69_6361;
const STATE_DEAD: u16 = 0;

impl DeviceInfo {
    pub(crate) const EMPTY: Self = Self([0; 64]);

    /// A new device with one queue, whose owner is this process.
    pub(crate) fn new(owner: u32) -> Self {
        let mut info = Self::EMPTY;
        info.put(0, &1_u16.to_ne_bytes());
        info.put(2, &DEPTH.to_ne_bytes());
        info.put(8, &(REQUEST_BYTES_MAX as u32).to_ne_bytes());
        info.put(12, &u32::MAX.to_ne_bytes());
        info.put(24, &FLAG_USER_COPY.to_ne_bytes());
        info.put(32, &(MARK << 32 | u64::from(owner)).to_ne_bytes());
        info
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.0[at..at + N]);
        bytes
    }

    pub(crate) fn depth(&self) -> u16 {
        u16::from_ne_bytes(self.get(2))
    }

    pub(crate) fn is_dead(&self) -> bool {
        u16::from_ne_bytes(self.get(4)) == STATE_DEAD
    }

    pub(crate) fn request_bytes_max(&self) -> usize {
        u32::from_ne_bytes(self.get(8)) as usize
    }

    pub(crate) fn number(&self) -> u32 {
        u32::from_ne_bytes(self.get(12))
    }

    pub(crate) fn flags(&self) -> u64 {
        u64::from_ne_bytes(self.get(24))
    }

    /// The process that made the device; None: it was not nicache.
    pub(crate) fn owner(&self) -> Option<u32> {
        let own = u64::from_ne_bytes(self.get(32));
        (own >> 32 == MARK).then_some(own as u32)
    }
}

/// `struct ublk_params` with the basic ones: a device with blocks of `1 << block_bits` bytes and a
/// volatile cache, so the file system asks for flushes.
pub(crate) fn parameters(capacity_bytes: u64, block_bits: u8) -> [u8; 40] {
    const BASIC: u32 = 1;
    const VOLATILE_CACHE: u32 = 1 << 2;
    let mut bytes = [0; 40];
    bytes[..4].copy_from_slice(&40_u32.to_ne_bytes());
    bytes[4..8].copy_from_slice(&BASIC.to_ne_bytes());
    bytes[8..12].copy_from_slice(&VOLATILE_CACHE.to_ne_bytes());
    // Logical and physical blocks, best and smallest requests.
    bytes[12..16].fill(block_bits);
    bytes[16..20].copy_from_slice(&((REQUEST_BYTES_MAX >> SECTOR_BITS) as u32).to_ne_bytes());
    bytes[24..32].copy_from_slice(&(capacity_bytes >> SECTOR_BITS).to_ne_bytes());
    bytes
}

/// Bytes of a request's description in the memory that the driver shares.
pub(crate) const DESCRIPTION_BYTES: usize = 24;

/// What a request wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Read,
    Write,
    Flush,
    /// Discards and the like, of which the device says that it has none.
    Other,
}

/// `struct ublksrv_io_desc`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Description {
    pub(crate) operation: Operation,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
}

impl Description {
    /// None: it is not for any bytes that there can be.
    pub(crate) fn parse(bytes: &[u8; DESCRIPTION_BYTES]) -> Option<Self> {
        let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
        let sector = u64::from_ne_bytes([8, 9, 10, 11, 12, 13, 14, 15].map(|at: usize| bytes[at]));
        let operation = match word(0) & 0xFF {
            0 => Operation::Read,
            1 => Operation::Write,
            2 => Operation::Flush,
            _ => Operation::Other,
        };
        if operation == Operation::Flush {
            // It has no place, and the driver says so by a number that is none.
            return Some(Self { operation, offset: 0, bytes: 0 });
        }
        Some(Self {
            operation,
            offset: sector.checked_mul(1 << SECTOR_BITS)?,
            bytes: (word(4) as usize).checked_mul(1 << SECTOR_BITS)?,
        })
    }
}

/// Where a request's bytes are in the character file: they begin at 2 GiB, and each of a queue's
/// tags has 32 MiB.
pub(crate) fn bytes_at(tag: u16) -> u64 {
    0x8000_0000 + (u64::from(tag) << 25)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_header() {
        // As a C compiler computes them from <linux/ublk_cmd.h>.
        let numbers = [
            Command::DeviceInfo,
            Command::Add,
            Command::Start,
            Command::Stop,
            Command::SetParameters,
            Command::Features,
            Command::DeleteAsync,
        ]
        .map(Command::number);
        assert_eq!(
            numbers,
            [
                0x8020_7502,
                0xC020_7504,
                0xC020_7506,
                0xC020_7507,
                0xC020_7508,
                0x8020_7513,
                0x8020_7514
            ]
        );
        assert_eq!((FETCH, COMMIT_AND_FETCH), (0xC010_7520, 0xC010_7521));
        assert_eq!(bytes_at(3), 0x8000_0000 + 3 * (32 << 20));
        // What the driver shares is whole pages, and a request has its place in the file.
        const { assert!(REQUEST_BYTES_MAX <= 32 << 20) };
    }

    #[test]
    fn a_device_knows_its_owner() {
        let info = DeviceInfo::new(77);
        assert_eq!((info.owner(), info.number(), info.depth()), (Some(77), u32::MAX, DEPTH));
        assert_eq!((info.flags(), info.request_bytes_max()), (FLAG_USER_COPY, 256 << 10));
        assert!(info.is_dead());
        assert_eq!(DeviceInfo::EMPTY.owner(), None);
    }

    #[test]
    fn a_description_says_what_is_wanted() {
        let description = |operation: u32, sectors: u32, sector: u64| {
            let mut bytes = [0; DESCRIPTION_BYTES];
            bytes[..4].copy_from_slice(&operation.to_ne_bytes());
            bytes[4..8].copy_from_slice(&sectors.to_ne_bytes());
            bytes[8..16].copy_from_slice(&sector.to_ne_bytes());
            Description::parse(&bytes)
        };
        let expected = Description { operation: Operation::Write, offset: 5 << 40, bytes: 4096 };
        assert_eq!(description(1 | 1 << 13, 8, 5 << 31), Some(expected));
        let flush = Description { operation: Operation::Flush, offset: 0, bytes: 0 };
        assert_eq!(description(2, 0, u64::MAX), Some(flush));
        assert_eq!(description(5, 8, 0).unwrap().operation, Operation::Other);
        assert_eq!(description(0, 8, u64::MAX), None);
    }
}
