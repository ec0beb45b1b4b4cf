//! Whatever a process and its supervisor say to each other, the other side stands.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "exercise/rendezvous.rs"]
mod exercise;

use proptest::prelude::*;

proptest! {
    #[test]
    fn whatever_is_said_nobody_panics(data in prop::collection::vec(any::<u8>(), 0..300)) {
        exercise::exercise(&data);
    }

    #[test]
    fn whatever_is_changed_in_a_message_nobody_panics(
        descriptors in any::<u8>(), edits in prop::collection::vec((any::<u8>(), 0u8..6, 0u8..12), 0..4),
    ) {
        let edits = edits.into_iter().flat_map(|(at, dropped, put)| [at, dropped, put]);
        exercise::exercise(&std::iter::once(descriptors).chain(edits).collect::<Vec<_>>());
    }
}
