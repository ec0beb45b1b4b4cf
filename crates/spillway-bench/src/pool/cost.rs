//! What the processor does for a page before it leaves for coded donors: it is sealed, and its share of the
//! parity is computed.

use spillway_core::page::{PAGE_SIZE, Page};
use spillway_core::seals::nonce;
use spillway_pager::seal::cipher::{KEY_BYTES, PageCipher};
use spillway_pool::code::Code;

use crate::BenchError;

/// Rows that leave at once: a write-back is of 64 pages, in rows of four.
const ROWS: usize = 16;
/// Rows that are gone through in turns: more than the caches hold.
const RANGE_ROWS: usize = 256 * ROWS;
/// The quickest of so many rounds counts, for what else the processor did is no cost of a page.
const ROUNDS: usize = 5;

fn processor_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Microseconds of this thread for a page, sealed and coded into so many parts.
pub(super) fn us_of_a_page(data: usize, parity: usize) -> Result<f64, BenchError> {
    let failed = |reason: String| BenchError::setup("seal and code a page", reason, "report this");
    let cipher = PageCipher::new(&[7; KEY_BYTES]).map_err(|error| failed(error.to_string()))?;
    let code = Code::new(data, parity).ok_or_else(|| failed("there is no such code".to_owned()))?;
    let pages: Vec<Page> = (0..RANGE_ROWS * data).map(|number| [number as u8; PAGE_SIZE]).collect();
    let mut sealed: Vec<Page> = vec![[0; PAGE_SIZE]; ROWS * data];
    let mut codes: Vec<Page> = vec![[0; PAGE_SIZE]; ROWS * parity];
    let (mut version, mut least_us) = (0, f64::INFINITY);
    for _ in 0..ROUNDS {
        let before = processor_ns();
        for batch in pages.chunks(sealed.len()) {
            for (room, page) in sealed.iter_mut().zip(batch) {
                *room = *page;
                version += 1;
                cipher.seal(nonce(0, version), room).map_err(|error| failed(error.to_string()))?;
            }
            for (row, codes) in sealed.chunks(data).zip(codes.chunks_mut(parity)) {
                let row: Vec<&[u8]> = row.iter().map(|page| &page[..]).collect();
                let mut codes: Vec<&mut [u8]> = codes.iter_mut().map(|page| &mut page[..]).collect();
                if !code.encode(&row, &mut codes) {
                    return Err(failed("the code refuses a row".to_owned()));
                }
            }
            std::hint::black_box(&codes);
        }
        let all_us = processor_ns().saturating_sub(before) as f64 / 1e3;
        least_us = least_us.min(all_us / pages.len() as f64);
    }
    Ok(least_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_takes_some_time_and_a_code_that_cannot_be_is_named() {
        assert!(us_of_a_page(4, 2).unwrap() > 0.0);
        assert!(us_of_a_page(0, 2).unwrap_err().to_string().contains("no such code"));
    }
}
