//! A write whose bytes come a piece at a time.
//!
//! Memory is taken for what has come, never for what a client only announces: to hold memory of the donor's,
//! one has to send as much. Pages that are new are shown when the last byte is here.

use crate::export::{Export, ExportError, Part};

/// A write under way. Dropped before its end, it leaves no new page behind.
#[derive(Debug)]
pub struct Staged<'a> {
    export: &'a Export,
    /// Pages that are new, and their frames.
    pieces: Vec<(Part, u32)>,
}

impl<'a> Staged<'a> {
    /// Begins a write of `bytes` bytes. Fails at once, and changes nothing, where memory is lacking for it
    /// now.
    pub fn begin(export: &'a Export, offset: u64, bytes: u64) -> Result<Self, ExportError> {
        export.has_room(offset, bytes)?;
        Ok(Self { export, pieces: Vec::new() })
    }

    /// The next piece; whole pages, but for the ends of the write.
    pub fn add(&mut self, offset: u64, from: &[u8]) -> Result<(), ExportError> {
        let pieces = &mut self.pieces;
        self.export.prepare_piece(offset, from, |part, frame| pieces.push((part, frame)))
    }

    /// Shows everybody what was new.
    pub fn finish(mut self) -> Result<(), ExportError> {
        self.export.show(&mut self.pieces)
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        self.export.take_back(&mut self.pieces);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use spillway_core::page::PAGE_SIZE;

    use super::*;
    use crate::frames::FramePool;

    const PAGE: u64 = PAGE_SIZE as u64;

    fn pool_and_export(frames: u32) -> (Arc<FramePool>, Export) {
        let pool = Arc::new(FramePool::new(frames).unwrap());
        let export = Export::new(Arc::clone(&pool), 64 * PAGE, None);
        (pool, export)
    }

    fn byte(export: &Export, offset: u64) -> u8 {
        let mut byte = [0xee];
        export.read(offset, &mut byte).unwrap();
        byte[0]
    }

    #[test]
    fn only_what_has_come_takes_memory_and_nothing_stays_of_half_a_write() {
        let (pool, export) = pool_and_export(8);
        let mut write = Staged::begin(&export, 0, 8 * PAGE).unwrap();
        assert_eq!(pool.taken(), 0, "an announcement takes nothing");
        write.add(0, &[1; 2 * PAGE_SIZE]).unwrap();
        assert_eq!((pool.taken(), byte(&export, 0)), (2, 0));
        drop(write);
        assert_eq!((pool.taken(), byte(&export, 0)), (0, 0));
    }

    #[test]
    fn a_write_that_finishes_is_there_whole() {
        let (pool, export) = pool_and_export(8);
        export.write(PAGE, &[9; PAGE_SIZE]).unwrap();
        let mut write = Staged::begin(&export, 100, 4 * PAGE).unwrap();
        write.add(100, &[1; 2 * PAGE_SIZE - 100]).unwrap();
        write.add(2 * PAGE, &[2; 2 * PAGE_SIZE + 100]).unwrap();
        write.finish().unwrap();
        let bytes = [99, 100, PAGE, 2 * PAGE, 4 * PAGE + 99, 4 * PAGE + 100].map(|at| byte(&export, at));
        assert_eq!((bytes, pool.taken()), ([0, 1, 1, 2, 2, 0], 5));
    }

    #[test]
    fn what_another_client_stored_meanwhile_stays_but_for_the_bytes_written() {
        let (pool, export) = pool_and_export(8);
        let mut write = Staged::begin(&export, 0, 100).unwrap();
        write.add(0, &[1; 100]).unwrap();
        export.write(100, &[2; 100]).unwrap();
        write.finish().unwrap();
        assert_eq!(([0, 99, 100, 199].map(|at| byte(&export, at)), pool.taken()), ([1, 1, 2, 2], 1));
    }

    #[test]
    fn a_write_that_cannot_fit_is_refused_before_it_comes() {
        let (_pool, export) = pool_and_export(4);
        assert_eq!(Staged::begin(&export, 0, 5 * PAGE).unwrap_err(), ExportError::Full);
        export.drop_contents();
        assert_eq!(Staged::begin(&export, 0, 1).unwrap_err(), ExportError::Dropped);
    }
}
