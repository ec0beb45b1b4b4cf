//! A map of a process's address space: a sign for each block, by what most of its memory is.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use spillway_core::page::PAGE_BYTES;
use spillway_snapshot::heat::{HeatKind, HeatMap};

use crate::short::{bytes, printable};
use crate::top::palette::Palette;

/// Lines of signs at most.
const MAP_LINES: usize = 2;
/// Lines that are drawn at most: what a sign stands for, and what the signs mean.
pub const LINES: usize = MAP_LINES + 2;

/// Of a block in which nothing was written yet.
const UNTOUCHED: char = '_';

const fn sign(kind: HeatKind) -> char {
    match kind {
        HeatKind::Hot => '#',
        HeatKind::Warm => '+',
        HeatKind::Untold => '?',
        HeatKind::Cold => ':',
        HeatKind::Pinned => 'P',
        HeatKind::Native => 'n',
        HeatKind::Far => '-',
        HeatKind::Lost => '!',
        HeatKind::Untouched => UNTOUCHED,
    }
}

fn style(kind: HeatKind, palette: Palette) -> Style {
    match kind {
        HeatKind::Hot => palette.local().patch(palette.heading()),
        HeatKind::Warm | HeatKind::Untold | HeatKind::Cold => palette.local(),
        HeatKind::Pinned | HeatKind::Lost => palette.warning(),
        HeatKind::Far => palette.far(),
        HeatKind::Native | HeatKind::Untouched => Style::new(),
    }
}

/// The map in lines of so many columns.
pub fn lines(map: &HeatMap, palette: Palette, width: usize) -> Vec<Line<'static>> {
    let map = fitting(map, width * MAP_LINES);
    let rest = if map.one_in > 1 { format!(", by one page in {}", map.one_in) } else { String::new() };
    let heading = format!("address space, a sign for {}{rest}", bytes(map.block_bytes as f64));
    let signs = signs(&map);
    let drawn = signs.chunks(width.max(1)).take(MAP_LINES).map(|line| {
        Line::from_iter(line.iter().map(|kind| match kind {
            Some(kind) => Span::styled(sign(*kind).to_string(), style(*kind, palette)),
            None => Span::raw(" "),
        }))
    });
    let words = [Line::raw(printable(&heading, width)), Line::raw(printable(&legend(&map), width))];
    words.into_iter().chain(drawn).collect()
}

/// How much there is of what.
fn legend(map: &HeatMap) -> String {
    let kinds = HeatKind::ALL.into_iter().filter(|kind| *kind != HeatKind::Untouched);
    let amounts = kinds.filter(|kind| map.of(*kind) > 0).map(|kind| {
        let amount = bytes((map.of(kind).saturating_mul(PAGE_BYTES)) as f64);
        format!("{} {} {amount}", sign(kind), kind.name())
    });
    amounts.collect::<Vec<_>>().join("  ")
}

/// In blocks of a size at which the signs have room.
fn fitting(map: &HeatMap, room: usize) -> HeatMap {
    let mut map = map.in_at_most(room);
    while signs(&map).len() > room && map.blocks.len() > 1 {
        let coarser = map.in_at_most(map.blocks.len() - 1);
        if coarser.blocks.len() == map.blocks.len() {
            break;
        }
        map = coarser;
    }
    map
}

/// What is at each place; none between blocks that do not lie beside each other.
fn signs(map: &HeatMap) -> Vec<Option<HeatKind>> {
    let mut signs = Vec::new();
    let mut next = None;
    for block in &map.blocks {
        if next.is_some_and(|next| next != block.address) {
            signs.push(None);
        }
        signs.push(Some(block.mostly().map_or(HeatKind::Untouched, |(kind, _)| kind)));
        next = block.address.checked_add(map.block_bytes);
    }
    signs
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use spillway_snapshot::heat::HeatBlock;

    /// A hot and a far block, a gap, a pinned one and one that nobody has written to.
    pub(crate) fn map() -> HeatMap {
        let block = |at: u64, kind: HeatKind, pages| {
            let mut block = HeatBlock { address: at << 20, ..HeatBlock::default() };
            block.pages[kind as usize] = pages;
            block
        };
        let blocks = vec![
            block(4, HeatKind::Hot, 256),
            block(5, HeatKind::Far, 200),
            block(9, HeatKind::Pinned, 1),
            block(10, HeatKind::Untouched, 256),
        ];
        HeatMap { block_bytes: 1 << 20, one_in: 1, blocks }
    }

    fn text(map: &HeatMap, width: usize) -> Vec<String> {
        lines(map, Palette::new(false), width).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_block_has_a_sign_and_each_sign_a_meaning() {
        let [heading, legend, signs] = &text(&map(), 80)[..] else { panic!("{:?}", text(&map(), 80)) };
        assert_eq!(heading, "address space, a sign for 1.0M");
        assert_eq!(legend, "# hot 1.0M  P pinned 4.0K  - far 800K");
        assert_eq!(signs, "#- P_");
        assert!(text(&HeatMap { one_in: 24, ..map() }, 80)[0].ends_with("by one page in 24"));
    }

    #[test]
    fn signs_are_told_apart_without_colours() {
        let mut signs = HeatKind::ALL.map(sign).to_vec();
        signs.sort_unstable();
        signs.dedup();
        assert_eq!(signs.len(), HeatKind::ALL.len());
    }

    #[test]
    fn many_blocks_and_odd_ones_fit_the_room() {
        let block = |at: u64| HeatBlock { address: at * 3, pages: [1; 9] };
        let scattered = HeatMap { block_bytes: 1, one_in: 1, blocks: (0..127).map(block).collect() };
        let odd = HeatMap { block_bytes: 0, one_in: 0, blocks: vec![block(u64::MAX / 3), block(0)] };
        for map in [scattered, odd, HeatMap::default(), map()] {
            for width in [1, 3, 10, 80, 200] {
                let text = text(&map, width);
                assert!(text.len() <= LINES, "{text:?}");
                assert!(text.iter().all(|line| line.chars().count() <= width), "{width}: {text:?}");
            }
        }
    }
}
