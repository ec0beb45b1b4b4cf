//! What the pager, the policies and the lab have in common: pages, the page-state machine, queues and
//! the state that the processes of one run share. No I/O, no clock, no `unsafe`.
//!
//! - [`page`], [`size`]: units;
//! - [`page_word`]: where a page is, and who may change that;
//! - [`transitions`]: what a fault, an eviction and a write-back make of a page;
//! - [`policy`], [`machine`]: the seam between what decides and what is acted on;
//! - [`page_lists`]: the lists that scanning policies keep pages on;
//! - [`blocks`]: pages that are fetched and evicted as one;
//! - [`fifo`]: the queues that a replacement policy keeps pages in;
//! - [`victims`]: which of the oldest pages leave first;
//! - [`slots`]: who uses which slot of a store, which page it holds, and its checksum;
//! - [`frame_pool`], [`fragmentation`]: which frames are free, and how broken memory is;
//! - [`budget`]: the local limit that all processes of a run share;
//! - [`call_slots`]: how a thread asks for something, and gets its answer;
//! - [`background`]: what is done in the background, and when it yields;
//! - [`latency`]: a histogram of latencies.

pub mod background;
pub mod blocks;
pub mod budget;
pub mod call_slots;
pub mod fifo;
pub mod fragmentation;
pub mod frame_pool;
pub mod latency;
pub mod machine;
pub mod page;
pub mod page_lists;
pub mod page_word;
pub mod policy;
pub mod size;
pub mod slots;
pub mod transitions;
pub mod victims;
