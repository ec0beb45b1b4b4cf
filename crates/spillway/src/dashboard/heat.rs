//! Maps of what runs have in memory, over the last minutes: looked at while somebody asks, at most every two
//! seconds.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use serde::Serialize;
use spillway_core::page::PAGE_BYTES;
use spillway_report::address_map::AddressMap;
use spillway_snapshot::heat::{HeatKind, HeatMap};
use spillway_snapshot::reader::{self, Seen};
use spillway_snapshot::snapshot::{Body, Snapshot};

use crate::heat_picture::picture;

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(2);
/// Looks that are kept of a process: five minutes, and as many as a picture has columns.
const MOST_LOOKS: usize = 150;
/// After so long without a look nothing is known of the time between, so that all begins anew.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(10);
/// Runs whose largest process is looked at: those with most memory. One that is stopped keeps all waiting.
const MOST_RUNS: usize = 4;
/// Blocks of one look: as many as a picture has rows.
const MOST_BLOCKS: usize = 64;

/// Whose map it is: the user, the run's supervisor and the process, by numbers.
type Key = (u32, u32, u32);

/// What was seen of a process.
struct Past {
    name: String,
    looks: VecDeque<(f64, HeatMap)>,
}

/// What was seen of the runs' largest processes.
pub struct Maps {
    began: Instant,
    last: Option<Instant>,
    pasts: BTreeMap<Key, Past>,
    json: String,
}

/// A picture as the page draws it. Times are seconds on a clock of this answer's.
#[derive(Serialize)]
struct Picture {
    uid: u32,
    supervisor_pid: u32,
    process_pid: u32,
    title: String,
    begin_s: f64,
    end_s: f64,
    /// First addresses of the rows, from the bottom up.
    rows: Vec<String>,
    /// Each kind that occurs, and how much there was of it at the last look, in bytes.
    kinds: Vec<(String, u64)>,
    /// Beginning, end, row, kind and strength of each rectangle.
    stretches: Vec<(f64, f64, usize, usize, f64)>,
}

impl Default for Maps {
    fn default() -> Self {
        Self { began: Instant::now(), last: None, pasts: BTreeMap::new(), json: String::new() }
    }
}

impl Maps {
    /// All pictures, as JSON.
    pub fn json(&mut self) -> String {
        if self.last.is_none_or(|last| last.elapsed() >= EVERY) {
            if self.last.is_some_and(|last| last.elapsed() >= FORGOTTEN_AFTER) {
                self.pasts.clear();
            }
            let found = largest(&reader::look());
            self.note(self.began.elapsed().as_secs_f64(), found);
            self.last = Some(Instant::now());
            self.json = serde_json::to_string(&self.pictures()).unwrap_or_default();
        }
        self.json.clone()
    }

    /// Keeps what was found, and forgets processes that were not.
    fn note(&mut self, at_s: f64, found: Vec<(Key, String, Option<HeatMap>)>) {
        self.pasts.retain(|key, _| found.iter().any(|(other, ..)| other == key));
        for (key, name, map) in found {
            let past = self.pasts.entry(key).or_insert_with(|| Past { name, looks: VecDeque::new() });
            // One that does not answer is busy or stopped: what it said last stands until it does.
            let Some(map) = map else { continue };
            past.looks.push_back((at_s, map.in_at_most(MOST_BLOCKS)));
            if past.looks.len() > MOST_LOOKS {
                past.looks.pop_front();
            }
        }
    }

    fn pictures(&mut self) -> Vec<Picture> {
        let told = self.pasts.iter_mut().filter_map(|(&key, past)| {
            let looks = past.looks.make_contiguous();
            let (_, last) = looks.last()?;
            let drawn = picture(&past.name, key.2, looks);
            drawn.has_values().then(|| told(key, &drawn, last))
        });
        told.collect()
    }
}

