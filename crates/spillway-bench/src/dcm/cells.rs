//! What is measured of each program: the usual, or what the user asks for.

use super::programs::WorkloadKind;
use super::report::{BLOCKS, Cell, Far, SHARES, is_static};
use super::snap::USUAL_THREADS;

const QUICK_BLOCKS: [&str; 4] = ["4K", "64K", "elastic", "streams"];
/// On a file (Fig. 17), and for numbers of threads (Fig. 16).
const FILE_BLOCKS: [&str; 3] = ["4K", "elastic", "streams"];
const THREADS_BLOCKS: [&str; 2] = ["elastic", "streams"];
/// Where threads are compared.
const THREADS_FARS: [Far; 2] = [Far::RamFdr, Far::SwapRamdisk];
/// How many threads are compared.
const THREADS: [u32; 4] = [1, 2, 4, 8];

/// What the user asks for: an empty list leaves the usual.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The programs that are measured.
    pub workloads: Vec<WorkloadKind>,
    /// Shares of the memory that stay local, in percent, of [`SHARES`].
    pub shares: Vec<u64>,
    /// Where what is not local goes.
    pub fars: Vec<Far>,
    /// Choices of `--block`, of [`BLOCKS`].
    pub blocks: Vec<&'static str>,
    /// Threads of those programs where that can be chosen.
    pub threads: Vec<u32>,
}

/// A program with a number of threads, and what is measured of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The program that runs.
    pub kind: WorkloadKind,
    /// Its threads, where that can be chosen.
    pub threads: Option<u32>,
    /// Its runs with little local memory, share by share, swap last.
    pub cells: Vec<Cell>,
}

fn or<T: Clone>(wanted: &[T], usual: &[T]) -> Vec<T> {
    if wanted.is_empty() { usual.to_vec() } else { wanted.to_vec() }
}

/// All programs and their runs, the usual number of threads first. `has_blocks`: there is a choice of blocks.
#[must_use]
pub fn subjects(quick: bool, wanted: &Wanted, has_blocks: bool) -> Vec<Subject> {
    let kinds = or(&wanted.workloads, &WorkloadKind::ALL);
    let mut subjects = Vec::new();
    for kind in kinds {
        let mut counts = match (kind.has_threads(), quick) {
            (false, _) => vec![None],
            (true, true) => or(&wanted.threads, &[USUAL_THREADS]).into_iter().map(Some).collect(),
            (true, false) => or(&wanted.threads, &THREADS).into_iter().map(Some).collect::<Vec<_>>(),
        };
        counts.sort_by_key(|&count| count != Some(USUAL_THREADS));
        for threads in counts {
            let cells = cells(quick, wanted, kind, threads, has_blocks);
            subjects.push(Subject { kind, threads, cells });
        }
    }
    subjects.retain(|subject| !subject.cells.is_empty());
    subjects
}

fn cells(
    quick: bool,
    wanted: &Wanted,
    kind: WorkloadKind,
    threads: Option<u32>,
    has_blocks: bool,
) -> Vec<Cell> {
    let is_usual = threads.is_none_or(|threads| threads == USUAL_THREADS);
    let usual: Vec<Far> = match is_usual {
        false => THREADS_FARS.into(),
        // The paper has a file for SNAP alone.
        true => {
            Far::ALL.into_iter().filter(|&far| far != Far::File || (kind.has_threads() && !quick)).collect()
        }
    };
    let mut cells = Vec::new();
    for local_pct in or(&wanted.shares, &SHARES) {
        for far in or(&wanted.fars, &usual) {
            let blocks = match (far, has_blocks) {
                (Far::SwapRamdisk, _) | (_, false) => vec![None],
                (_, true) => blocks(quick, wanted, far, is_usual).into_iter().map(Some).collect(),
            };
            cells.extend(blocks.into_iter().map(|block| Cell { far, local_pct, block }));
        }
    }
    cells
}

/// The blocks on one kind of far memory. A quick run has static sizes where the paper's are compared only.
fn blocks(quick: bool, wanted: &Wanted, far: Far, is_usual: bool) -> Vec<&'static str> {
    let usual = match (far, is_usual, quick) {
        (_, false, _) => &THREADS_BLOCKS[..],
        (Far::File, ..) => &FILE_BLOCKS[..],
        (.., true) => &QUICK_BLOCKS[..],
        (.., false) => &BLOCKS[..],
    };
    let is_left_out = |block: &str| quick && far != Far::RamFdr && is_static(block);
    match wanted.blocks.is_empty() {
        true => usual.iter().copied().filter(|block| !is_left_out(block)).collect(),
        false => wanted.blocks.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(subjects: &[Subject], kind: WorkloadKind, threads: Option<u32>) -> &Subject {
        subjects.iter().find(|subject| (subject.kind, subject.threads) == (kind, threads)).unwrap()
    }

    #[test]
    fn the_whole_has_every_block_everywhere_and_snap_on_a_file_and_with_other_threads() {
        let subjects = subjects(false, &Wanted::default(), true);
        assert_eq!(subjects.len(), WorkloadKind::ALL.len() + THREADS.len() - 1);
        let snap = find(&subjects, WorkloadKind::Snap, Some(USUAL_THREADS));
        for local_pct in SHARES {
            for far in Far::SPILLWAY {
                for block in BLOCKS {
                    assert!(snap.cells.contains(&Cell { far, local_pct, block: Some(block) }), "{far:?}");
                }
            }
            let file = Cell { far: Far::File, local_pct, block: Some("4K") };
            assert!(snap.cells.contains(&file));
            assert!(!find(&subjects, WorkloadKind::Sequential, None).cells.contains(&file));
            for threads in THREADS {
                let with = find(&subjects, WorkloadKind::Snap, Some(threads));
                for (far, block) in [(Far::RamFdr, Some("elastic")), (Far::SwapRamdisk, None)] {
                    assert!(with.cells.contains(&Cell { far, local_pct, block }), "{threads} on {far:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_wanted_takes_the_place_of_the_usual() {
        let wanted = Wanted {
            workloads: vec![WorkloadKind::Snap, WorkloadKind::Postgres],
            shares: vec![50],
            fars: vec![Far::RamFdr, Far::SwapRamdisk],
            blocks: vec!["16K"],
            threads: vec![4],
        };
        for quick in [true, false] {
            let subjects = subjects(quick, &wanted, true);
            let swap = Cell { far: Far::SwapRamdisk, local_pct: 50, block: None };
            let cells = vec![Cell { far: Far::RamFdr, block: Some("16K"), ..swap }, swap];
            let (snap, postgres) = (WorkloadKind::Snap, WorkloadKind::Postgres);
            let subject = |kind, threads| Subject { kind, threads, cells: cells.clone() };
            assert_eq!(subjects, [subject(snap, Some(4)), subject(postgres, None)]);
        }
    }

    #[test]
    fn a_quick_run_has_static_sizes_on_ram_only() {
        for subject in subjects(true, &Wanted::default(), true) {
            let fixed = subject.cells.iter().filter(|cell| cell.block.is_some_and(is_static));
            assert!(fixed.clone().count() == 6 && fixed.clone().all(|cell| cell.far == Far::RamFdr));
        }
    }
}
