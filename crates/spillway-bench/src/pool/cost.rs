//! What the processor does for a page before it leaves for coded donors: it is sealed, and its share of the
//! parity is computed.

use spillway_core::page::{PAGE_SIZE, Page};
use spillway_core::seals::nonce;
use spillway_pager::seal::cipher::{KEY_BYTES, PageCipher};
use spillway_pool::code::Code;

use crate::BenchError;

/// Rows that are sealed and coded in turns: what leaves at once is of this order.
const ROWS: usize = 16;
const ROUNDS: u64 = 500;
/// The quickest of so many tries counts, for what else the processor did is no cost of a page.
const TRIES: usize = 5;

fn processor_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Microseconds of this thread for a page, sealed and coded into so many parts.
pub(super) fn us_of_a_page(data: usize, parity: usize) -> Result<f64, BenchError> {
    let failed = |reason: String| BenchError::setup("seal and code a page", reason, "report this");
    let cipher = PageCipher::new(&[7; KEY_BYTES]).map_err(|error| failed(error.to_string()))?;
    let code = Code::new(data, parity).ok_or_else(|| failed("there is no such code".to_owned()))?;
    let mut pages: Vec<Page> = (0..ROWS * data).map(|number| [number as u8; PAGE_SIZE]).collect();
    let mut codes: Vec<Page> = vec![[0; PAGE_SIZE]; parity];
    let mut version = 0;
    let mut least = f64::INFINITY;
    for _ in 0..TRIES {
        let before = processor_ns();
        for _ in 0..ROUNDS {
            for (slot, page) in (0..).zip(&mut pages) {
                version += 1;
                cipher.seal(nonce(slot, version), page).map_err(|error| failed(error.to_string()))?;
            }
            for row in pages.chunks(data) {
                let row: Vec<&[u8]> = row.iter().map(|page| &page[..]).collect();
                let mut out: Vec<&mut [u8]> = codes.iter_mut().map(|page| &mut page[..]).collect();
                if !code.encode(&row, &mut out) {
                    return Err(failed("the code refuses a row".to_owned()));
                }
            }
        }
        let all_ns = processor_ns().saturating_sub(before);
        least = least.min(all_ns as f64 / 1e3 / (ROUNDS * pages.len() as u64) as f64);
    }
    std::hint::black_box(&codes);
    Ok(least)
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
