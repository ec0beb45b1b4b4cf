//! Whatever somebody says of himself on his socket, or asks on ours, no reader panics.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "exercise/snapshot.rs"]
mod exercise;

use proptest::prelude::*;
use spillway_snapshot::reader::understood;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn garbage_never_panics(data in prop::collection::vec(any::<u8>(), 0..300)) {
        exercise::exercise(&data);
    }

    #[test]
    fn whatever_is_changed_in_a_sound_text_nobody_panics(
        edits in prop::collection::vec((any::<[u8; 2]>(), any::<u8>(), 0u8..14), 0..6),
    ) {
        let bytes = edits.into_iter().flat_map(|([high, low], dropped, put)| [high, low, dropped, put]);
        exercise::exercise(&bytes.collect::<Vec<_>>());
    }
}

#[test]
fn nothing_that_another_user_says_reaches_a_terminal_as_a_command() {
    let kind =
        r#"{"ok":{"version":1,"spillway_version":"0","pid":1,"uid":1,"name":"","uptime_s":1,"kind":"K"}}"#;
    let odd = [
        r#"{"error":"\u001b[2J\u009b2J"}"#.to_owned(),
        r#"{"\u001b[2J":1}"#.to_owned(),
        kind.replace('K', "\\u001b[2J"),
    ];
    for answer in odd {
        let text = understood(answer.as_bytes(), 1).unwrap_err().to_string();
        assert!(text.contains("[2J") && !text.chars().any(char::is_control), "{text:?}");
    }
    let long = format!(r#"{{"error":"{}"}}"#, "x".repeat(5000));
    assert!(understood(long.as_bytes(), 1).unwrap_err().to_string().len() < 1100);
}
