//! What a run registers: whose it is, and how its pages are.

use serde::{Deserialize, Serialize};
use spillway_store::membership::RunState;
use spillway_store::spec::EtcdPool;

use crate::plain_name::is_plain_name;

/// A run's value in etcd. Fields that are not known are those of a later version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunRegistration {
    /// The host that it runs on.
    pub host: String,
    /// The command `spillway run` there.
    pub pid: u32,
    /// Its version of Spillway.
    pub version: String,
    /// How many copies of a page it wants.
    pub copies: usize,
    /// Bytes of pages that it has in the pool.
    pub stored_bytes: u64,
    /// Bytes of them that have fewer copies than it wants.
    pub endangered_bytes: u64,
    /// Bytes of them that no donor can give now.
    pub unreachable_bytes: u64,
    /// Bytes of pages that are to be copied still.
    pub left_bytes: u64,
    /// Bytes copied in the last second or so.
    pub copied_bytes_per_s: u64,
}

impl From<RunRegistration> for RunState {
    fn from(own: RunRegistration) -> Self {
        Self {
            host: own.host,
            pid: own.pid,
            version: own.version,
            copies: own.copies,
            stored_bytes: own.stored_bytes,
            endangered_bytes: own.endangered_bytes,
            unreachable_bytes: own.unreachable_bytes,
            left_bytes: own.left_bytes,
            copied_bytes_per_s: own.copied_bytes_per_s,
        }
    }
}

impl From<RunState> for RunRegistration {
    fn from(run: RunState) -> Self {
        Self {
            host: run.host,
            pid: run.pid,
            version: run.version,
            copies: run.copies,
            stored_bytes: run.stored_bytes,
            endangered_bytes: run.endangered_bytes,
            unreachable_bytes: run.unreachable_bytes,
            left_bytes: run.left_bytes,
            copied_bytes_per_s: run.copied_bytes_per_s,
        }
    }
}

/// What the keys of a pool's runs begin with.
pub(crate) fn prefix(pool: &EtcdPool) -> String {
    format!("/spillway/pools/{}/runs/", pool.name)
}

/// A run's own key.
pub(crate) fn key(pool: &EtcdPool, run: &RunRegistration) -> String {
    format!("{}{}:{}", prefix(pool), run.host, run.pid)
}

/// What a key and its value say; none where they are no run's, for anybody can write there.
pub(crate) fn run(key: &str, value: &str) -> Option<RunState> {
    let run: RunState = serde_json::from_str::<RunRegistration>(value).ok()?.into();
    let is_whole = key.ends_with(&format!("/{}:{}", run.host, run.pid)) && run.pid != 0 && run.copies > 0;
    (is_whole && [&run.host, &run.version].into_iter().all(|text| is_plain_name(text))).then_some(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_run_is_left_out() {
        let state = RunState {
            host: "node7".into(),
            pid: 12,
            version: "0.1.0".into(),
            copies: 2,
            stored_bytes: 8,
            left_bytes: 4,
            ..RunState::default()
        };
        let value = serde_json::to_string(&RunRegistration::from(state.clone())).unwrap();
        let at = "/spillway/pools/lab/runs/node7:12";
        assert_eq!(run(at, &value), Some(state));
        for (key, value) in [
            ("/spillway/pools/lab/runs/node7:13", value.clone()),
            (at, String::new()),
            (at, "{}".to_owned()),
            (at, value.replace("0.1.0", "")),
            (at, value.replace("0.1.0", &"x".repeat(300))),
            (at, value.replace("\"copies\":2", "\"copies\":0")),
            ("/spillway/pools/lab/runs/\u{1b}[2J:12", value.replace("node7", "\\u001b[2J")),
        ] {
            assert_eq!(run(key, &value), None, "{key} {value}");
        }
    }
}
