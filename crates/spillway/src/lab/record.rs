//! `spillway lab record`: what an unmodified program does to memory, as a trace.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::BufWriter;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use spillway_core::page::PAGE_SIZE;
use spillway_lab::trace::record::record;
use spillway_lab::trace::{TraceError, TraceSummary};

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

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Runs `lab record`.
pub fn run(args: &RecordArgs) -> ExitCode {
    let Some((program, arguments)) = args.program.split_first() else { return ExitCode::FAILURE };
    // What ends the program lets us end its trace.
    for signal in [SIGINT, SIGTERM] {
        if let Err(error) = flag::register(signal, Arc::new(AtomicBool::new(false))) {
            complain(format_args!("lab record: cannot handle signals: {error}"));
            return ExitCode::FAILURE;
        }
    }
    match write_trace(&args.output, |out| record(program, arguments, out)) {
        Ok(recorded) => {
            tell(&args.output, &recorded.summary);
            code(recorded.status)
        }
        Err(message) => {
            complain(format_args!("lab record: {message}"));
            ExitCode::FAILURE
        }
    }
}

/// Has `write` write a trace to a file, which does not stay when that fails.
pub fn write_trace<T>(
    output: &Path,
    write: impl FnOnce(BufWriter<File>) -> Result<T, TraceError>,
) -> Result<T, String> {
    let file = File::create(output)
        .map_err(|error| format!("{}: {error}; choose another place for the trace", output.display()))?;
    write(BufWriter::new(file)).map_err(|error| {
        // A device or a pipe stays: only what is a file of ours goes.
        if output.is_file() {
            let _ = fs::remove_file(output);
        }
        error.to_string()
    })
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
