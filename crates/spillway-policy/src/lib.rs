//! Policies: which pages stay local. One file a policy, each with its own configuration; none knows what runs
//! it.
//!
//! From the bottom upwards:
//! - [`machine`], [`policy`]: the seam between what decides and what is acted on
//! - [`knowledge`]: what offline policies are told; [`scale`]: settings for smaller machines; [`entry`]: a
//!   policy's line in the registry, with what it needs of the machine
//! - [`page_lists`], [`blocks`], [`victims`], [`two_list`], [`hint_scan`]: what several of them are made of
//! - [`hotbox`], [`indigo`] with its telemetry, what its agent is told ([`indigo_context`]) and the agent
//!   ([`indigo_model`]), [`dcm`] with [`dcm_blocks`]: the papers' own
//! - [`auto_numa`], [`auto_tiering`], [`tpp`], [`nimble`], [`multi_clock`], [`hemem`], [`memtis`], [`swap`],
//!   [`linux_tiering`] with its [`generations`], [`colloid`], [`nomad`]: their rivals
//! - [`spillway`]: our own, and what it foretells by ([`spillway_forecast`]); what pages are worth
//!   to it, the rival in its shadow that fetches them whole, and whether that and exchanges help, are files
//!   beside it
//! - [`fixed`], [`oracle`], [`belady`]: bounds
//! - [`newcomers`], [`thread_queues`]: which queue of dcm's a page begins in, and what a thread has of its
//!   own of them
//! - [`use_history`], [`use_forecast`], [`scan_clock`]: what scans of accessed bits say of a page, what that
//!   foretells, and when one is due
//! - [`streams`]: how many neighbours faults have earned that come one behind the other; [`read_streams`]:
//!   which of them are read ahead
//! - [`first_reads`]: whether who reads a page that was never written gets a frame for it
//! - [`strides`]: which pages a thread will fault on next; [`tape`]: which it faulted on in the run before
//! - [`fault_trace`]: dcm's replacement and blocks as a pager has them, written down call by call, and
//!   replayed
//! - [`registry`]: all of them, by name; a new one is its file and one line there

pub mod auto_numa;
pub mod auto_tiering;
pub mod belady;
pub mod blocks;
pub mod colloid;
pub mod dcm;
pub mod dcm_blocks;
pub mod entry;
pub mod fault_trace;
pub mod first_reads;
pub mod fixed;
pub mod generations;
mod headroom;
pub mod hemem;
pub mod hint_scan;
pub mod hotbox;
pub mod indigo;
pub mod indigo_context;
pub mod indigo_model;
mod indigo_telemetry;
pub mod knowledge;
pub mod linux_tiering;
pub mod machine;
pub mod memtis;
pub mod multi_clock;
pub mod newcomers;
pub mod nimble;
pub mod nomad;
pub mod oracle;
pub mod page_lists;
pub mod policy;
pub mod read_streams;
pub mod registry;
pub mod scale;
pub mod scan_clock;
pub mod spillway;
mod spillway_fetch;
pub mod spillway_forecast;
mod spillway_shadow;
mod spillway_trial;
mod spillway_worth;
pub mod streams;
pub mod strides;
pub mod swap;
pub mod tape;
#[cfg(test)]
mod testing;
pub mod thread_queues;
pub mod tpp;
pub mod two_list;
pub mod use_forecast;
pub mod use_history;
pub mod victims;
#[cfg(test)]
mod walk_through;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// `docs/lab/a-new-policy.md` shows the file, the line of the registry, and the test: the first and the
    /// last are compiled here.
    #[test]
    fn the_walk_through_shows_code_that_runs() {
        let page = include_str!("../../../docs/lab/a-new-policy.md");
        let blocks: Vec<_> =
            page.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
        assert_eq!(format!("{}\n{}", blocks[0], blocks[2]), include_str!("walk_through.rs"));
    }

    /// Neither policies nor the seam that they are written to say a word of what might run them.
    #[test]
    fn no_policy_says_what_runs_it() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut files = 0;
        let folders = ["", "/fault_trace", "/indigo", "/indigo_model", "/spillway", "/strides", "/tape"]
            .map(|name| crates.join(format!("spillway-policy/src{name}")));
        let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
        for path in entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
            let text = fs::read_to_string(&path).unwrap().to_lowercase();
            for word in [concat!("simu", "lat"), concat!("spillway", "_lab"), concat!("spillway", "_tier")] {
                assert!(!text.contains(word), "{} says '{word}'", path.display());
            }
            files += 1;
        }
        assert!(files > 20, "{files}");
    }
}
