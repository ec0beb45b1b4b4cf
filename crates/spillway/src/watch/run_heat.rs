//! Where the memory of a run's process is and how much it is used, as its pager tells.

use std::time::Duration;

use spillway_pager::run::heat::{Heat, HeatBlock as Told, Warmth};
use spillway_pager::run::views::RunView;
use spillway_snapshot::heat::{HeatBlock, HeatKind, HeatMap};

/// How long the process's pager may take. It is asked again and again, and others wait meanwhile.
const PATIENCE: Duration = Duration::from_millis(150);

/// Asks a process of a run.
///
/// # Errors
/// The run has no such process, or its pager does not answer.
pub fn heat(view: &RunView, pid: u32) -> Result<HeatMap, String> {
    let entry = view.run.processes().find(|entry| view.run.process(*entry).pid() == pid);
    let entry = entry.ok_or_else(|| format!("process {pid} has ended, or runs unmanaged"))?;
    let told = view.heat(entry, PATIENCE);
    told.map(|told| map_of(&told)).ok_or_else(|| {
        format!("process {pid} does not answer: it is stopped, has ended, or its pager is busy; ask again")
    })
}

fn map_of(told: &Heat) -> HeatMap {
    HeatMap {
        block_bytes: 1_u64.checked_shl(told.block_shift).unwrap_or(0),
        one_in: told.one_in,
        blocks: told.blocks.iter().map(|block| block_of(block, told.block_shift)).collect(),
    }
}

/// What was looked at stands for the rest of the block. Where nothing of it was, nothing is known.
fn block_of(told: &Told, block_shift: u32) -> HeatBlock {
    let looked_at: u64 = told.looked_at.iter().copied().map(u64::from).sum();
    let pages = HeatKind::ALL.map(|kind| match warmth_of(kind) {
        None => u64::from(told.native_pages),
        Some(warmth) => {
            let found = u64::from(told.looked_at[warmth as usize]);
            (found * u64::from(told.managed_pages)).checked_div(looked_at).unwrap_or(0)
        }
    });
    HeatBlock { address: told.number.checked_shl(block_shift).unwrap_or(0), pages }
}

/// What the pager calls it; none of what is left to the kernel.
const fn warmth_of(kind: HeatKind) -> Option<Warmth> {
    match kind {
        HeatKind::Hot => Some(Warmth::Hot),
        HeatKind::Warm => Some(Warmth::Warm),
        HeatKind::Untold => Some(Warmth::Untold),
        HeatKind::Cold => Some(Warmth::Cold),
        HeatKind::Pinned => Some(Warmth::Pinned),
        HeatKind::Native => None,
        HeatKind::Far => Some(Warmth::Far),
        HeatKind::Lost => Some(Warmth::Lost),
        HeatKind::Untouched => Some(Warmth::Untouched),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_looked_at_stands_for_the_rest_of_its_block() {
        let mut looked_at = [0; Warmth::ALL.len()];
        looked_at[Warmth::Hot as usize] = 10;
        looked_at[Warmth::Far as usize] = 30;
        let all = Told { number: 3, managed_pages: 400, native_pages: 8, looked_at };
        let none = Told { number: 5, managed_pages: 16, native_pages: 0, looked_at: [0; Warmth::ALL.len()] };
        let map = map_of(&Heat { block_shift: 21, one_in: 10, blocks: vec![all, none] });
        assert_eq!((map.block_bytes, map.one_in, map.blocks[0].address), (2 << 20, 10, 6 << 20));
        let pages = [HeatKind::Hot, HeatKind::Far, HeatKind::Native].map(|kind| map.blocks[0].of(kind));
        assert_eq!((pages, map.blocks[0].memory_pages()), ([100, 300, 8], 408));
        assert_eq!(map.blocks[1].mostly(), None, "nothing is known of it");
    }
}
