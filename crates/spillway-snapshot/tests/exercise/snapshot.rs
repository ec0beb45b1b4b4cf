//! What must stand whatever somebody else says of himself, who may be another user: requests to a run or a
//! daemon, the snapshot that one takes from another's socket, and histories. What is understood means the
//! same when it is said again, and no error has in it what a terminal would obey. Shared by the property test
//! (`hostile.rs`) and the fuzz target (`fuzz/fuzz_targets/snapshot.rs`).

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;
use spillway_snapshot::heat::{HeatBlock, HeatKind, HeatMap};
use spillway_snapshot::histogram::{Latency, quantile_us};
use spillway_snapshot::history;
use spillway_snapshot::past::Past;
use spillway_snapshot::reader::understood;
use spillway_snapshot::request::{Answer, Request};
use spillway_snapshot::sites::{Frame, Site, Sites, Stack};
use spillway_snapshot::snapshot::{
    Body, Evictions, Faults, Health, Prefetch, Process, Return, Run, Snapshot, Store, VERSION,
};

/// Feeds `data` to every reader: as it is, and as changes to sound texts.
pub fn exercise(data: &[u8]) {
    let snapshot = Snapshot { body: Body::Run { run: Box::new(run()) }, ..tier() };
    let line = Answer::Ok(&snapshot).line();
    for said in [data.to_vec(), edited(&line, data), edited(&Answer::Ok(&tier()).line(), data)] {
        told(&said);
    }
    let requests =
        [r#"{"explain":{"process":12,"address":4096}}"#, r#"{"past":{"ago_s":60}}"#, "\"sites\"", ""];
    for request in requests {
        said_again::<Request>(&edited(request.as_bytes(), data));
    }
    let (heat, past) = (heat(), Past::of(&run(), 7.5));
    if let Some(heat) = said_again::<HeatMap>(&edited(&json(&heat), data)) {
        rougher(&heat);
    }
    said_again::<Past>(&edited(&json(&past), data));
    if let Some(sites) = said_again::<Sites>(&edited(&json(&sites()), data)) {
        since(&sites);
    }
    let mut file = Vec::new();
    let header = history::Header::new("1.2.3", 1e9, 0.5);
    let mut writer = history::Writer::new(&mut file, &header).expect("memory to write to");
    for seen in [vec![snapshot], vec![tier(), tier()]] {
        writer.look(history::Look { at_s: 1.0, seen }).expect("memory to write to");
    }
    for file in [data.to_vec(), edited(&file, data)] {
        recorded(&file);
    }
}

fn told(answer: &[u8]) {
    match understood(answer, 7) {
        Ok(snapshot) => {
            assert_eq!((snapshot.version, snapshot.uid), (VERSION, 7));
            let again = understood(&Answer::Ok(&snapshot).line(), 7);
            assert_eq!(again.ok().as_ref(), Some(&snapshot));
            if let Body::Run { run } = &snapshot.body {
                counted(run);
            }
        }
        Err(error) => {
            let text = error.to_string();
            assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text:?}");
        }
    }
}

/// What those do with a run's counts who print them.
fn counted(run: &Run) {
    let of_processes = run.processes.iter().map(|process| (&process.faults, &process.fault_latency));
    for (faults, latency) in of_processes.chain([(&run.faults, &run.fault_latency)]) {
        assert!(faults.all() >= faults.fetch);
        assert_eq!(faults.since(faults), Faults::default());
        let new = latency.since(&Latency::default());
        let [middle, most] = [0.5, 0.99].map(|share| quantile_us(&new, share));
        assert!(middle.is_none_or(|us| new.iter().any(|(bound_ns, _)| *bound_ns as f64 / 1e3 == us)));
        assert_eq!(middle.is_some(), most.is_some());
    }
    let _ = Past::of(run, 1.0);
    run.sites.iter().for_each(since);
    run.processes.iter().filter_map(|process| process.heat.as_ref()).for_each(rougher);
}

fn rougher(heat: &HeatMap) {
    for most in [0, 1, 2] {
        let few = heat.in_at_most(most);
        assert!(few.blocks.len() <= heat.blocks.len());
        assert_eq!(few.of(HeatKind::Far), heat.of(HeatKind::Far));
    }
    for block in &heat.blocks {
        assert!(block.mostly().is_none_or(|(_, share)| (0.0..=1.0).contains(&share)), "{block:?}");
    }
}

fn since(sites: &Sites) {
    assert_eq!(sites.since(&Sites::default()).waited_us(), sites.waited_us());
    assert!(sites.clone().most(1).sites.len() <= 1);
}

fn said_again<M: Serialize + DeserializeOwned + PartialEq + Debug>(text: &[u8]) -> Option<M> {
    let message = serde_json::from_slice::<M>(text).ok()?;
    assert_eq!(serde_json::from_slice::<M>(&json(&message)).ok().as_ref(), Some(&message));
    Some(message)
}

