//! `spillway record`: looks at what is alive again and again, and keeps what it sees in a file.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};
use spillway_snapshot::heat::HeatMap;
use spillway_snapshot::history::{Header, Look, Writer};
use spillway_snapshot::reader::{self, Seen};
use spillway_snapshot::snapshot::{Body, Snapshot};

use crate::exit::{Refusal, complain};
use crate::status::{NOTHING, is_called};
use crate::stop::{self, wait_or_stop};
use crate::tier::print;

const EXAMPLE: &str = "\
Examples:
  spillway record night.history
  spillway record --wait --every 5 job.history redis-server
  spillway report night.history

It ends when what it records has ended, after --for, or at Ctrl-C; the file is
whole at any time. A look at one run takes 7 to 20 KiB.

Exit status: 0, or 1 if nothing runs or the file cannot be written.";

/// Processes of a run whose memory is mapped at each look: those that have most.
const MOST_MAPS: usize = 4;
/// Functions that waited longest, which are kept at each look.
const MOST_SITES: usize = 12;
/// Blocks of such a map: as many as a picture has room for.
const MOST_BLOCKS: usize = 64;

/// Keep what runs on this machine does in a file, for 'spillway report'.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct RecordArgs {
    /// Write to this file, which must not be there yet
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// One run or daemon alone: by the number of a process, or by name
    #[arg(value_name = "PID|NAME")]
    what: Option<String>,
    /// Time between two looks, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_seconds)]
    every: Duration,
    /// End after so many seconds
    #[arg(long = "for", value_name = "SECONDS", value_parser = parse_seconds)]
    for_: Option<Duration>,
    /// Wait until something runs
    #[arg(long)]
    wait: bool,
    /// Print at the end what was recorded, as JSON
    #[arg(long)]
    json: bool,
}

/// What was recorded, as `--json` prints it.
#[derive(Serialize)]
struct Recorded {
    file: String,
    looks: u64,
    /// From the first look to the last.
    recorded_s: f64,
    /// How large the file is.
    file_bytes: u64,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=1e7).contains(seconds));
    let seconds = seconds.ok_or_else(|| "write a number of seconds from 0.1 to 10000000".to_owned())?;
    Ok(Duration::from_secs_f64(seconds))
}

/// Records, until the end.
pub fn run(args: &RecordArgs) -> ExitCode {
    match record(args) {
        Ok(code) => code,
        Err((status, text)) => {
            complain(format!("record: {text}"));
            ExitCode::from(status)
        }
    }
}

/// What was recorded so far.
struct Recording<'a> {
    args: &'a RecordArgs,
    writer: Option<Writer<File>>,
    began: Instant,
    looks: u64,
    last_at_s: f64,
}

fn record(args: &RecordArgs) -> Result<ExitCode, Refusal> {
    let stop = stop::on(&[SIGHUP, SIGINT, SIGTERM]).map_err(|error| (1, format!("signals: {error}")))?;
    let bar = progress();
    let mut recording = Recording { args, writer: None, began: Instant::now(), looks: 0, last_at_s: 0.0 };
    let mut next = recording.began;
    loop {
        let seen = look(args);
        if seen.is_empty() && !(args.wait && recording.looks == 0) {
            break;
        }
        if !seen.is_empty() {
            recording.keep(seen)?;
        }
        bar.set_message(format!("{} looks", recording.looks));
        bar.tick();
        next = (next + args.every).max(Instant::now());
        let end = args.for_.map(|most| recording.began + most);
        let until = end.map_or(next, |end| end.min(next));
        if wait_or_stop(&stop, until) || end.is_some_and(|end| Instant::now() >= end) {
            break;
        }
    }
    bar.finish_and_clear();
    match recording.looks {
        0 if args.wait => Err((1, "nothing was recorded: nothing ran meanwhile".to_owned())),
        0 => Err((1, nothing(args))),
        looks if args.json => {
            let file_bytes = std::fs::metadata(&args.file).map_or(0, |file| file.len());
            let file = args.file.display().to_string();
            let recorded = Recorded { file, looks, recorded_s: recording.last_at_s, file_bytes };
            print(&(serde_json::to_string_pretty(&recorded).unwrap_or_default() + "\n"))
        }
        looks => {
            if std::io::stderr().is_terminal() {
                let file = args.file.display();
                complain(format!("{looks} looks are in {file}; make a page of them: spillway report {file}"));
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn nothing(args: &RecordArgs) -> String {
    match &args.what {
        Some(what) => format!(
            "nothing that runs is called '{what}'; 'spillway status' lists what does, --wait waits for it"
        ),
        None => format!("{NOTHING}; --wait waits for one"),
    }
}

impl Recording<'_> {
    /// The file is made with the first look: who finds nothing leaves none behind.
    fn keep(&mut self, seen: Vec<Snapshot>) -> Result<(), Refusal> {
        let path = &self.args.file;
        let failed = |error: &io::Error| (1, cannot_write(path, error));
        if self.writer.is_none() {
            self.began = Instant::now();
            let unix_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let header =
                Header::new(env!("CARGO_PKG_VERSION"), unix_s.as_secs_f64(), self.args.every.as_secs_f64());
            let file = File::create_new(path).map_err(|error| failed(&error))?;
            self.writer = Some(Writer::new(file, &header).map_err(|error| failed(&error))?);
        }
        self.last_at_s = self.began.elapsed().as_secs_f64();
        let look = Look { at_s: self.last_at_s, seen };
        if let Some(writer) = &mut self.writer {
            writer.look(look).map_err(|error| failed(&error))?;
        }
        self.looks += 1;
        Ok(())
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::AlreadyExists => format!("{path} is there already; name another file, or remove it"),
        io::ErrorKind::StorageFull => {
            format!(
                "{path}: {error}; what was recorded so far is in it: make room, and record on into another"
            )
        }
        _ => format!("{path}: {error}; name a file that can be written"),
    }
}

fn look(args: &RecordArgs) -> Vec<Snapshot> {
    let is_meant = |seen: &Seen| {
        let snapshot = seen.answer.as_ref().ok();
        snapshot.is_some_and(|snapshot| args.what.as_ref().is_none_or(|what| is_called(snapshot, what)))
    };
    reader::look().into_iter().filter(is_meant).filter_map(with_heat).collect()
}

/// With the maps of its largest processes and where they wait, where it is a run.
fn with_heat(seen: Seen) -> Option<Snapshot> {
    let mut maps: Vec<Option<HeatMap>> = Vec::new();
    let mut sites = None;
    if let Ok(Snapshot { body: Body::Run { run }, .. }) = &seen.answer {
        let processes = run.processes.iter().take(MOST_MAPS);
        maps.extend(processes.map(|process| reader::heat(&seen, process.pid?)));
        sites = reader::sites(&seen).map(|sites| sites.most(MOST_SITES));
    }
    let mut snapshot = seen.answer.ok()?;
    if let Body::Run { run } = &mut snapshot.body {
        for (process, map) in run.processes.iter_mut().zip(maps) {
            process.heat = map.map(|map| map.in_at_most(MOST_BLOCKS));
        }
        run.sites = sites;
    }
    Some(snapshot)
}

/// Seen where somebody looks only.
fn progress() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    bar.set_style(
        ProgressStyle::with_template("recording for {elapsed}: {msg}; Ctrl-C ends")
            .unwrap_or_else(|_| ProgressStyle::default_spinner()),
    );
    bar
}
