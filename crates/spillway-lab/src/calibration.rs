//! What a fetch takes on a machine, as it was measured there (`spillway lab calibrate`).

use std::path::Path;

use serde::{Deserialize, Serialize};

/// What a page that comes back costs, over one store in one fault mode: the fault, the fetch, and the
/// eviction that makes room.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FetchTime {
    /// `--store` of `spillway run`.
    pub store: String,
    /// Who serves faults: `thread` or `inline`.
    pub fault_mode: String,
    /// Nanoseconds where the page that leaves for it was not written to.
    pub clean_ns: f64,
    /// Nanoseconds where it was, and is stored.
    pub written_ns: f64,
}

/// Measurements of one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// The machine, in words.
    pub machine: String,
    /// What was measured on it.
    pub fetches: Vec<FetchTime>,
}

impl Calibration {
    /// Reads what `spillway lab calibrate` has written.
    ///
    /// # Errors
    /// The file cannot be read, or holds something else; in one line.
    pub fn read(path: &Path) -> Result<Self, String> {
        let refused = |reason: String| {
            let remedy = "'spillway lab calibrate -o FILE' makes one";
            format!("calibration {}: {reason}; {remedy}", path.display())
        };
        let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
        let read: Self = serde_json::from_str(&text).map_err(|error| refused(error.to_string()))?;
        let is_time = |ns: f64| ns.is_finite() && ns >= 0.0;
        match read.fetches.iter().find(|time| !is_time(time.clean_ns) || !is_time(time.written_ns)) {
            Some(wrong) => Err(refused(format!("of {} it has a time below zero", wrong.store))),
            None => Ok(read),
        }
    }

    /// What a fetch takes over this store in this fault mode, where it was measured.
    #[must_use]
    pub fn find(&self, store: &str, fault_mode: &str) -> Option<&FetchTime> {
        self.fetches
            .iter()
            .find(|time| (time.store.as_str(), time.fault_mode.as_str()) == (store, fault_mode))
    }
}

impl FetchTime {
    /// Nanoseconds of a fetch where so large a share of the pages that leave was written to.
    #[must_use]
    pub fn ns(&self, written_share: f64) -> f64 {
        self.clean_ns + (self.written_ns - self.clean_ns) * written_share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("calibration.json");
        std::fs::write(&path, text).unwrap();
        (directory, path)
    }

    const GOOD: &str = r#"{"machine": "this", "fetches": [{"store": "ram:", "fault_mode": "inline",
        "clean_ns": 1000.0, "written_ns": 3000.0}]}"#;

    #[test]
    fn a_time_is_that_of_the_store_and_the_mode_or_not_measured() {
        let (_directory, path) = write(GOOD);
        let calibration = Calibration::read(&path).unwrap();
        let time = calibration.find("ram:", "inline").unwrap();
        assert_eq!((time.ns(0.0), time.ns(0.5), time.ns(1.0)), (1000.0, 2000.0, 3000.0));
        assert_eq!(calibration.find("ram:", "thread"), None);
        assert_eq!(calibration.find("ram:?fabric=fdr", "inline"), None);
    }

    #[test]
    fn what_is_no_calibration_is_refused_in_one_line() {
        for (text, reason) in [
            ("", "EOF"),
            ("{\"rows\": []}", "unknown field `rows`"),
            ("{\"machine\": \"this\"}", "missing field `fetches`"),
            (&GOOD.replace("1000.0", "-1"), "below zero"),
        ] {
            let (_directory, path) = write(text);
            let error = Calibration::read(&path).unwrap_err();
            assert!(error.contains(reason) && error.contains("lab calibrate"), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
        let error = Calibration::read(Path::new("/nowhere/at/all")).unwrap_err();
        assert!(error.contains("/nowhere/at/all"), "{error}");
    }
}
