//! The mappings of a process, from `/proc/PID/maps`.

use std::io::{BufRead, BufReader, ErrorKind, Result};

/// One mapping of a process, as `/proc/PID/maps` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first address in it.
    pub start: usize,
    /// First address behind it.
    pub end: usize,
    /// As the kernel prints them: `rw-p`.
    pub permissions: String,
    /// Where in the file it begins, in bytes.
    pub file_offset: u64,
    /// 0 for memory without a file.
    pub inode: u64,
    /// File, or a name such as `[heap]`; empty for plain anonymous memory.
    pub name: String,
}

impl Mapping {
    /// A line of `/proc/PID/maps`; none where it is not one.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let permissions = fields.next()?.to_owned();
        let (offset, _device) = (fields.next()?, fields.next()?);
        let file_offset = u64::from_str_radix(offset, 16).ok()?;
        let inode = fields.next()?.parse().ok()?;
        let name = fields.next().unwrap_or_default().trim().to_owned();
        let address = |text| usize::from_str_radix(text, 16).ok();
        Some(Self { start: address(start)?, end: address(end)?, permissions, file_offset, inode, name })
    }

    /// Private memory that the program may write.
    #[must_use]
    pub fn is_private_writable(&self) -> bool {
        self.permissions.starts_with("rw") && self.permissions.ends_with('p')
    }

    /// Its length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.end - self.start
    }
}

/// All mappings of the calling process, in order of address.
pub fn read() -> Result<Vec<Mapping>> {
    let file = BufReader::new(std::fs::File::open("/proc/self/maps")?);
    file.lines().map(|line| Ok(Mapping::parse(&line?))).filter_map(Result::transpose).collect()
}

/// The lowest break that the kernel grants the calling process: where its heap starts, a byte address
/// (proc(5), `/proc/PID/stat`, field 47).
///
/// # Errors
///
/// Of reading the file; `InvalidData` where the field is missing.
pub fn heap_start() -> Result<usize> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    heap_start_in(&text).ok_or_else(|| ErrorKind::InvalidData.into())
}

/// The name may hold spaces and brackets, so fields count from its last bracket.
fn heap_start_in(stat: &str) -> Option<usize> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(44)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_starts_below_the_break() {
        let start = heap_start().unwrap();
        let heap = read().unwrap().into_iter().find(|mapping| mapping.name == "[heap]");
        assert!(heap.is_none_or(|heap| (heap.start..=heap.end).contains(&start)));
        let fields: Vec<String> = (3..=52).map(|field| (field * 4096).to_string()).collect();
        assert_eq!(heap_start_in(&format!("1 (a) b) {}", fields.join(" "))), Some(47 * 4096));
        assert_eq!(heap_start_in("1 (cut"), None);
    }

    #[test]
    fn lines_of_every_kind_are_understood() {
        let mapping =
            Mapping::parse("7f12a000-7f12b000 rw-p 00001000 fe:01 1234   /usr/lib/with space.so").unwrap();
        assert_eq!((mapping.start, mapping.bytes(), mapping.inode), (0x7f12_a000, 0x1000, 1234));
        assert_eq!(mapping.name, "/usr/lib/with space.so");
        let mapping = Mapping::parse("5000-6000 r-xp 00000000 00:00 0 ").unwrap();
        assert!(mapping.name.is_empty() && !mapping.is_private_writable());
        assert_eq!(Mapping::parse("nonsense"), None);
    }

    #[test]
    fn this_process_has_a_stack() {
        assert!(
            read().unwrap().iter().any(|mapping| mapping.name == "[stack]" && mapping.is_private_writable())
        );
    }
}
