//! What sealing a page costs, and opening it, beside the checksum that it stands in for: microseconds a page
//! of 4 KiB, of batches as write-backs have them.
//!
//! `cargo run --release -p spillway-pager --example seal_cost [PAGES]`

use std::hint::black_box;
use std::time::{Duration, Instant};

use spillway_core::page::{PAGE_SIZE, Page};
use spillway_core::seals::nonce;
use spillway_pager::evict::write_back::BATCH_PAGES;
use spillway_pager::pages::checksum::checksum;
use spillway_pager::seal::cipher::{CipherError, PageCipher};

/// Pages that are gone through in turns: more than the caches hold.
const RANGE_PAGES: usize = 16 << 10;
const ROUNDS: usize = 5;

fn us_per_page(time: Duration, pages: usize) -> f64 {
    time.as_secs_f64() * 1e6 / pages as f64
}

/// The fastest of some rounds over a range, a batch at a time.
fn fastest(pages: &[Page], mut work: impl FnMut(&[Page])) -> f64 {
    let round = |_| {
        let begun = Instant::now();
        pages.chunks(BATCH_PAGES).for_each(&mut work);
        us_per_page(begun.elapsed(), pages.len())
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

fn main() -> Result<(), CipherError> {
    let pages: usize =
        std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(RANGE_PAGES).max(BATCH_PAGES);
    let cipher = PageCipher::new(&std::array::from_fn(|at| at as u8))?;
    let plain: Vec<Page> = (0..pages).map(|page| std::array::from_fn(|at| (at * 7 + page) as u8)).collect();
    let mut room = vec![[0; PAGE_SIZE]; BATCH_PAGES];
    let copy = fastest(&plain, |batch| room[..batch.len()].copy_from_slice(batch));
    let compare = fastest(&plain, |batch| {
        for page in batch {
            black_box(checksum(page));
        }
    });
    let mut version = 0;
    let mut outcome = Ok(());
    let seal = fastest(&plain, |batch| {
        for (page, room) in batch.iter().zip(&mut room) {
            *room = *page;
            version += 1;
            outcome = outcome.and(cipher.seal(nonce(7, version), room).map(|_| ()));
        }
    });
    outcome?;
    let tags: Vec<_> = {
        let mut sealed = plain.clone();
        let tags = (0..).zip(&mut sealed).map(|(at, page)| cipher.seal(nonce(at, 1), page));
        let tags = tags.collect::<Result<Vec<_>, _>>()?;
        tags.into_iter().zip(sealed).collect()
    };
    // In place, as it is done where pages come in: so the ones that are opened are copied first, which is not
    // counted.
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let (mut at, mut time) = (0, Duration::ZERO);
        for batch in tags.chunks(BATCH_PAGES) {
            batch.iter().zip(&mut room).for_each(|((_, page), room)| *room = *page);
            let begun = Instant::now();
            for ((tag, _), room) in batch.iter().zip(&mut room) {
                cipher.open(nonce(at, 1), *tag, room)?;
                at += 1;
            }
            time += begun.elapsed();
        }
        best = best.min(us_per_page(time, tags.len()));
    }
    println!("copy     {copy:.3} us a page");
    println!("checksum {compare:.3} us a page");
    println!("seal     {seal:.3} us a page, its copy included");
    println!("open     {best:.3} us a page");
    Ok(())
}
