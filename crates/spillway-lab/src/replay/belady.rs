//! Belady's optimum: of the pages that are there, that one leaves which is needed again last. No policy
//! misses less often; none that must decide at once can do it.

use std::collections::BinaryHeap;

use super::page_trace::{PageTrace, ReplayError, Replayed};

/// A page that is not needed again.
const NEVER: u32 = u32::MAX;

/// Replays a trace with a local memory of `frames` pages, knowing all of it beforehand.
///
/// # Errors
/// A local memory without room for a page, or more requests than can be numbered.
pub fn replay_belady(trace: &PageTrace, frames: u32) -> Result<Replayed, ReplayError> {
    if frames == 0 {
        return Err(ReplayError::NoFrames);
    }
    let requests = trace.requests();
    if requests.len() >= NEVER as usize {
        return Err(ReplayError::TooManyRequests);
    }
    let next_uses = next_uses(trace);
    // Of a page that is there, when it is needed again; of others 0, when nothing is needed again.
    let mut needed_at = vec![0_u32; trace.pages() as usize];
    let mut latest: BinaryHeap<(u32, u32)> = BinaryHeap::new();
    let (mut local_pages, mut misses) = (0_u32, 0_u64);
    for (&page, &next_use) in requests.iter().zip(&next_uses) {
        if needed_at[page as usize] == 0 {
            misses += 1;
            local_pages += 1;
            if local_pages > frames {
                leave(&mut latest, &mut needed_at);
                local_pages -= 1;
            }
        }
        needed_at[page as usize] = next_use;
        latest.push((next_use, page));
        // What is out of date goes now and then.
        if latest.len() > 4 * (frames as usize + 1024) {
            latest.retain(|&(at, page)| needed_at[page as usize] == at);
        }
    }
    Ok(Replayed { requests: requests.len() as u64, misses })
}

/// The page that is needed again last leaves.
fn leave(latest: &mut BinaryHeap<(u32, u32)>, needed_at: &mut [u32]) {
    while let Some((at, page)) = latest.pop() {
        if needed_at[page as usize] == at {
            needed_at[page as usize] = 0;
            return;
        }
    }
}

/// For each request, the number of the next one of its page.
fn next_uses(trace: &PageTrace) -> Vec<u32> {
    let mut upcoming = vec![NEVER; trace.pages() as usize];
    let mut next_uses = vec![NEVER; trace.requests().len()];
    for (at, &page) in trace.requests().iter().enumerate().rev() {
        next_uses[at] = std::mem::replace(&mut upcoming[page as usize], at as u32);
    }
    next_uses
}
