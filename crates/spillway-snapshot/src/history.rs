//! A history: looks at what is alive, one after the other, in a file.
//!
//! The file is lines of JSON. The first says what it is ([`Header`]), each further one is a look ([`Look`]).
//! Lines are written whole and at once, so a recorder that is killed cuts off its last one at most: a reader
//! leaves that out and says so. docs/operate/history.md describes the form.

use std::io::{self, BufRead, Read, Write};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::snapshot::{Body, Snapshot, VERSION};

/// What the first line says the file is.
const FORM: &str = "spillway-history";
/// No line is longer: a look at a few hundred runs.
const MOST_LINE_BYTES: u64 = 64 << 20;

/// Why a history cannot be read.
#[derive(Debug, Error)]
pub enum HistoryError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("it is no history; 'spillway record' writes one")]
    Foreign,
    /// It was written in another form.
    #[error("it is a history of version {0}, not {VERSION}; read it with the Spillway that wrote it")]
    Version(u32),
    /// A line in the middle makes no sense.
    #[error("line {line} is damaged ({reason}); record anew, or remove the lines from there on")]
    Damaged {
        /// Its number in the file, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
}

/// What the first line says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// `spillway-history`, for nothing else begins so.
    pub form: String,
    /// The version of the snapshots in it.
    pub version: u32,
    /// The version of Spillway that recorded.
    pub spillway_version: String,
    /// When it began, in seconds since 1970.
    pub began_unix_s: f64,
    /// Time between two looks, in seconds.
    pub interval_s: f64,
}

impl Header {
    /// The first line of a history that begins now.
    #[must_use]
    pub fn new(spillway_version: &str, began_unix_s: f64, interval_s: f64) -> Self {
        let spillway_version = spillway_version.to_owned();
        Self { form: FORM.to_owned(), version: VERSION, spillway_version, began_unix_s, interval_s }
    }
}

/// What was seen at one time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// Time since the history began, in seconds.
    pub at_s: f64,
    /// All that was alive and answered. Processes' latencies come without their buckets.
    pub seen: Vec<Snapshot>,
}

/// Writes a history, look by look.
#[derive(Debug)]
pub struct Writer<W>(W);

impl<W: Write> Writer<W> {
    /// Begins one.
    ///
    /// # Errors
    /// Nothing can be written.
    pub fn new(file: W, header: &Header) -> io::Result<Self> {
        let mut writer = Self(file);
        writer.line(header)?;
        Ok(writer)
    }

    /// Appends a look, in one write.
    ///
    /// # Errors
    /// Nothing can be written; what is there already stays readable.
    pub fn look(&mut self, mut look: Look) -> io::Result<()> {
        for snapshot in &mut look.seen {
            if let Body::Run { run } = &mut snapshot.body {
                for process in &mut run.processes {
                    process.fault_latency.buckets.clear();
                }
            }
        }
        self.line(&look)
    }

    fn line(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.0.write_all(&line)
    }
}

/// Reads a history, look by look.
#[derive(Debug)]
pub struct Reader<R> {
    file: R,
    header: Header,
    line: usize,
    is_cut_off: bool,
}

impl<R: BufRead> Reader<R> {
    /// Reads the first line.
    ///
    /// # Errors
    /// The file is no history, or one of another version.
    pub fn new(mut file: R) -> Result<Self, HistoryError> {
        let line = next_line(&mut file)?.ok_or(HistoryError::Foreign)?;
        let header: Header = serde_json::from_slice(&line).map_err(|_| HistoryError::Foreign)?;
        match header.form.as_str() {
            FORM if header.version == VERSION => Ok(Self { file, header, line: 1, is_cut_off: false }),
            FORM => Err(HistoryError::Version(header.version)),
            _ => Err(HistoryError::Foreign),
        }
    }

