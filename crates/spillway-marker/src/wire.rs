//! What the daemon and a marker say to each other: packets over a Unix socket, of 64-bit words in the
//! machine's order. Both are on one machine and of one build, of which a marker tells first.

use std::ops::Range;

use rustix::io::Errno;

/// The environment variable that names the daemon's socket, an abstract Unix one.
pub const SOCKET_VARIABLE: &str = "SPILLWAY_TIER_SOCKET";

/// What a marker says first begins so. It and the build that follows have these places in every build.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SPLWMRK2");

/// Pages that one packet names at most.
pub const MOST_ORDERS: usize = 512;
/// Reports that are in one packet at most.
pub const MOST_REPORTS: usize = 128;
/// The longest packet, in bytes.
pub const MOST_BYTES: usize = MOST_ORDERS * 8;
const REPORT_WORDS: usize = 3;
/// The bits of a word in which an error of the kernel's lies: its numbers are below 4,096 (`MAX_ERRNO`).
const ERRNO_BITS: u64 = (1 << 12) - 1;

/// What a marker says first; with it comes its userfaultfd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The number of its build. What else it says and is told is as in that build.
    pub build: u64,
    /// Addresses where it holds pages: none of the program's.
    pub frames: Range<u64>,
    /// Why it cannot mark, if it cannot.
    pub refused: Option<Errno>,
}

/// What became of a page that was to be marked. The first comes once for each, and ends the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was accessed, and is back.
    Accessed,
    /// It is back, as it was not accessed for long.
    Returned,
    /// The program unmapped it, moved it or dropped what it held.
    Gone,
    /// It was not marked, for this reason.
    Refused(Errno),
}

/// What became of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The address of the page.
    pub address: u64,
    /// When it happened, on CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// What became of it.
    pub outcome: Outcome,
}

const ACCESSED: u64 = 0;
const RETURNED: u64 = 1;
const GONE: u64 = 2;
const REFUSED: u64 = 1 << 32;

impl Outcome {
    const fn word(self) -> u64 {
        match self {
            Self::Accessed => ACCESSED,
            Self::Returned => RETURNED,
            Self::Gone => GONE,
            Self::Refused(reason) => REFUSED | reason.raw_os_error() as u64,
        }
    }

    fn of_word(word: u64) -> Option<Self> {
        Some(match word {
            ACCESSED => Self::Accessed,
            RETURNED => Self::Returned,
            GONE => Self::Gone,
            _ if word & !ERRNO_BITS == REFUSED => Self::Refused(errno(word & ERRNO_BITS)?),
            _ => return None,
        })
    }
}

fn errno(number: u64) -> Option<Errno> {
    let is_one = (1..=ERRNO_BITS).contains(&number);
    i32::try_from(number).ok().filter(|_| is_one).map(Errno::from_raw_os_error)
}

fn bytes_of(words: impl Iterator<Item = u64>) -> Vec<u8> {
    words.flat_map(u64::to_ne_bytes).collect()
}

fn words_of(packet: &[u8]) -> Option<Vec<u64>> {
    let (words, rest) = packet.as_chunks::<8>();
    rest.is_empty().then(|| words.iter().map(|word| u64::from_ne_bytes(*word)).collect())
}

impl Hello {
    /// The packet that says it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let refused = self.refused.map_or(0, |reason| reason.raw_os_error() as u64);
        bytes_of([MAGIC, self.build, self.frames.start, self.frames.end, refused].into_iter())
    }

    /// What a packet says; none where it says something else.
    #[must_use]
    pub fn decode(packet: &[u8]) -> Option<Self> {
        match words_of(packet)?.as_slice() {
            &[MAGIC, build, start, end, refused] if start <= end && refused <= ERRNO_BITS => {
                Some(Self { build, frames: start..end, refused: errno(refused) })
            }
            _ => None,
        }
    }
}

/// The packet that names pages to be marked, at most [`MOST_ORDERS`].
#[must_use]
pub fn encode_orders(addresses: &[u64]) -> Vec<u8> {
    bytes_of(addresses.iter().copied())
}

/// The pages that a packet names; none where it is none of the daemon's.
#[must_use]
pub fn decode_orders(packet: &[u8]) -> Option<Vec<u64>> {
    words_of(packet)
}

/// The packet of reports, at most [`MOST_REPORTS`].
#[must_use]
pub fn encode_reports<'a>(reports: impl Iterator<Item = &'a Report>) -> Vec<u8> {
    bytes_of(reports.flat_map(|report| [report.address, report.time_ns, report.outcome.word()]))
}

/// The reports in a packet; none where it is none of a marker's.
#[must_use]
pub fn decode_reports(packet: &[u8]) -> Option<Vec<Report>> {
    let words = words_of(packet)?;
    let (reports, rest) = words.as_chunks::<REPORT_WORDS>();
    if !rest.is_empty() {
        return None;
    }
    let report = |&[address, time_ns, outcome]: &[u64; REPORT_WORDS]| {
        Some(Report { address, time_ns, outcome: Outcome::of_word(outcome)? })
    };
    reports.iter().map(report).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        for refused in [None, Some(Errno::PERM)] {
            let hello = Hello { build: u64::MAX, frames: 4096..8192, refused };
            assert_eq!(Hello::decode(&hello.encode()), Some(hello));
        }
        assert_eq!(decode_orders(&encode_orders(&[1, u64::MAX])), Some(vec![1, u64::MAX]));
        let outcomes = [Outcome::Accessed, Outcome::Returned, Outcome::Gone, Outcome::Refused(Errno::NOSPC)];
        let reports: Vec<_> = (1..)
            .zip(outcomes)
            .map(|(at, outcome)| Report { address: at, time_ns: at * 7, outcome })
            .collect();
        let packet = encode_reports(reports.iter());
        assert_eq!(decode_reports(&packet), Some(reports));
        assert!(encode_orders(&[0; MOST_ORDERS]).len() <= MOST_BYTES);
        assert!(packet.len() / 4 * MOST_REPORTS <= MOST_BYTES);
    }

    #[test]
    fn nonsense_is_not_understood() {
        assert_eq!(Hello::decode(&[0; 40]), None);
        assert_eq!(Hello::decode(b"short"), None);
        assert_eq!(Hello::decode(&bytes_of([MAGIC, 7, 9, 8, 0].into_iter())), None, "ends before it begins");
        assert_eq!(Hello::decode(&bytes_of([MAGIC, 7, 1, 8, 1 << 40].into_iter())), None);
        assert_eq!(decode_orders(&[1, 2, 3]), None);
        assert_eq!(decode_reports(&bytes_of([1, 2].into_iter())), None);
        for outcome in [3, REFUSED, REFUSED | 5000, u64::MAX] {
            assert_eq!(decode_reports(&bytes_of([1, 2, outcome].into_iter())), None, "{outcome:x}");
        }
    }
}
