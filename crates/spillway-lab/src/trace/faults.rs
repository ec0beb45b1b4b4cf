//! Fault traces in files: what a live pager did ([`spillway_policy::fault_trace`]). `spillway run --record`
//! writes one; its format is described in `docs/lab/fault-trace.md`.
//!
//! Each part is whole, so a file whose writer was killed can be read up to there.

use std::io::{ErrorKind, Read, Write};

use serde::{Deserialize, Serialize};
use spillway_policy::fault_trace::{Decoder, Event};

use super::TraceError;
use super::part::{RawPart, read_raw_part, write_raw_part};

/// First bytes of a fault trace; the version of the format comes behind them.
const MAGIC: [u8; 7] = *b"SPWFLT\0";
/// The version that is written. Those of version 1 tell less of blocks, and are read too.
const VERSION: u8 = 2;
/// Tag of a part that holds events, or pieces of them.
const TAG_EVENTS: u8 = b'F';
/// Tag of the last part.
const TAG_END: u8 = b'E';
/// Raw bytes of a part at most.
pub const PART_RAW_BYTES: usize = 16 << 20;
const END_RAW_BYTES: usize = 4096;

/// How a fault trace ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The pager had no room for more: the trace is shorter than the run.
    pub overflown: bool,
    /// Forked children, which are not recorded.
    pub children_left_out: u64,
}

/// Writes a fault trace.
pub struct FaultTraceWriter<W: Write> {
    out: W,
}

impl<W: Write> FaultTraceWriter<W> {
    /// Begins a trace.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn new(mut out: W) -> Result<Self, TraceError> {
        out.write_all(&MAGIC)?;
        out.write_all(&[VERSION])?;
        Ok(Self { out })
    }

    /// Appends what a pager wrote: encoded events, cut anywhere.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        for part in bytes.chunks(PART_RAW_BYTES) {
            write_raw_part(&mut self.out, TAG_EVENTS, [0, 0], part)?;
        }
        Ok(())
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn finish(mut self, end: End) -> Result<(), TraceError> {
        let text = serde_json::to_vec(&end).map_err(std::io::Error::from)?;
        write_raw_part(&mut self.out, TAG_END, [0, 0], &text)?;
        Ok(self.out.flush()?)
    }
}

/// How far a fault trace could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// To its end, which says how it ended.
    Whole(End),
    /// To where its writer was stopped: the recorder was killed, or its disk was full.
    CutOff,
}

/// Reads a fault trace event by event, and trusts nothing that it says.
pub struct FaultTraceReader<R: Read> {
    source: R,
    at: u64,
    decoder: Decoder,
    events: u64,
    outcome: Option<Outcome>,
}

impl<R: Read> FaultTraceReader<R> {
    /// Begins to read.
    ///
    /// # Errors
    /// `source` cannot be read, or holds no fault trace, or one of a version that is not known.
    pub fn new(mut source: R) -> Result<Self, TraceError> {
        let mut magic = [0; MAGIC.len() + 1];
        match source.read_exact(&mut magic) {
            Ok(()) if magic[..MAGIC.len()] == MAGIC => {}
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => return Err(error.into()),
            _ => return Err(TraceError::NotAFaultTrace),
        }
        let (at, version) = (magic.len() as u64, magic[MAGIC.len()]);
        if !(1..=VERSION).contains(&version) {
            return Err(TraceError::FaultTraceVersion { version });
        }
        Ok(Self { source, at, decoder: Decoder::default(), events: 0, outcome: None })
    }

    /// The next event; None after the last.
    ///
    /// # Errors
    /// `source` cannot be read, or the trace is damaged, or the pager had no room for all of it.
    pub fn next_event(&mut self) -> Result<Option<Event>, TraceError> {
        loop {
            if let Some(event) = self.decoder.next_event()? {
                self.events += 1;
                return Ok(Some(event));
            }
            match self.outcome {
                Some(Outcome::Whole(End { overflown: true, .. })) => {
                    return Err(TraceError::Overflown { events: self.events });
                }
                Some(_) => return Ok(None),
                None => self.read_part()?,
            }
        }
    }

