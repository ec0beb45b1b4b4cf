//! Workloads by name. A new workload is one file and one line here.

use std::path::Path;

use super::entry::{Overrides, TRACE, WorkloadEntry, WorkloadError, entry, within};
use super::loading::Loading;
use super::{
    Als, Amg, Bimodal, Graph500Bfs, Graph500Sssp, HashJoin, LigraBfs, LigraPageRank, MemcachedEtc, PageRank,
    Redis, Scan, Snap, Stream, Tpcc, Transformer, UniformKv,
};
use crate::trace::TraceWorkload;
use crate::workload::Workload;

/// Most tasks of a workload.
const MOST_TASKS: u64 = 1024;

static ENTRIES: &[WorkloadEntry] = &[
    entry::<Scan>(),
    entry::<Bimodal>(),
    entry::<UniformKv>(),
    entry::<MemcachedEtc>(),
    entry::<Redis>(),
    entry::<Tpcc>(),
    entry::<HashJoin>(),
    entry::<Graph500Bfs>(),
    entry::<Graph500Sssp>(),
    entry::<LigraBfs>(),
    entry::<LigraPageRank>(),
    entry::<PageRank>(),
    entry::<Amg>(),
    entry::<Transformer>(),
    entry::<Als>(),
    entry::<Snap>(),
    entry::<Stream>(),
];

/// All workloads that there are.
pub fn entries() -> &'static [WorkloadEntry] {
    ENTRIES
}

/// Whether there is a workload of this name.
///
/// # Errors
/// There is none.
pub fn find(name: &str) -> Result<(), WorkloadError> {
    if name == TRACE { Ok(()) } else { entry_of(name).map(|_| ()) }
}

fn entry_of(name: &str) -> Result<&'static WorkloadEntry, WorkloadError> {
    ENTRIES.iter().find(|entry| entry.name == name).ok_or_else(|| {
        let known = ENTRIES.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ");
        WorkloadError::Unknown { name: name.to_owned(), known }
    })
}

/// Makes a workload with a working set of about `bytes`, behind its load phase.
///
/// # Errors
/// No such workload, no such setting, or a working set that is too small.
pub fn build(
    name: &str,
    bytes: u64,
    seed: u64,
    overrides: &Overrides,
) -> Result<Box<dyn Workload>, WorkloadError> {
    if name == TRACE {
        return open_trace(overrides);
    }
    let entry = entry_of(name)?;
    let mut settings = overrides.clone();
    settings.insert("bytes".to_owned(), bytes.into());
    settings.insert("seed".to_owned(), seed.into());
    let load = match settings.remove("load") {
        None => entry.preload,
        Some(serde_json::Value::Bool(load)) => load,
        Some(other) => {
            let reason = format!("'load' is '{other}', neither true nor false");
            return Err(WorkloadError::Setting { name: entry.name, reason });
        }
    };
    if let Some(tasks) = settings.get("tasks").and_then(serde_json::Value::as_u64) {
        within(entry.name, "tasks", tasks, 1..=MOST_TASKS)?;
    }
    let workload = (entry.build)(settings)?;
    Ok(if load { Box::new(Loading::new(workload)) } else { workload })
}

fn open_trace(settings: &Overrides) -> Result<Box<dyn Workload>, WorkloadError> {
    let setting = |reason: &str| WorkloadError::Setting { name: TRACE, reason: reason.to_owned() };
    let file =
        settings.get("file").and_then(|file| file.as_str()).ok_or_else(|| setting("'file' is not given"))?;
    if settings.len() > 1 {
        return Err(setting("it has no setting but 'file'"));
    }
    match TraceWorkload::open(Path::new(file)) {
        Ok(workload) => Ok(Box::new(workload)),
        Err(error) => Err(WorkloadError::Trace { file: file.to_owned(), reason: error.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::*;
    use crate::workloads::random::rng;
    use crate::workloads::testing::{run, run_ordered};

    #[test]
    fn every_workload_runs_by_name_and_fills_its_working_set() {
        let bytes = 4 << 20;
        for entry in entries() {
            let mut workload = build(entry.name, bytes, 7, &Overrides::new()).unwrap();
            assert_eq!(workload.name(), entry.name);
            let held: u64 = workload.regions().iter().map(|region| region.bytes).sum();
            assert!((bytes * 8 / 10..=bytes * 12 / 10).contains(&held), "{}: {held}", entry.name);
            run(workload.as_mut());
            assert_eq!(workload.verify(), Ok(()), "{}", entry.name);
        }
    }

    #[test]
    fn every_workload_is_deterministic() {
        for entry in entries() {
            let accesses = |seed| run(build(entry.name, 2 << 20, seed, &Overrides::new()).unwrap().as_mut());
            assert_eq!(accesses(1), accesses(1), "{}", entry.name);
        }
    }

    #[test]
    fn every_workload_is_right_in_whatever_order_its_tasks_are_stepped() {
        let mut overrides = Overrides::new();
        overrides.insert("tasks".to_owned(), 5.into());
        for entry in entries() {
            let mut workload = build(entry.name, 2 << 20, 3, &overrides).unwrap();
            let mut order = rng(9, 0);
            run_ordered(workload.as_mut(), |tasks| order.random_range(0..tasks));
            assert_eq!(workload.verify(), Ok(()), "{}", entry.name);
        }
    }

    #[test]
    fn no_step_takes_long() {
        for entry in entries() {
            let ran = run(build(entry.name, 8 << 20, 1, &Overrides::new()).unwrap().as_mut());
            assert!(ran.longest_step < 8000, "{}: {}", entry.name, ran.longest_step);
        }
    }

    #[test]
    fn every_workload_refuses_what_it_cannot_do() {
        for entry in entries() {
            assert!(
                matches!(build(entry.name, 0, 1, &Overrides::new()), Err(WorkloadError::TooSmall { .. })),
                "{}",
                entry.name
            );
            let mut overrides = Overrides::new();
            overrides.insert("nonsense".to_owned(), 1.into());
            let refused = build(entry.name, 4 << 20, 1, &overrides);
            assert!(matches!(refused, Err(WorkloadError::Setting { .. })), "{}", entry.name);
            overrides.clear();
            overrides.insert("tasks".to_owned(), 0.into());
            let refused = build(entry.name, 4 << 20, 1, &overrides);
            assert!(matches!(refused, Err(WorkloadError::Setting { .. })), "{}", entry.name);
        }
    }

    #[test]
    fn a_trace_is_repeated_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("two.trace");
        let text = "4096,r\n8192,w\n";
        let out = std::fs::File::create(&path).unwrap();
        crate::trace::import::import(crate::trace::import::TextFormat::Plain, text.as_bytes(), out).unwrap();
        let mut overrides = Overrides::new();
        assert!(matches!(build(TRACE, 0, 0, &overrides), Err(WorkloadError::Setting { .. })));
        overrides.insert("file".to_owned(), path.to_str().unwrap().into());
        let mut workload = build(TRACE, 0, 0, &overrides).unwrap();
        assert_eq!(workload.working_set_bytes(), Some(8192));
        assert_eq!(run(workload.as_mut()).accesses, 2);
        std::fs::write(&path, "no trace").unwrap();
        assert!(matches!(build(TRACE, 0, 0, &overrides), Err(WorkloadError::Trace { .. })));
    }

    #[test]
    fn unknown_names_are_answered_with_the_known_ones() {
        let error = build("bfs2", 1 << 20, 1, &Overrides::new()).err().unwrap().to_string();
        assert!(error.contains("'bfs2'") && error.contains("scan"), "{error}");
    }
}
