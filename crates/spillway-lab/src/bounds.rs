//! How seldom a pager could fetch at all, by a memory trace: Belady's optimum, and LRU and CLOCK beside it.
//!
//! Every access counts, which no pager sees. Pages that the program gives back are new when they come again;
//! LRU and CLOCK keep them until they leave by themselves.

use std::collections::HashMap;
use std::io::Read;

use serde::Serialize;
use spillway_core::page::PAGE_SHIFT;

use crate::access::Action;
use crate::replay::{Clock, Lru, PageTrace, ReplayError, Replayed, replay, replay_belady};
use crate::trace::{TraceError, TraceReader, TraceSummary};

/// Pages that each would fetch: those that come a second time and later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bounds {
    /// Belady's optimum, which knows the future.
    pub belady_pages: u64,
    /// With the page that was not used for longest leaving.
    pub lru_pages: u64,
    /// With an accessed bit, and a hand that goes round.
    pub clock_pages: u64,
}

/// The pages of a memory trace in the order of their accesses; repetitions of the same are left out.
///
/// # Errors
/// `source` cannot be read, or holds no whole trace.
pub(crate) fn page_trace(source: impl Read) -> Result<(PageTrace, TraceSummary), TraceError> {
    // A page that was given back has another number when it comes again.
    let mut lives: HashMap<u64, u64> = HashMap::new();
    let mut requests = Vec::new();
    let mut last = None;
    let mut next = 0;
    let summary =
        TraceReader::new(source)?.for_each(|_, access| match (access.address(), access.action()) {
            (Some(address), _) => {
                let page_number = address >> PAGE_SHIFT;
                if last == Some(page_number) {
                    return;
                }
                last = Some(page_number);
                let life = *lives.entry(page_number).or_insert_with(|| {
                    next += 1;
                    next
                });
                requests.push(life);
            }
            (None, Action::Release(page_number, pages)) => {
                let released = page_number..page_number + pages;
                if pages < lives.len() as u64 {
                    released.for_each(|page_number| _ = lives.remove(&page_number));
                } else {
                    lives.retain(|known, _| !released.contains(known));
                }
                last = None;
            }
            _ => {}
        })?;
    Ok((PageTrace::new(requests).map_err(refused)?, summary))
}

/// A replay that was refused, as what is wrong with the trace.
pub(crate) fn refused(error: ReplayError) -> TraceError {
    TraceError::Io(std::io::Error::other(error.to_string()))
}

/// Runs a memory trace through each, with so many pages local.
///
/// # Errors
/// `source` cannot be read, or holds no whole trace or one that is too long.
pub fn bounds(source: impl Read, local_pages: usize) -> Result<Bounds, TraceError> {
    let (trace, _) = page_trace(source)?;
    let frames = u32::try_from(local_pages).unwrap_or(u32::MAX);
    let fetched = |replayed: Result<Replayed, ReplayError>| {
        replayed.map(|replayed| replayed.misses - u64::from(trace.pages())).map_err(refused)
    };
    Ok(Bounds {
        belady_pages: fetched(replay_belady(&trace, frames))?,
        lru_pages: fetched(replay::<Lru>(&trace, frames))?,
        clock_pages: fetched(replay::<Clock>(&trace, frames))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::trace::TraceWriter;

    fn bounds_of(accesses: impl Iterator<Item = Access>, local_pages: usize) -> Bounds {
        let mut trace = Vec::new();
        let mut writer = TraceWriter::new(&mut trace).unwrap();
        accesses.for_each(|access| writer.append(0, access).unwrap());
        writer.finish().unwrap();
        bounds(trace.as_slice(), local_pages).unwrap()
    }

    fn read(page: u64) -> Access {
        Access::read(page << PAGE_SHIFT)
    }

    #[test]
    fn round_and_round_the_optimum_keeps_what_lru_loses() {
        // Ten rounds over 100 pages, of which 60 fit: LRU loses each before it comes round.
        let found = bounds_of((0..1000).map(|i| read(i % 100)), 60);
        assert_eq!((found.lru_pages, found.clock_pages), (900, 900));
        // The optimum keeps 59 a round, and fetches one more each time that the round has shifted.
        assert!((360..=372).contains(&found.belady_pages), "{found:?}");
        let fits = bounds_of((0..1000).map(|i| read(i % 100)), 100);
        assert_eq!(fits, Bounds { belady_pages: 0, lru_pages: 0, clock_pages: 0 });
    }

    #[test]
    fn what_is_given_back_is_not_fetched() {
        let rounds =
            |release: fn() -> Access| (0..10).flat_map(move |_| (0..100).map(read).chain([release()]));
        let found = bounds_of(rounds(|| Access::release(0, 100)), 60);
        assert_eq!((found.belady_pages, found.lru_pages), (0, 0));
        assert!(bounds_of(rounds(|| Access::compute_ns(1)), 60).belady_pages > 300);
    }
}
