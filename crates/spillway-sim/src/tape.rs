//! Tapes of simulated programs: of walks that go the same way each time, and such as no program recorded.

use rustix::io::Result;
use spillway_pager::process::deck::Deck;
use spillway_pager::run::tape_log::TapeLog;
use spillway_policy::tape::{MOST_RUN_PAGES, Name, Run, Score, Tape};
use spillway_sys::sealed_memory::SealedMemory;

use crate::config::{Config, TapeConfig};
use crate::draws::Draws;

/// From one page of a walk to the next, of a prime's powers alone, so that a walk meets all pages.
const STEP: u64 = 529;
/// Runs of a wrong tape.
const WRONG_RUNS: usize = 4_000;

/// Mappings that a program makes at its start, of equal length.
pub const MAPPINGS: usize = 3;

/// Where a walk over mappings of so many pages is after so many steps: in which, and where there.
#[must_use]
pub fn place_at(step: u64, pages: u64) -> (usize, u64) {
    let place = step * STEP % (MAPPINGS as u64 * pages);
    ((place / pages) as usize, place % pages)
}

/// Pages of each mapping.
#[must_use]
pub fn mapping_pages(config: &Config) -> u64 {
    config.program_pages.div_ceil(MAPPINGS as u64)
}

/// What the first process of a world begins with.
///
/// # Errors
/// The kernel's, where it gives no memory.
pub fn deck(config: &Config) -> Result<Option<Deck>> {
    let tape = match config.tape {
        TapeConfig::None => return Ok(None),
        TapeConfig::Recorded => return Ok(Some(Deck::new(TapeLog::create()?.1, None))),
        TapeConfig::Fitting => fitting(mapping_pages(config)),
        TapeConfig::Wrong => wrong(config),
    };
    let played = SealedMemory::map(SealedMemory::create("tape", &Score::words(&tape))?)?;
    Ok(Some(Deck::new(TapeLog::create()?.1, Some(played))))
}

fn fitting(pages: u64) -> Tape {
    let run = |step| {
        let (mapping, page) = place_at(step, pages);
        Run { mapping: mapping as u32, page: page as u32, pages: 1 }
    };
    let mappings = (0..MAPPINGS as u64).filter_map(|ordinal| Name::new(pages, ordinal)).collect();
    Tape { key: 0, mappings, threads: vec![(0..2 * MAPPINGS as u64 * pages).map(run).collect()] }
}

/// Pages of mappings that are there, that are not, and beyond their ends, again and again.
fn wrong(config: &Config) -> Tape {
    let mut draws = Draws::new(!config.seed);
    let pages = mapping_pages(config);
    let names = [(40, 0), (pages, 0), (pages, 2), (pages, 9)];
    let mappings: Vec<Name> =
        names.into_iter().filter_map(|(pages, ordinal)| Name::new(pages, ordinal)).collect();
    let mut run = || {
        let beyond = if draws.one_in(8) { u64::from(u32::MAX) } else { pages };
        Run {
            mapping: draws.index(mappings.len()) as u32,
            page: draws.below(beyond) as u32,
            pages: draws.within(1..=MOST_RUN_PAGES) as u8,
        }
    };
    let threads = vec![(0..WRONG_RUNS).map(|_| run()).collect()];
    Tape { key: 0, mappings, threads }
}
