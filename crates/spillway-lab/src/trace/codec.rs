//! Records as bytes: each access as the distance from the one before, so that what repeats compresses.

use spillway_core::page::PAGE_SHIFT;

use super::{TraceError, VALUE_LIMIT};
use crate::access::{Access, Action};

const KIND_READ: u64 = 0;
const KIND_WRITE: u64 = 1;
const KIND_COMPUTE: u64 = 2;
const KIND_RELEASE: u64 = 3;

/// Encodes one access after another; each chunk starts anew.
#[derive(Default)]
pub struct Encoder {
    last_address: u64,
}

impl Encoder {
    /// Appends an access as the format encodes it.
    pub fn encode(&mut self, access: Access, bytes: &mut Vec<u8>) -> Result<(), TraceError> {
        let (what, kind, value) = match access.action() {
            Action::Read(address) => ("address", KIND_READ, address),
            Action::Write(address) => ("address", KIND_WRITE, address),
            Action::ComputeNs(ns) => ("time", KIND_COMPUTE, ns),
            Action::Release(page_number, _) => ("address", KIND_RELEASE, page_number << PAGE_SHIFT),
        };
        if value >= VALUE_LIMIT {
            return Err(TraceError::TooLarge { what, value, limit: VALUE_LIMIT });
        }
        put_number(if kind == KIND_COMPUTE { value } else { self.distance(value) } << 2 | kind, bytes);
        if let Action::Release(_, pages) = access.action() {
            put_number(pages, bytes);
        }
        Ok(())
    }

    fn distance(&mut self, address: u64) -> u64 {
        let distance = address.wrapping_sub(self.last_address) as i64;
        self.last_address = address;
        (distance << 1 ^ distance >> 63) as u64
    }
}

fn put_number(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Decodes what an [`Encoder`] wrote.
#[derive(Default)]
pub struct Decoder {
    last_address: u64,
    at: usize,
}

impl Decoder {
    /// How many bytes were decoded.
    pub fn position(&self) -> usize {
        self.at
    }

    /// The next access of a chunk; None when there is none or it makes no sense.
    pub fn decode(&mut self, bytes: &[u8]) -> Option<Access> {
        let word = self.word(bytes)?;
        let value = word >> 2;
        let access = match word & 3 {
            KIND_COMPUTE => (value < VALUE_LIMIT).then(|| Access::compute_ns(value))?,
            kind => {
                let distance = (value >> 1) as i64 ^ -((value & 1) as i64);
                self.last_address = self.last_address.wrapping_add(distance as u64);
                let address = (self.last_address < VALUE_LIMIT).then_some(self.last_address)?;
                match kind {
                    KIND_READ => Access::read(address),
                    KIND_WRITE => Access::write(address),
                    _ => self.release(address, bytes)?,
                }
            }
        };
        Some(access)
    }

    /// Pages that are given back, at an address that one begins at, none of them behind the last address.
    fn release(&mut self, address: u64, bytes: &[u8]) -> Option<Access> {
        let pages = self.word(bytes)?;
        let most = Access::MOST_RELEASED_PAGES.min((VALUE_LIMIT - address) >> PAGE_SHIFT);
        let is_sound = address.is_multiple_of(1 << PAGE_SHIFT) && (1..=most).contains(&pages);
        is_sound.then(|| Access::release(address >> PAGE_SHIFT, pages))
    }

    fn word(&mut self, bytes: &[u8]) -> Option<u64> {
        let mut word = 0u64;
        for shift in (0..64).step_by(7) {
            let &byte = bytes.get(self.at)?;
            self.at += 1;
            if shift == 63 && byte > 1 {
                return None;
            }
            word |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(word);
            }
        }
        None
    }
}
