use std::io::Cursor;

use proptest::prelude::*;

use super::import::{Addresses, TextFormat, import, import_with};
use super::*;
use crate::access::{Access, Accesses};
use crate::workload::Workload;
use spillway_core::page::{HUGE_BYTES, PAGE_BYTES};

fn write(tasks: &[Accesses]) -> (Vec<u8>, TraceSummary) {
    let mut bytes = Vec::new();
    let mut writer = TraceWriter::new(&mut bytes).unwrap();
    for (task, accesses) in (0..).zip(tasks) {
        accesses.iter().for_each(|&access| writer.append(task, access).unwrap());
    }
    let summary = writer.finish().unwrap();
    (bytes, summary)
}

fn sequential(count: u64) -> Accesses {
    (0..count)
        .map(|index| if index % 3 == 0 { Access::write(index * 64) } else { Access::read(index * 64) })
        .collect()
}

fn read(bytes: &[u8]) -> Result<Vec<Accesses>, TraceError> {
    TraceReader::new(bytes)?.read_all()
}

#[test]
fn long_traces_of_several_tasks_come_back() {
    let tasks = vec![sequential(200_000), vec![Access::compute_ns(7); 70_000], Vec::new(), sequential(3)];
    let (bytes, summary) = write(&tasks);
    // A task at the end without accesses would not be counted; this one is in between.
    assert_eq!(summary.tasks, 4);
    assert_eq!(summary.records, 270_003);
    assert_eq!(summary.touched_pages, 200_000 * 64 / PAGE_BYTES);
    assert_eq!(summary.regions, [(0, 14 << 20)]);
    assert_eq!(read(&bytes).unwrap(), tasks);
    assert!(bytes.len() < 20_000, "{}", bytes.len());
}

#[test]
fn a_trace_is_a_workload() {
    let tasks = vec![sequential(100_000), sequential(1_500)];
    let (bytes, summary) = write(&tasks);
    let mut workload = TraceWorkload::new(Cursor::new(bytes)).unwrap();
    assert_eq!(workload.summary(), &summary);
    assert_eq!((workload.tasks(), workload.regions().len()), (2, 1));
    assert_eq!(workload.working_set_bytes(), Some(100_000_u64.div_ceil(64) * PAGE_BYTES));
    for (task, expected) in tasks.iter().enumerate() {
        let mut accesses = Accesses::new();
        while workload.step(task, &mut accesses) {}
        assert_eq!(&accesses, expected);
    }
    assert_eq!(workload.verify(), Ok(()));
}

#[test]
fn what_is_cut_off_anywhere_is_an_error() {
    let (bytes, _) = write(&[sequential(70_000)]);
    for length in 0..bytes.len() {
        let cut = &bytes[..length];
        assert!(matches!(read(cut), Err(TraceError::NotATrace | TraceError::Truncated { .. })), "{length}");
        assert!(TraceWorkload::new(Cursor::new(cut)).is_err(), "{length}");
    }
    let longer = [bytes.as_slice(), &[0]].concat();
    assert!(read(&longer).is_err() && TraceWorkload::new(Cursor::new(longer)).is_err());
}

#[test]
fn what_is_changed_anywhere_is_an_error() {
    let (bytes, _) = write(&[sequential(300), sequential(10)]);
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            assert!(read(&changed).is_err(), "byte {at} bit {bit}");
        }
    }
}

#[test]
fn damage_in_the_middle_ends_a_workload_and_is_told() {
    let (mut bytes, summary) = write(&[sequential(200_000)]);
    let third = summary.chunks[2].1 as usize;
    bytes[third + 40] ^= 1;
    let mut workload = TraceWorkload::new(Cursor::new(bytes)).unwrap();
    let mut accesses = Accesses::new();
    while workload.step(0, &mut accesses) {}
    assert!(accesses.len() < 200_000);
    assert!(workload.verify().unwrap_err().contains("damaged"));
}

