//! Sweeps: every combination of workloads, policies, sizes, latencies and contention, on all cores,
//! resumable.
//!
//! Each finished run is one line of JSON in `OUT/runs.jsonl` at once; a sweep that was interrupted goes on
//! with what is missing there. When all are done, `OUT/runs.parquet` holds them in the order of the grid, one
//! column a measure.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::run::{LocalSize, Report, RunError, RunSpec, check, execute};
use crate::workloads::TRACE;

/// The table of runs, in the directory of the results.
pub const TABLE: &str = "runs.parquet";

/// A grid. Each list is one dimension.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// The workloads to run, by name.
    #[serde(default)]
    pub workloads: Vec<String>,
    /// The traces to repeat beside them, by their files. A trace brings its own size.
    #[serde(default)]
    pub traces: Vec<String>,
    /// The policies to run, by name.
    pub policies: Vec<String>,
    /// Local memory, as shares of the working set.
    #[serde(default = "default_local")]
    pub local: Vec<f64>,
    /// Latencies of far memory, in nanoseconds; none for the platform's.
    #[serde(default)]
    pub far_ns: Vec<f64>,
    /// Shares of the link that a neighbour takes.
    #[serde(default = "default_contention")]
    pub contention: Vec<f64>,
    /// The seeds to run each with.
    #[serde(default = "default_seeds")]
    pub seeds: Vec<u64>,
    /// Working set, in bytes.
    #[serde(default = "default_bytes")]
    pub bytes: u64,
    /// The platform to run on, by name.
    #[serde(default = "default_platform")]
    pub platform: String,
    /// Settings of each workload, by its name.
    #[serde(default)]
    pub workload_settings: BTreeMap<String, Map<String, Value>>,
    /// Settings of each policy, by its name.
    #[serde(default)]
    pub policy_settings: BTreeMap<String, Map<String, Value>>,
}

fn default_local() -> Vec<f64> {
    vec![0.2]
}

fn default_contention() -> Vec<f64> {
    vec![0.0]
}

fn default_seeds() -> Vec<u64> {
    vec![1]
}

fn default_bytes() -> u64 {
    64 << 20
}

fn default_platform() -> String {
    "hotbox".into()
}

impl Grid {
    /// All runs, in order: workloads, then traces, policies, local memory, latencies, contention, seeds.
    #[must_use]
    pub fn runs(&self) -> Vec<RunSpec> {
        let far: Vec<Option<f64>> = match self.far_ns.as_slice() {
            [] => vec![None],
            list => list.iter().copied().map(Some).collect(),
        };
        let mut runs = Vec::new();
        let traces = self.traces.iter().map(|file| (TRACE, Some(file)));
        for workload in self.workloads.iter().map(|name| (name.as_str(), None)).chain(traces) {
            for policy in &self.policies {
                for &share in &self.local {
                    for &far_ns in &far {
                        for &contention in &self.contention {
                            for &seed in &self.seeds {
                                runs.push(self.run(workload, policy, share, far_ns, contention, seed));
                            }
                        }
                    }
                }
            }
        }
        runs
    }

