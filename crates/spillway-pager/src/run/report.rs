//! The statistics of a run.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use serde::Serialize;
use spillway_core::fragmentation::fragmentation_index;
use spillway_core::page::PAGE_SIZE;
use spillway_core::size::Size;

use crate::run::settings::{Block, Settings};
use crate::run::state::{Counter, RunState};

/// Faults by what they needed.
#[derive(Clone, Debug, Serialize)]
pub struct Faults {
    /// First touch of a page.
    pub first_touch: u64,
    /// A page fetched from a store.
    pub fetch: u64,
    /// A page that was local but unmapped.
    pub inactive: u64,
    /// A page under write-back.
    pub writeback: u64,
    /// Nothing: served meanwhile, or write protection lifted.
    pub other: u64,
    /// A page that cannot be had: SIGBUS.
    pub refused: u64,
}

/// Time from reading a fault's message to its answer.
#[derive(Clone, Debug, Serialize)]
pub struct FaultLatency {
    /// The median, in microseconds.
    pub p50: f64,
    /// The 90th percentile, in microseconds.
    pub p90: f64,
    /// The 99th percentile, in microseconds.
    pub p99: f64,
    /// The longest, in microseconds.
    pub max: f64,
}

/// What happened in a run, all its processes together.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The most memory that was local at a time, frames included. What is left to the kernel counts whole, as
    /// it was mapped.
    pub peak_local_bytes: u64,
    /// The most memory under management at a time, local and far.
    pub managed_bytes: u64,
    /// Memory mapped that could not be managed.
    pub unmanaged_bytes: u64,
    /// Memory left to the kernel because it fitted under the limit when it was mapped; it may have been taken
    /// over since.
    pub native_bytes: u64,
    /// Faults by what they needed.
    pub faults: Faults,
    /// Pages read from stores.
    pub pages_fetched: u64,
    /// Of these, pages that no fault had asked for yet: the rest of their block.
    pub pages_fetched_ahead: u64,
    /// Blocks fetched, by their size in bytes, a power of two (the next lower one).
    pub blocks: BTreeMap<u64, u64>,
    /// Of the pages fetched ahead the share that was used (dcm, section 5.2). In streams, those whose block
    /// was used up to its end, for the next fault came behind it: a lower bound. In other blocks, of those
    /// that have left again, those that accessed bits or a fault told of. Absent where it cannot be known.
    pub prefetch_accuracy: Option<f64>,
    /// Elastic blocks that were taken apart as they left, for no more than half of their pages were
    /// referenced.
    pub blocks_reduced: u64,
    /// Pages that the program discarded by system calls of its own, past libc.
    pub pages_found_gone: u64,
    /// Of the pages fetched ahead, those that came while the program used the block before.
    pub pages_read_ahead: u64,
    /// Pages whose read failed or came wrong and was made again.
    pub pages_read_again: u64,
    /// Of the pages fetched ahead, those that came since a thread was expected to step there (`[fetch]
    /// strides`).
    pub pages_foreseen: u64,
    /// Of these, those that were used, for the thread's next fault came behind them where it was expected: a
    /// lower bound.
    pub pages_foreseen_used: u64,
    /// Faults that fetched a page where a tape had it (`--tape`).
    pub faults_on_tape: u64,
    /// Of the pages fetched ahead, those that came because a tape had them.
    pub pages_by_tape: u64,
    /// Of these, those that were used, for the thread's next fault came behind them on the tape: a lower
    /// bound.
    pub pages_by_tape_used: u64,
    /// Tapes that were recorded and kept.
    pub tapes_recorded: u64,
    /// Tapes that were played.
    pub tapes_played: u64,
    /// Of these, those that proved useless and were dropped.
    pub tapes_dropped: u64,
    /// Reads that were under way while their fault made room.
    pub reads_posted: u64,
    /// Pages written to stores.
    pub pages_written_back: u64,
    /// Pages evicted from where they lay, while their program's only thread served a fault (`--fault-mode
    /// inline`).
    pub pages_evicted_in_place: u64,
    /// Pages that came into frames by reference, with one flush of the CPUs' translations a batch
    /// (`--fault-mode inline`).
    pub pages_unmapped_by_reference: u64,
    /// Places in libc where system calls are made by a jump, of all processes that began a program
    /// (`--fault-mode inline`).
    pub patched_call_sites: u64,
    /// System calls that came as a signal, since they were made elsewhere or used memory that was not there
    /// (`--fault-mode inline`).
    pub calls_by_signal: u64,
    /// Processes that left inline mode, for a call that it cannot serve.
    pub inline_left: u64,
    /// Pages evicted without a write because a store held the same contents.
    pub clean_drops: u64,
    /// Pages of zeros evicted without a write.
    pub zero_drops: u64,
    /// Bytes zeroed to serve faults, by Spillway or, where a page was read first, by the kernel; the
    /// reserve's included, used or not. At most: a page that was read first counts unless it was seen to
    /// leave unwritten. Memory left to the kernel is not in it.
    pub zeroed_bytes: u64,
    /// What a plain design would have zeroed for the same faults: a frame for each first touch and each page
    /// fetched. At least: pages mapped ahead of their first touch count where their run was used up to its
    /// end.
    pub plain_zeroed_bytes: u64,
    /// Pages mapped from the shared page of zeros by their first read.
    pub zero_page_maps: u64,
    /// Pages that came out of the reserve of zeros.
    pub reserve_pages_used: u64,
    /// How much of managed local memory does not lie in whole ranges of 2 MiB, 0 to 1: the mean of scans, one
    /// a second. Absent in a shorter run.
    pub fragmentation_index: Option<f64>,
    /// Ranges of 2 MiB that were made huge pages again.
    pub huge_pages_formed: u64,
    /// Ranges of 2 MiB of streams that came as huge pages (`[fetch] huge_streams`).
    pub huge_ranges_in: u64,
    /// Ranges that left as they had come so.
    pub huge_ranges_out: u64,
    /// Write-backs made useless by a touch.
    pub writebacks_cancelled: u64,
    /// Write-backs that a store refused.
    pub writebacks_failed: u64,
    /// Evictions that could not be done (pinned pages and the like), each time counted.
    pub evictions_refused: u64,
    /// Scans of the accessed bits of managed memory; 0 also where the program's processes may not read them.
    pub use_scans: u64,
    /// CPU time that they took, of the evictors' threads.
    pub use_scan_s: f64,
    /// Times that a page whose turn to leave had come stayed because scans found it in use.
    pub pages_kept_in_use: u64,
    /// Bytes read from stores.
    pub bytes_in: u64,
    /// Bytes written to stores.
    pub bytes_out: u64,
    /// Service times of all faults.
    pub fault_latency_us: FaultLatency,
    /// Processes that ran managed.
    pub processes: u64,
    /// Of the processes, those that came of a fork.
    pub forks: u64,
    /// From start to end of the program.
    pub wall_s: f64,
    /// How the program ended: its exit status, or 128 plus the signal.
    pub exit_status: i32,
    /// The settings that the run had.
    pub settings: Settings,
    /// The program and its arguments.
    pub command: Vec<String>,
}

