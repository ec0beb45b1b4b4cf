//! A process's memory over time and address, as a picture: in the page of `spillway report`, and in that of
//! `spillway dashboard`.

use std::collections::BTreeSet;

use spillway_report::address_map::{AddressMap, Cell};
use spillway_snapshot::heat::{HeatKind, HeatMap};

use crate::short::{bytes, printable};

/// Rows of a picture at most.
const MOST_ROWS: usize = 64;
/// Columns of a picture, and one: looks evenly apart where there are more.
const MOST_COLUMNS: usize = 150;

/// The number of a kind's colour: warm ones for what is used, blue ones for what is not.
const fn colour_of(kind: HeatKind) -> usize {
    match kind {
        HeatKind::Hot => 1,
        HeatKind::Warm => 4,
        HeatKind::Untold => 9,
        HeatKind::Cold => 5,
        HeatKind::Pinned => 3,
        HeatKind::Native => 2,
        HeatKind::Far => 0,
        HeatKind::Lost => 7,
        HeatKind::Untouched => 6,
    }
}

/// The picture of a process's memory, of which so many looks were taken.
pub fn picture(name: &str, pid: u32, looks: &[(f64, HeatMap)]) -> AddressMap {
    let stride = looks.len().div_ceil(MOST_COLUMNS).max(1);
    let is_shown = |at: usize| at.is_multiple_of(stride) || at + 1 == looks.len();
    let shown: Vec<&(f64, HeatMap)> =
        looks.iter().enumerate().filter(|(at, _)| is_shown(*at)).map(|(_, look)| look).collect();
    let (maps, rows, block_bytes) = in_rows(&shown);
    let kinds: Vec<HeatKind> = HeatKind::ALL
        .into_iter()
        .filter(|kind| *kind != HeatKind::Untouched && maps.iter().any(|map| map.of(*kind) > 0))
        .collect();
    let cell = |map: &HeatMap, address: u64| {
        let at = map.blocks.binary_search_by_key(&address, |block| block.address).ok()?;
        let (kind, share) = map.blocks[at].mostly()?;
        Some(Cell { kind: kinds.iter().position(|other| *other == kind)?, share })
    };
    let columns = maps.iter().map(|map| rows.iter().map(|address| cell(map, *address)).collect()).collect();
    let name = printable(name, 30);
    AddressMap {
        title: format!(
            "Address space of {name} ({pid}): what most memory of each {} is",
            bytes(block_bytes as f64)
        ),
        begin_s: begin_s(&shown),
        at_s: shown.iter().map(|(at_s, _)| *at_s).collect(),
        rows,
        kinds: kinds.iter().map(|kind| (kind.name().to_owned(), colour_of(*kind))).collect(),
        columns,
    }
}

/// The first look is shown as long as the time to the second.
fn begin_s(looks: &[&(f64, HeatMap)]) -> f64 {
    match looks {
        [first, second, ..] => first.0 - (second.0 - first.0),
        [one] => one.0 - 1.0,
        [] => 0.0,
    }
}

/// The maps in blocks of one size, all that have memory at some time, and that size.
fn in_rows(looks: &[&(f64, HeatMap)]) -> (Vec<HeatMap>, Vec<u64>, u64) {
    let mut block_bytes = looks.iter().map(|(_, map)| map.block_bytes).max().unwrap_or(1).max(1);
    loop {
        let maps: Vec<HeatMap> = looks.iter().map(|(_, map)| map.in_blocks_of(block_bytes)).collect();
        let addresses = maps.iter().flat_map(|map| &map.blocks).filter(|block| block.memory_pages() > 0);
        let rows: BTreeSet<u64> = addresses.map(|block| block.address).collect();
        match block_bytes.checked_mul(2) {
            Some(twice) if rows.len() > MOST_ROWS => block_bytes = twice,
            _ => return (maps, rows.into_iter().take(MOST_ROWS).collect(), block_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spillway_snapshot::heat::HeatBlock;

    fn map(block_bytes: u64, blocks: &[(u64, HeatKind)]) -> HeatMap {
        let block = |&(address, kind): &(u64, HeatKind)| {
            let mut block = HeatBlock { address, ..HeatBlock::default() };
            block.pages[kind as usize] = 4;
            block
        };
        HeatMap { block_bytes, one_in: 1, blocks: blocks.iter().map(block).collect() }
    }

    #[test]
    fn looks_of_other_sizes_are_shown_in_rows_of_one() {
        let small = map(1 << 16, &[(0, HeatKind::Hot), (1 << 16, HeatKind::Far), (5 << 16, HeatKind::Far)]);
        let large = map(1 << 17, &[(0, HeatKind::Far), (1 << 20, HeatKind::Untouched)]);
        let drawn = picture("x", 7, &[(2.0, small), (3.0, large)]);
        assert_eq!(drawn.rows, [0, 4 << 16], "what nobody has written to has no row");
        assert_eq!((drawn.begin_s, drawn.at_s.as_slice()), (1.0, &[2.0, 3.0][..]));
        assert_eq!(drawn.kinds, [("hot".to_owned(), 1), ("far".to_owned(), 0)]);
        let far = |share| Some(Cell { kind: 1, share });
        // Half of the first is hot, half far: the hotter counts.
        assert_eq!(drawn.columns, [vec![Some(Cell { kind: 0, share: 0.5 }), far(1.0)], vec![far(1.0), None]]);
        assert!(drawn.title.contains("x (7)") && drawn.title.contains("128K"), "{}", drawn.title);
    }

    #[test]
    fn long_histories_and_wide_memory_become_few_columns_and_rows() {
        let wide: Vec<(u64, HeatKind)> = (0..500).map(|at| (at << 20, HeatKind::Warm)).collect();
        let looks: Vec<(f64, HeatMap)> = (0..1000).map(|at| (f64::from(at), map(1 << 20, &wide))).collect();
        let drawn = picture("x", 7, &looks);
        assert!((100..=151).contains(&drawn.at_s.len()), "{}", drawn.at_s.len());
        assert_eq!((drawn.at_s.last(), drawn.rows.len()), (Some(&999.0), 63));
        assert!(drawn.svg().is_ok_and(|svg| svg.len() < 40_000), "equal neighbours are one");
        assert!(!picture("x", 7, &[]).has_values());
    }
}