fn json(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("a message of our own")
}

/// Reads a history to its end: each look is one that could have been written.
fn recorded(file: &[u8]) {
    let Ok(mut reader) = history::Reader::new(file) else { return };
    let mut looks = 0;
    while let Ok(Some(look)) = reader.look() {
        assert!(look.at_s.is_finite());
        looks += 1;
    }
    assert!(looks <= file.split(|byte| *byte == b'\n').count());
}

/// The text with some of it replaced: each four bytes of `edits` say where, how much, and by what.
fn edited(text: &[u8], edits: &[u8]) -> Vec<u8> {
    const WORDS: [&str; 12] = [
        "",
        "null",
        "-1",
        "18446744073709551615",
        "1e308",
        "0.1",
        "[]",
        "{}",
        "\"\\u001b\"",
        ",",
        "9007199254740993",
        "\"kind\":\"\\u001b[2J\",",
    ];
    let mut text = text.to_vec();
    for &[high, low, dropped, put] in edits.as_chunks::<4>().0 {
        let at = usize::from(u16::from_be_bytes([high, low])) % (text.len() + 1);
        // Where numbers stand most can be put in their place.
        let number = text[at..].iter().position(u8::is_ascii_digit).filter(|_| dropped >= 128);
        let at = at + number.unwrap_or(0);
        let digits = text[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let bytes = if number.is_some() { digits } else { usize::from(dropped % 24) };
        let letter = [put];
        let word = WORDS.get(usize::from(put)).map_or(&letter[..], |word| word.as_bytes());
        text.splice(at..(at + bytes).min(text.len()), word.iter().copied());
    }
    text
}

fn tier() -> Snapshot {
    Snapshot {
        version: VERSION,
        spillway_version: "1.2.3".to_owned(),
        pid: 11,
        uid: 7,
        name: "one".to_owned(),
        uptime_s: 1.5,
        body: Body::Tier { tier: serde_json::json!({ "groups": [1, -2, 0.5, null] }) },
    }
}

fn faults() -> Faults {
    Faults { first_touch: 1, fetch: 2, inactive: 3, writeback: 4, other: 5, refused: 6 }
}

fn latency() -> Latency {
    let buckets = vec![(1000, 3), (2000, 4), (4000, 5)];
    Latency { count: 12, total_us: 30.5, p50_us: 2.0, p99_us: 4.0, max_us: 3.9, buckets }
}

fn heat() -> HeatMap {
    let block = |address| HeatBlock { address, pages: [1, 2, 3, 4, 5, 6, 7, 8, 9] };
    HeatMap { block_bytes: 65_536, one_in: 2, blocks: [0, 65_536, 1 << 20].map(block).to_vec() }
}

fn sites() -> Sites {
    let [file, function] = ["/bin/x", "f"].map(|text| Some(text.to_owned()));
    let site = Site { file: file.clone(), function: function.clone(), waited_us: 9 };
    let stack = Stack { frames: vec![Frame { file, function }], waited_us: 4 };
    Sites { sites: vec![site.clone(), Site { file: None, ..site }], others_us: 3, stacks: vec![stack] }
}

fn run() -> Run {
    let process = Process {
        pid: Some(12),
        name: Some("one".to_owned()),
        fault_mode: "thread".to_owned(),
        local_bytes: 4096,
        native_bytes: 0,
        far_bytes: 8192,
        faults: faults(),
        fault_latency: latency(),
        fetched_pages: 2,
        fetched_ahead_pages: 1,
        written_pages: 3,
        evictions: Evictions::default(),
        heat: Some(heat()),
    };
    let store = Store {
        uri: "compressed:".to_owned(),
        capacity_bytes: 1 << 30,
        used_bytes: 8192,
        stored_bytes: Some(5000),
        stored_limit_bytes: None,
        compression_ratio: Some(1.6),
        fetched_pages: 2,
        written_pages: 3,
        failed_reads: 0,
        failed_writes: 0,
        full_refusals: 0,
        hedged_reads: 0,
        is_sealed: false,
        health: Health::Ok,
    };
    Run {
        command: vec!["one".to_owned(), "-x".to_owned()],
        program_pid: 12,
        fault_mode: "thread".to_owned(),
        fault_mode_reason: "asked for".to_owned(),
        local_limit_bytes: 1 << 20,
        local_bytes: 4096,
        peak_local_bytes: 4096,
        native_bytes: 0,
        far_bytes: 8192,
        faults: faults(),
        fault_latency: latency(),
        returns: vec![Return { within_bytes: 4096, faults: 2, total_us: 8.5 }],
        fetched_pages: 2,
        written_pages: 3,
        prefetch: Prefetch { fetched_ahead_pages: 1, accuracy: Some(0.5) },
        evictions: Evictions::default(),
        stores: vec![store],
        processes: vec![process],
        processes_unlisted: 0,
        processes_started: 1,
        sites: Some(sites()),
    }
}
