//! Sizes in bytes, as flags take them and reports print them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A number of bytes. Parsed from `4096`, `64K`, `512MiB`, `1.5G`; a unit is always a power of 1024,
/// as for other memory tools. Printed with the largest unit that keeps at least one whole digit.
/// Serialised as a number of bytes, and read as that or as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "u64", try_from = "Written")]
pub struct Size(u64);

/// A size as files have it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Bytes(u64),
    Text(String),
}

impl TryFrom<Written> for Size {
    type Error = SizeError;

    fn try_from(written: Written) -> Result<Self, SizeError> {
        match written {
            Written::Bytes(bytes) => Ok(Self(bytes)),
            Written::Text(text) => text.parse(),
        }
    }
}

impl From<Size> for u64 {
    fn from(size: Size) -> Self {
        size.0
    }
}

/// Why a size was not understood.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("'{text}' is not a size: write a number and a unit, such as 64K, 512M or 1.5G")]
pub struct SizeError {
    text: String,
}

impl Size {
    /// A size of `bytes` bytes.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let trimmed = text.trim();
        let unit_at = trimmed.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(unit_at);
        let binary = match unit.to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I') {
            "" => "B".to_owned(),
            letter @ ("K" | "M" | "G" | "T" | "P") => format!("{letter}iB"),
            _ => return Err(SizeError { text: text.to_owned() }),
        };
        format!("{}{binary}", number.trim())
            .parse::<bytesize::ByteSize>()
            .map(|size| Self(size.as_u64()))
            .map_err(|_| SizeError { text: text.to_owned() })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&bytesize::ByteSize::b(self.0).display().iec(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64K", 65536),
            ("64kib", 65536),
            ("512MB", 512 << 20),
            ("1.5G", 3 << 29),
            (" 2 T ", 2 << 40),
        ] {
            assert_eq!(text.parse::<Size>().map(Size::bytes), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for text in ["", "K", "12Q", "-1M", "1..2M", "many", "1e400G"] {
            let error = text.parse::<Size>().expect_err(text).to_string();
            assert!(error.contains(&format!("'{text}'")), "{error}");
        }
    }

    #[test]
    fn prints_units() {
        assert_eq!(Size::from_bytes(512 << 20).to_string(), "512.0 MiB");
        assert_eq!(Size::from_bytes(100).to_string(), "100 B");
    }
}
