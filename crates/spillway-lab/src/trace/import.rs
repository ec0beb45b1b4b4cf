//! Traces from text: what Valgrind's lackey prints, and plain `address,rw` lines.

use std::collections::HashMap;
use std::io::{BufRead, Read, Write};

use spillway_core::page::PAGE_BYTES;

use super::{INSTRUCTIONS_PER_NS, TraceError, TraceSummary, TraceWriter, VALUE_LIMIT};
use crate::access::Access;
use crate::memory::LINE_BYTES;
use crate::simulator::pages::AddressMap;
use crate::workload::Region;

/// Bytes of a line at most; what is longer is not one of ours.
const LINE_LIMIT: u64 = 4096;
/// Bytes of an access at most, as Lackey writes it.
const ACCESS_LIMIT: u64 = 4096;
/// Most memory of a trace that can be repeated: 128 GiB.
const MOST_BYTES: u64 = 128 << 30;
/// How much of a bad line is shown.
const SHOWN_CHARS: usize = 40;

const LACKEY_LINE: &str = "'I', 'L', 'S' or 'M', an address in hexadecimal, a comma and a size of 1 to 4096";
const PLAIN_LINE: &str = "an address (decimal or 0x...), a comma and r or w";

/// How a text trace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// `valgrind --tool=lackey --trace-mem=yes`: lines of Valgrind itself are skipped, instructions count as
    /// work.
    Lackey,
    /// A line an access: address, comma, `r` or `w`; a first line `address,rw`, empty lines and `#` comments
    /// are skipped.
    Plain,
}

/// What becomes of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// They stay as they are.
    Kept,
    /// Pages of 4 KiB are numbered in the order in which they first come, whatever their addresses are:
    /// hashes, say. What lay side by side does so no more.
    Renumbered,
}

/// Turns a text trace of one task into a trace, addresses as they are.
///
/// # Errors
/// A line that is not understood, no access in any line, addresses that lie too far apart for any memory, or
/// `source` or `out` fail.
pub fn import(format: TextFormat, source: impl BufRead, out: impl Write) -> Result<TraceSummary, TraceError> {
    import_with(format, Addresses::Kept, source, out)
}

/// The same, with a choice of what becomes of addresses.
///
/// # Errors
/// As [`import`].
pub fn import_with(
    format: TextFormat,
    addresses: Addresses,
    mut source: impl BufRead,
    out: impl Write,
) -> Result<TraceSummary, TraceError> {
    let numbers = (addresses == Addresses::Renumbered).then(HashMap::new);
    let mut importer = Importer { writer: TraceWriter::new(out)?, instructions: 0, numbers };
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        if source.by_ref().take(LINE_LIMIT).read_until(b'\n', &mut text)? == 0 {
            break;
        }
        let bad = |wanted| TraceError::Line { line, text: shown(&text), wanted };
        let understood = match format {
            TextFormat::Lackey => importer.lackey(&text)?.ok_or(LACKEY_LINE),
            TextFormat::Plain => importer.plain(&text, line)?.ok_or(PLAIN_LINE),
        };
        understood.map_err(bad)?;
    }
    importer.work()?;
    let summary = importer.writer.finish()?;
    if summary.touched_pages == 0 {
        return Err(TraceError::Empty);
    }
    let regions = summary.regions.iter().map(|&(start, bytes)| Region { name: "trace", start, bytes });
    let held_bytes: u64 = summary.regions.iter().map(|(_, bytes)| bytes).sum();
    let is_too_wide = AddressMap::new(&regions.collect::<Vec<_>>(), PAGE_BYTES).is_none();
    match is_too_wide || held_bytes > MOST_BYTES {
        true => Err(TraceError::Sparse { touched_pages: summary.touched_pages }),
        false => Ok(summary),
    }
}

struct Importer<W: Write> {
    writer: TraceWriter<W>,
    /// Instructions since the last access.
    instructions: u64,
    /// The number of each page, where they are renumbered.
    numbers: Option<HashMap<u64, u64>>,
}

impl<W: Write> Importer<W> {
    /// Where the trace has an address; none where it is too large.
    fn address(&mut self, address: u64) -> Option<u64> {
        let Some(numbers) = &mut self.numbers else { return Some(address).filter(|&it| it < VALUE_LIMIT) };
        let next = numbers.len() as u64;
        let number = *numbers.entry(address / PAGE_BYTES).or_insert(next);
        Some(number * PAGE_BYTES + address % PAGE_BYTES)
    }

    /// Takes in a line; None when it is not understood.
    fn lackey(&mut self, line: &[u8]) -> Result<Option<()>, TraceError> {
        let line = line.trim_ascii_end();
        if line.starts_with(b"==") || line.starts_with(b"--") || line.is_empty() {
            return Ok(Some(()));
        }
        let Some((kind, address, size)) = lackey_fields(line) else { return Ok(None) };
        if kind == b'I' {
            self.instructions += 1;
            return Ok(Some(()));
        }
        self.work()?;
        let lines = address / LINE_BYTES..=(address + size - 1) / LINE_BYTES;
        for (index, line) in lines.enumerate() {
            // An access over the end of a line touches the next one too.
            let address = if index == 0 { address } else { line * LINE_BYTES };
            let Some(address) = self.address(address) else { return Ok(None) };
            if kind != b'S' {
                self.writer.append(0, Access::read(address))?;
            }
            if kind != b'L' {
                self.writer.append(0, Access::write(address))?;
            }
        }
        Ok(Some(()))
    }

    fn plain(&mut self, line: &[u8], number: u64) -> Result<Option<()>, TraceError> {
        let Ok(line) = std::str::from_utf8(line) else { return Ok(None) };
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || number == 1 && line == "address,rw" {
            return Ok(Some(()));
        }
        let Some((address, kind)) = line.split_once(',') else { return Ok(None) };
        let address = address.trim();
        let address = match address.strip_prefix("0x").or_else(|| address.strip_prefix("0X")) {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => address.parse(),
        };
        let make = match kind.trim() {
            "r" | "R" => Access::read,
            "w" | "W" => Access::write,
            _ => return Ok(None),
        };
        let Some(access) = address.ok().and_then(|address| self.address(address)).map(make) else {
            return Ok(None);
        };
        self.writer.append(0, access)?;
        Ok(Some(()))
    }

    /// Appends the instructions since the last access as work, the part of a nanosecond kept for later.
    fn work(&mut self) -> Result<(), TraceError> {
        let ns = self.instructions / INSTRUCTIONS_PER_NS;
        self.instructions %= INSTRUCTIONS_PER_NS;
        if ns > 0 {
            self.writer.append(0, Access::compute_ns(ns))?;
        }
        Ok(())
    }
}

/// Kind, address and size of a line like ` L 1ffeffe7c,4`.
fn lackey_fields(line: &[u8]) -> Option<(u8, u64, u64)> {
    let text = std::str::from_utf8(line).ok()?;
    let (kind, rest) = text.trim_start().split_once(' ')?;
    let &[kind @ (b'I' | b'L' | b'S' | b'M')] = kind.as_bytes() else { return None };
    let (address, size) = rest.trim().split_once(',')?;
    let address =
        u64::from_str_radix(address, 16).ok().filter(|&address| address < VALUE_LIMIT - ACCESS_LIMIT)?;
    let size = size.parse().ok().filter(|size| (1..=ACCESS_LIMIT).contains(size))?;
    Some((kind, address, size))
}

fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(line).trim().chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect()
}