fn blocks(run: &RunState) -> BTreeMap<u64, u64> {
    let sizes = (0..).map(|size| (PAGE_SIZE as u64) << size);
    sizes.zip(run.blocks()).filter(|(_, count)| *count > 0).collect()
}

/// Of the pages fetched ahead the share that was used: see [`Report::prefetch_accuracy`].
#[must_use]
pub fn prefetch_accuracy(run: &RunState, settings: &Settings) -> Option<f64> {
    let count = |counter| run.counter(counter).load(Ordering::Relaxed);
    let (ahead, is_seen) = match settings.block {
        Block::Streams => (count(Counter::PagesFetchedAhead), true),
        Block::Elastic(_) | Block::Static(_) => {
            (count(Counter::PagesAheadLeft), count(Counter::UseScans) > 0)
        }
    };
    (is_seen && ahead > 0).then(|| (count(Counter::PagesAheadUsed) as f64 / ahead as f64).min(1.0))
}

fn fragmentation(run: &RunState) -> Option<f64> {
    let count = |counter| run.counter(counter).load(Ordering::Relaxed) as usize;
    let (local, whole) = (count(Counter::LocalPagesSeen), count(Counter::WholePagesSeen));
    (local > 0).then(|| fragmentation_index(local, whole))
}

fn zeroed_pages(run: &RunState) -> u64 {
    let count = |counter| run.counter(counter).load(Ordering::Relaxed);
    let read_first = count(Counter::ZeroPageMaps).saturating_sub(count(Counter::ZeroPagesUnwritten));
    count(Counter::ZeroedPages) + read_first
}

fn plain_zeroed_pages(run: &RunState) -> u64 {
    let count = |counter| run.counter(counter).load(Ordering::Relaxed);
    let first_touched = count(Counter::FaultsFirstTouch) + count(Counter::ZerosAheadUsed);
    first_touched + count(Counter::PagesFetched) + count(Counter::FaultsWriteback)
}

