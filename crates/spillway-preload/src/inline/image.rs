//! libc as the loader has mapped it: its code, and where its functions begin and end.

use std::ops::Range;

use gimli::{BaseAddresses, EhFrame, EhFrameHdr, LittleEndian, ParsedEhFrameHdr, Pointer, UnwindSection};
use spillway_sys::code_patch::code_at;

use crate::install::find;

type Slice = gimli::EndianSlice<'static, LittleEndian>;

/// The code of a loaded library.
pub struct Image {
    /// Where its code begins.
    pub start: usize,
    /// The bytes of its code.
    pub code: &'static [u8],
    functions: Option<Functions>,
    notes: &'static [u8],
}

/// The index of a library's unwind information.
struct Functions {
    index: ParsedEhFrameHdr<Slice>,
    frames: EhFrame<Slice>,
    bases: BaseAddresses,
}

/// What the loader says of one library.
#[derive(Default)]
struct Segments {
    /// An address in the library that is looked for.
    within: usize,
    code: Range<usize>,
    index: Range<usize>,
    /// The segment that the index is in.
    around_index: Range<usize>,
    notes: Range<usize>,
}

impl Image {
    /// libc's; `None` where it is not as it should be.
    pub fn of_libc() -> Option<Self> {
        let mut segments = Segments { within: find(c"syscall").ok()?, ..Segments::default() };
        // SAFETY: the callback gets a pointer to `segments`, which outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(look_at), std::ptr::from_mut(&mut segments).cast()) };
        let Segments { code, index, around_index, notes, .. } = segments;
        // SAFETY: mapped for reading as long as libc is.
        let read = |range: &Range<usize>| unsafe { code_at(range.start, range.len()) };
        let bases = BaseAddresses::default()
            .set_eh_frame_hdr(index.start as u64)
            .set_eh_frame(around_index.start as u64)
            .set_text(code.start as u64);
        let parsed = EhFrameHdr::new(read(&index), LittleEndian).parse(&bases, 8).ok()?;
        let Pointer::Direct(frames_at) = parsed.eh_frame_ptr() else { return None };
        let frames_at = frames_at as usize;
        if code.is_empty() || !around_index.contains(&frames_at) {
            return None;
        }
        let frames = EhFrame::new(read(&(frames_at..around_index.end)), LittleEndian);
        let bases = bases.set_eh_frame(frames_at as u64);
        let functions = Some(Functions { index: parsed, frames, bases });
        Some(Self { start: code.start, code: read(&code), functions, notes: read(&notes) })
    }

    #[cfg(test)]
    pub fn of_test(start: usize, code: &[u8]) -> Self {
        Self { start, code: code.to_vec().leak(), functions: None, notes: &[] }
    }

    /// What its linker named it by, which no other library has (the GNU build ID); `None` where it has none.
    pub fn build_id(&self) -> Option<&'static [u8]> {
        const BUILD_ID: u32 = 3;
        let mut rest = self.notes;
        loop {
            let word = |at: usize| Some(u32::from_le_bytes(rest.get(at..at + 4)?.try_into().ok()?));
            let (name_bytes, bytes, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
            let name_end = 12_usize.checked_add(name_bytes)?;
            let start = name_end.checked_next_multiple_of(4)?;
            let end = start.checked_add(bytes)?;
            if kind == BUILD_ID && rest.get(12..name_end)? == b"GNU\0" {
                return rest.get(start..end);
            }
            rest = rest.get(end.checked_next_multiple_of(4)?..)?;
        }
    }

    /// The function that an address lies in.
    pub fn function(&self, address: usize) -> Option<Range<usize>> {
        let Functions { index, frames, bases } = self.functions.as_ref()?;
        let table = index.table()?;
        let found = table.fde_for_address(frames, bases, address as u64, EhFrame::cie_from_offset).ok()?;
        let start = usize::try_from(found.initial_address()).ok()?;
        let end = start.checked_add(usize::try_from(found.len()).ok()?)?;
        let code = self.start..self.start + self.code.len();
        (code.contains(&start) && end <= code.end && (start..end).contains(&address)).then_some(start..end)
    }
}

unsafe extern "C" fn look_at(
    info: *mut libc::dl_phdr_info,
    _bytes: usize,
    segments: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: the loader passes a valid description, and `segments` is what of_libc passed.
    let (info, segments) = unsafe { (&*info, &mut *segments.cast::<Segments>()) };
    // SAFETY: the loader vouches for the header table.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let range = |header: &libc::Elf64_Phdr| {
        let start = (info.dlpi_addr + header.p_vaddr) as usize;
        start..start + header.p_filesz as usize
    };
    let loaded = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let Some(code) = loaded().map(range).find(|part| part.contains(&segments.within)) else { return 0 };
    let index = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME).map(range);
    let notes =
        headers.iter().find(|header| header.p_type == libc::PT_NOTE && header.p_align == 4).map(range);
    let around =
        index.as_ref().and_then(|index| loaded().map(range).find(|part| part.contains(&index.start)));
    if let (Some(index), Some(around_index)) = (index, around) {
        (segments.code, segments.index, segments.around_index) = (code, index, around_index);
        segments.notes = notes.unwrap_or_default();
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build_id(notes: &[u8]) -> Option<&'static [u8]> {
        Image { notes: notes.to_vec().leak(), ..Image::of_test(0, &[]) }.build_id()
    }

    #[test]
    fn a_library_is_told_by_its_build_id() {
        let note = |kind: u8, bytes: &[u8]| {
            let head = [4, 0, 0, 0, bytes.len() as u8, 0, 0, 0, kind, 0, 0, 0];
            let padding = vec![0; bytes.len().next_multiple_of(4) - bytes.len()];
            [&head[..], b"GNU\0", bytes, &padding].concat()
        };
        let notes = [note(1, &[9; 6]), note(3, &[1, 2, 3])].concat();
        assert_eq!(build_id(&notes), Some(&[1, 2, 3][..]));
        assert_eq!(build_id(&note(1, &[9; 16])), None);
        let cut_off = (0..notes.len() - 1).map(|end| build_id(&notes[..end]));
        assert_eq!(cut_off.flatten().count(), 0);
        let mut endless = notes;
        endless[4..8].fill(0xFF);
        assert_eq!(build_id(&endless), None);
    }

    #[test]
    fn this_libc_has_one() {
        let image = Image::of_libc().unwrap();
        assert!(image.build_id().is_some_and(|id| id.len() >= 8));
    }
}