    /// What the first line says.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whether the last line was cut off, and so left out.
    pub fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }

    /// The next look; none at the end.
    ///
    /// # Errors
    /// The file cannot be read, or a line that is not the last makes no sense.
    pub fn look(&mut self) -> Result<Option<Look>, HistoryError> {
        let Some(line) = next_line(&mut self.file)? else { return Ok(None) };
        self.line += 1;
        match serde_json::from_slice::<Look>(&line) {
            Ok(look) if look.at_s.is_finite() => Ok(Some(look)),
            _ if !line.ends_with(b"\n") && (line.len() as u64) < MOST_LINE_BYTES => {
                self.is_cut_off = true;
                Ok(None)
            }
            Ok(_) => Err(self.damaged("its time is no number".to_owned())),
            Err(error) => Err(self.damaged(error.to_string())),
        }
    }

    fn damaged(&self, reason: String) -> HistoryError {
        HistoryError::Damaged { line: self.line, reason }
    }
}

/// With its end, where it has one.
fn next_line(file: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let count = file.take(MOST_LINE_BYTES).read_until(b'\n', &mut line)?;
    Ok((count > 0).then_some(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tier(pid: u32) -> Snapshot {
        Snapshot {
            version: VERSION,
            spillway_version: "0".to_owned(),
            pid,
            uid: 1,
            name: "tier".to_owned(),
            uptime_s: 1.5,
            body: Body::Tier { tier: serde_json::json!({ "groups": [] }) },
        }
    }

    fn written() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, &Header::new("1.2.3", 1e9, 0.5)).unwrap();
        for at in 0..3 {
            writer.look(Look { at_s: f64::from(at), seen: vec![tier(at); 2] }).unwrap();
        }
        bytes
    }

    /// The times of all looks, and whether the last was cut off.
    fn read(bytes: &[u8]) -> Result<(Vec<f64>, bool), HistoryError> {
        let mut reader = Reader::new(bytes)?;
        let mut times = Vec::new();
        while let Some(look) = reader.look()? {
            times.push(look.at_s);
        }
        Ok((times, reader.is_cut_off()))
    }

    #[test]
    fn what_was_written_is_read_again() {
        let bytes = written();
        let mut reader = Reader::new(&bytes[..]).unwrap();
        assert_eq!((reader.header().interval_s, reader.header().spillway_version.as_str()), (0.5, "1.2.3"));
        assert_eq!(reader.look().unwrap().unwrap().seen, vec![tier(0); 2]);
        assert_eq!(read(&bytes).unwrap(), (vec![0.0, 1.0, 2.0], false));
    }

    #[test]
    fn wherever_it_is_cut_off_what_is_whole_is_read() {
        let bytes = written();
        let header_bytes = bytes.iter().position(|&byte| byte == b'\n').unwrap() + 1;
        for cut in header_bytes..bytes.len() {
            let (times, is_cut_off) = read(&bytes[..cut]).unwrap();
            let whole = bytes[header_bytes..cut].iter().filter(|&&byte| byte == b'\n').count();
            let is_whole_without_end = bytes[cut] == b'\n';
            assert_eq!(times.len(), whole + usize::from(is_whole_without_end), "{cut}");
            let is_clean = is_whole_without_end || bytes[cut - 1] == b'\n';
            assert_eq!(is_cut_off, !is_clean, "{cut}");
        }
        for cut in 0..header_bytes - 1 {
            assert!(matches!(read(&bytes[..cut]), Err(HistoryError::Foreign)), "{cut}");
        }
    }

    #[test]
    fn another_file_another_version_and_a_damaged_line_are_named() {
        assert!(matches!(read(b"{\"a\":1}\n"), Err(HistoryError::Foreign)));
        assert!(matches!(read(b"\x7fELF\n\n"), Err(HistoryError::Foreign)));
        let text = String::from_utf8(written()).unwrap();
        let later = text.replacen("\"version\":1", "\"version\":2", 1);
        assert!(matches!(read(later.as_bytes()), Err(HistoryError::Version(2))));
        let damaged = text.replacen("{\"at_s\":1.0", "{\"at_s\":x", 1);
        assert!(matches!(read(damaged.as_bytes()), Err(HistoryError::Damaged { line: 3, .. })));
    }
}
