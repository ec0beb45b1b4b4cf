//! Finds libc's own system calls, to have them made by a jump.
//!
//! A `syscall` has two bytes and the jump five, so what follows is moved, or else the `mov eax` before it,
//! which has five. That may be done where the instructions mean the same elsewhere and nothing jumps in
//! between: no direct jump of libc's, wherever one might begin, has such a target, and a function that jumps
//! by a table is left alone.

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, FlowControl, Instruction,
    InstructionBlock, Register, RflagsBits,
};
use memchr::memchr3_iter;
use memchr::memmem::Finder;
use spillway_pager::run::known_sites::{KnownSites, library_hash};
use spillway_sys::call_stubs::{self, JUMP_BYTES, MOST_MOVED_BYTES, Site};
use spillway_sys::dispatch;

use super::image::Image;
use super::presence::is_single_threaded;

const SYSCALL: [u8; 2] = [0x0F, 0x05];
/// Of a word that names a site: its place in the code. The rest is its length.
const OFFSET_BITS: u32 = 48;
/// A short jump has two bytes and leads to at most 128 bytes from its end.
const SHORT_REACH: usize = 130;

/// A `syscall` that can be replaced, and what has to be moved with it.
struct Movable {
    site: Site,
    moved: Vec<Instruction>,
}

/// Has libc's system calls be made by jumps where that can be, and returns how many: none where the program
/// has other threads already. The run's first program looks for them, the others take what it found.
pub fn patch(known: KnownSites<'_>) -> Result<usize, String> {
    if !is_single_threaded() {
        // Who waits in a call would come back amid what stands there then.
        return Ok(0);
    }
    let Some(image) = Image::of_libc() else { return Ok(0) };
    dispatch::find_own_code().map_err(|error| format!("its own code was not found: {error}"))?;
    // Not by its code, in which the way to syscall(2) has been changed already.
    let library = image.build_id().map(library_hash);
    let known_words = library.and_then(|library| known.find(library));
    let found = known_words.and_then(|words| remembered(&image, &words)).unwrap_or_else(|| {
        let found = find(&image);
        if let Some(library) = library {
            known.note(library, &words(&image, &found));
        }
        found
    });
    let sites: Vec<Site> = found.iter().map(|movable| movable.site).collect();
    let mut encode = |site: &Site, at: usize| {
        let index = found.binary_search_by_key(&site.address, |movable| movable.site.address).ok()?;
        let block = InstructionBlock::new(&found[index].moved, at as u64);
        let code = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE).ok()?.code_buffer;
        (code.len() <= MOST_MOVED_BYTES).then_some(code)
    };
    let range = image.start..image.start + image.code.len();
    // SAFETY: libc's code is never unmapped, and nobody runs in it; the sites are as `find` promises.
    unsafe { call_stubs::patch(&range, &sites, &mut encode) }
        .map_err(|error| format!("the kernel refused to redirect libc's system calls: {error}"))
}

/// A site's place in the code, and how far behind it the next instruction is that stays.
fn words(image: &Image, found: &[Movable]) -> Vec<u64> {
    let word = |&Site { address, next, .. }: &Site| {
        (address - image.start) as u64 | ((next - address) as u64) << OFFSET_BITS
    };
    found.iter().map(|movable| word(&movable.site)).collect()
}

/// The sites that another program has found in the same library; `None` where one of them is none.
fn remembered(image: &Image, words: &[u64]) -> Option<Vec<Movable>> {
    words.iter().map(|&word| remembered_site(image, word)).collect()
}

fn remembered_site(image: &Image, word: u64) -> Option<Movable> {
    let offset = usize::try_from(word & ((1 << OFFSET_BITS) - 1)).ok()?;
    let next = offset.checked_add(usize::try_from(word >> OFFSET_BITS).ok()?)?;
    let code = image.code.get(offset..)?;
    let mut instructions = Vec::new();
    for instruction in Decoder::with_ip(64, code, (image.start + offset) as u64, DecoderOptions::NONE) {
        instructions.push(instruction);
        if instruction.is_invalid() || instruction.ip() as usize >= image.start + next {
            break;
        }
    }
    let (first, after) = instructions.split_first()?;
    let movable = match first.code() {
        Code::Syscall => movable(first, after)?,
        _ => movable_with(first, after.first().filter(|second| second.code() == Code::Syscall)?)?,
    };
    (movable.site.next == image.start + next).then_some(movable)
}

