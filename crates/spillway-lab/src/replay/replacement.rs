//! What a replacement policy of a replay does.

/// No frame, no page.
pub(super) const NONE: u32 = u32::MAX;

/// Which page leaves when another comes.
pub trait Replacement {
    /// An empty local memory of `frames` pages, for pages 0 to `pages` - 1.
    fn new(pages: u32, frames: u32) -> Self;

    /// Requests a page; answers whether it was there. It is there afterwards.
    fn request(&mut self, page: u32) -> bool;
}