    /// What can be told to be wrong with it before the first run: better now than after hours of others.
    fn check(&self, runs: &[RunSpec]) -> Result<(), SweepError> {
        let lists = [
            ("workloads", self.workloads.is_empty() && self.traces.is_empty()),
            ("policies", self.policies.is_empty()),
            ("local", self.local.is_empty()),
            ("contention", self.contention.is_empty()),
            ("seeds", self.seeds.is_empty()),
        ];
        if let Some((list, _)) = lists.into_iter().find(|(_, is_empty)| *is_empty) {
            let remedy =
                if list == "workloads" { "name one, or one of 'traces'" } else { "name at least one" };
            return Err(SweepError::Grid { what: format!("'{list}' is empty"), remedy });
        }
        let of = |list: &'static str, names: &[String], settings: &BTreeMap<String, Map<String, Value>>| {
            let stray = settings.keys().find(|name| !names.contains(name))?;
            let what = format!("it has settings for '{stray}', which is not among its {list}");
            Some(SweepError::Grid { what, remedy: "correct the name, or leave the settings out" })
        };
        let stray = of("workloads", &self.workloads, &self.workload_settings)
            .or_else(|| of("policies", &self.policies, &self.policy_settings));
        if let Some(error) = stray {
            return Err(error);
        }
        runs.iter().try_for_each(|spec| check(spec).map_err(run_error(spec)))
    }

    fn run(
        &self,
        (workload, trace): (&str, Option<&String>),
        policy: &str,
        share: f64,
        far_ns: Option<f64>,
        contention: f64,
        seed: u64,
    ) -> RunSpec {
        let settings = self.workload_settings.get(workload).cloned().unwrap_or_default();
        let file = trace.map(|file| ("file".to_owned(), Value::from(file.as_str())));
        RunSpec {
            workload: workload.to_owned(),
            bytes: self.bytes,
            workload_settings: settings.into_iter().chain(file).collect(),
            policy: policy.to_owned(),
            policy_settings: self.policy_settings.get(policy).cloned().unwrap_or_default(),
            local: LocalSize::Share(share),
            platform: self.platform.clone(),
            platform_settings: far_ns.map(|ns| ("far_ns".to_owned(), ns.into())).into_iter().collect(),
            contention,
            seed,
            ..RunSpec::default()
        }
    }
}

/// Why a sweep ended early.
#[derive(Debug, Error)]
pub enum SweepError {
    /// A file cannot be read or written.
    #[error("cannot use '{path}': {source}; see that the directory can be written to and has room")]
    File {
        /// The path of the file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The grid asks for what cannot be run.
    #[error("the grid cannot be run: {what}; {remedy}")]
    Grid {
        /// What is wrong with it.
        what: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A run of the sweep failed.
    #[error("the run of '{workload}' under '{policy}' failed: {source}")]
    Run {
        /// The workload of the run.
        workload: String,
        /// The policy of the run.
        policy: String,
        /// Why the run failed.
        source: RunError,
    },
    /// What is there cannot be gone on with.
    #[error("'{path}', line {line}, is no run of a sweep: {reason}; remove the file to start over")]
    Line {
        /// The path of the file.
        path: String,
        /// The number of the line, from 1.
        line: usize,
        /// What is wrong with the line.
        reason: String,
    },
    /// The table of results cannot be written.
    #[error("cannot write the table of runs: {0}; see that there is room")]
    Table(#[from] ParquetError),
}

/// One run and its measures, as a line and as a row.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    spec: RunSpec,
    measures: BTreeMap<String, f64>,
}

fn file_error(path: &Path) -> impl Fn(std::io::Error) -> SweepError {
    let path = path.display().to_string();
    move |source| SweepError::File { path: path.clone(), source }
}

fn run_error(spec: &RunSpec) -> impl Fn(RunError) -> SweepError {
    move |source| SweepError::Run {
        workload: spec.workload_name().to_owned(),
        policy: spec.policy.clone(),
        source,
    }
}

/// Makes the runs of `grid` that `out` does not hold yet, and writes the table. Tells `progress` how many of
/// how many are done after each. Returns how many it made.
///
/// # Errors
/// A run or a file; runs that were done are kept.
pub fn sweep(
    grid: &Grid,
    out: &Path,
    threads: usize,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<usize, SweepError> {
    let runs = grid.runs();
    grid.check(&runs)?;
    fs::create_dir_all(out).map_err(file_error(out))?;
    let lines_path = out.join("runs.jsonl");
    let done = read_lines(&lines_path)?;
    let missing: Vec<&RunSpec> = runs.iter().filter(|spec| !done.contains_key(&key(spec))).collect();
    let lines =
        OpenOptions::new().create(true).append(true).open(&lines_path).map_err(file_error(&lines_path))?;
    progress(runs.len() - missing.len(), runs.len());
    let state = Mutex::new((lines, done, None));
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, missing.len().max(1)) {
            scope.spawn(|| {
                while let Some(spec) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = row(spec);
                    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                    let (lines, done, failed) = &mut *state;
                    match result.and_then(|row| write_line(lines, &lines_path, &row).map(|()| row)) {
                        Ok(row) => drop(done.insert(key(spec), row)),
                        Err(error) => {
                            failed.get_or_insert(error);
                            next.store(missing.len(), Ordering::Relaxed);
                        }
                    }
                    progress(done.len().min(runs.len()), runs.len());
                }
            });
        }
    });
    let (_, done, failed) = state.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = failed {
        return Err(error);
    }
    write_table(&out.join(TABLE), runs.iter().filter_map(|spec| done.get(&key(spec))))?;
    Ok(missing.len())
}

