//! The configuration file of `spillway run`: how each tier's frames are kept, and which pages leave first.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use spillway_pager::run::settings::{FetchSettings, PoolSettings};
use spillway_policy::dcm;

/// A configuration file, in TOML. What it does not name is as without a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Configuration {
    /// `[pool]`: the frames of each tier.
    pub pool: Pools,
    /// `[replacement]`: which pages leave first.
    pub replacement: dcm::Config,
    /// `[fetch]`: how far pages come in.
    pub fetch: FetchSettings,
}

/// The frames of each tier. Those of stores are their servers', or the kernel's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pools {
    /// `[pool.local]`: how local memory is kept.
    pub local: PoolSettings,
}

/// The file that is read where none is named, if it is there. `spillway bench physical --pool` makes one for
/// a machine.
pub const USUAL_PATH: &str = "/etc/spillway/run.toml";

/// Why a configuration file cannot be used.
#[derive(Debug, Error)]
pub enum ConfigurationError {
    /// It cannot be read.
    #[error("configuration file {0}: {1}; name one that can be read with --config")]
    Unreadable(PathBuf, std::io::Error),
    /// It says what makes no sense.
    #[error("configuration file {0}: {1}; 'spillway check {0}' tells all that is wrong")]
    Nonsense(PathBuf, String),
}

impl Configuration {
    /// The file that is named, or else the usual one, if there is one.
    pub fn find(named: Option<&Path>) -> Result<Self, ConfigurationError> {
        Self::first_of(named, Path::new(USUAL_PATH))
    }

    fn first_of(named: Option<&Path>, usual: &Path) -> Result<Self, ConfigurationError> {
        match named {
            Some(path) => Self::read(path),
            // What is there and cannot be read is no reason to go on without it.
            None => match Self::read(usual) {
                Err(ConfigurationError::Unreadable(_, error)) if error.kind() == ErrorKind::NotFound => {
                    Ok(Self::default())
                }
                read => read,
            },
        }
    }

