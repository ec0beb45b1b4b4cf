//! Which function an instruction belongs to, by the symbols of the file that its code comes from.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

use crate::watch::demangled::demangled;

/// No larger file is read.
const MOST_FILE_BYTES: u64 = 1 << 30;
/// Answers that are kept. Beyond them all are forgotten.
const MOST_KEPT: usize = 8192;

/// A place in a file: the file, by device and number, and how far from its beginning.
type Place = (u64, u64, u64);

/// Names of functions, as they were found.
#[derive(Default)]
pub struct Symbols(BTreeMap<Place, Option<String>>);

impl Symbols {
    /// The functions at these offsets into a file; none where it cannot be read, or names nothing there.
    pub fn functions(&mut self, file: &Path, offsets: &[u64]) -> Vec<Option<String>> {
        let Ok(status) = fs::metadata(file) else { return vec![None; offsets.len()] };
        let place = |offset: u64| (status.dev(), status.ino(), offset);
        let mut unknown: Vec<u64> =
            offsets.iter().copied().filter(|offset| !self.0.contains_key(&place(*offset))).collect();
        unknown.sort_unstable();
        unknown.dedup();
        if !unknown.is_empty() {
            if self.0.len() + unknown.len() > MOST_KEPT {
                self.0.clear();
            }
            let is_small = status.is_file() && status.len() <= MOST_FILE_BYTES;
            let bytes = if is_small { fs::read(file).unwrap_or_default() } else { Vec::new() };
            let found = functions_in(&bytes, &unknown);
            self.0.extend(unknown.iter().map(|offset| place(*offset)).zip(found));
        }
        offsets.iter().map(|offset| self.0.get(&place(*offset)).cloned().flatten()).collect()
    }
}

/// The functions at offsets into a program or library.
fn functions_in(bytes: &[u8], offsets: &[u64]) -> Vec<Option<String>> {
    let Ok(file) = object::File::parse(bytes) else { return vec![None; offsets.len()] };
    let functions = || file.symbols().chain(file.dynamic_symbols());
    let mut functions: Vec<(u64, u64, &str)> = functions()
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition() && symbol.size() > 0)
        .filter_map(|symbol| Some((symbol.address(), symbol.size(), symbol.name().ok()?)))
        .collect();
    functions.sort_unstable();
    let name_of = |offset: &u64| {
        let address = file.segments().find_map(|segment| {
            let (start, bytes) = segment.file_range();
            let within = offset.checked_sub(start).filter(|within| *within < bytes)?;
            segment.address().checked_add(within)
        })?;
        let before = functions.partition_point(|(start, ..)| *start <= address);
        // One that begins before may lie within a longer one.
        let near = functions[..before].iter().rev().take(8);
        let mut holding = near.filter(|(start, size, _)| address - start < *size);
        holding.next().map(|(.., name)| demangled(name))
    };
    offsets.iter().map(name_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use spillway_sys::maps;

    /// Of which file this very program is, and how far into it an address of its code lies.
    fn place_of(address: usize) -> (String, u64) {
        let mappings = maps::read().unwrap();
        let mapping =
            mappings.iter().find(|mapping| (mapping.start..mapping.end).contains(&address)).unwrap();
        (mapping.name.clone(), mapping.file_offset + (address - mapping.start) as u64)
    }

    #[test]
    fn functions_of_this_program_are_found_by_their_addresses() {
        let address = functions_in as *const () as usize;
        let (file, offset) = place_of(address);
        let mut symbols = Symbols::default();
        for _ in 0..2 {
            let found = symbols.functions(Path::new(&file), &[offset + 1, offset, 1]);
            for name in &found[..2] {
                assert_eq!(name.as_deref(), Some("spillway::watch::symbols::functions_in"));
            }
            assert_eq!(found[2], None, "the header is no function");
        }
    }

    #[test]
    fn what_is_no_program_or_cannot_be_read_names_nothing() {
        let mut symbols = Symbols::default();
        assert_eq!(symbols.functions(Path::new("/nowhere"), &[1, 2]), [None, None]);
        assert_eq!(symbols.functions(Path::new("/etc/passwd"), &[1]), [None]);
        assert_eq!(symbols.functions(Path::new("/"), &[1]), [None]);
        assert_eq!(functions_in(b"\x7fELF and nothing more", &[0]), [None]);
    }
}
