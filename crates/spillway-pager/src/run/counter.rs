//! What is counted in a run, and of what each process has its share.

/// A counter of the statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Faults on pages that were never written.
    FaultsFirstTouch,
    /// Faults that fetched a page from a store.
    FaultsFetch,
    /// Faults on inactive pages: local still, mapped again.
    FaultsInactive,
    /// Faults on pages under write-back.
    FaultsWriteback,
    /// Faults that needed no page: served meanwhile, or write protection lifted.
    FaultsOther,
    /// Faults refused with SIGBUS.
    FaultsRefused,
    /// Pages read from stores.
    PagesFetched,
    /// Pages read ahead by an evictor: see [`crate::fault::read_ahead`].
    PagesReadAhead,
    /// Reads that were under way while their fault made room.
    ReadsPosted,
    /// Pages written to stores.
    PagesWrittenBack,
    /// Pages evicted from where they lay: see [`crate::evict::in_place`].
    PagesEvictedInPlace,
    /// Pages that came into frames by reference: see [`crate::evict::by_reference`].
    PagesUnmappedByReference,
    /// Pages evicted without a write, because a store held the same contents.
    CleanDrops,
    /// Pages of zeros evicted without a write.
    ZeroDrops,
    /// Bytes read from stores.
    BytesIn,
    /// Bytes written to stores.
    BytesOut,
    /// Pages in use under management, local and far.
    ManagedPages,
    /// The most of those at a time.
    PeakManagedPages,
    /// Pages that were to be evicted but could not be, counted each time.
    EvictionsRefused,
    /// Write-backs that a touch made useless.
    WritebacksCancelled,
    /// Forks of managed processes.
    Forks,
    /// Processes that ran managed.
    Processes,
    /// Bytes mapped that cannot be managed (shared, file-backed, locked, stacks), counted when mapped.
    UnmanagedBytes,
    /// Write-backs that a store refused.
    WritebacksFailed,
    /// Of the pages fetched, those that no fault had asked for yet.
    PagesFetchedAhead,
    /// Pages that were found gone where they should have been mapped: discarded by a system call that no hook
    /// saw.
    PagesFoundGone,
    /// System calls of libc that are made by a jump: see [`crate::attach::Startup::attach`]. Of all processes
    /// that began a program.
    PatchedSites,
    /// System calls that came as a signal (`--fault-mode inline`).
    CallsBySignal,
    /// Processes that left inline mode, for a call that it cannot serve.
    InlineLeft,
    /// Bytes left to the kernel because they fitted under the limit, counted when mapped.
    NativeBytes,
    /// Of the pages fetched ahead, those that were used: in streams, those of blocks behind whose end the
    /// next fault came; else, of [`Self::PagesAheadLeft`], those that were seen to be used.
    PagesAheadUsed,
    /// Of the pages fetched ahead in elastic or static blocks, those that have left again.
    PagesAheadLeft,
    /// Elastic blocks taken apart as they left.
    BlocksReduced,
    /// Pages of zeros made, by copying or for the reserve.
    ZeroedPages,
    /// Pages mapped from the shared page of zeros, by their first read.
    ZeroPageMaps,
    /// Of these, those that nobody had written when they left.
    ZeroPagesUnwritten,
    /// Of the pages mapped ahead of their first touch, those of runs behind whose end the next fault of their
    /// stream came.
    ZerosAheadUsed,
    /// Pages that came out of the reserve of zeros.
    ReservePagesUsed,
    /// Ranges that were made huge pages again.
    HugePagesFormed,
    /// Ranges that came as huge pages: see [`crate::fault::huge_streams`].
    HugeRangesIn,
    /// Ranges that left as they had come so.
    HugeRangesOut,
    /// Local pages, summed over the scans of them.
    LocalPagesSeen,
    /// Of these, those in ranges of 2 MiB that were local as a whole.
    WholePagesSeen,
    /// Scans of accessed bits: see [`crate::threads::use_scan`].
    UseScans,
    /// What they took, in microseconds.
    UseScanUs,
    /// Times that a page whose turn to leave had come stayed because it was in use.
    PagesKeptInUse,
    /// Pages fetched since a thread was expected to fault on them: see [`crate::fault::foreseen`].
    PagesForeseen,
    /// Of these, those behind which the thread's next fault came, as expected.
    PagesForeseenUsed,
    /// Faults that fetched a page where a tape had it: see [`crate::fault::taped`].
    FaultsOnTape,
    /// Pages fetched ahead of their fault because a tape had them.
    PagesByTape,
    /// Of these, those behind which their thread's next fault came.
    PagesByTapeUsed,
    /// Tapes that were recorded, for the supervisor to count.
    TapesRecorded,
    /// Tapes that were played.
    TapesPlayed,
    /// Tapes that proved useless and were dropped.
    TapesDropped,
    /// Pages whose read failed or came wrong and was made again: see [`crate::fault::read_again`].
    PagesReadAgain,
    /// Blocks fetched, by size: the first of [`BLOCK_SIZES`] counters, of 1, 2, 4 ... 512 pages.
    Blocks,
}

/// Sizes of blocks that are told apart: powers of two of pages, up to 2 MiB.
pub const BLOCK_SIZES: usize = 10;

/// The counters that each process keeps for itself too, beside the run's.
pub const OF_PROCESS: [Counter; 9] = [
    Counter::FaultsFirstTouch,
    Counter::FaultsFetch,
    Counter::FaultsInactive,
    Counter::FaultsWriteback,
    Counter::FaultsOther,
    Counter::FaultsRefused,
    Counter::PagesFetched,
    Counter::PagesFetchedAhead,
    Counter::PagesWrittenBack,
];