    fn read(path: &Path) -> Result<Self, ConfigurationError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigurationError::Unreadable(path.to_owned(), error))?;
        Self::parse(&text).map_err(|reason| ConfigurationError::Nonsense(path.to_owned(), reason))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let configuration: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            format!("line {line}: {}", error.message().replace('\n', " "))
        })?;
        configuration.check()?;
        Ok(configuration)
    }

    /// Whether every value makes sense; else the key of the first that does not, and what would.
    pub fn check(&self) -> Result<(), String> {
        self.replacement.check().map_err(|error| error.to_string())?;
        let copy_share = self.pool.local.copy_share;
        if !(0.0..=1.0).contains(&copy_share) {
            return Err(format!("copy_share is {copy_share}; set it to 0 to 1"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use spillway_bench::ablation::switches::{Place, SWITCHES};

    use super::*;
    use spillway_core::size::Size;
    use spillway_pager::run::settings::Strides;

    #[test]
    fn what_is_set_takes_the_place_of_the_usual() {
        assert_eq!(Configuration::parse(""), Ok(Configuration::default()));
        let text = "
            [pool.local]
            reserve_bytes = '8M'
            victim_window_pages = 0
            huge_pages = true
            background = { bytes_per_s = '1.5G' }
        ";
        let local = Configuration::parse(text).unwrap().pool.local;
        assert_eq!(local.reserve_bytes, Size::from_bytes(8 << 20));
        assert_eq!((local.victim_window_pages, local.huge_pages), (0, true));
        assert_eq!(local.background.bytes_per_s, Size::from_bytes(3 << 29));
    }

    #[test]
    fn the_example_shows_every_setting_as_it_is_without_it() {
        let example = include_str!("../../../packaging/examples/run.toml");
        assert_eq!(Configuration::parse(example), Ok(Configuration::default()));
        let is_setting = |line: &&str| line.starts_with('#') && !line.starts_with("# ") && line.len() > 1;
        let settings: String =
            example.lines().filter(is_setting).map(|line| format!("{}\n", &line[1..])).collect();
        assert_eq!(Configuration::parse(&settings), Ok(Configuration::default()));
        // Every setting there is: with one more or less they would differ.
        let shown: toml::Table = toml::from_str(&settings).unwrap();
        let all = toml::Table::try_from(Configuration::default()).unwrap();
        fn keys(table: &toml::Table, above: &str, found: &mut Vec<String>) {
            for (key, value) in table {
                match value {
                    toml::Value::Table(table) => keys(table, &format!("{above}{key}."), found),
                    _ => found.push(format!("{above}{key}")),
                }
            }
        }
        let (mut shown_keys, mut all_keys) = (Vec::new(), Vec::new());
        keys(&shown, "", &mut shown_keys);
        keys(&all, "", &mut all_keys);
        assert_eq!(shown_keys, all_keys);
    }

    #[test]
    fn shares_are_shares() {
        let parsed = Configuration::parse("[replacement]\nscan_share = 0.25").unwrap().replacement;
        assert_eq!(parsed, dcm::Config { scan_share: 0.25, ..dcm::Config::default() });
        for (name, wrong) in [("scan_share", "2.0"), ("return_share", "-0.1"), ("random_promotion", "nan")] {
            let error = Configuration::parse(&format!("[replacement]\n{name} = {wrong}")).unwrap_err();
            assert!(error.contains(name) && error.contains("set it to 0 to 1"), "{error}");
        }
        assert!(Configuration::parse("[replacement]\nscans = 1").is_err());
        let error = Configuration::parse("[replacement]\nnewcomer_rank = 22").unwrap_err();
        assert!(error.contains("set it to 0 to 21"), "{error}");
    }

    #[test]
    fn streams_go_by_huge_pages_only_where_that_is_asked_for() {
        assert!(!Configuration::default().fetch.huge_streams);
        assert!(Configuration::parse("[fetch]\nhuge_streams = true").unwrap().fetch.huge_streams);
    }

    #[test]
    fn overlap_is_on_unless_switched_off() {
        assert!(Configuration::default().fetch.overlap);
        assert!(!Configuration::parse("[fetch]\noverlap = false").unwrap().fetch.overlap);
        assert!(Configuration::parse("[fetch]\noverlaps = false").is_err());
    }

    #[test]
    fn strides_are_as_the_store_is_off_by_trend_or_in_rounds() {
        let strides = |text: &str| Configuration::parse(text).map(|found| found.fetch.strides);
        assert_eq!(strides(""), Ok(Strides::Auto));
        assert_eq!(strides("[fetch]\nstrides = 'auto'"), Ok(Strides::Auto));
        assert_eq!(strides("[fetch]\nstrides = 'off'"), Ok(Strides::Off));
        assert_eq!(strides("[fetch]\nstrides = 'trend'"), Ok(Strides::Trend));
        assert_eq!(strides("[fetch]\nstrides = 'rounds'"), Ok(Strides::Rounds));
        let error = strides("[fetch]\nstrides = 'leap'").unwrap_err();
        assert!(error.contains("line 2: unknown variant `leap`"), "{error}");
    }

    #[test]
    fn what_the_ablation_calls_usual_is_and_what_it_sets_can_be_set() {
        for switch in SWITCHES.iter().filter(|switch| matches!(switch.place, Place::Table(..))) {
            let parse = |value: &str| Configuration::parse(&switch.how(value));
            assert_eq!(parse(switch.usual), Ok(Configuration::default()), "{}", switch.name);
            for other in switch.others {
                let set = parse(other).unwrap_or_else(|error| panic!("{} = {other}: {error}", switch.name));
                assert_ne!(set, Configuration::default(), "{} = {other} changes nothing", switch.name);
            }
        }
    }

    #[test]
    fn a_named_file_goes_before_the_usual_one_which_need_not_be_there() {
        let directory = tempfile::tempdir().unwrap();
        let (named, usual) = (directory.path().join("named"), directory.path().join("usual"));
        let window = |named: Option<&Path>| {
            Configuration::first_of(named, &usual).map(|found| found.pool.local.victim_window_pages)
        };
        let without = PoolSettings::default().victim_window_pages;
        assert_eq!(window(None).unwrap(), without);
        assert!(
            matches!(window(Some(&named)), Err(ConfigurationError::Unreadable(path, _)) if path == named)
        );
        std::fs::write(&usual, "[pool.local]\nvictim_window_pages = 7").unwrap();
        std::fs::write(&named, "").unwrap();
        assert_eq!((window(None).unwrap(), window(Some(&named)).unwrap()), (7, without));
        std::fs::write(&usual, "nonsense").unwrap();
        assert!(matches!(window(None), Err(ConfigurationError::Nonsense(path, _)) if path == usual));
    }

    #[test]
    fn nonsense_is_refused_with_its_line() {
        for (text, part) in [
            ("[pool.local]\nreserve = 1", "line 2: unknown field `reserve`"),
            ("[pool.far]", "unknown field `far`"),
            ("[pool.local]\n\nreserve_bytes = 'much'", "line 3: 'much' is not a size"),
            ("[pool.local.background]\nyield_ratio = 1.5", "line 2: unknown field `yield_ratio`"),
            ("[pool.local]\ncopy_share = 1.5", "copy_share is 1.5"),
            ("[pool.local]\ncopy_share = nan", "copy_share is NaN"),
            ("pool =", "line 1: "),
        ] {
            let error = Configuration::parse(text).unwrap_err();
            assert!(error.contains(part) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
