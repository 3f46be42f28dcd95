//! XDR (RFC 4506): the few types that ONC RPC and NFS version 3 are made of.
//!
//! [`Reader`] borrows: names, handles and credentials stay where they were received. It checks each
//! length against what is there before anything else is done with it, so a length never makes
//! memory. [`put`] appends to a buffer.

use thiserror::Error;

/// The bytes are not what the procedure's arguments look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("arguments that are not valid XDR")]
pub struct Garbage;

/// Bytes of padding after `len` bytes of opaque data (RFC 4506, section 3).
#[must_use]
pub const fn padding(len: usize) -> usize {
    len.wrapping_neg() & 3
}

/// Takes values from the front of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the front of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What has not been taken.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Exactly `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Garbage> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Garbage)?;
        self.rest = rest;
        Ok(taken)
    }

    /// An unsigned integer.
    pub fn u32(&mut self) -> Result<u32, Garbage> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Garbage)?;
        self.rest = rest;
        Ok(u32::from_be_bytes(*taken))
    }

    /// An unsigned hyper integer.
    pub fn u64(&mut self) -> Result<u64, Garbage> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Garbage)?;
        self.rest = rest;
        Ok(u64::from_be_bytes(*taken))
    }

    /// A boolean. Other values than 0 and 1 are garbage.
    pub fn bool(&mut self) -> Result<bool, Garbage> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Garbage),
        }
    }

    /// Fixed-length opaque data of a multiple of four bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Garbage> {
        const { assert!(N.is_multiple_of(4)) };
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Garbage)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Variable-length opaque data, or a string, of at most `len_max` bytes. What the padding holds
    /// does not matter.
    pub fn opaque(&mut self, len_max: usize) -> Result<&'a [u8], Garbage> {
        let len = self.u32()? as usize;
        if len > len_max {
            return Err(Garbage);
        }
        let taken = self.bytes(len)?;
        self.bytes(padding(len))?;
        Ok(taken)
    }

    /// A value that may be there.
    pub fn optional<T>(
        &mut self,
        value: impl FnOnce(&mut Self) -> Result<T, Garbage>,
    ) -> Result<Option<T>, Garbage> {
        if self.bool()? { value(self).map(Some) } else { Ok(None) }
    }
}

/// Appending values to a buffer.
pub mod put {
    /// An unsigned integer.
    pub fn u32(out: &mut Vec<u8>, value: u32) {
        out.extend_from_slice(&value.to_be_bytes());
    }

    /// An unsigned hyper integer.
    pub fn u64(out: &mut Vec<u8>, value: u64) {
        out.extend_from_slice(&value.to_be_bytes());
    }

    /// Writes a boolean.
    pub fn bool(out: &mut Vec<u8>, value: bool) {
        u32(out, u32::from(value));
    }

    /// Variable-length opaque data, with its padding.
    ///
    /// # Panics
    ///
    /// If it is 4 GiB or more.
    pub fn opaque(out: &mut Vec<u8>, bytes: &[u8]) {
        u32(out, u32::try_from(bytes.len()).expect("opaque data below 4 GiB"));
        out.extend_from_slice(bytes);
        out.extend_from_slice(&[0; 3][..super::padding(bytes.len())]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_checked_before_it_is_believed() {
        assert_eq!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 1, 2]).opaque(usize::MAX), Err(Garbage));
        assert_eq!(
            Reader::new(&[0, 0, 0, 5, 1, 2, 3, 4, 5]).opaque(16),
            Err(Garbage),
            "the padding is missing"
        );
        assert_eq!(
            Reader::new(&[0, 0, 0, 5, 1, 2, 3, 4, 5, 9, 9, 9]).opaque(4),
            Err(Garbage),
            "longer than allowed"
        );
        assert_eq!(
            Reader::new(&[0, 0, 0, 5, 1, 2, 3, 4, 5, 9, 9, 9]).opaque(5),
            Ok(&[1, 2, 3, 4, 5][..])
        );
        assert_eq!(Reader::new(&[0, 0, 0, 2]).bool(), Err(Garbage));
    }

    #[test]
    fn what_is_put_is_read() {
        let mut out = Vec::new();
        put::u32(&mut out, 7);
        put::u64(&mut out, u64::MAX - 1);
        put::bool(&mut out, true);
        for len in 0..9 {
            put::opaque(&mut out, &vec![0xa5; len]);
            assert_eq!(out.len() % 4, 0);
        }
        let mut reader = Reader::new(&out);
        assert_eq!(reader.u32(), Ok(7));
        assert_eq!(reader.u64(), Ok(u64::MAX - 1));
        assert_eq!(reader.optional(|_| Ok(())), Ok(Some(())));
        for len in 0..9 {
            assert_eq!(reader.opaque(16), Ok(&vec![0xa5; len][..]));
        }
        assert!(reader.rest().is_empty());
    }
}
