//! How often replacement policies miss by a memory trace: LRU, FIFO, CLOCK, SIEVE, and Belady's optimum.
//!
//! Every access counts, and a miss brings a page; nothing is written back and no time passes. A page that the
//! program gives back is new when it comes again; but for Belady's, policies keep it until it leaves by
//! itself.

use std::io::Read;

use serde::Serialize;

use crate::bounds::{page_trace, refused};
use crate::replay::replay_named;
use crate::run::LocalSize;
use crate::trace::TraceError;

/// What came of one replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Misses {
    /// The name of the policy.
    pub policy: String,
    /// Local memory, in pages of 4 KiB.
    pub local_pages: u64,
    /// Accesses, those to the same page in a row counted as one.
    pub requests: u64,
    /// Those that did not find their page.
    pub misses: u64,
    /// Those of them that came to a page for the first time: no policy is without them.
    pub first_touches: u64,
}

impl Misses {
    /// Misses that were no first touches: pages that would be fetched.
    #[must_use]
    pub fn fetched_pages(&self) -> u64 {
        self.misses - self.first_touches
    }
}

/// Replays a memory trace under each of these policies with each of these sizes of local memory, which are
/// shares of the most that the program holds at once.
///
/// # Errors
/// `source` holds no whole trace or one that is too long, there is no such policy, or no local memory.
pub fn misses(
    source: impl Read,
    policies: &[String],
    local: &[LocalSize],
) -> Result<Vec<Misses>, TraceError> {
    let (trace, summary) = page_trace(source)?;
    let mut found = Vec::new();
    for &size in local {
        let local_pages = match size {
            LocalSize::Share(share) => (summary.most_held_pages as f64 * share).round() as u64,
            LocalSize::Bytes(bytes) => bytes / spillway_core::page::PAGE_BYTES,
        };
        let frames = u32::try_from(local_pages).unwrap_or(u32::MAX);
        for policy in policies {
            let replayed = replay_named(policy, &trace, frames).map_err(refused)?;
            found.push(Misses {
                policy: policy.clone(),
                local_pages,
                requests: replayed.requests,
                misses: replayed.misses,
                first_touches: trace.pages().into(),
            });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::replay::POLICIES;
    use crate::trace::TraceWriter;

    #[test]
    fn every_policy_is_replayed_by_its_name_with_each_size() {
        let mut bytes = Vec::new();
        let mut writer = TraceWriter::new(&mut bytes).unwrap();
        for round in 0..10_u64 {
            (0..100).for_each(|page| writer.append(0, Access::read(page << 12)).unwrap());
            // What is given back and taken again is new.
            writer.append_release(0, 50, u64::from(round == 4) * 50).unwrap();
        }
        writer.finish().unwrap();
        let policies = POLICIES.map(str::to_owned);
        let sizes = [LocalSize::Share(0.6), LocalSize::Bytes(100 << 12)];
        let found = misses(bytes.as_slice(), &policies, &sizes).unwrap();
        assert_eq!(found.len(), 10);
        let of = |policy: &str| found.iter().filter(|row| row.policy == policy).collect::<Vec<_>>();
        for policy in POLICIES {
            let rows = of(policy);
            assert_eq!([rows[0].local_pages, rows[1].local_pages], [60, 100], "{policy}");
            assert_eq!((rows[0].requests, rows[0].first_touches), (1000, 150), "{policy}");
            assert!(rows[0].misses >= rows[1].misses, "{policy}");
        }
        // Round and round is the worst for LRU; the optimum keeps what fits.
        assert_eq!(of("lru")[0].misses, 1000);
        assert!(of("belady")[0].fetched_pages() < 400, "{:?}", of("belady")[0]);
        assert_eq!(of("belady")[1].fetched_pages(), 0);
        for (policies, sizes, reason) in [
            (vec!["mru".to_owned()], LocalSize::Share(0.5), "take one of lru, fifo, clock, sieve, belady"),
            (vec!["lru".to_owned()], LocalSize::Share(0.0), "no room"),
        ] {
            let error = misses(bytes.as_slice(), &policies, &[sizes]).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
