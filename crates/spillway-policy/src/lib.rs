//! Policies: which pages stay local. One file a policy, each with its own configuration; none knows whether it
//! runs in a pager, in a daemon or in a simulation.
//!
//! - [`registry`]: all of them, by name; a new one is its file and one line there
//! - [`hotbox`], [`indigo`], [`dcm`] with [`dcm_blocks`]: the papers' own
//! - [`auto_numa`], [`auto_tiering`], [`tpp`], [`nimble`], [`multi_clock`], [`hemem`], [`memtis`], [`swap`]: their rivals
//! - [`fixed`], [`oracle`], [`belady`]: bounds
//! - [`two_list`], [`hint_scan`]: what several of them are made of
//! - [`scale`]: their settings for smaller machines; [`knowledge`]: what offline ones are told

pub mod auto_numa;
pub mod auto_tiering;
pub mod belady;
pub mod dcm;
pub mod dcm_blocks;
pub mod fixed;
pub mod hemem;
pub mod hint_scan;
pub mod hotbox;
pub mod indigo;
pub mod knowledge;
pub mod memtis;
pub mod multi_clock;
pub mod nimble;
pub mod oracle;
pub mod registry;
pub mod scale;
pub mod swap;
#[cfg(test)]
mod testing;
pub mod tpp;
pub mod two_list;
