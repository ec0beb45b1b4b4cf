//! Page-trace replay: which requests of a trace find their page in a local memory of so many pages, under
//! LRU, FIFO, CLOCK and SIEVE, the yardsticks of the caching field, and under Belady's optimum.
//!
//! No time passes and nothing is written back: only hits and misses count. One file a policy; each is one
//! array for the pages and one for the frames, so that a request costs two or three cache misses of the real
//! machine.

mod belady;
mod clock;
mod fifo;
mod lru;
mod page_trace;
mod replacement;
mod sieve;

pub use belady::replay_belady;
pub use clock::Clock;
pub use fifo::Fifo;
pub use lru::Lru;
pub use page_trace::{POLICIES, PageTrace, ReplayError, Replayed};
pub use replacement::Replacement;
pub use sieve::Sieve;

/// Replays a trace with a local memory of `frames` pages under policy `R`.
///
/// # Errors
/// A local memory without room for a page.
pub fn replay<R: Replacement>(trace: &PageTrace, frames: u32) -> Result<Replayed, ReplayError> {
    if frames == 0 {
        return Err(ReplayError::NoFrames);
    }
    // More frames than pages are never used.
    let mut memory = R::new(trace.pages(), frames.min(trace.pages().max(1)));
    let hits: u64 = trace.requests().iter().map(|&page| u64::from(memory.request(page))).sum();
    let requests = trace.requests().len() as u64;
    Ok(Replayed { requests, misses: requests - hits })
}

/// Replays a trace under one of [`POLICIES`].
///
/// # Errors
/// An unknown policy, or a local memory without room for a page.
pub fn replay_named(policy: &str, trace: &PageTrace, frames: u32) -> Result<Replayed, ReplayError> {
    match policy {
        "lru" => replay::<Lru>(trace, frames),
        "fifo" => replay::<Fifo>(trace, frames),
        "clock" => replay::<Clock>(trace, frames),
        "sieve" => replay::<Sieve>(trace, frames),
        "belady" => replay_belady(trace, frames),
        _ => Err(ReplayError::UnknownPolicy(policy.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Each policy by its definition, on a list whose first page came last: slow, and plain to see.
    fn naive_misses(policy: &str, requests: &[u32], frames: usize) -> u64 {
        let mut list: Vec<(u32, bool)> = Vec::new();
        let mut hand: Option<u32> = None;
        let mut misses = 0;
        for &page in requests {
            if let Some(at) = list.iter().position(|&(held, _)| held == page) {
                match policy {
                    "lru" => {
                        let entry = list.remove(at);
                        list.insert(0, entry);
                    }
                    "fifo" => {}
                    _ => list[at].1 = true,
                }
                continue;
            }
            misses += 1;
            if list.len() == frames {
                match policy {
                    "clock" => {
                        while let Some((oldest, true)) = list.pop().inspect(|&entry| {
                            if !entry.1 {
                                list.push(entry);
                            }
                        }) {
                            list.insert(0, (oldest, false));
                        }
                        list.pop();
                    }
                    "sieve" => {
                        let start = hand.and_then(|page| list.iter().position(|&(held, _)| held == page));
                        let mut at = start.unwrap_or(list.len() - 1);
                        while list[at].1 {
                            list[at].1 = false;
                            at = at.checked_sub(1).unwrap_or(list.len() - 1);
                        }
                        hand = at.checked_sub(1).map(|next| list[next].0);
                        list.remove(at);
                    }
                    _ => {
                        list.pop();
                    }
                }
            }
            list.insert(0, (page, false));
        }
        misses
    }

    /// Belady's by its definition: looking ahead from each request.
    fn naive_belady_misses(requests: &[u32], frames: usize) -> u64 {
        let mut list: Vec<u32> = Vec::new();
        let mut misses = 0;
        for (at, page) in requests.iter().enumerate() {
            if list.contains(page) {
                continue;
            }
            misses += 1;
            if list.len() == frames {
                let needed = |held: &u32| requests[at..].iter().position(|page| page == held);
                let last = (0..list.len()).max_by_key(|&i| needed(&list[i]).unwrap_or(usize::MAX));
                list.remove(last.unwrap());
            }
            list.push(*page);
        }
        misses
    }

    #[test]
    fn known_sequences_miss_as_often_as_the_literature_says() {
        // Belady's anomaly: FIFO misses 9 times with 3 frames, 10 times with 4.
        let trace = PageTrace::new([1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5]).unwrap();
        assert_eq!(replay::<Fifo>(&trace, 3).unwrap().misses, 9);
        assert_eq!(replay::<Fifo>(&trace, 4).unwrap().misses, 10);
        assert_eq!(replay::<Lru>(&trace, 3).unwrap().misses, 10);
        assert_eq!(replay::<Lru>(&trace, 4).unwrap().misses, 8);
        assert_eq!(replay_belady(&trace, 3).unwrap().misses, 7);
        assert_eq!(replay_belady(&trace, 4).unwrap().misses, 6);
    }

    #[test]
    fn sieve_keeps_what_was_visited_where_it_stands() {
        // The example of the SIEVE paper's Figure 1 in small: 1 is visited and survives, 2 is the first to
        // leave.
        let mut sieve = Sieve::new(8, 3);
        let requests =
            [(1, false), (2, false), (3, false), (1, true), (4, false), (1, true), (2, false), (3, false)];
        for (page, hits) in requests {
            assert_eq!(sieve.request(page), hits, "page {page}");
        }
    }

    #[test]
    fn refusals_are_clear() {
        let trace = PageTrace::new([1, 2, 3]).unwrap();
        assert_eq!(replay::<Lru>(&trace, 0), Err(ReplayError::NoFrames));
        assert_eq!(replay_belady(&trace, 0), Err(ReplayError::NoFrames));
        assert_eq!(replay_named("mru", &trace, 1), Err(ReplayError::UnknownPolicy("mru".to_owned())));
        assert_eq!(replay::<Lru>(&PageTrace::default(), 1), Ok(Replayed { requests: 0, misses: 0 }));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn misses_are_those_of_the_naive_policies(
            requests in prop::collection::vec(
                prop_oneof![3 => 0u64..8, 2 => 0u64..40, 1 => 0u64..400],
                0..600,
            ),
            frames in 1u32..60,
        ) {
            let trace = PageTrace::new(requests).unwrap();
            for policy in ["lru", "fifo", "clock", "sieve"] {
                let replayed = replay_named(policy, &trace, frames).unwrap();
                let expected = naive_misses(policy, trace.requests(), frames as usize);
                prop_assert_eq!(replayed.misses, expected, "{}", policy);
                prop_assert_eq!(replayed.requests, trace.requests().len() as u64);
            }
            let expected = naive_belady_misses(trace.requests(), frames as usize);
            prop_assert_eq!(replay_belady(&trace, frames).unwrap().misses, expected, "belady");
        }
    }
}
