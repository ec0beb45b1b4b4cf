//! What a page costs on each store, in nanoseconds, by one lane, slots in random order:
//!
//! ```text
//! cargo run --release -p spillway-store --example store_cost -- [STORE_URI]...
//! ```

use std::io::Write;
use std::time::Instant;

use spillway_core::page::{PAGE_SIZE, Page};
use spillway_store::{Lane, ReadRequest, StoreError, StoreSpec, WriteRequest};

/// Pages that a round writes, reads and discards.
const PAGES: usize = 16_384;

/// Rounds, of which the median counts.
const ROUNDS: usize = 5;

/// What the pages hold.
#[derive(Clone, Copy)]
enum Contents {
    /// Words of a small vocabulary: lz4 makes about a third of it.
    Text,
    /// Does not compress.
    Random,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut uris: Vec<String> = std::env::args().skip(1).collect();
    if uris.is_empty() {
        let scratch = std::env::temp_dir();
        uris = vec!["ram:".into(), "compressed:".into(), format!("file:{}?size=1G", scratch.display())];
    }
    let mut out = std::io::stdout();
    writeln!(
        out,
        "{:<24} {:>7} {:>5} {:>9} {:>11} {:>9} {:>10}  {:>12}",
        "store", "pages", "batch", "write ns", "rewrite ns", "read ns", "discard ns", "bytes a page"
    )?;
    for uri in uris {
        let spec: StoreSpec = uri.parse()?;
        for (name, contents) in [("text", Contents::Text), ("random", Contents::Random)] {
            for batch in [1, 64] {
                let store = spec.open(spec.prepare("store-cost")?, "store-cost")?;
                let data = contents.pages();
                let mut lane = store.open_lane()?;
                let [write, rewrite, read, discard] = measure(&mut *lane, &data, batch)?;
                write_all(&mut *lane, &slots(), &data, batch)?;
                let bytes = store.stored_bytes() / PAGES as u64;
                writeln!(
                    out,
                    "{uri:<24} {name:>7} {batch:>5} {write:>9} {rewrite:>11} {read:>9} {discard:>10}  \
                     {bytes:>12}"
                )?;
            }
        }
    }
    Ok(())
}

/// All slots, in an order that has nothing to do with their numbers.
fn slots() -> Vec<u32> {
    let mut slots: Vec<u32> = (0..PAGES as u32).collect();
    let mut random = Random(1);
    for at in 1..PAGES {
        slots.swap(at, random.next() as usize % (at + 1));
    }
    slots
}

/// Nanoseconds a page to write to an empty slot, write anew, read and discard.
fn measure(lane: &mut dyn Lane, data: &[Page], batch: usize) -> Result<[u128; 4], StoreError> {
    let slots = slots();
    let mut back = vec![[0; PAGE_SIZE]; batch];
    let mut rounds: [Vec<u128>; 4] = Default::default();
    for _ in 0..ROUNDS {
        let [writes, rewrites, reads, discards] = &mut rounds;
        writes.push(timed(|| write_all(lane, &slots, data, batch))?);
        rewrites.push(timed(|| write_all(lane, &slots, data, batch))?);
        reads.push(timed(|| slots.chunks(batch).try_for_each(|slots| read(lane, slots, &mut back)))?);
        discards.push(timed(|| {
            slots.chunks(batch).for_each(|slots| lane.discard(slots));
            Ok(())
        })?);
    }
    Ok(rounds.map(|mut times| {
        times.sort_unstable();
        times[ROUNDS / 2]
    }))
}

fn timed(work: impl FnOnce() -> Result<(), StoreError>) -> Result<u128, StoreError> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_nanos() / PAGES as u128)
}

fn write_all(lane: &mut dyn Lane, slots: &[u32], pages: &[Page], batch: usize) -> Result<(), StoreError> {
    for (slots, pages) in slots.chunks(batch).zip(pages.chunks(batch)) {
        let mut requests: Vec<_> = slots
            .iter()
            .zip(pages)
            .map(|(slot, page)| WriteRequest { slot: *slot, page, outcome: Ok(()) })
            .collect();
        lane.write(&mut requests);
        requests.into_iter().try_for_each(|request| request.outcome)?;
    }
    Ok(())
}

fn read(lane: &mut dyn Lane, slots: &[u32], pages: &mut [Page]) -> Result<(), StoreError> {
    let mut requests: Vec<_> = slots
        .iter()
        .zip(pages)
        .map(|(slot, page)| ReadRequest { slot: *slot, page, outcome: Ok(()) })
        .collect();
    lane.read(&mut requests);
    requests.into_iter().try_for_each(|request| request.outcome)
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

impl Contents {
    fn pages(self) -> Vec<Page> {
        let mut random = Random(7);
        let vocabulary: Vec<u64> = (0..200).map(|_| random.next()).collect();
        let mut pages = vec![[0; PAGE_SIZE]; PAGES];
        for word in pages.as_flattened_mut().chunks_exact_mut(8) {
            let value = match self {
                Self::Text => vocabulary[random.next() as usize % vocabulary.len()],
                Self::Random => random.next(),
            };
            word.copy_from_slice(&value.to_le_bytes());
        }
        pages
    }
}