#[test]
fn a_trace_of_the_version_before_is_read() {
    let (mut bytes, summary) = write(&[sequential(300)]);
    let end = bytes.len();
    (bytes[7], bytes[end - 1]) = (1, 1);
    assert_eq!(read(&bytes).unwrap(), [sequential(300)]);
    assert_eq!(TraceWorkload::new(Cursor::new(&bytes)).unwrap().summary(), &summary);
    (bytes[7], bytes[end - 1]) = (2, 2);
    assert_eq!(read(&bytes).unwrap(), [sequential(300)]);
    bytes[end - 1] = 1;
    assert!(read(&bytes).is_err() && TraceWorkload::new(Cursor::new(&bytes)).is_err(), "one of each");
}

#[test]
fn what_was_given_back_may_be_more_than_a_record_tells() {
    let mut bytes = Vec::new();
    let mut writer = TraceWriter::new(&mut bytes).unwrap();
    let last = VALUE_LIMIT / PAGE_BYTES;
    writer.append_release(0, last - 300_000, u64::MAX).unwrap();
    writer.append_release(0, last, 1).unwrap();
    assert_eq!(writer.finish().unwrap().touched_pages, 0);
    let most = Access::MOST_RELEASED_PAGES;
    let first = last - 300_000;
    let expected = [Access::release(first, most), Access::release(first + most, 300_000 - most)];
    assert_eq!(read(&bytes).unwrap(), [expected]);
}

#[test]
fn what_is_too_large_is_refused() {
    let mut writer = TraceWriter::new(Vec::new()).unwrap();
    assert!(matches!(writer.append(0, Access::read(VALUE_LIMIT)), Err(TraceError::TooLarge { .. })));
    assert!(matches!(writer.append(TASKS, Access::read(0)), Err(TraceError::TooLarge { .. })));
    assert!(writer.append(TASKS - 1, Access::write(VALUE_LIMIT - 1)).is_ok());
    assert_eq!(writer.finish().unwrap().tasks, TASKS);
}

fn imported(format: TextFormat, text: &str) -> Result<Accesses, TraceError> {
    let mut bytes = Vec::new();
    import(format, text.as_bytes(), &mut bytes)?;
    Ok(read(&bytes)?.pop().unwrap_or_default())
}

#[test]
fn lackey_output_is_imported() {
    let text = "==12== Lackey, an example Valgrind tool\nI  04001000,3\nI  04001003,5\n S 1ffeffe7c,8\n\
                I  0400100b,7\n \
                L 0403fc,4\nI  0400100e,2\n M 0421c7c8,4\n--12-- warning\n";
    let expected = [
        Access::write(0x1_ffef_fe7c),
        // It ends in the next line.
        Access::write(0x1_ffef_fe80),
        Access::compute_ns(1),
        Access::read(0x403fc),
        Access::read(0x421_c7c8),
        Access::write(0x421_c7c8),
    ];
    assert_eq!(imported(TextFormat::Lackey, text).unwrap(), expected);
}

#[test]
fn plain_text_is_imported() {
    let text = "address,rw\n# a comment\n4096,r\n0x2000, W\n\n";
    assert_eq!(imported(TextFormat::Plain, text).unwrap(), [Access::read(4096), Access::write(0x2000)]);
}

#[test]
fn text_without_an_access_is_no_trace() {
    for text in ["", "# nothing\n", "address,rw\n"] {
        assert!(matches!(imported(TextFormat::Plain, text), Err(TraceError::Empty)), "{text:?}");
    }
    assert!(matches!(imported(TextFormat::Lackey, "I  04001000,3\n"), Err(TraceError::Empty)));
}

