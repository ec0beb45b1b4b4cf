//! Mistakes that can be planted in the pager (feature `planted-bugs`), by name: each of [`MISTAKES`] must be
//! found.
//!
//! Where each stands: `planted!(K, "name")` in `spillway-pager`, but for the first, which stands below the
//! seam.

/// A mistake that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// As `--plant` takes it.
    pub name: &'static str,
    /// What the wrong code does.
    pub what: &'static str,
}

const fn mistake(name: &'static str, what: &'static str) -> Mistake {
    Mistake { name, what }
}

/// All mistakes that can be planted.
pub const MISTAKES: &[Mistake] = &[
    mistake("move-miscounted", "UFFDIO_MOVE's count is believed where it moved more"),
    mistake("reserve-miscounted", "the same for pages of the reserve"),
    mistake("wake-lost", "who unlocks a page's word does not wake who waits for it"),
    mistake("wake-lost-on-retry", "a fault that cannot be served now is left unanswered"),
    mistake("slot-freed-while-written", "a slot is given up while its write-back is under way"),
    mistake("frame-freed-while-written", "a touch frees the frame that a write-back still reads"),
    mistake("touch-overlooked", "a write-back ends as if its page had not been touched meanwhile"),
    mistake("checksum-of-the-older-version", "a slot's new page is noted with the old one's checksum"),
    mistake("stale-copy-kept", "a changed page keeps its old slot in place of a write"),
    mistake("zeros-by-half", "a page counts as zeros by its first half"),
    mistake("given-up-copy-kept", "a page that is written to keeps the slot that it has given up"),
    mistake("half-written-slot-kept", "a slot that could not be written is given up twice"),
    mistake("full-frame-given-back", "a frame that was copied from is free although it is full"),
    mistake("frame-of-gone-page-lost", "the frame taken for a page that was gone is never free again"),
    mistake("failed-read-not-repeated", "a page whose read failed or came wrong once counts as lost"),
    mistake("repeated-read-unchecked", "a page that is read again is mapped without a look at its checksum"),
    mistake("fork-amid-work", "a fork does not wait for the pager's threads at work, which hold locks"),
    mistake("slots-not-shared", "a child holds no slots of its parent's"),
    mistake("unneeded-slots-forked", "parent and child both give the same slots back"),
    mistake("shared-slot-overwritten", "a slot that a forked process holds too is written anew"),
    mistake("shared-slot-reused", "a slot that a forked process holds too is kept for reuse"),
    mistake("protection-kept-after-fork", "a child takes pages for write-protected that are not"),
    mistake("child-charged-less", "a child is charged for fewer pages than it inherits"),
    mistake("stack-evicted-amid-fork", "making room for a child evicts the stack that the fork runs on"),
    mistake("wipe-forgotten", "a child's own child gets what MADV_WIPEONFORK should wipe"),
    mistake("slot-names-old-page", "mremap(2) leaves the old page's number in its slot"),
    mistake("native-room-kept", "memory left to the kernel stays charged when it is unmapped"),
    mistake("discarded-before-locked", "contents are dropped before the pages' words are locked"),
    mistake("lock-dropped-early", "clean pages are unlocked as far before they are dropped"),
    mistake("protection-lifted-unnoted", "a page that is written to still counts as clean"),
    mistake("copied-out-though-pinned", "pages are copied out under a device that holds them"),
    mistake("pinned-tried-for-ever", "a page that is pinned stays the next to leave"),
    mistake("held-page-evicted", "what a system call uses is evicted under it"),
    mistake("room-charged-twice", "room is charged twice and given back once"),
    mistake("followers-not-charged", "pages that come with a block are not charged"),
    mistake("foreseen-not-charged", "pages that a thread is expected to use next are not charged"),
    mistake("foreseen-unchecked", "pages that are foreseen are mapped without a look at their checksum"),
    mistake("taped-not-charged", "pages that come by a tape are not charged"),
    mistake("taped-waited-for", "a fault waits for the words of pages that a tape has, and holds others"),
    mistake("mapped-before-charged", "a page that came while room was made is mapped without any"),
    mistake("posted-read-not-awaited", "a page is taken from its buffer before its posted read is completed"),
    mistake("posted-in-another-order", "a block that goes down is posted in the order in which it is wanted"),
    mistake("posted-read-forgotten", "a posted read is not completed where no room comes"),
    mistake("stored-page-refused-when-full", "a stored page may not exceed the limit while stores are full"),
    mistake("room-given-back-early", "room is given back before the frames are"),
    mistake("nothing-kept-back", "far pages are not kept back while handlers take over their faults"),
    mistake("kept-back-for-good", "pages that were kept back stay marked as lost"),
    mistake("served-page-not-queued", "a page that came in never leaves again"),
    mistake("moved-page-not-queued", "a page that changes its queue never leaves again"),
    mistake("fork-wish-not-noted", "what a program wishes for its children is told to the kernel alone"),
    mistake("poison-forgotten", "a page that is lost counts as never written"),
    mistake("held-not-populated", "memory that a system call holds is managed though it is not there"),
    mistake("locked-in-the-other-order", "a thread that has the managed ranges waits for the native ones"),
    mistake("forgotten-before-unregistered", "words are cleared before the range is unregistered"),
    mistake("charge-back-before-drop", "munmap(2) gives room back while its pages are there still"),
    mistake("locked-page-unpoisoned", "mlock(2) leaves zeros for a page that cannot be had"),
    mistake("poison-refused-once", "mlock(2) leaves zeros where the kernel was too busy to poison a page"),
    mistake("locked-page-given-up", "mlock(2) goes on without a page that could not come at once"),
    mistake("dropped-though-pinned", "clean pages are dropped under a device that holds them"),
    mistake("doorbells-stay-mapped", "a spent slot's doorbell rings no more: calls run out of slots"),
    mistake("protection-moved", "mremap(2) keeps a page's protection in its word"),
    mistake("head-settled-twice", "the head of an elastic block is unlocked again as it was before it came"),
    mistake("block-outlives-its-region", "a region that goes leaves blocks that reach into it"),
    mistake("reduce-forgets-a-member", "an elastic block is taken apart but for its last page"),
    mistake("touched-page-stays-inactive", "a touched inactive page is still written back and freed"),
    mistake("unmapped-page-taken-for-clean", "an unmapped page counts as unchanged because it has a slot"),
    mistake("whole-range-not-queued", "a range that came as a huge page never leaves again"),
    mistake("stage-slots-not-compared", "what was made ready is taken though a page has another slot by now"),
    mistake(
        "stage-contents-not-compared",
        "what was made ready is taken though a slot holds another page by now",
    ),
    mistake("stage-over-local-pages", "what was made ready is mapped over pages that are local by now"),
    mistake("stage-miscounted", "UFFDIO_MOVE's count is believed of a range"),
    mistake("stage-room-kept", "what was made ready in vain stays charged"),
    mistake("referred-before-own", "a page is referred to while a write would still give it another frame"),
    mistake(
        "referred-under-a-device",
        "pages are taken by reference from under a device that writes to them",
    ),
    mistake("frames-believed-to-stay", "pages leave by reference where the kernel may change their frames"),
    mistake("copied-before-dropped", "what is referred to is copied while threads can still write to it"),
    mistake("half-dropped-taken-for-gone", "pages are taken for dropped where the call stopped half-way"),
    mistake("buffered-page-queued-too", "a page in a thread's buffer is in a shared queue as well"),
    mistake("buffers-passed-by", "an eviction that finds the shared queues empty looks into no buffer"),
    mistake(
        "buffers-forgotten-after-fork",
        "what waits in buffers at a fork never leaves the child's memory",
    ),
    mistake("inactive-of-others-passed-by", "a thread writes back what it has unmapped itself, and no more"),
    mistake("cancelled-frame-freed-twice", "the frame of a write-back that was cancelled is freed twice"),
    mistake("later-write-back-taken-for-own", "a cancelled write-back ends the one that has followed it"),
    mistake("versions-of-each-process", "each process counts by itself which versions it seals pages as"),
    mistake("seal-of-the-older-version", "a slot that is written anew keeps the seal that it had"),
    mistake("wrong-seal-overlooked", "a page is mapped although it does not open"),
    mistake("left-as-it-is", "a page goes to its store as it is, in place of the sealed one"),
    mistake("native-moved-in-two-looks", "memory left to the kernel is taken over amid an mremap(2)"),
];
