//! What a run registers ([`RunState`]): its key, and what of it is believed.

use spillway_store::membership::RunState;
use spillway_store::spec::EtcdPool;

use crate::plain_name::is_plain_name;

/// What the keys of a pool's runs begin with.
pub(crate) fn prefix(pool: &EtcdPool) -> String {
    format!("/spillway/pools/{}/runs/", pool.name)
}

/// A run's own key.
pub(crate) fn key(pool: &EtcdPool, run: &RunState) -> String {
    format!("{}{}:{}", prefix(pool), run.host, run.pid)
}

/// What a key and its value say; none where they are no run's, for anybody can write there.
#[must_use]
pub fn run(key: &str, value: &str) -> Option<RunState> {
    let run: RunState = serde_json::from_str(value).ok()?;
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
        let value = serde_json::to_string(&state).unwrap();
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
