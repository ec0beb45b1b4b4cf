//! `spillway lab record`: what an unmodified program does to memory, as a trace.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Sent};
use spillway_core::page::PAGE_SIZE;
use spillway_lab::trace::record::record;
use spillway_lab::trace::{TraceError, TraceSummary};
use spillway_report::whole_file::WholeFile;

use crate::exit::complain;

const EXAMPLE: &str = "\
Example:
  spillway lab record -o sort.trace -- sort big.txt
  spillway lab run --trace sort.trace --policy tpp

Needs QEMU's user mode (package qemu-user) and a C compiler. Ends as the program does.";

/// Record the memory accesses of an unmodified program.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct RecordArgs {
    /// Where the trace goes
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Print what was written to stderr as JSON
    #[arg(long)]
    json: bool,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Records a program's accesses; ends as the program does.
pub fn run(args: &RecordArgs) -> ExitCode {
    let Some((program, arguments)) = args.program.split_first() else { return ExitCode::FAILURE };
    let told = Arc::new(Told::default());
    if let Err(error) = told.clone().pass_signals_on() {
        complain(format_args!("lab record: cannot handle signals: {error}"));
        return ExitCode::FAILURE;
    }
    match write_trace(&args.output, |out| record(program, arguments, out, |pid| told.begun(pid))) {
        Ok(recorded) => {
            if args.json {
                // The standard output is the program's.
                let written = Written::of(&args.output, &recorded.summary);
                let _ = writeln!(io::stderr(), "{}", serde_json::to_string(&written).unwrap_or_default());
            } else {
                tell(&args.output, &recorded.summary);
            }
            code(recorded.status)
        }
        Err(message) => {
            complain(format_args!("lab record: {message}"));
            ExitCode::FAILURE
        }
    }
}

/// What ends the program lets us end its trace.
#[derive(Default)]
struct Told {
    program_pid: AtomicI32,
    /// A signal that came before there was a program.
    signal: AtomicI32,
}

impl Told {
    /// Passes on the signals that somebody sends to us in place of the program. What the terminal sends, it
    /// sends to both.
    fn pass_signals_on(self: Arc<Self>) -> io::Result<()> {
        let mut received = SignalsInfo::<WithOrigin>::new([SIGHUP, SIGINT, SIGTERM])?;
        std::thread::spawn(move || {
            for origin in received.forever() {
                let by_process = matches!(origin.cause, Cause::Sent(Sent::User | Sent::Queue | Sent::TKill));
                let pid = self.program_pid.load(Ordering::SeqCst);
                if by_process || pid == 0 {
                    self.signal.store(origin.signal, Ordering::SeqCst);
                    self.tell();
                }
            }
        });
        Ok(())
    }

    fn begun(&self, pid: u32) {
        self.program_pid.store(pid as i32, Ordering::SeqCst);
        self.tell();
    }

    fn tell(&self) {
        let pid = Pid::from_raw(self.program_pid.load(Ordering::SeqCst));
        let signal = Signal::from_named_raw(self.signal.load(Ordering::SeqCst));
        if let (Some(pid), Some(signal)) = (pid, signal) {
            let _ = kill_process(pid, signal);
        }
    }
}

/// Has `write` write a trace to a file, which does not stay when that fails.
pub fn write_trace<T>(
    output: &Path,
    write: impl FnOnce(BufWriter<File>) -> Result<T, TraceError>,
) -> Result<T, String> {
    let failed =
        |error: io::Error| format!("{}: {error}; choose another place for the trace", output.display());
    let trace = WholeFile::create(output).map_err(failed)?;
    let written =
        write(BufWriter::new(trace.writer().map_err(failed)?)).map_err(|error| error.to_string())?;
    trace.keep().map_err(failed)?;
    Ok(written)
}

/// What was written, as `--json` prints it.
#[derive(Serialize)]
pub struct Written {
    file: String,
    /// Accesses, work and what was given back.
    records: u64,
    /// Threads, some of which may have no accesses.
    tasks: u32,
    /// Memory that is touched, in whole pages.
    touched_bytes: u64,
    /// The most that is held at once: touched, and not given back.
    most_held_bytes: u64,
}

impl Written {
    /// What is in the trace of this file.
    pub fn of(output: &Path, summary: &TraceSummary) -> Self {
        let bytes = |pages: u64| pages.saturating_mul(PAGE_SIZE as u64);
        Self {
            file: output.display().to_string(),
            records: summary.records,
            tasks: summary.tasks,
            touched_bytes: bytes(summary.touched_pages),
            most_held_bytes: bytes(summary.most_held_pages),
        }
    }
}

/// Says on stderr what was written.
pub fn tell(output: &Path, summary: &TraceSummary) {
    let TraceSummary { records, tasks, touched_pages, .. } = summary;
    let size = spillway_core::size::Size::from_bytes(touched_pages * PAGE_SIZE as u64);
    complain(format_args!("{}: {records} records of {tasks} tasks, which touch {size}", output.display()));
}

fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