/// In the order of their addresses.
fn find(image: &Image) -> Vec<Movable> {
    let mut found: Vec<Movable> = Vec::new();
    let mut offset = 0;
    let finder = Finder::new(&SYSCALL);
    // Function by function, of those that have the two bytes somewhere.
    while let Some(next) = finder.find(&image.code[offset..]) {
        offset += next;
        match image.function(image.start + offset) {
            Some(function) => {
                offset = (offset + 1).max(function.end - image.start);
                let code = &image.code[function.start - image.start..function.end - image.start];
                found.extend(movable_in(code, function.start));
            }
            None => offset += 1,
        }
    }
    let is_target = targets(image, &found);
    found.retain(|movable| {
        let mut address = movable.site.behind_call();
        let inside = movable.moved.iter().map(|instruction| {
            let at = address;
            address += instruction.len();
            at
        });
        !inside.into_iter().any(&is_target)
    });
    found
}

/// The sites of one function.
fn movable_in(code: &[u8], start: usize) -> Vec<Movable> {
    let mut instructions = Vec::new();
    for instruction in Decoder::with_ip(64, code, start as u64, DecoderOptions::NONE) {
        if instruction.is_invalid() || instruction.flow_control() == FlowControl::IndirectBranch {
            return Vec::new();
        }
        instructions.push(instruction);
    }
    let calls = (0..instructions.len()).filter(|&index| instructions[index].code() == Code::Syscall);
    calls
        .filter_map(|index| {
            let (before, after) =
                (index.checked_sub(1).map(|index| &instructions[index]), &instructions[index + 1..]);
            if !are_flags_dead(after) {
                return None;
            }
            movable(&instructions[index], after).or_else(|| movable_with(before?, &instructions[index]))
        })
        .collect()
}

/// With the `mov eax` before it. The `syscall` stays where it is, for who jumps there.
fn movable_with(before: &Instruction, call: &Instruction) -> Option<Movable> {
    let is_number = before.code() == Code::Mov_r32_imm32
        && before.op0_register() == Register::EAX
        && before.len() == JUMP_BYTES;
    let number = is_number.then(|| before.immediate32())?;
    let site = Site { address: before.ip() as usize, next: call.next_ip() as usize, number: Some(number) };
    Some(Movable { site, moved: Vec::new() })
}

/// With the instructions that follow it.
fn movable(call: &Instruction, after: &[Instruction]) -> Option<Movable> {
    let mut bytes = call.len();
    let count = after.iter().position(|instruction| {
        let is_enough = bytes >= JUMP_BYTES;
        bytes += instruction.len();
        is_enough
    })?;
    let moved = &after[..count];
    let stays_valid = |instruction: &Instruction| {
        instruction.flow_control() == FlowControl::Next
            && !instruction.is_stack_instruction()
            && !(instruction.op_count() > 0 && instruction.op_register(0) == Register::RSP)
    };
    if !moved.iter().all(stays_valid) {
        return None;
    }
    let site = Site { address: call.ip() as usize, next: after[count].ip() as usize, number: None };
    Some(Movable { site, moved: moved.to_vec() })
}

/// Whether no flag is read that was there before.
fn are_flags_dead(after: &[Instruction]) -> bool {
    const ALL: u32 =
        RflagsBits::OF | RflagsBits::SF | RflagsBits::ZF | RflagsBits::AF | RflagsBits::CF | RflagsBits::PF;
    let mut written = 0;
    for instruction in after {
        if instruction.rflags_read() & ALL & !written != 0 {
            return false;
        }
        match instruction.flow_control() {
            // No function gets anything in flags, nor returns it.
            FlowControl::Call | FlowControl::IndirectCall | FlowControl::Return => return true,
            FlowControl::Next => written |= instruction.rflags_modified(),
            _ => return written & ALL == ALL,
        }
        if written & ALL == ALL {
            return true;
        }
    }
    false
}

