//! Where a process's memory is and how much it is used, block by block of its address space.

use serde::{Deserialize, Serialize};

/// How much memory of a block is what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 10]", into = "[u64; 10]")]
pub struct HeatBlock {
    /// The first address in it.
    pub address: u64,
    /// Pages, by [`HeatKind::ALL`]. Where not each was looked at they are estimates.
    pub pages: [u64; HeatKind::ALL.len()],
}

impl From<[u64; 10]> for HeatBlock {
    fn from([address, pages @ ..]: [u64; 10]) -> Self {
        Self { address, pages }
    }
}

impl From<HeatBlock> for [u64; 10] {
    fn from(block: HeatBlock) -> Self {
        let mut numbers = [block.address; 10];
        numbers[1..].copy_from_slice(&block.pages);
        numbers
    }
}

/// How a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeatKind {
    /// Local, and used in several of the last scans.
    Hot,
    /// Local, and used in few of them.
    Warm,
    /// Local, and no scans have told of it: it came lately, or nobody may scan.
    Untold,
    /// Local, and used in none of the last scans, or about to leave.
    Cold,
    /// Local, and the kernel did not let it go when its turn had come.
    Pinned,
    /// Local, and left to the kernel since it fits; it counts whole, as it was mapped.
    Native,
    /// On a store alone.
    Far,
    /// It cannot be had any more.
    Lost,
    /// Nobody has written to it.
    Untouched,
}

impl HeatKind {
    /// All of them, in the order in which a block has its pages.
    pub const ALL: [Self; 9] = [
        Self::Hot,
        Self::Warm,
        Self::Untold,
        Self::Cold,
        Self::Pinned,
        Self::Native,
        Self::Far,
        Self::Lost,
        Self::Untouched,
    ];

    /// What it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Warm => "warm",
            Self::Untold => "untold",
            Self::Cold => "cold",
            Self::Pinned => "pinned",
            Self::Native => "native",
            Self::Far => "far",
            Self::Lost => "lost",
            Self::Untouched => "untouched",
        }
    }
}

impl HeatBlock {
    /// Pages of a kind.
    #[must_use]
    pub fn of(&self, kind: HeatKind) -> u64 {
        self.pages[kind as usize]
    }

    fn add(&mut self, other: &Self) {
        self.pages = std::array::from_fn(|kind| self.pages[kind].saturating_add(other.pages[kind]));
    }

    /// Pages that are memory: all but those that were never written to.
    #[must_use]
    pub fn memory_pages(&self) -> u64 {
        sum(&self.pages[..HeatKind::Untouched as usize])
    }

    /// The kind that most of its memory is, and by what share of it; none where none was written to. Memory
    /// that is pinned or lost is told wherever it is, for it is little and matters.
    #[must_use]
    pub fn mostly(&self) -> Option<(HeatKind, f64)> {
        let memory_pages = self.memory_pages();
        let matters = [HeatKind::Lost, HeatKind::Pinned].into_iter().find(|kind| self.of(*kind) > 0);
        let memory = HeatKind::ALL.into_iter().filter(|kind| *kind != HeatKind::Untouched);
        // Of two that are as much the hotter.
        let most = matters.or_else(|| memory.rev().max_by_key(|kind| self.of(*kind)))?;
        (memory_pages > 0).then(|| (most, self.of(most) as f64 / memory_pages as f64))
    }
}

/// Files and sockets may say anything.
fn sum(pages: &[u64]) -> u64 {
    pages.iter().fold(0, |sum, pages| sum.saturating_add(*pages))
}

/// The memory of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeatMap {
    /// Addresses of a block: a power of two, at multiples of which blocks begin.
    pub block_bytes: u64,
    /// One page in so many was looked at: 1 where all were.
    pub one_in: u64,
    /// Blocks with memory, by their addresses.
    pub blocks: Vec<HeatBlock>,
}

impl HeatMap {
    /// Pages of a kind in all blocks.
    #[must_use]
    pub fn of(&self, kind: HeatKind) -> u64 {
        self.blocks.iter().fold(0, |sum, block| sum.saturating_add(block.of(kind)))
    }