fn key(spec: &RunSpec) -> String {
    serde_json::to_string(spec).unwrap_or_default()
}

fn row(spec: &RunSpec) -> Result<Row, SweepError> {
    let report = execute(spec).map_err(run_error(spec))?;
    Ok(Row { spec: spec.clone(), measures: measures(&report) })
}

/// Every number of a report, by name.
fn measures(report: &Report) -> BTreeMap<String, f64> {
    let mut measures = BTreeMap::new();
    if let Ok(Value::Object(fields)) = serde_json::to_value(Report { series: Vec::new(), ..report.clone() }) {
        collect(&fields, &mut measures);
    }
    measures
}

fn collect(fields: &Map<String, Value>, measures: &mut BTreeMap<String, f64>) {
    for (name, value) in fields.iter().filter(|(name, _)| *name != "spec") {
        match value {
            Value::Object(inner) => collect(inner, measures),
            value => drop(value.as_f64().map(|number| measures.insert(name.clone(), number))),
        }
    }
}

fn write_line(lines: &mut File, path: &Path, row: &Row) -> Result<(), SweepError> {
    let mut line = serde_json::to_string(row).unwrap_or_default();
    line.push('\n');
    let before_bytes = lines.metadata().map_err(file_error(path))?.len();
    // One write: an interruption leaves at most the last line unfinished.
    lines.write_all(line.as_bytes()).map_err(|error| {
        // A full disk takes a part of it, behind which another run's line would be lost.
        let _ = lines.set_len(before_bytes);
        file_error(path)(error)
    })
}

fn read_lines(path: &Path) -> Result<BTreeMap<String, Row>, SweepError> {
    let mut rows = BTreeMap::new();
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(rows),
        opened => opened.map_err(file_error(path))?,
    };
    let mut whole_bytes = 0;
    let mut reader = BufReader::new(file);
    let mut line = String::new();
    for number in 1.. {
        line.clear();
        let bytes = reader.read_line(&mut line).map_err(file_error(path))?;
        if !line.ends_with('\n') {
            break;
        }
        whole_bytes += bytes as u64;
        let row: Row = serde_json::from_str(&line).map_err(|error| SweepError::Line {
            path: path.display().to_string(),
            line: number,
            reason: error.to_string(),
        })?;
        rows.insert(key(&row.spec), row);
    }
    // What an interruption left unfinished is made again.
    let file = OpenOptions::new().write(true).open(path).map_err(file_error(path))?;
    file.set_len(whole_bytes).map_err(file_error(path))?;
    Ok(rows)
}

const TEXT_COLUMNS: [&str; 3] = ["workload", "policy", "platform"];

fn texts(row: &Row) -> [&str; 3] {
    [row.spec.workload_name(), &row.spec.policy, &row.spec.platform]
}

/// Parameters of a run as numbers; measures follow.
fn numbers(row: &Row) -> BTreeMap<String, f64> {
    let mut numbers = row.measures.clone();
    let share = match row.spec.local {
        LocalSize::Share(share) => share,
        LocalSize::Bytes(bytes) => bytes as f64 / row.spec.bytes as f64,
    };
    let far_ns = row.spec.platform_settings.get("far_ns").and_then(Value::as_f64).unwrap_or(f64::NAN);
    let parameters = [
        ("param_bytes", row.spec.bytes as f64),
        ("param_contention", row.spec.contention),
        ("param_far_ns", far_ns),
        ("param_local_share", share),
        ("param_seed", row.spec.seed as f64),
    ];
    numbers.extend(parameters.map(|(name, value)| (name.to_owned(), value)));
    numbers
}