/// Which addresses within the sites a direct jump or call may lead to. Every byte of the code counts as the
/// beginning of one, so none is missed.
fn targets(image: &Image, found: &[Movable]) -> impl Fn(usize) -> bool + use<> {
    let mut near_sites = vec![0_u64; image.code.len() / 64 + 1];
    for movable in found {
        let first = movable.site.address - image.start;
        (first + 1..movable.site.next - image.start).for_each(|at| near_sites[at / 64] |= 1 << (at % 64));
    }
    let mut reached: Vec<usize> = Vec::new();
    let mut note = |from: usize, distance: i64| {
        let to = (from as i64 + distance) as usize;
        if near_sites.get(to / 64).is_some_and(|word| word >> (to % 64) & 1 != 0) {
            reached.push(to + image.start);
        }
    };
    let code = image.code;
    // Of the short jumps those around the sites.
    let mut searched = 0;
    for movable in found {
        let first = (movable.site.address - image.start).saturating_sub(SHORT_REACH);
        let end = (movable.site.next - image.start + SHORT_REACH).min(code.len());
        for at in first.max(searched)..end {
            if let (0x70..=0x7F | 0xE0..=0xE3 | 0xEB, Some(&distance)) = (code[at], code.get(at + 1)) {
                note(at + 2, i64::from(distance.cast_signed()));
            }
        }
        searched = end;
    }
    let long = |at: usize| Some(i64::from(i32::from_le_bytes(code.get(at..at + 4)?.try_into().ok()?)));
    for at in memchr3_iter(0xE8, 0xE9, 0x0F, code) {
        let distance_at = match code[at..] {
            [0x0F, 0x80..=0x8F, ..] => at + 2,
            [0x0F, ..] => continue,
            _ => at + 1,
        };
        if let Some(distance) = long(distance_at) {
            note(distance_at + 4, distance);
        }
    }
    reached.sort_unstable();
    move |address| reached.binary_search(&address).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: usize = 0x1000;

    fn sites(code: &[u8]) -> Vec<usize> {
        let image = Image::of_test(START, code);
        let all = movable_in(code, START);
        let is_target = targets(&image, &all);
        let is_free = |movable: &Movable| !(movable.site.address + 1..movable.site.next).any(&is_target);
        all.iter().filter(|movable| is_free(movable)).map(|movable| movable.site.address - START).collect()
    }

    /// mov eax, 39; syscall; cmp rax, -4096; ja +1; ret; ret
    const WRAPPER: [u8; 17] =
        [0xB8, 39, 0, 0, 0, 0x0F, 0x05, 0x48, 0x3D, 0, 0xF0, 0xFF, 0xFF, 0x77, 1, 0xC3, 0xC3];

    #[test]
    fn a_wrapper_s_call_can_be_replaced() {
        assert_eq!(sites(&WRAPPER), [5]);
    }

    #[test]
    fn a_call_is_left_alone_where_something_jumps_behind_it() {
        let mut code = WRAPPER.to_vec();
        // jmp to the comparison
        code.extend([0xEB, (7_i8 - 19) as u8]);
        assert_eq!(sites(&code), [0_usize; 0]);
        let mut code = WRAPPER.to_vec();
        code.extend([0x0F, 0x84]);
        code.extend((7_i32 - 23).to_le_bytes());
        assert_eq!(sites(&code), [0_usize; 0]);
        // jmp rax
        let mut code = WRAPPER.to_vec();
        code.extend([0xFF, 0xE0]);
        assert_eq!(sites(&code), [0_usize; 0]);
    }

    #[test]
    fn a_call_is_left_alone_whose_followers_cannot_be_moved() {
        // syscall; ret and syscall; pop rdx; nop; nop; nop and syscall; setz al, with flags from before.
        assert_eq!(sites(&[0x0F, 0x05, 0xC3, 0x90, 0x90, 0x90]), [0_usize; 0]);
        assert_eq!(sites(&[0x0F, 0x05, 0x5A, 0x90, 0x90, 0x90, 0xC3]), [0_usize; 0]);
        assert_eq!(sites(&[0x0F, 0x05, 0x0F, 0x94, 0xC0, 0x31, 0xC0, 0xC3]), [0_usize; 0]);
        assert_eq!(sites(&[0x0F, 0x05, 0x85, 0xC0, 0x0F, 0x94, 0xC0, 0xC3]), [0]);
    }

    #[test]
    fn what_one_program_found_another_finds_again_in_the_same_code_alone() {
        // The wrapper, then mov eax, 110; syscall; ret
        let code: Vec<u8> = [&WRAPPER[..], &[0xB8, 110, 0, 0, 0, 0x0F, 0x05, 0xC3]].concat();
        let image = Image::of_test(START, &code);
        let found = movable_in(&code, START);
        assert_eq!(found.len(), 2);
        let words = words(&image, &found);
        let again = remembered(&image, &words).unwrap();
        for (one, other) in found.iter().zip(&again) {
            assert_eq!((one.site.address, one.site.next), (other.site.address, other.site.next));
            assert_eq!((one.site.number, &one.moved), (other.site.number, &other.moved));
        }
        // Elsewhere, shorter, longer, and beyond the code.
        let wrong =
            [words[0] + 1, words[0] - (1 << OFFSET_BITS), words[0] + (4 << OFFSET_BITS), 1 << 40, u64::MAX];
        for word in wrong {
            assert!(remembered(&image, &[words[1], word]).is_none(), "{word:#x}");
        }
    }

    #[test]
    fn a_call_that_returns_at_once_is_replaced_with_its_number() {
        // mov eax, 110; syscall; ret
        let code = [0xB8, 110, 0, 0, 0, 0x0F, 0x05, 0xC3];
        assert_eq!(sites(&code), [0]);
        assert_eq!(movable_in(&code, START)[0].site.number, Some(110));
        // mov ebx, 110; syscall; ret
        assert_eq!(sites(&[0xBB, 110, 0, 0, 0, 0x0F, 0x05, 0xC3]), [0_usize; 0]);
    }
}
