//! Whatever packet comes, neither a marker nor the daemon panics.

#[path = "exercise/wire.rs"]
mod exercise;

use proptest::prelude::*;

proptest! {
    #[test]
    fn garbage_never_panics(data in prop::collection::vec(any::<u8>(), 0..5000)) {
        exercise::exercise(&data);
    }

    #[test]
    fn almost_packets_never_panic(
        words in prop::collection::vec((0u8..4, prop_oneof![Just(0), any::<u8>()]), 0..30),
    ) {
        exercise::exercise(&words.into_iter().flat_map(|(low, high)| [low, high]).collect::<Vec<_>>());
    }
}
