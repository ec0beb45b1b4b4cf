//! Replays a fault trace ([`crate::trace::faults`]) through the replacement that the pager has, compares each
//! answer, and counts what the trace tells.

use std::io::Read;

use serde::Serialize;
use spillway_policy::fault_trace::{Block, Cause, Event, Header, Left, Replay, Runs, Served};

use crate::trace::TraceError;
use crate::trace::faults::{FaultTraceReader, Outcome};

/// Faults, by what they needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Faults {
    /// Pages that were never written.
    pub first_touch: u64,
    /// Pages that a store held.
    pub fetch: u64,
    /// Pages of the inactive queue.
    pub inactive: u64,
    /// Pages on their way out.
    pub writeback: u64,
    /// Pages that were there, or could not be had.
    pub other: u64,
}

/// Pages that came, by why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Came {
    /// Faults that fetched at least a page.
    pub fetch_blocks: u64,
    /// Pages that they fetched.
    pub fetched: u64,
    /// Pages that the evictor fetched ahead of a fault.
    pub read_ahead: u64,
    /// Pages of zeros that were mapped.
    pub zeros: u64,
    /// Pages that had been the kernel's.
    pub taken_over: u64,
}

impl Came {
    /// All pages that came.
    fn pages(&self) -> u64 {
        self.fetched + self.read_ahead + self.zeros + self.taken_over
    }
}

/// Pages that left, by how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Departed {
    /// Dropped where they lay.
    pub clean: u64,
    /// Stored, or unchanged in their slots.
    pub stored: u64,
    /// Pages that held nothing but zeros.
    pub zeros: u64,
    /// Addresses that the program gave up, by page: not all of them held something.
    pub forgotten: u64,
}

/// What scans of accessed bits found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Scans {
    /// Pieces of memory that were scanned.
    pub pieces: u64,
    /// Mapped pages in them.
    pub mapped: u64,
    /// Pages that had been used.
    pub used: u64,
}

/// What came of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct Replayed {
    /// What the pager began with.
    pub header: Option<Header>,
    /// Events of the trace.
    pub events: u64,
    /// Those of them that are calls, whose answers are the pager's.
    pub calls: u64,
    /// How many of these spoke of blocks: none where the trace is of version 1.
    pub block_calls: u64,
    /// The first answer that is not, in words. Nothing was replayed after it.
    pub difference: Option<String>,
    /// The trace has an end.
    pub is_whole: bool,
    /// Forked children, which are not recorded.
    pub children_left_out: u64,
    /// The faults, by what they needed.
    pub faults: Faults,
    /// The pages that came, by why.
    pub came: Came,
    /// The pages that left, by how.
    pub left: Departed,
    /// Scans of accessed bits.
    pub scans: Scans,
    /// How many pages had come when each scan of all memory began.
    pub scan_starts: Vec<u64>,
    /// How many times a page stayed because it was used more than others.
    pub kept_in_use: u64,
    #[serde(skip)]
    last_piece: u64,
    #[serde(skip)]
    outcome: Option<Outcome>,
}

impl Replayed {
    /// How far the trace could be read.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.outcome.unwrap_or(Outcome::CutOff)
    }

    fn count(&mut self, event: &Event) {
        match event {
            Event::Start(header) => self.header = Some(header.clone()),
            Event::Fault(fault) => {
                let faults = &mut self.faults;
                *match fault.served {
                    Served::FirstTouch => &mut faults.first_touch,
                    Served::Fetch => &mut faults.fetch,
                    Served::Inactive => &mut faults.inactive,
                    Served::Writeback => &mut faults.writeback,
                    Served::Other => &mut faults.other,
                } += 1;
            }
            Event::Block(Block { cause, came_pages, .. }) => {
                let came = &mut self.came;
                came.fetch_blocks += u64::from(*cause == Cause::Fetch);
                *match cause {
                    Cause::Fetch => &mut came.fetched,
                    Cause::ReadAhead => &mut came.read_ahead,
                    Cause::Zeros => &mut came.zeros,
                    Cause::TakenOver => &mut came.taken_over,
                } += came_pages;
            }
            Event::Left { how, pages, .. } => {
                let left = &mut self.left;
                *match how {
                    Left::Clean => &mut left.clean,
                    Left::Stored => &mut left.stored,
                    Left::Zeros => &mut left.zeros,
                    Left::Forgotten => &mut left.forgotten,
                } += pages;
            }
            Event::Scan { page_number, found: Runs(runs) } => {
                if *page_number <= self.last_piece {
                    self.scan_starts.push(self.came.pages());
                }
                self.last_piece = *page_number;
                let count = |number| runs.iter().filter(|run| run.0 == number).map(|run| run.1).sum::<u64>();
                self.scans.pieces += 1;
                self.scans.used += count(1);
                self.scans.mapped += count(0) + count(1);
            }
            _ => {}
        }
    }
}

