//! How large a block may be.

use spillway_core::page::PAGE_SHIFT;
use spillway_policy::fault_trace::BlockKind;
use spillway_policy::streams::MAX_BLOCK_PAGES;

use crate::run::settings::Block;

/// Pages in the largest block under a limit. Several blocks must fit, or one would push out what it brings;
/// and each thread of the pager has room for one.
#[must_use]
pub fn max_block_pages(block: Block, limit_pages: u64) -> usize {
    match block {
        Block::Streams => (limit_pages / 128).clamp(1, MAX_BLOCK_PAGES as u64) as usize,
        Block::Elastic(size) | Block::Static(size) => {
            let most = (limit_pages / 16).max(1);
            (size.bytes() >> PAGE_SHIFT).min(1 << most.ilog2()) as usize
        }
    }
}

/// How blocks come to their sizes, as a fault trace has it.
#[must_use]
pub fn block_kind(block: Block) -> BlockKind {
    match block {
        Block::Streams => BlockKind::Streams,
        Block::Elastic(_) => BlockKind::Elastic,
        Block::Static(_) => BlockKind::Static,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spillway_core::size::Size;

    #[test]
    fn a_block_is_as_large_as_asked_or_as_the_limit_lets_it_be() {
        let pages =
            |kib: u64, limit_pages| max_block_pages(Block::Static(Size::from_bytes(kib << 10)), limit_pages);
        assert_eq!((pages(4, 1024), pages(64, 1024), pages(2048, 1 << 20)), (1, 16, 512));
        assert_eq!(pages(2048, 1024 + 512), 64);
        assert_eq!(max_block_pages(Block::Streams, 1 << 20), MAX_BLOCK_PAGES);
        assert_eq!((max_block_pages(Block::PAPER, 1 << 20), max_block_pages(Block::PAPER, 128)), (16, 8));
    }
}