    /// How far it could be read, after the last event.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.outcome.unwrap_or(Outcome::CutOff)
    }

    fn read_part(&mut self) -> Result<(), TraceError> {
        let start = self.at;
        let limit = |tag| match tag {
            TAG_EVENTS => Some(PART_RAW_BYTES),
            TAG_END => Some(END_RAW_BYTES),
            _ => None,
        };
        let RawPart { tag, raw, .. } = match read_raw_part(&mut self.source, &mut self.at, limit) {
            Ok(part) => part,
            Err(TraceError::Truncated { .. }) => {
                self.outcome = Some(Outcome::CutOff);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if tag == TAG_EVENTS {
            self.decoder.feed(&raw);
            return Ok(());
        }
        let damaged = |reason| TraceError::Damaged { at: start, reason };
        let end: End = serde_json::from_slice(&raw).map_err(|_| damaged("the end makes no sense"))?;
        if self.source.read(&mut [0])? > 0 {
            return Err(damaged("something comes behind the end"));
        }
        self.outcome = Some(Outcome::Whole(end));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spillway_core::page_word::Queue;
    use spillway_policy::fault_trace::Encoder;

    fn trace(events: usize, end: Option<End>) -> Vec<u8> {
        let (mut encoder, mut bytes) = (Encoder::default(), Vec::new());
        for _ in 0..events {
            encoder.encode(
                &Event::Returner { away_pages: 1000, local_pages: 7, queue: Queue::Active },
                &mut bytes,
            );
        }
        let mut file = Vec::new();
        let mut writer = FaultTraceWriter::new(&mut file).unwrap();
        // Cut amid events.
        bytes.chunks(7).for_each(|part| writer.append(part).unwrap());
        if let Some(end) = end {
            writer.finish(end).unwrap();
        }
        file
    }

    fn read(file: &[u8]) -> Result<(u64, Outcome), TraceError> {
        let mut reader = FaultTraceReader::new(file)?;
        let mut count = 0;
        while reader.next_event()?.is_some() {
            count += 1;
        }
        Ok((count, reader.outcome()))
    }

    #[test]
    fn a_trace_is_read_to_its_end() {
        let end = End { overflown: false, children_left_out: 3 };
        assert_eq!(read(&trace(100, Some(end))).unwrap(), (100, Outcome::Whole(end)));
    }

    #[test]
    fn what_a_killed_recorder_has_written_is_read() {
        let file = trace(100, None);
        assert_eq!(read(&file).unwrap(), (100, Outcome::CutOff));
        for bytes in 8..file.len() {
            let (count, outcome) = read(&file[..bytes]).unwrap();
            assert!(count <= 100 && outcome == Outcome::CutOff);
        }
        assert!(matches!(read(&file[..5]), Err(TraceError::NotAFaultTrace)));
    }

    #[test]
    fn a_version_that_is_not_known_is_refused_by_its_number() {
        for version in [0, VERSION + 1, 255] {
            let mut file = trace(9, None);
            file[MAGIC.len()] = version;
            let error = read(&file).unwrap_err();
            assert!(matches!(error, TraceError::FaultTraceVersion { version: found } if found == version));
            assert!(error.to_string().contains(&format!("version {version},")));
        }
    }

    #[test]
    fn what_is_damaged_or_has_a_hole_is_refused() {
        let whole = trace(100, Some(End::default()));
        for at in 8..whole.len() {
            let mut file = whole.clone();
            file[at] ^= 0x10;
            assert!(!matches!(read(&file), Ok((_, Outcome::Whole(_)))), "byte {at}");
        }
        let end = End { overflown: true, ..End::default() };
        assert!(matches!(read(&trace(9, Some(end))), Err(TraceError::Overflown { events: 9 })));
        let more = [whole, vec![0]].concat();
        assert!(matches!(read(&more), Err(TraceError::Damaged { .. })));
    }
}
