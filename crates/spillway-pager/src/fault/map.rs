//! Mapping a page that is at hand: a copy of it, or the frame that it lies in.

use rustix::io::Errno;

use crate::kernel::{Kernel, planted};
use crate::pages::address::{address_of, target};
use crate::pages::error::{Failure, PageError};
use crate::process::worker::Worker;

impl<K: Kernel> Worker<K> {
    /// Maps a copy of the page that was fetched first, which is charged already; given back on failure if
    /// `charged` for this.
    pub(crate) fn map_fetched(&self, page_number: u64, charged: bool) -> Result<(), Failure> {
        let outcome = self.at.kernel.copy(target(page_number, 1), self.fetched.run(0, 1), false);
        self.settle_mapping(page_number, outcome.map(|_| ()), charged)
    }

    /// Maps a copy of the page that lies in a frame; otherwise as [`Self::map_fetched`].
    pub(crate) fn copy_back(&self, page_number: u64, frame: u32, charged: bool) -> Result<(), Failure> {
        let from = self.engine.frames.range(frame, 1);
        let outcome = self.at.kernel.copy_from_frame(target(page_number, 1), from);
        self.settle_mapping(page_number, outcome, charged)
    }

    /// What to do when a page was mapped, or could not be.
    pub(crate) fn settle_mapping(
        &self,
        page_number: u64,
        outcome: rustix::io::Result<()>,
        charged: bool,
    ) -> Result<(), Failure> {
        match outcome {
            Ok(()) => Ok(()),
            // There already, unmanaged until now: it counts from here on.
            Err(Errno::EXIST) if !self.holds_no_frame(page_number) => {
                let _ = self.at.kernel.wake(target(page_number, 1));
                Ok(())
            }
            Err(error) => {
                if charged {
                    self.at.release_local(1);
                }
                match error {
                    // The mapping has just gone, or is changing, or another thread was refused the page: the
                    // access will find out by itself.
                    Errno::NOENT | Errno::AGAIN | Errno::SRCH | Errno::EXIST => Err(Failure::Retry),
                    error => Err(PageError::Kernel { what: "map a page", error }.into()),
                }
            }
        }
    }

    /// A marker lies in the page's place, or what the kernel has swapped out.
    fn holds_no_frame(&self, page_number: u64) -> bool {
        let entry = self.at.kernel.page_map_entry(address_of(page_number));
        entry.is_some_and(|entry| {
            entry.is_populated() && !entry.is_exclusive() && !entry.is_present_and_shared()
        })
    }

    /// Maps a page's own frame again.
    pub(crate) fn remap(&self, page_number: u64, frame: u32) -> Result<(), Failure> {
        let frames = &self.engine.frames;
        self.note_answer();
        match self.at.kernel.move_from_frame(target(page_number, 1), frames.range(frame, 1)) {
            Ok(()) => {
                frames.give_back(frame, 1);
                Ok(())
            }
            // Shared with a forked process, or protections differ: a copy will do. Two copies for a moment.
            Err(Errno::BUSY | Errno::INVAL | Errno::AGAIN | Errno::NOENT) => {
                self.copy_back(page_number, frame, false)?;
                if planted!(K, "full-frame-given-back") {
                    frames.give_back(frame, 1);
                } else {
                    frames.discard(&self.at.kernel, &mut [frame]);
                }
                Ok(())
            }
            Err(error) => Err(PageError::Kernel { what: "move a page back", error }.into()),
        }
    }
}