fn write_table<'a>(path: &Path, rows: impl Iterator<Item = &'a Row>) -> Result<(), SweepError> {
    let rows: Vec<(&Row, BTreeMap<String, f64>)> = rows.map(|row| (row, numbers(row))).collect();
    let names: Vec<String> =
        rows.first().map(|(_, numbers)| numbers.keys().cloned().collect()).unwrap_or_default();
    let text_fields = TEXT_COLUMNS.iter().map(|name| format!("required binary {name} (UTF8);"));
    let number_fields = names.iter().map(|name| format!("required double {name};"));
    let fields: Vec<String> = text_fields.chain(number_fields).collect();
    let schema = Arc::new(parse_message_type(&format!("message run {{ {} }}", fields.join(" ")))?);
    let properties =
        Arc::new(WriterProperties::builder().set_compression(Compression::ZSTD(Default::default())).build());
    let file = File::create(path).map_err(file_error(path))?;
    let mut writer = SerializedFileWriter::new(file, schema, properties)?;
    let mut group = writer.next_row_group()?;
    for at in 0..TEXT_COLUMNS.len() {
        let values: Vec<ByteArray> = rows.iter().map(|(row, _)| ByteArray::from(texts(row)[at])).collect();
        if let Some(mut column) = group.next_column()? {
            column.typed::<ByteArrayType>().write_batch(&values, None, None)?;
            column.close()?;
        }
    }
    for name in &names {
        let values: Vec<f64> =
            rows.iter().map(|(_, numbers)| numbers.get(name).copied().unwrap_or(f64::NAN)).collect();
        if let Some(mut column) = group.next_column()? {
            column.typed::<DoubleType>().write_batch(&values, None, None)?;
            column.close()?;
        }
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::trace::TraceWriter;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::{Field, RowAccessor};

    fn grid() -> Grid {
        Grid {
            workloads: vec!["uniform-kv".into()],
            traces: Vec::new(),
            policies: vec!["all-remote".into(), "hotbox".into()],
            local: vec![0.2, 0.5],
            far_ns: vec![750.0],
            contention: vec![0.0],
            seeds: vec![1],
            bytes: 2 << 20,
            platform: "hotbox".into(),
            workload_settings: BTreeMap::new(),
            policy_settings: BTreeMap::new(),
        }
    }

    #[test]
    fn a_sweep_writes_a_table_that_others_can_read() {
        let out = tempfile::tempdir().unwrap();
        let calls = Mutex::new(Vec::new());
        sweep(&grid(), out.path(), 2, &|done, all| calls.lock().unwrap().push((done, all))).unwrap();
        assert_eq!(calls.into_inner().unwrap(), [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]);
        let reader = SerializedFileReader::new(File::open(out.path().join("runs.parquet")).unwrap()).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        let policies: Vec<_> = rows.iter().map(|row| row.get_string(1).unwrap().clone()).collect();
        assert_eq!(policies, ["all-remote", "all-remote", "hotbox", "hotbox"]);
        let columns: Vec<_> = rows[0].get_column_iter().map(|(name, _)| name.clone()).collect();
        assert!(
            ["run_s", "app_s", "param_local_share"].iter().all(|name| columns.contains(&(*name).to_owned()))
        );
    }

    #[test]
    fn traces_stand_beside_workloads_each_by_the_name_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let trace = |name: &str, pages: u64| {
            let path = folder.path().join(name);
            let mut writer = TraceWriter::new(File::create(&path).unwrap()).unwrap();
            for round in 0..4 * pages {
                writer.append(0, Access::read(round % pages * 4096)).unwrap();
            }
            writer.finish().unwrap();
            path.to_str().unwrap().to_owned()
        };
        let traces = vec![trace("a.trace", 600), trace("b.trace", 900)];
        let grid = Grid { workloads: Vec::new(), traces: traces.clone(), ..grid() };
        sweep(&grid, folder.path(), 2, &|_, _| {}).unwrap();
        let reader = SerializedFileReader::new(File::open(folder.path().join(TABLE)).unwrap()).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        let pages = |name: &str| {
            let of = rows.iter().filter(|row| row.get_string(0).unwrap() == name);
            let column = |row: &parquet::record::Row| {
                let found = row.get_column_iter().find(|(column, _)| *column == "working_set_pages");
                match found.unwrap().1 {
                    Field::Double(pages) => *pages,
                    other => panic!("{other}"),
                }
            };
            of.map(column).collect::<Vec<_>>()
        };
        assert_eq!([pages(&traces[0]), pages(&traces[1])], [vec![600.0; 4], vec![900.0; 4]]);
        let missing = Grid { traces: vec!["/nowhere.trace".into()], ..grid };
        let error = missing.check(&missing.runs()).unwrap_err().to_string();
        assert!(error.contains("/nowhere.trace"), "{error}");
    }

    #[test]
    fn an_interrupted_sweep_goes_on_where_it_was_and_comes_to_the_same_table() {
        let (whole, cut) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        sweep(&grid(), whole.path(), 1, &|_, _| {}).unwrap();
        let lines = fs::read_to_string(whole.path().join("runs.jsonl")).unwrap();
        let middle = lines.match_indices('\n').nth(1).unwrap().0 + 40;
        fs::write(cut.path().join("runs.jsonl"), &lines[..middle]).unwrap();
        let first = Mutex::new(None);
        sweep(&grid(), cut.path(), 1, &|done, _| {
            first.lock().unwrap().get_or_insert(done);
        })
        .unwrap();
        assert_eq!(first.into_inner().unwrap(), Some(2), "two whole lines, one cut");
        let table = |out: &Path| fs::read(out.join("runs.parquet")).unwrap();
        assert_eq!(table(whole.path()), table(cut.path()));
    }

    #[test]
    fn any_number_of_threads_comes_to_the_same_table() {
        let table = |threads| {
            let out = tempfile::tempdir().unwrap();
            sweep(&grid(), out.path(), threads, &|_, _| {}).unwrap();
            fs::read(out.path().join("runs.parquet")).unwrap()
        };
        let alone = table(1);
        assert!(alone == table(2) && alone == table(7));
    }

    #[test]
    fn a_full_disk_is_told_and_leaves_whole_lines() {
        let path = Path::new("/dev/full");
        let mut lines = OpenOptions::new().append(true).open(path).unwrap();
        let row = Row { spec: RunSpec::default(), measures: BTreeMap::new() };
        let error = write_line(&mut lines, path, &row).unwrap_err().to_string();
        assert!(error.contains("No space left") && error.contains("/dev/full"), "{error}");
    }

    /// Before any run is made, and before anything is written.
    #[test]
    fn a_grid_that_makes_no_sense_is_refused_at_once() {
        let settings = |name: &str, key: &str| {
            BTreeMap::from([(name.to_owned(), Map::from_iter([(key.to_owned(), 1.into())]))])
        };
        let wrong = [
            (Grid { policies: Vec::new(), ..grid() }, "'policies' is empty"),
            (Grid { local: Vec::new(), ..grid() }, "'local' is empty"),
            (Grid { policies: vec!["hotbox".into(), "nonsense".into()], ..grid() }, "'nonsense'"),
            (Grid { workloads: vec!["uniform-kv".into(), "nonsense".into()], ..grid() }, "'nonsense'"),
            (Grid { platform: "abacus".into(), ..grid() }, "'abacus'"),
            (Grid { local: vec![0.2, 5.0], ..grid() }, "local memory is 5"),
            (Grid { contention: vec![0.0, 1.0], ..grid() }, "contention is 1"),
            (Grid { far_ns: vec![750.0, -1.0], ..grid() }, "'far_ns' is -1"),
            (Grid { policy_settings: settings("hotbx", "throttle"), ..grid() }, "'hotbx'"),
            (Grid { policy_settings: settings("hotbox", "throtle"), ..grid() }, "'throtle'"),
            (Grid { workload_settings: settings("scan", "passes"), ..grid() }, "'scan'"),
        ];
        for (grid, told) in wrong {
            let folder = tempfile::tempdir().unwrap();
            let out = folder.path().join("out");
            let error = sweep(&grid, &out, 1, &|_, _| panic!("a run was made")).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
            assert!(!out.exists(), "{error}");
        }
    }

    #[test]
    fn what_is_no_sweep_is_refused() {
        let out = tempfile::tempdir().unwrap();
        fs::write(out.path().join("runs.jsonl"), "{}\n").unwrap();
        let error = sweep(&grid(), out.path(), 1, &|_, _| {}).unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
    }
}
