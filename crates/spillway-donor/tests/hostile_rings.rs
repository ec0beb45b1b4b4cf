//! Whatever a client of a ring says and writes, its donor stands.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "exercise/ring.rs"]
mod exercise;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn garbage_never_panics(data in prop::collection::vec(any::<u8>(), 0..300)) {
        exercise::exercise(&data);
    }

    #[test]
    fn almost_requests_never_panic(
        requests in prop::collection::vec((0u8..4, any::<bool>(), 0u8..10), 0..300),
    ) {
        let bytes = |(operation, is_odd, slot)| [operation, u8::from(is_odd) << 6, slot];
        exercise::exercise(&requests.into_iter().flat_map(bytes).collect::<Vec<_>>());
    }
}
