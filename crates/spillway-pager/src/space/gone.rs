//! What pages held that are gone, given back together.

use spillway_core::page_word::{PageInfo, PageState};

use crate::kernel::Kernel;
use crate::process::worker::Worker;

/// What pages held that are gone.
#[derive(Default)]
pub(crate) struct Gone {
    /// Pages that the local limit is charged for.
    pub(crate) local: u64,
    /// Pages that held something.
    pub(crate) managed: u64,
    pub(crate) frames: Vec<u32>,
}

impl<K: Kernel> Worker<K> {
    /// Notes what a page held that the program gives up. Its word is locked and becomes absent.
    pub(crate) fn let_go(&mut self, info: PageInfo, gone: &mut Gone) {
        gone.local += u64::from(info.is_local() && !info.is_under_write_back());
        gone.managed += u64::from(!info.is_absent());
        if let PageState::Inactive { frame, .. } = info.state {
            gone.frames.push(frame);
        }
        // Slot and frame of a write-back are its own: it finds the page gone and gives them back.
        self.drop_slot(info.slot());
    }

    pub(crate) fn settle_gone_pages(&mut self, mut gone: Gone) {
        self.engine.frames.discard(&self.at.kernel, &mut gone.frames);
        self.at.release_local(gone.local);
        self.at.remove_managed(gone.managed);
    }
}
