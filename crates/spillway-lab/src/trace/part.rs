//! Parts, of which traces are made: a tag, two numbers, and bytes that are compressed and have a checksum.

use std::io::{ErrorKind, Read, Write};

use twox_hash::XxHash3_64;

use super::{PART_HEADER_BYTES, TraceError};

const ZSTD_LEVEL: i32 = 3;

/// One part of a trace.
pub(super) struct RawPart {
    pub(super) tag: u8,
    pub(super) numbers: [u32; 2],
    pub(super) raw: Vec<u8>,
}

/// Writes a part. Returns its bytes.
pub(super) fn write_raw_part(
    out: &mut impl Write,
    tag: u8,
    numbers: [u32; 2],
    raw: &[u8],
) -> Result<u64, TraceError> {
    let packed = zstd::bulk::compress(raw, ZSTD_LEVEL)?;
    let mut header = Vec::with_capacity(PART_HEADER_BYTES);
    header.push(tag);
    for number in numbers.into_iter().chain([raw.len() as u32, packed.len() as u32]) {
        header.extend(number.to_le_bytes());
    }
    let checksum = XxHash3_64::oneshot(&[&header, packed.as_slice()].concat());
    header.extend(checksum.to_le_bytes());
    out.write_all(&header)?;
    out.write_all(&packed)?;
    Ok((header.len() + packed.len()) as u64)
}

/// Reads the part that starts at `at`, and moves `at` behind it. `raw_limit` says how long a part of this tag
/// may be, if there is such a tag.
pub(super) fn read_raw_part(
    source: &mut impl Read,
    at: &mut u64,
    raw_limit: impl Fn(u8) -> Option<usize>,
) -> Result<RawPart, TraceError> {
    let start = *at;
    let damaged = |reason| TraceError::Damaged { at: start, reason };
    let mut header = [0; PART_HEADER_BYTES];
    read_exact(source, &mut header, at)?;
    let number = |index: usize| {
        let from = 1 + 4 * index;
        u32::from_le_bytes([header[from], header[from + 1], header[from + 2], header[from + 3]])
    };
    let (raw_bytes, packed_bytes) = (number(2) as usize, number(3) as usize);
    let raw_limit =
        raw_limit(header[0]).ok_or_else(|| damaged("neither a chunk nor the index begins here"))?;
    if raw_bytes > raw_limit || packed_bytes > zstd::zstd_safe::compress_bound(raw_limit) {
        return Err(damaged("a part is longer than any may be"));
    }
    let mut packed = header[..PART_HEADER_BYTES - 8].to_vec();
    // Memory grows with what is read, not with what the header claims.
    source.by_ref().take(packed_bytes as u64).read_to_end(&mut packed)?;
    let missing = PART_HEADER_BYTES - 8 + packed_bytes > packed.len();
    *at += (packed.len() - (PART_HEADER_BYTES - 8)) as u64;
    if missing {
        return Err(TraceError::Truncated { at: *at });
    }
    if header[PART_HEADER_BYTES - 8..] != XxHash3_64::oneshot(&packed).to_le_bytes() {
        return Err(damaged("a checksum is wrong"));
    }
    let raw = zstd::bulk::decompress(&packed[PART_HEADER_BYTES - 8..], raw_bytes)
        .map_err(|_| damaged("a part does not unpack"))?;
    if raw.len() != raw_bytes {
        return Err(damaged("a part unpacks to another length"));
    }
    Ok(RawPart { tag: header[0], numbers: [number(0), number(1)], raw })
}

/// Reads bytes, and moves `at` behind them.
pub(super) fn read_exact(source: &mut impl Read, bytes: &mut [u8], at: &mut u64) -> Result<(), TraceError> {
    match source.read_exact(bytes) {
        Ok(()) => {
            *at += bytes.len() as u64;
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(TraceError::Truncated { at: *at }),
        Err(error) => Err(error.into()),
    }
}