impl Report {
    /// Reads the counters of a run that ends.
    #[must_use]
    pub fn new(
        run: &RunState,
        settings: &Settings,
        command: Vec<String>,
        wall_s: f64,
        exit_status: i32,
    ) -> Self {
        let count = |counter| run.counter(counter).load(Ordering::Relaxed);
        let quantile = |share| run.fault_latency().quantile_ns(share) as f64 / 1e3;
        Self {
            peak_local_bytes: run.budget().peak_local_pages.load(Ordering::Relaxed) * PAGE_SIZE as u64,
            managed_bytes: count(Counter::PeakManagedPages) * PAGE_SIZE as u64,
            unmanaged_bytes: count(Counter::UnmanagedBytes),
            native_bytes: count(Counter::NativeBytes),
            faults: Faults {
                first_touch: count(Counter::FaultsFirstTouch),
                fetch: count(Counter::FaultsFetch),
                inactive: count(Counter::FaultsInactive),
                writeback: count(Counter::FaultsWriteback),
                other: count(Counter::FaultsOther),
                refused: count(Counter::FaultsRefused),
            },
            pages_fetched: count(Counter::PagesFetched),
            pages_fetched_ahead: count(Counter::PagesFetchedAhead),
            blocks: blocks(run),
            prefetch_accuracy: prefetch_accuracy(run, settings),
            blocks_reduced: count(Counter::BlocksReduced),
            pages_found_gone: count(Counter::PagesFoundGone),
            pages_written_back: count(Counter::PagesWrittenBack),
            pages_read_ahead: count(Counter::PagesReadAhead),
            pages_read_again: count(Counter::PagesReadAgain),
            pages_foreseen: count(Counter::PagesForeseen),
            pages_foreseen_used: count(Counter::PagesForeseenUsed),
            faults_on_tape: count(Counter::FaultsOnTape),
            pages_by_tape: count(Counter::PagesByTape),
            pages_by_tape_used: count(Counter::PagesByTapeUsed),
            tapes_recorded: count(Counter::TapesRecorded),
            tapes_played: count(Counter::TapesPlayed),
            tapes_dropped: count(Counter::TapesDropped),
            reads_posted: count(Counter::ReadsPosted),
            pages_evicted_in_place: count(Counter::PagesEvictedInPlace),
            pages_unmapped_by_reference: count(Counter::PagesUnmappedByReference),
            patched_call_sites: count(Counter::PatchedSites),
            calls_by_signal: count(Counter::CallsBySignal),
            inline_left: count(Counter::InlineLeft),
            clean_drops: count(Counter::CleanDrops),
            zero_drops: count(Counter::ZeroDrops),
            zeroed_bytes: zeroed_pages(run) * PAGE_SIZE as u64,
            plain_zeroed_bytes: plain_zeroed_pages(run) * PAGE_SIZE as u64,
            zero_page_maps: count(Counter::ZeroPageMaps),
            reserve_pages_used: count(Counter::ReservePagesUsed),
            fragmentation_index: fragmentation(run),
            huge_pages_formed: count(Counter::HugePagesFormed),
            huge_ranges_in: count(Counter::HugeRangesIn),
            huge_ranges_out: count(Counter::HugeRangesOut),
            writebacks_cancelled: count(Counter::WritebacksCancelled),
            writebacks_failed: count(Counter::WritebacksFailed),
            evictions_refused: count(Counter::EvictionsRefused),
            use_scans: count(Counter::UseScans),
            use_scan_s: count(Counter::UseScanUs) as f64 / 1e6,
            pages_kept_in_use: count(Counter::PagesKeptInUse),
            bytes_in: count(Counter::BytesIn),
            bytes_out: count(Counter::BytesOut),
            fault_latency_us: FaultLatency {
                p50: quantile(0.5),
                p90: quantile(0.9),
                p99: quantile(0.99),
                max: run.fault_latency().max_ns.load(Ordering::Relaxed) as f64 / 1e3,
            },
            processes: count(Counter::Processes),
            forks: count(Counter::Forks),
            wall_s,
            exit_status,
            settings: settings.clone(),
            command,
        }
    }

    /// A few lines for a person.
    #[must_use]
    pub fn summary(&self) -> String {
        let size = |bytes| Size::from_bytes(bytes).to_string();
        format!(
            "local {} of {} allowed, managed {}\n\
             fetched {} pages, wrote back {}, dropped {} clean and {} zero\n\
             zeroed {}, a plain design {}\n\
             fault latency p50 {:.1} us, p99 {:.1} us, max {:.0} us; {:.1} s in all",
            size(self.peak_local_bytes),
            self.settings.local_bytes,
            size(self.managed_bytes),
            self.pages_fetched,
            self.pages_written_back,
            self.clean_drops,
            self.zero_drops,
            size(self.zeroed_bytes),
            size(self.plain_zeroed_bytes),
            self.fault_latency_us.p50,
            self.fault_latency_us.p99,
            self.fault_latency_us.max,
            self.wall_s,
        )
    }
}