/// The process with most memory of each of the largest runs, and its map if it answers.
fn largest(seen: &[Seen]) -> Vec<(Key, String, Option<HeatMap>)> {
    let mut runs: Vec<_> = seen
        .iter()
        .filter_map(|seen| match &seen.answer {
            Ok(Snapshot { pid, body: Body::Run { run }, .. }) => Some((seen, *pid, run)),
            _ => None,
        })
        .collect();
    runs.sort_by_key(|(.., run)| std::cmp::Reverse(run.local_bytes.saturating_add(run.far_bytes)));
    let told = runs.into_iter().take(MOST_RUNS).filter_map(|(seen, supervisor, run)| {
        let process = run.processes.first()?;
        let pid = process.pid?;
        let name = process.name.clone().unwrap_or_else(|| "-".to_owned());
        Some(((seen.uid, supervisor, pid), name, reader::heat(seen, pid)))
    });
    told.collect()
}

fn told((uid, supervisor_pid, process_pid): Key, drawn: &AddressMap, last: &HeatMap) -> Picture {
    let amount = |name: &str| {
        let kind = HeatKind::ALL.into_iter().find(|kind| kind.name() == name);
        kind.map_or(0, |kind| last.of(kind).saturating_mul(PAGE_BYTES))
    };
    let stretches = drawn.stretches();
    Picture {
        uid,
        supervisor_pid,
        process_pid,
        title: drawn.title.clone(),
        begin_s: drawn.begin_s,
        end_s: drawn.at_s.last().copied().unwrap_or(drawn.begin_s),
        rows: drawn.rows.iter().map(|address| format!("{address:#x}")).collect(),
        kinds: drawn.kinds.iter().map(|(name, _)| (name.clone(), amount(name))).collect(),
        stretches: stretches
            .iter()
            .map(|part| (part.from_s, part.to_s, part.row, part.kind, part.strength()))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spillway_snapshot::heat::HeatBlock;

    fn map(kind: HeatKind) -> HeatMap {
        let mut block = HeatBlock { address: 4 << 20, ..HeatBlock::default() };
        block.pages[kind as usize] = 3;
        HeatMap { block_bytes: 1 << 20, one_in: 1, blocks: vec![block] }
    }

    #[test]
    fn looks_become_rectangles_and_the_last_says_how_much_there_is() {
        let mut maps = Maps::default();
        let key = (0, 7, 8);
        for (at, kind) in [HeatKind::Hot, HeatKind::Hot, HeatKind::Far].into_iter().enumerate() {
            maps.note(2.0 * at as f64, vec![(key, "sort".to_owned(), Some(map(kind)))]);
        }
        // Stopped for a moment: nothing is forgotten, nothing is made up.
        maps.note(6.0, vec![(key, "sort".to_owned(), None)]);
        let pictures = maps.pictures();
        let [one] = &pictures[..] else { panic!("{} pictures", pictures.len()) };
        assert_eq!((one.uid, one.supervisor_pid, one.process_pid), key);
        assert_eq!((one.begin_s, one.end_s, one.rows.as_slice()), (-2.0, 4.0, &["0x400000".to_owned()][..]));
        assert_eq!(one.kinds, [("hot".to_owned(), 0), ("far".to_owned(), 3 * 4096)]);
        assert_eq!(one.stretches, [(-2.0, 2.0, 0, 0, 1.0), (2.0, 4.0, 0, 1, 1.0)]);
        maps.note(8.0, Vec::new());
        assert!(maps.pictures().is_empty(), "it has ended");
    }

    #[test]
    fn five_minutes_are_kept_and_no_more() {
        let mut maps = Maps::default();
        for at in 0..1000 {
            maps.note(2.0 * f64::from(at), vec![((0, 1, 2), String::new(), Some(map(HeatKind::Far)))]);
        }
        let pictures = maps.pictures();
        assert_eq!(pictures[0].end_s - pictures[0].begin_s, 300.0);
    }
}
