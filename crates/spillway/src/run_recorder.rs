//! `spillway run --record`: a thread takes what the pagers write down out of their rings, and writes it to
//! files.

use std::fmt::Display;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use spillway_events::catalogue::run as told;
use spillway_lab::trace::TraceError;
use spillway_lab::trace::faults::{End, FaultTraceWriter};
use spillway_pager::run::supervisor::Recorder;
use spillway_pager::run::trace_ring::TraceRing;

/// How often the rings are emptied.
const PAUSE: Duration = Duration::from_millis(5);

fn complain(text: impl Display) {
    told::recording(&text.to_string());
}

enum Message {
    Begin(TraceRing),
    LeaveOut,
    End,
}

/// The supervisor's end: it tells the thread who begins.
struct Announcer(Sender<Message>);

impl Recorder for Announcer {
    fn begin(&mut self, ring: TraceRing) {
        let _ = self.0.send(Message::Begin(ring));
    }

    fn leave_out(&mut self) {
        let _ = self.0.send(Message::LeaveOut);
    }
}

/// A recording under way.
pub struct Recording {
    sender: Sender<Message>,
    thread: JoinHandle<()>,
}

impl Recording {
    /// Begins one, whose first file is made at once. Returns what the supervisor is to tell of programs.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(path: &Path) -> Result<(Self, Box<dyn Recorder>), TraceError> {
        let first = FaultTraceWriter::new(File::create(path)?)?;
        let (sender, receiver) = channel();
        let files = Files { path: path.to_owned(), first: Some(first), begun: 0, children: 0 };
        let thread = std::thread::spawn(move || record(&receiver, files));
        let announcer = Announcer(sender.clone());
        Ok((Self { sender, thread }, Box::new(announcer)))
    }

    /// Writes what is left, and ends the files.
    pub fn end(self) {
        let _ = self.sender.send(Message::End);
        let _ = self.thread.join();
    }
}

/// Where the programs of a run are written: the first to the file that was named, the next beside it.
struct Files {
    path: PathBuf,
    first: Option<FaultTraceWriter<File>>,
    begun: u32,
    children: u64,
}

impl Files {
    fn next(&mut self) -> Result<(PathBuf, FaultTraceWriter<File>), TraceError> {
        self.begun += 1;
        if let Some(first) = self.first.take() {
            return Ok((self.path.clone(), first));
        }
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{}", self.begun));
        let path = PathBuf::from(name);
        Ok((path.clone(), FaultTraceWriter::new(File::create(&path)?)?))
    }
}

struct Program {
    ring: TraceRing,
    path: PathBuf,
    /// None after it could not be written.
    writer: Option<FaultTraceWriter<File>>,
}

impl Program {
    /// Writes what its pager has written since. Nothing is held back: what is written can be read whatever
    /// becomes of us.
    fn drain(&mut self, bytes: &mut Vec<u8>) {
        bytes.clear();
        let (true, Some(writer)) = (self.ring.take(bytes) > 0, &mut self.writer) else { return };
        if let Err(error) = writer.append(bytes) {
            complain(format_args!(
                "run: --record {}: {error}; the program goes on, and is recorded no further",
                self.path.display()
            ));
            self.ring.close();
            self.writer = None;
        }
    }

    fn finish(mut self, bytes: &mut Vec<u8>, children_left_out: u64) {
        self.drain(bytes);
        self.ring.close();
        let overflown = self.ring.has_overflown();
        let Some(writer) = self.writer else { return };
        if overflown {
            complain(format_args!(
                "run: --record {}: there was no room for all that was recorded; it cannot be replayed",
                self.path.display()
            ));
        }
        if let Err(error) = writer.finish(End { overflown, children_left_out }) {
            complain(format_args!("run: --record {}: {error}", self.path.display()));
        }
    }
}

fn record(receiver: &Receiver<Message>, mut files: Files) {
    let mut programs: Vec<Program> = Vec::new();
    let mut bytes = Vec::new();
    loop {
        let message = receiver.recv_timeout(PAUSE);
        programs.iter_mut().for_each(|program| program.drain(&mut bytes));
        match message {
            Ok(Message::Begin(ring)) => match files.next() {
                Ok((path, writer)) => programs.push(Program { ring, path, writer: Some(writer) }),
                Err(error) => {
                    ring.close();
                    complain(format_args!("run: --record: program {}: {error}", files.begun));
                }
            },
            Ok(Message::LeaveOut) => files.children += 1,
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    programs.into_iter().for_each(|program| program.finish(&mut bytes, files.children));
    if files.children > 0 {
        complain(format_args!("run: --record: {} forked children are not recorded", files.children));
    }
}
