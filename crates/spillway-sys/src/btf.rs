//! Where a kernel keeps the members of its structures, from the type information that it carries (BTF).
//! Source: Linux `Documentation/bpf/btf.rst`.

use std::ffi::c_void;
use std::fs::File;
use std::ops::Deref;
use std::ptr::null_mut;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use thiserror::Error;

/// The kernel's own type information.
pub const KERNEL: &str = "/sys/kernel/btf/vmlinux";

const MAGIC: u16 = 0xEB9F;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;

/// Why a member was not found.
#[derive(Debug, Error)]
pub enum BtfError {
    /// The information is not there, or not readable.
    #[error("{KERNEL}: {0}; a kernel with CONFIG_DEBUG_INFO_BTF has it")]
    Unreadable(#[from] std::io::Error),
    /// It is not of a form that is known.
    #[error("{KERNEL}: not in the format that is known here")]
    Malformed,
    /// There is no such member.
    #[error("{KERNEL}: no member '{member}' in struct {structure}")]
    NoMember {
        /// The structure that was looked for.
        structure: &'static str,
        /// What it has not got.
        member: &'static str,
    },
}

/// The running kernel's type information. It is megabytes, and may be wanted in a process with little memory:
/// so it is mapped, not read, and only each so many types is an index kept.
pub struct Btf {
    bytes: Bytes,
    strings: usize,
    types_end: usize,
    /// Where types begin, one in [`INDEXED_ONE_IN`].
    indexed: Vec<u32>,
}

const INDEXED_ONE_IN: usize = 64;

enum Bytes {
    #[cfg(test)]
    Read(Vec<u8>),
    Mapped(FileMap),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            #[cfg(test)]
            Self::Read(bytes) => bytes,
            // SAFETY: mapped until it is dropped; the kernel's file never changes, and the copy is ours.
            Self::Mapped(map) => unsafe { std::slice::from_raw_parts(map.start.cast(), map.bytes) },
        }
    }
}

/// A file, mapped to be read.
struct FileMap {
    start: *mut c_void,
    bytes: usize,
}

impl FileMap {
    fn of_kernel() -> std::io::Result<Self> {
        let mut file = File::open(KERNEL)?;
        let bytes = file.metadata()?.len() as usize;
        match Self::new(&file, bytes) {
            // Linux before 6.16 does not let it be mapped.
            Err(_) => {
                let mut copy = File::from(memfd_create("spillway-btf", MemfdFlags::CLOEXEC)?);
                let bytes = std::io::copy(&mut file, &mut copy)? as usize;
                Ok(Self::new(&copy, bytes)?)
            }
            mapped => Ok(mapped?),
        }
    }

    fn new(file: &File, bytes: usize) -> rustix::io::Result<Self> {
        // SAFETY: a new mapping, at a place of the kernel's choice.
        let start = unsafe { mmap(null_mut(), bytes, ProtFlags::READ, MapFlags::PRIVATE, file, 0)? };
        Ok(Self { start, bytes })
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        // SAFETY: made in `new`, and no reference into it outlives this value.
        let _ = unsafe { munmap(self.start, self.bytes) };
    }
}

impl Btf {
    /// Maps the kernel's.
    ///
    /// # Errors
    /// It is not there or not understood.
    pub fn of_kernel() -> Result<Self, BtfError> {
        Self::parse(Bytes::Mapped(FileMap::of_kernel()?)).ok_or(BtfError::Malformed)
    }

    fn parse(bytes: Bytes) -> Option<Self> {
        let magic = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
        if magic != MAGIC {
            return None;
        }
        let header = word(&bytes, 4)? as usize;
        let (types_at, types_bytes) = (word(&bytes, 8)? as usize, word(&bytes, 12)? as usize);
        let strings = header + word(&bytes, 16)? as usize;
        let types_end = header + types_at + types_bytes;
        let mut indexed = Vec::new();
        let (mut at, mut index) = (header + types_at, 0_usize);
        while at < types_end {
            if index.is_multiple_of(INDEXED_ONE_IN) {
                indexed.push(u32::try_from(at).ok()?);
            }
            at += type_bytes(&bytes, at)?;
            index += 1;
        }
        Some(Self { bytes, strings, types_end, indexed })
    }

