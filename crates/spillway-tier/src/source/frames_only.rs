//! Where pages lie, and nothing of their use: what a source builds on that is told of accesses in another
//! way.

use std::ops::Range;
use std::path::Path;

use super::page_map::{Mapped, PageMap};
use super::telemetry::{Facts, Seen, Source, SourceError};

pub(super) struct FramesOnly(PageMap);

impl FramesOnly {
    pub(super) fn new(root: &Path) -> Self {
        Self(PageMap::new(root))
    }
}

impl Source for FramesOnly {
    fn facts(&self) -> Facts {
        Facts {
            name: "frames-only",
            precision: "nothing of use",
            cost: "CPU time of the daemon: the page map",
        }
    }

    fn scan(
        &mut self,
        process: u32,
        ranges: &[Range<u64>],
        visit: &mut dyn FnMut(Seen),
    ) -> Result<(), SourceError> {
        self.0.walk(process, ranges, &mut |pages| {
            for &Mapped { address, frame } in pages {
                visit(Seen { address, frame, pages: 1, accessed: false });
            }
            Ok(())
        })
    }
}
