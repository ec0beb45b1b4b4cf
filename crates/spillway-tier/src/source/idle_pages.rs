//! Accessed bits through idle page tracking: a bit a frame, set by us, cleared by any access.
//! Source: Linux `Documentation/admin-guide/mm/idle_page_tracking.rst` and `pagemap.rst`.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::io::Errno;

use super::page_map::{Mapped, PageMap};
use super::telemetry::{Facts, Seen, Source, SourceError};

/// Its name, precision and cost, as `spillway doctor` and status tell them.
pub(super) const FACTS: Facts = Facts {
    name: "idle-pages",
    precision: "every page; time to one scan; accesses of every process that maps the page",
    cost: "CPU time of the daemon: the kernel finds the mappings of each frame twice a scan; no fault",
};

const BITMAP: &str = "sys/kernel/mm/page_idle/bitmap";
const FRAMES_PER_WORD: u64 = 64;

/// The bitmap of idle frames, beside the page map.
pub struct IdlePages {
    map: PageMap,
    bitmap: Bitmap,
}

/// A bit a frame, set while it is idle.
struct Bitmap(File);

fn lost(error: std::io::Error) -> SourceError {
    SourceError::Lost { name: FACTS.name, error: Errno::from_io_error(&error).unwrap_or(Errno::IO) }
}

impl IdlePages {
    /// Opens the bitmap below `root`.
    ///
    /// # Errors
    /// The kernel has none, or does not let us.
    pub fn open(root: &Path) -> Result<Self, SourceError> {
        let path = root.join(BITMAP);
        let bitmap = OpenOptions::new().read(true).write(true).open(&path).map_err(|error| {
            let reason = match error.kind() {
                std::io::ErrorKind::NotFound => "the kernel has no CONFIG_IDLE_PAGE_TRACKING".to_owned(),
                _ => format!("{}: {error}", path.display()),
            };
            SourceError::Unavailable { name: FACTS.name, reason }
        })?;
        Ok(Self { map: PageMap::new(root), bitmap: Bitmap(bitmap) })
    }
}

impl Bitmap {
    fn word(&self, word: u64) -> Result<u64, SourceError> {
        let mut bytes = [0; 8];
        match self.0.read_exact_at(&mut bytes, word * 8) {
            Ok(()) => Ok(u64::from_ne_bytes(bytes)),
            // Behind the last frame that the kernel knows.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(0),
            Err(error) => Err(lost(error)),
        }
    }

    /// Tells `visit` of these pages and whether they were accessed; then marks their frames idle.
    fn scan(&self, pages: &[Mapped], visit: &mut dyn FnMut(Seen)) -> Result<(), SourceError> {
        for of_word in pages.chunk_by(|a, b| a.frame / FRAMES_PER_WORD == b.frame / FRAMES_PER_WORD) {
            let word = of_word[0].frame / FRAMES_PER_WORD;
            let idle = self.word(word)?;
            let mut marks = 0;
            for &Mapped { address, frame } in of_word {
                let bit = 1 << (frame % FRAMES_PER_WORD);
                visit(Seen { address, frame, pages: 1, accessed: idle & bit == 0 });
                marks |= bit;
            }
            // Bits that are 0 in what is written stay as they are.
            self.0.write_all_at(&marks.to_ne_bytes(), word * 8).map_err(lost)?;
        }
        Ok(())
    }
}

impl Source for IdlePages {
    fn facts(&self) -> Facts {
        FACTS
    }

    fn scan(
        &mut self,
        process: u32,
        ranges: &[Range<u64>],
        visit: &mut dyn FnMut(Seen),
    ) -> Result<(), SourceError> {
        let bitmap = &self.bitmap;
        self.map.walk(process, ranges, &mut |pages| bitmap.scan(pages, visit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::page_map::PRESENT;
    use crate::testing::Tree;
    use spillway_core::page::PAGE_BYTES;

    /// A process whose page `n` is in frame `frames[n]`; 0 for none.
    fn machine(frames: &[u64]) -> Tree {
        let tree = Tree::new();
        tree.write("proc/7/pagemap", "");
        tree.write(BITMAP, "");
        let map: Vec<u8> = frames
            .iter()
            .flat_map(|&frame| if frame == 0 { 0 } else { PRESENT | frame }.to_ne_bytes())
            .collect();
        std::fs::write(tree.root().join("proc/7/pagemap"), map).unwrap();
        std::fs::write(tree.root().join(BITMAP), [0; 64]).unwrap();
        tree
    }

    fn scan(source: &mut IdlePages, pages: Range<u64>) -> Vec<(u64, u64, bool)> {
        let mut found = Vec::new();
        source
            .scan(7, std::slice::from_ref(&(pages.start * PAGE_BYTES..pages.end * PAGE_BYTES)), &mut |seen| {
                found.push((seen.address / PAGE_BYTES, seen.frame, seen.accessed));
            })
            .unwrap();
        found
    }

    #[test]
    fn frames_that_are_no_longer_idle_were_accessed() {
        let tree = machine(&[5, 0, 6, 200, 64]);
        let mut source = IdlePages::open(tree.root()).unwrap();
        let all = [(0, 5, true), (2, 6, true), (3, 200, true), (4, 64, true)];
        assert_eq!(scan(&mut source, 0..5), all);
        // The test's file keeps what is written, so all are idle now; an access clears the bit.
        let path = tree.root().join(BITMAP);
        let mut bitmap = std::fs::read(&path).unwrap();
        assert_eq!(bitmap[0], 1 << 5 | 1 << 6, "and no other frame's");
        bitmap[0] &= !(1 << 6);
        std::fs::write(&path, bitmap).unwrap();
        assert_eq!(scan(&mut source, 0..4), [(0, 5, false), (2, 6, true), (3, 200, false)]);
    }

    #[test]
    fn frames_behind_the_bitmap_and_ranges_behind_the_map_do_no_harm() {
        let tree = machine(&[1 << 40, 3]);
        let mut source = IdlePages::open(tree.root()).unwrap();
        assert_eq!(scan(&mut source, 0..100).len(), 2);
    }

    #[test]
    fn a_kernel_without_it_and_a_process_that_is_gone_are_told_apart() {
        let error = IdlePages::open(Tree::new().root()).err().unwrap();
        assert!(error.to_string().contains("CONFIG_IDLE_PAGE_TRACKING"), "{error}");
        let tree = machine(&[1]);
        let mut source = IdlePages::open(tree.root()).unwrap();
        assert!(matches!(source.scan(8, &[], &mut |_| {}), Err(SourceError::Gone(8))));
    }
}
