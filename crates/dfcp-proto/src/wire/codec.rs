//! Bounded reading and variable-length integers (RFC 9000 §16).

use std::fmt;

/// Why bytes from the network were not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The input ends inside a field.
    #[error("input ends inside a field")]
    Truncated,
    /// A type byte that this version does not define.
    #[error("unknown type {0:#04x}")]
    UnknownType(u8),
    /// A field holds a value that is never valid.
    #[error("invalid value for {0}")]
    Invalid(&'static str),
}

/// A cursor over received bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// All bytes not read yet.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The next `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], WireError> {
        let (head, tail) = self.rest.split_at_checked(n).ok_or(WireError::Truncated)?;
        self.rest = tail;
        Ok(head)
    }

    /// The next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, tail) = self.rest.split_first_chunk().ok_or(WireError::Truncated)?;
        self.rest = tail;
        Ok(*head)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, WireError> {
        Ok(self.array::<1>()?[0])
    }

    /// A big-endian 16-bit integer.
    pub fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    /// A big-endian 24-bit integer.
    pub fn u24(&mut self) -> Result<u32, WireError> {
        let [a, b, c] = self.array()?;
        Ok(u32::from_be_bytes([0, a, b, c]))
    }

    /// A big-endian 32-bit integer.
    pub fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    /// A variable-length integer, at most 2⁶² − 1.
    pub fn varint(&mut self) -> Result<u64, WireError> {
        let first = *self.rest.first().ok_or(WireError::Truncated)?;
        let len = 1usize << (first >> 6);
        let bytes = self.bytes(len)?;
        let value = bytes
            .iter()
            .fold(0u64, |value, &b| (value << 8) | u64::from(b));
        Ok(value & (u64::MAX >> (66 - 8 * len))) // the two length bits are not part of it
    }

    /// A number that stays one that the wire carries.
    pub fn code(&mut self) -> Result<VarInt, WireError> {
        self.varint().map(VarInt)
    }

    /// A length-prefixed (varint) byte string.
    pub fn var_bytes(&mut self) -> Result<&'a [u8], WireError> {
        let len = usize::try_from(self.varint()?).map_err(|_| WireError::Truncated)?;
        self.bytes(len)
    }
}

/// A number that a variable-length integer holds: below 2⁶².
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VarInt(u64);

/// A number of 2⁶² or more, which the wire cannot carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is 2^62 or more")]
pub struct VarIntTooLarge(pub u64);

impl VarInt {
    /// The largest.
    pub const MAX: Self = Self((1 << 62) - 1);

    /// Every `u32` is one.
    pub const fn from_u32(value: u32) -> Self {
        Self(value as u64)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl From<u32> for VarInt {
    fn from(value: u32) -> Self {
        Self::from_u32(value)
    }
}

impl TryFrom<u64> for VarInt {
    type Error = VarIntTooLarge;

    fn try_from(value: u64) -> Result<Self, VarIntTooLarge> {
        match value <= Self::MAX.0 {
            true => Ok(Self(value)),
            false => Err(VarIntTooLarge(value)),
        }
    }
}

impl fmt::Display for VarInt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Appends `value`. Values of 2⁶² and more are clamped: no count or size of ours reaches them, and
/// what an application chooses is a [`VarInt`].
pub fn write_varint(out: &mut Vec<u8>, value: u64) {
    let value = value.min(VarInt::MAX.0);
    match varint_len(value) {
        1 => out.push(value as u8),
        2 => out.extend_from_slice(&(0x4000 | value as u16).to_be_bytes()),
        4 => out.extend_from_slice(&(0x8000_0000 | value as u32).to_be_bytes()),
        _ => out.extend_from_slice(&(0xc000_0000_0000_0000 | value).to_be_bytes()),
    }
}

/// Bytes that [`write_varint`] uses for `value`.
pub const fn varint_len(value: u64) -> usize {
    match value {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_at_every_length_boundary() {
        for value in [
            0,
            63,
            64,
            16383,
            16384,
            0x3fff_ffff,
            0x4000_0000,
            VarInt::MAX.0,
        ] {
            let mut out = Vec::new();
            write_varint(&mut out, value);
            assert_eq!(out.len(), varint_len(value));
            let mut reader = Reader::new(&out);
            assert_eq!(reader.varint(), Ok(value));
            assert!(reader.is_empty());
            assert_eq!(
                Reader::new(&out[..out.len() - 1]).varint(),
                Err(WireError::Truncated)
            );
        }
    }

    #[test]
    fn numbers_that_the_wire_cannot_carry_are_refused() {
        let largest = VarInt::MAX.get();
        assert_eq!(VarInt::try_from(largest), Ok(VarInt::MAX));
        for value in [largest + 1, u64::MAX] {
            assert_eq!(VarInt::try_from(value), Err(VarIntTooLarge(value)));
        }
    }
}
