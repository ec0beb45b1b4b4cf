//! What `spillway run --local` is given: a size, or a share of the memory that the run could use.

use std::fmt;
use std::str::FromStr;

use spillway_core::page::PAGE_BYTES;
use spillway_core::size::Size;
use spillway_sys::machine;
use thiserror::Error;

/// Most memory that a run keeps local.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LocalLimit {
    /// As many bytes as this.
    Bytes(Size),
    /// A share of the memory that the run could use, in percent: the machine's, or its control group's where
    /// that is less. What the program will take is not known when it starts.
    Pct(f64),
}

/// Why a limit was not understood, or cannot be told.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LocalLimitError {
    /// It is neither a size nor a share.
    #[error("{0}; or a share of the memory that the run could use, such as 25%")]
    Unreadable(String),
    /// It is a share that makes no sense.
    #[error("'{0}' is no share: write more than 0% and at most 100%, such as 25%")]
    ShareOutOfRange(String),
    /// There is nothing that it could be a share of.
    #[error("--local {0}: /proc/meminfo does not say how much memory there is; give a size, such as 512M")]
    UnknownMemory(String),
}

impl FromStr for LocalLimit {
    type Err = LocalLimitError;

    fn from_str(text: &str) -> Result<Self, LocalLimitError> {
        let Some(number) = text.trim().strip_suffix('%') else {
            let size = text.parse::<Size>();
            return size.map(Self::Bytes).map_err(|error| LocalLimitError::Unreadable(error.to_string()));
        };
        let pct = number.trim().parse().ok().filter(|pct| *pct > 0.0 && *pct <= 100.0);
        pct.map(Self::Pct).ok_or_else(|| LocalLimitError::ShareOutOfRange(text.to_owned()))
    }
}

impl fmt::Display for LocalLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(size) => size.fmt(f),
            Self::Pct(pct) => write!(f, "{pct}%"),
        }
    }
}

impl LocalLimit {
    /// The limit on this machine, as a size.
    ///
    /// # Errors
    /// It is a share, and nobody says of what.
    pub fn of_this_machine(self) -> Result<Size, LocalLimitError> {
        self.of(machine::usable_memory_bytes())
    }

    /// The limit where so much memory could be used, in whole pages.
    fn of(self, usable_bytes: Option<u64>) -> Result<Size, LocalLimitError> {
        match (self, usable_bytes) {
            (Self::Bytes(size), _) => Ok(size),
            (Self::Pct(_), None) => Err(LocalLimitError::UnknownMemory(self.to_string())),
            (Self::Pct(pct), Some(usable)) => {
                let bytes = (usable as f64 * pct / 100.0) as u64;
                Ok(Size::from_bytes(bytes / PAGE_BYTES * PAGE_BYTES))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_size_or_a_share() {
        assert_eq!("512M".parse(), Ok(LocalLimit::Bytes(Size::from_bytes(512 << 20))));
        assert_eq!(" 12.5 % ".parse(), Ok(LocalLimit::Pct(12.5)));
        for wrong in ["0%", "101%", "-5%", "NaN%", "%", "5%%"] {
            let error = wrong.parse::<LocalLimit>().unwrap_err();
            assert_eq!(error, LocalLimitError::ShareOutOfRange(wrong.to_owned()));
        }
        let error = "much".parse::<LocalLimit>().unwrap_err().to_string();
        assert!(error.contains("'much' is not a size") && error.contains("such as 25%"), "{error}");
    }

    #[test]
    fn a_share_is_of_the_memory_that_the_run_could_use() {
        let half = LocalLimit::Pct(50.0);
        assert_eq!(half.of(Some((1 << 30) + 4096)), Ok(Size::from_bytes(512 << 20)));
        assert_eq!(half.of(None), Err(LocalLimitError::UnknownMemory("50%".to_owned())));
        let size = Size::from_bytes(7 << 20);
        assert_eq!(LocalLimit::Bytes(size).of(None), Ok(size));
        let here = half.of_this_machine().unwrap();
        assert!(here.bytes() > 0 && here.bytes().is_multiple_of(PAGE_BYTES), "{here}");
    }
}
