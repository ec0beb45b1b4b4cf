//! The fields of one message: numbers and text, each checked as it is read.

use crate::{MAX_NAME_BYTES, WireError};

/// Reads fields one after another out of one message.
pub struct Fields<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, rest: bytes }
    }

    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(WireError::Length { what: self.what })?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) =
            self.rest.split_first_chunk::<N>().ok_or(WireError::Length { what: self.what })?;
        self.rest = rest;
        Ok(*taken)
    }

    pub fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_be_bytes)
    }

    /// A number that must be `expected`.
    pub fn magic_u32(&mut self, expected: u32) -> Result<(), WireError> {
        match self.u32()? {
            found if found == expected => Ok(()),
            found => Err(WireError::Magic { what: self.what, found: found.into() }),
        }
    }

    /// A number that must be `expected`.
    pub fn magic_u64(&mut self, expected: u64) -> Result<(), WireError> {
        match self.u64()? {
            found if found == expected => Ok(()),
            found => Err(WireError::Magic { what: self.what, found }),
        }
    }

    /// `length` bytes of text.
    pub fn text(&mut self, length: usize) -> Result<&'a str, WireError> {
        limit("length of a string", length as u64, MAX_NAME_BYTES as u64)?;
        let what = self.what;
        let text = std::str::from_utf8(self.bytes(length)?).map_err(|_| WireError::Text { what })?;
        if text.contains('\0') {
            return Err(WireError::Text { what });
        }
        Ok(text)
    }

    /// A 32-bit length and that much text.
    pub fn counted_text(&mut self) -> Result<&'a str, WireError> {
        let length = self.u32()?;
        self.text(usize::try_from(length).unwrap_or(usize::MAX))
    }

    pub fn rest(self) -> &'a [u8] {
        self.rest
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The message must end here.
    pub fn end(self) -> Result<(), WireError> {
        if self.rest.is_empty() { Ok(()) } else { Err(WireError::Length { what: self.what }) }
    }
}

/// Checks a field against its limit.
pub fn limit(what: &'static str, found: u64, limit: u64) -> Result<(), WireError> {
    if found <= limit { Ok(()) } else { Err(WireError::Limit { what, found, limit }) }
}

/// Appends a 32-bit length and the text, cut to [`MAX_NAME_BYTES`] at a character.
pub fn put_counted_text(out: &mut Vec<u8>, text: &str) {
    let text = clip(text);
    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// The longest beginning of `text` that a string on the wire may have.
pub fn clip(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_NAME_BYTES)]
}
