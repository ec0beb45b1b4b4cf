//! What every ring must stand: no record makes the decoder panic, read outside of the ring, or tell of what
//! is no access. Shared by the property tests (`access_records.rs`) and the fuzz target
//! (`fuzz/fuzz_targets/access_records.rs`).

use spillway_sys::access_events::{Record, decode_ring};

/// Takes the first two words for the ring's ends, and the rest for the ring.
pub fn exercise(data: &[u8]) {
    let words: Vec<u64> = data.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    let Some((&[tail, head], ring)) = words.split_first_chunk() else { return };
    // The kernel keeps both at whole words.
    for (tail, head) in [(tail & !7, head & !7), (0, ring.len() as u64 * 8), (8, ring.len() as u64 * 8 + 8)] {
        let mut told = 0;
        decode_ring(ring, tail, head, &mut |record| {
            told += 1;
            if let Record::Access(access) = record {
                assert!(access.address > 0 && access.address < 1 << 56, "{access:?}");
            }
        });
        assert!(told <= ring.len(), "{told} records in {} words", ring.len());
    }
}
