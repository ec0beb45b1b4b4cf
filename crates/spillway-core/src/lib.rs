//! What the pager is made of that needs no kernel: pages, the page-state machine, queues and the state
//! that the processes of one run share. No I/O, no clock, no `unsafe`.
//!
//! - [`page`], [`size`]: units;
//! - [`page_word`]: where a page is, and who may change that;
//! - [`transitions`]: what a fault, an eviction and a write-back make of a page;
//! - [`fifo`]: the queues that a replacement policy keeps pages in;
//! - [`slots`]: who uses which slot of a store, which page it holds, and its checksum;
//! - [`seals`]: what a page must be opened with that was sealed before it left; no nonce serves twice;
//! - [`frame_pool`], [`fragmentation`]: which frames are free, and how broken memory is;
//! - [`budget`]: the local limit that all processes of a run share;
//! - [`call_slots`]: how a thread asks for something, and gets its answer;
//! - [`background`]: what is done in the background, and when it yields;
//! - [`latency`]: a histogram of latencies.

pub mod background;
pub mod budget;
pub mod call_slots;
pub mod distances;
pub mod fifo;
pub mod fragmentation;
pub mod frame_pool;
pub mod latency;
pub mod page;
pub mod page_word;
pub mod plain_text;
pub mod seals;
pub mod size;
pub mod slots;
pub mod transitions;