/// Replays the fault trace in `source`, up to its end or to the first answer that differs.
///
/// # Errors
/// `source` cannot be read, holds no fault trace, or one with a hole.
pub fn replay_faults(source: impl Read) -> Result<Replayed, TraceError> {
    let mut reader = FaultTraceReader::new(source)?;
    let mut replay = Replay::default();
    let mut replayed = Replayed {
        header: None,
        events: 0,
        calls: 0,
        block_calls: 0,
        difference: None,
        is_whole: false,
        children_left_out: 0,
        faults: Faults::default(),
        came: Came::default(),
        left: Departed::default(),
        scans: Scans::default(),
        scan_starts: Vec::new(),
        kept_in_use: 0,
        last_piece: u64::MAX,
        outcome: None,
    };
    while let Some(event) = reader.next_event()? {
        if let Err(difference) = replay.step(&event) {
            replayed.difference = Some(difference.to_string());
            break;
        }
        replayed.count(&event);
    }
    (replayed.events, replayed.calls) = (replay.events(), replay.calls());
    replayed.block_calls = replay.block_calls();
    replayed.kept_in_use = replay.kept_in_use();
    replayed.outcome = Some(reader.outcome());
    if let Outcome::Whole(end) = reader.outcome() {
        (replayed.is_whole, replayed.children_left_out) = (true, end.children_left_out);
    }
    Ok(replayed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::faults::{End, FaultTraceWriter};
    use spillway_policy::dcm::Config;
    use spillway_policy::fault_trace::{BlockKind, BlockRule, Encoder};

    fn fetched(wanted_pages: u64) -> Event {
        Event::Block(Block { cause: Cause::Fetch, page_number: 7, wanted_pages, came_pages: 1 })
    }

    /// A trace of these events behind a start that says `blocks` of blocks, if anything.
    fn trace(version: u8, blocks: Option<BlockRule>, events: &[Event]) -> Vec<u8> {
        let mut start = serde_json::json!({
            "replacement": Config::default(), "victim_window_pages": 256, "local_pages": 64, "seed": 1,
            "settings": null,
        });
        if let Some(blocks) = blocks {
            start["blocks"] = serde_json::to_value(blocks).unwrap();
        }
        let start = start.to_string();
        let mut bytes = vec![0, start.len() as u8 & 0x7F | 0x80, (start.len() >> 7) as u8];
        bytes.extend(start.bytes());
        let mut encoder = Encoder::default();
        events.iter().for_each(|event| encoder.encode(event, &mut bytes));
        let mut file = Vec::new();
        let mut writer = FaultTraceWriter::new(&mut file).unwrap();
        writer.append(&bytes).unwrap();
        writer.finish(End::default()).unwrap();
        file[7] = version;
        file
    }

    #[test]
    fn a_trace_of_version_1_is_replayed_without_its_blocks() {
        let replayed = replay_faults(&trace(1, None, &[fetched(16)])[..]).unwrap();
        assert_eq!((&replayed.difference, replayed.block_calls, replayed.came.fetched), (&None, 0, 1));
        assert!(replayed.is_whole);
    }

    #[test]
    fn a_block_of_another_size_than_the_replay_has_is_named() {
        let rule = BlockRule { kind: BlockKind::Static, most_pages: 16, cpus: 2 };
        let replayed = |wanted| replay_faults(&trace(2, Some(rule), &[fetched(wanted)])[..]).unwrap();
        assert_eq!((replayed(16).difference, replayed(16).block_calls), (None, 1));
        let difference = replayed(15).difference.unwrap();
        assert!(difference.contains("how many pages a block has"), "{difference}");
        // Streams and elastic blocks say before what they want.
        let rule = BlockRule { kind: BlockKind::Elastic, ..rule };
        let unasked = replay_faults(&trace(2, Some(rule), &[fetched(1)])[..]).unwrap();
        assert!(unasked.difference.is_some());
    }
}