#[test]
fn lines_that_make_no_sense_are_named() {
    for (format, bad) in [
        (TextFormat::Plain, "0x10"),
        (TextFormat::Plain, "0x10,x"),
        (TextFormat::Plain, "-1,r"),
        (TextFormat::Plain, "0x100000000000000,r"),
        (TextFormat::Lackey, " L 10,0"),
        (TextFormat::Lackey, " L zz,4"),
        (TextFormat::Lackey, " X 10,4"),
        (TextFormat::Lackey, " L ffffffffffffffff,8"),
    ] {
        let good = if format == TextFormat::Plain { "1,r" } else { " L 10,4" };
        let error = imported(format, &format!("{good}\n{bad}\n")).unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains(bad.trim()), "{error}");
    }
    let long = "1".repeat(100_000);
    assert!(imported(TextFormat::Plain, &long).unwrap_err().to_string().len() < 200);
}

fn access() -> impl Strategy<Value = Access> {
    (0u8..4, prop_oneof![0u64..1 << 20, 0..VALUE_LIMIT]).prop_map(|(kind, value)| match kind {
        0 => Access::read(value),
        1 => Access::write(value),
        2 => Access::compute_ns(value),
        _ => {
            let page_number = value / PAGE_BYTES;
            let most = Access::MOST_RELEASED_PAGES.min(VALUE_LIMIT / PAGE_BYTES - page_number);
            Access::release(page_number, 1 + value % most)
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn whatever_is_written_is_read(
        tasks in prop::collection::vec(prop::collection::vec(access(), 1..200), 0..5),
    ) {
        let (bytes, summary) = write(&tasks);
        prop_assert_eq!(&read(&bytes).unwrap(), &tasks);
        let pages: std::collections::BTreeSet<u64> = tasks
            .iter()
            .flatten()
            .filter_map(|access| access.address())
            .map(|address| address / PAGE_BYTES)
            .collect();
        prop_assert_eq!(summary.touched_pages, pages.len() as u64);
        let held = |page: u64| {
            let address = page * PAGE_BYTES;
            summary.regions.iter().any(|&(start, bytes)| (start..start + bytes).contains(&address))
        };
        prop_assert!(pages.into_iter().all(held));
    }
}

#[test]
fn hashes_are_refused_unless_their_pages_are_numbered_anew() {
    let text: String = (1..=3000_u64)
        .flat_map(|id| [id, id])
        .map(|id| format!("{},r\n", id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 9))
        .collect();
    let mut out = Vec::new();
    let error = import(TextFormat::Plain, text.as_bytes(), &mut out).unwrap_err().to_string();
    assert!(error.contains("3000 pages") && error.contains("--renumber"), "{error}");
    let mut out = Vec::new();
    let summary = import_with(TextFormat::Plain, Addresses::Renumbered, text.as_bytes(), &mut out).unwrap();
    assert_eq!((summary.records, summary.touched_pages), (6000, 3000));
    assert_eq!(summary.regions, [(0, 6 * HUGE_BYTES)]);
    // A whole 64 bits are as good.
    let mut out = Vec::new();
    let text = "0xffffffffffffffff,w\n";
    import_with(TextFormat::Plain, Addresses::Renumbered, text.as_bytes(), &mut out).unwrap();
    assert_eq!(read(&out).unwrap(), [[Access::write(4095)]]);
}

#[test]
fn what_is_held_at_most_is_what_a_workload_is_as_large_as() {
    let mut bytes = Vec::new();
    let mut writer = TraceWriter::new(&mut bytes).unwrap();
    for round in 0..10 {
        for page in 0..100 {
            writer.append(0, Access::write((round * 100 + page) * PAGE_BYTES)).unwrap();
        }
        writer.append_release(0, round * 100, 90).unwrap();
    }
    let summary = writer.finish().unwrap();
    assert_eq!((summary.touched_pages, summary.most_held_pages), (1000, 190));
    let workload = TraceWorkload::new(Cursor::new(&bytes)).unwrap();
    assert_eq!(workload.working_set_bytes(), Some(190 * PAGE_BYTES));
}
