//! The pager's own memory, which is real: frames are written here as the kernel would, and read as the pager
//! does.
//!
//! One thread runs a whole world, so nothing here happens while something else does. A reference to a frame
//! that the pager keeps over a turn, in which a wrong pager would have the frame filled or emptied, sees
//! that: that is how such mistakes are found.
#![allow(unsafe_code)]

use spillway_core::page::{PAGE_SIZE, Page};
use spillway_sys::ranges::FrameRange;

use crate::contents::SCRIBBLE;

/// Fills the first page of a range, as the kernel does when it moves a page there.
pub fn fill(frame: FrameRange<'_>, contents: &Page) {
    // SAFETY: only this thread runs. The pager reads frames in Writeback only, which are never filled by a
    // pager that is right; of one that is wrong the bytes are read as they are then.
    unsafe { frame.write(contents) }
}

/// Leaves something behind that nobody should read.
pub fn scribble(frame: FrameRange<'_>) {
    fill(frame, &[SCRIBBLE; PAGE_SIZE]);
}

/// What the first page of a range holds at this moment.
#[must_use]
pub fn contents(frame: FrameRange<'_>) -> Page {
    // SAFETY: copied at once, with no turn in between.
    unsafe { *frame.page() }
}

/// A page of the simulated machine, for as long as the pager says that it uses it.
///
/// The machine's frames keep their memory while the world lasts, and the pager's tasks end before it.
#[must_use]
pub fn for_pager<'a>(page: &Page) -> &'a Page {
    let page = std::ptr::from_ref(page);
    // SAFETY: the memory lives until the world's end, after that of the task that asks.
    unsafe { &*page }
}