    /// Where each type begins, from the one that begins at `first` on.
    fn types_from(&self, first: Option<u32>) -> impl Iterator<Item = usize> {
        let next = |&at: &usize| Some(at + type_bytes(&self.bytes, at)?);
        std::iter::successors(first.map(|at| at as usize), next).take_while(|&at| at < self.types_end)
    }

    /// Where a type begins, by its number less one.
    fn type_at(&self, index: usize) -> Option<usize> {
        let first = self.indexed.get(index / INDEXED_ONE_IN).copied();
        self.types_from(first).nth(index % INDEXED_ONE_IN)
    }

    fn name_is(&self, offset: u32, name: &str) -> bool {
        let start = self.strings + offset as usize;
        let end = start + name.len();
        self.bytes.get(start..end) == Some(name.as_bytes()) && self.bytes.get(end) == Some(&0)
    }

    /// Where a member lies in a structure, in bytes; members of unnamed structures within it are its own.
    ///
    /// # Errors
    /// There is no such member.
    pub fn offset(&self, structure: &'static str, member: &'static str) -> Result<usize, BtfError> {
        self.types_from(self.indexed.first().copied())
            .filter(|&at| {
                word(&self.bytes, at + 4).is_some_and(|info| kind(info) == KIND_STRUCT)
                    && word(&self.bytes, at).is_some_and(|name| self.name_is(name, structure))
            })
            .find_map(|at| self.offset_in(at, member))
            .ok_or(BtfError::NoMember { structure, member })
    }

    fn offset_in(&self, at: usize, member: &str) -> Option<usize> {
        let info = word(&self.bytes, at + 4)?;
        if kind(info) != KIND_STRUCT && kind(info) != KIND_UNION {
            return None;
        }
        let bit_fields = info >> 31 != 0;
        (0..(info & 0xFFFF) as usize).find_map(|index| {
            let entry = at + 12 + index * 12;
            let (name, inner) = (word(&self.bytes, entry)?, word(&self.bytes, entry + 4)?);
            let bits = word(&self.bytes, entry + 8)?;
            let offset = (if bit_fields { bits & 0xFF_FFFF } else { bits }) as usize / 8;
            if self.name_is(name, member) {
                return Some(offset);
            }
            if !self.name_is(name, "") {
                return None;
            }
            let inner = self.type_at((inner as usize).checked_sub(1)?)?;
            Some(offset + self.offset_in(inner, member)?)
        })
    }
}

fn kind(info: u32) -> u32 {
    info >> 24 & 0x1F
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn type_bytes(bytes: &[u8], at: usize) -> Option<usize> {
    Some(12 + extra_bytes(word(bytes, at + 4)?)?)
}

/// Bytes behind a type's three words.
fn extra_bytes(info: u32) -> Option<usize> {
    let members = (info & 0xFFFF) as usize;
    match kind(info) {
        1 | 14 | 17 => Some(4),
        2 | 7..=12 | 16 | 18 => Some(0),
        3 => Some(12),
        4 | 5 | 15 | 19 => Some(members * 12),
        6 | 13 => Some(members * 8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_also_within_unnamed_structures() {
        let btf = Btf::of_kernel().unwrap();
        assert_eq!(btf.offset("list_head", "next").unwrap(), 0);
        assert_eq!(btf.offset("list_head", "prev").unwrap(), 8);
        assert!(btf.offset("mm_struct", "pgd").unwrap() > 0);
        let error = btf.offset("list_head", "middle").err().unwrap().to_string();
        assert!(error.contains("'middle'") && error.contains("list_head"), "{error}");
    }

    #[test]
    fn what_is_no_type_information_is_refused() {
        for bytes in [vec![], vec![0; 100], vec![0x9F, 0xEB, 1], vec![0x9F, 0xEB, 1, 0, 24, 0, 0, 0, 0]] {
            assert!(Btf::parse(Bytes::Read(bytes)).is_none());
        }
    }
}
