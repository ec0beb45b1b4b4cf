//! Fuzzes the reader of tapes: bytes as they are, and with the checksum that an enemy would give them.
#![no_main]

use std::hash::Hasher;

use spillway_policy::tape::codec::MAGIC;
use spillway_policy::tape::{Score, Tape};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = Tape::decode(data);
    let mut bytes = [&MAGIC[..], data].concat();
    let mut hasher = twox_hash::XxHash3_64::with_seed(0);
    hasher.write(&bytes);
    bytes.extend(hasher.finish().to_le_bytes());
    let Ok(tape) = Tape::decode(&bytes) else { return };
    assert_eq!(Tape::decode(&tape.encode()).as_ref(), Ok(&tape));
    let words = Score::words(&tape);
    let score = Score::of(&words).expect("words of a tape");
    for run in tape.threads.iter().flatten() {
        let found = score.find(run.mapping, run.page, 0).and_then(|(position, _)| score.run(position));
        assert_eq!(found.map(|found| (found.mapping, found.page)), Some((run.mapping, run.page)));
    }
});