    /// The same in blocks of this size, which is a multiple of theirs.
    #[must_use]
    pub fn in_blocks_of(&self, block_bytes: u64) -> Self {
        let mut blocks: Vec<HeatBlock> = Vec::new();
        for block in &self.blocks {
            let address = block.address - block.address % block_bytes.max(1);
            match blocks.last_mut().filter(|last| last.address == address) {
                Some(last) => last.add(block),
                None => blocks.push(HeatBlock { address, ..*block }),
            }
        }
        Self { block_bytes, one_in: self.one_in, blocks }
    }

    /// The same in at most so many blocks.
    #[must_use]
    pub fn in_at_most(&self, most: usize) -> Self {
        let mut map = self.clone();
        while map.blocks.len() > most.max(1)
            && let Some(block_bytes) = map.block_bytes.max(1).checked_mul(2)
        {
            map = map.in_blocks_of(block_bytes);
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(address: u64, pages: &[(HeatKind, u64)]) -> HeatBlock {
        let mut block = HeatBlock { address, ..HeatBlock::default() };
        pages.iter().for_each(|&(kind, pages)| block.pages[kind as usize] = pages);
        block
    }

    #[test]
    fn a_block_is_called_what_most_of_its_memory_is_and_what_matters_is_not_overlooked() {
        let far = (HeatKind::Far, 3);
        let mostly = |pages: &[(HeatKind, u64)]| block(0, pages).mostly();
        assert_eq!(mostly(&[far, (HeatKind::Hot, 1)]), Some((HeatKind::Far, 0.75)));
        assert_eq!(mostly(&[far, (HeatKind::Hot, 3)]), Some((HeatKind::Hot, 0.5)));
        assert_eq!(mostly(&[far, (HeatKind::Untouched, 900)]), Some((HeatKind::Far, 1.0)));
        assert_eq!(mostly(&[(HeatKind::Untouched, 9)]), None);
        assert_eq!(mostly(&[far, (HeatKind::Pinned, 1)]), Some((HeatKind::Pinned, 0.25)));
        assert_eq!(mostly(&[far, (HeatKind::Pinned, 1), (HeatKind::Lost, 4)]), Some((HeatKind::Lost, 0.5)));
    }

    #[test]
    fn blocks_that_are_put_together_keep_their_pages() {
        let addresses = [0x1_0000, 0x2_0000, 0x3_0000, 0x10_0000];
        let blocks = addresses.map(|address| block(address, &[(HeatKind::Hot, 2), (HeatKind::Far, 1)]));
        let map = HeatMap { block_bytes: 0x1_0000, one_in: 1, blocks: blocks.to_vec() };
        let pairs = map.in_blocks_of(0x2_0000);
        assert_eq!(
            pairs.blocks.iter().map(|block| block.address).collect::<Vec<_>>(),
            [0, 0x2_0000, 0x10_0000]
        );
        assert_eq!(pairs.blocks.iter().map(HeatBlock::memory_pages).collect::<Vec<_>>(), [3, 6, 3]);
        assert_eq!(map.in_at_most(4), map);
        let few = map.in_at_most(2);
        assert_eq!((few.block_bytes, few.blocks.len()), (0x4_0000, 2));
        assert_eq!((few.of(HeatKind::Hot), few.of(HeatKind::Far)), (8, 4));
        assert_eq!(map.in_at_most(0).blocks.len(), 1);
        // Whatever a file says.
        let odd = HeatMap { block_bytes: 0, one_in: 0, blocks: vec![blocks[0]; 3] };
        assert_eq!(odd.in_blocks_of(0).blocks.len(), 1);
        assert_eq!(odd.in_at_most(0).blocks.len(), 1);
    }

    #[test]
    fn a_block_goes_over_a_line_as_numbers() {
        let map = HeatMap { block_bytes: 65_536, one_in: 2, blocks: vec![block(8, &[(HeatKind::Far, 5)])] };
        let line = serde_json::to_string(&map).unwrap();
        let expected = r#"{"block_bytes":65536,"one_in":2,"blocks":[[8,0,0,0,0,0,0,5,0,0]]}"#;
        assert_eq!((line.as_str(), serde_json::from_str(&line).ok()), (expected, Some(map)));
    }
}
