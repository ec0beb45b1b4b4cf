//! What every input must stand: no reader panics or takes more memory than it should, and what is imported is
//! a trace. Shared by the test (`trace.rs`) and the fuzz target (`fuzz/fuzz_targets/trace.rs`).

use std::io::Cursor;

use spillway_lab::access::Accesses;
use spillway_lab::trace::import::{TextFormat, import};
use spillway_lab::trace::{TraceReader, TraceWorkload};
use spillway_lab::workload::Workload;

/// Feeds `data` to every reader.
pub fn exercise(data: &[u8]) {
    let read = TraceReader::new(data).and_then(|reader| reader.for_each(|_, _| {}));
    repeat(data, read.is_ok());
    for format in [TextFormat::Lackey, TextFormat::Plain] {
        let mut trace = Vec::new();
        if let Ok(summary) = import(format, data, &mut trace) {
            let again = TraceReader::new(trace.as_slice()).and_then(|reader| reader.for_each(|_, _| {}));
            assert_eq!(again.ok(), Some(summary));
        }
    }
    // A part with a right checksum, so that what lies behind it is reached.
    if let Some(trace) = sealed(data) {
        let read = TraceReader::new(trace.as_slice()).and_then(|reader| reader.for_each(|_, _| {}));
        repeat(&trace, read.is_ok());
    }
}

fn repeat(trace: &[u8], is_whole: bool) {
    let Ok(mut workload) = TraceWorkload::new(Cursor::new(trace)) else {
        assert!(!is_whole, "what reads from end to end opens as a workload");
        return;
    };
    let mut accesses = Accesses::new();
    for task in 0..workload.tasks() {
        while workload.step(task, &mut accesses) {
            accesses.clear();
        }
    }
    let _ = workload.verify();
}

/// A trace of one chunk with `data`'s first bytes as its numbers and the rest as its records, and an index to
/// it.
fn sealed(data: &[u8]) -> Option<Vec<u8>> {
    let (&[records, task, regions], raw) = data.split_first_chunk()?;
    let mut trace = b"SPWTRC\0\x02".to_vec();
    let at = trace.len() as u64;
    part(&mut trace, b'C', task.into(), records.into(), raw);
    let start = trace.len() as u64;
    let mut index: Vec<u64> = vec![u64::from(task) + 1, records.into(), 1, regions.into(), 1];
    index.extend((0..u64::from(regions)).flat_map(|region| [region << 22, 2 << 20]));
    index.extend([task.into(), at]);
    let index: Vec<u8> = index.iter().flat_map(|number| number.to_le_bytes()).collect();
    part(&mut trace, b'I', 0, 0, &index);
    trace.extend(start.to_le_bytes());
    trace.extend(b"SPWTRC\0\x02");
    Some(trace)
}

fn part(trace: &mut Vec<u8>, tag: u8, task: u32, records: u32, raw: &[u8]) {
    let packed = zstd::bulk::compress(raw, 1).unwrap_or_default();
    let mut header = vec![tag];
    for number in [task, records, raw.len() as u32, packed.len() as u32] {
        header.extend(number.to_le_bytes());
    }
    let checksum = twox_hash::XxHash3_64::oneshot(&[header.as_slice(), &packed].concat());
    trace.extend(header);
    trace.extend(checksum.to_le_bytes());
    trace.extend(packed);
}
