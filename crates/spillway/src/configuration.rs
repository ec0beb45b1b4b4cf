//! The configuration file of `spillway run`: what is set for each tier's frames.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

use spillway_pager::settings::PoolSettings;

/// A configuration file, in TOML. What it does not name is as without a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Configuration {
    /// `[pool]`: the frames of each tier.
    pub pool: Pools,
}

/// The frames of each tier. Those of stores are their servers', or the kernel's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pools {
    /// `[pool.local]`: local memory.
    pub local: PoolSettings,
}

/// Why a configuration file cannot be used.
#[derive(Debug, Error)]
pub enum ConfigurationError {
    /// It cannot be read.
    #[error("--config {0}: {1}; name a file that can be read")]
    Unreadable(PathBuf, std::io::Error),
    /// It says what makes no sense.
    #[error("--config {0}: {1}")]
    Nonsense(PathBuf, String),
}

impl Configuration {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, ConfigurationError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigurationError::Unreadable(path.to_owned(), error))?;
        Self::parse(&text).map_err(|reason| ConfigurationError::Nonsense(path.to_owned(), reason))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let configuration: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            format!("line {line}: {}", error.message().replace('\n', " "))
        })?;
        let yield_ratio = configuration.pool.local.background.yield_ratio;
        if yield_ratio != 0.0 && !(1.0..=1000.0).contains(&yield_ratio) {
            return Err(format!("yield_ratio is {yield_ratio}; set it to 1 to 1000, or to 0 for never"));
        }
        Ok(configuration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spillway_core::size::Size;

    #[test]
    fn what_is_set_takes_the_place_of_the_usual() {
        assert_eq!(Configuration::parse(""), Ok(Configuration::default()));
        let text = "
            [pool.local]
            reserve_bytes = '8M'
            victim_window_pages = 0
            huge_pages = true
            background = { bytes_per_s = '1.5G', yield_ratio = 0 }
        ";
        let local = Configuration::parse(text).unwrap().pool.local;
        assert_eq!(local.reserve_bytes, Size::from_bytes(8 << 20));
        assert_eq!((local.victim_window_pages, local.huge_pages), (0, true));
        let (rate, ratio) = (local.background.bytes_per_s, local.background.yield_ratio);
        assert_eq!((rate, ratio), (Size::from_bytes(3 << 29), 0.0));
    }

    #[test]
    fn nonsense_is_refused_with_its_line() {
        for (text, part) in [
            ("[pool.local]\nreserve = 1", "line 2: unknown field `reserve`"),
            ("[pool.far]", "unknown field `far`"),
            ("[pool.local]\n\nreserve_bytes = 'much'", "line 3: 'much' is not a size"),
            ("[pool.local.background]\nyield_ratio = 0.5", "yield_ratio is 0.5"),
            ("[pool.local.background]\nyield_ratio = nan", "yield_ratio is NaN"),
            ("pool =", "line 1: "),
        ] {
            let error = Configuration::parse(text).unwrap_err();
            assert!(error.contains(part) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
