//! What goes through a socket in one call and is more than should be held at once, and random bytes.
//!
//! A stream knows no bounds of messages: what is sent may go in parts, and who receives may get less than was
//! asked for. Where a call's parts would not add up to it - what goes along with it would go along with each
//! of them, or the kernel counts calls - inline mode is left instead.

use spillway_sys::raw;

use super::leaving::leave;
use super::system_calls::{Caller, MOST_BYTES};
use crate::program_memory::{read_words, write_words};
use crate::vectors::Vectors;

const EFAULT: isize = -(libc::EFAULT as isize);
/// Words of a `struct msghdr`: name, its bytes, vectors, their count, control, its bytes, flags.
const MESSAGE_WORDS: usize = 7;

/// How a call is made that uses more than should be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// At once: what the kernel uses of it is less.
    Whole,
    /// In parts, as far as they go at once.
    Parts,
    /// In parts, of which the next one may wait.
    PartsThatWait,
    /// At once, in thread mode.
    InThreadMode,
}

impl Caller<'_> {
    /// sendto(2) or recvfrom(2) of more than should be held.
    pub(super) fn transfer(&self, number: usize, a: [usize; 6]) -> isize {
        match way(number, a[0], a[3], false) {
            Way::Whole => self.ready_call(number, a),
            Way::InThreadMode => self.without_inline(number, a),
            way => self.parts(number, way, a[2].min(MOST_BYTES), &mut |done, bytes, flags| {
                self.ready_call(number, [a[0], a[1].wrapping_add(done), bytes, a[3] | flags, a[4], a[5]])
            }),
        }
    }

    /// sendmsg(2) or recvmsg(2) of any size.
    pub(super) fn message(&self, number: usize, a: [usize; 6]) -> isize {
        let words = read_words::<MESSAGE_WORDS>(a[1]).ok();
        let vectors = words.and_then(|[_, _, at, count, ..]| Vectors::of_program(at, count));
        let large = vectors.filter(|vectors| vectors.left > self.most_bytes());
        // What the kernel refuses it refuses as a whole.
        let (Some(words), Some(vectors)) = (words, large) else { return self.ready_call(number, a) };
        let [.., control, control_bytes, _] = words;
        match way(number, a[0], a[2], control != 0 && control_bytes != 0) {
            Way::Whole => self.ready_call(number, a),
            Way::InThreadMode => self.without_inline(number, a),
            way => self.message_in_parts(number, a, way, words, vectors),
        }
    }

    /// getrandom(2) of more than should be held.
    pub(super) fn random(&self, number: usize, a: [usize; 6]) -> isize {
        self.parts(number, Way::PartsThatWait, a[1].min(i32::MAX as usize), &mut |done, bytes, _| {
            self.ready_call(number, [a[0].wrapping_add(done), bytes, a[2], 0, 0, 0])
        })
    }

    fn message_in_parts(
        &self,
        number: usize,
        a: [usize; 6],
        way: Way,
        words: [usize; MESSAGE_WORDS],
        mut vectors: Vectors,
    ) -> isize {
        // Not on the stack, which may be memory that is far.
        let mut message = Box::new(words);
        let result = self.parts(number, way, vectors.left, &mut |_, bytes, flags| {
            let now = vectors.first(bytes);
            (message[2], message[3]) = (now.as_ptr().expose_provenance(), now.len());
            let at = message.as_mut_ptr().expose_provenance();
            let result = self.ready_call(number, [a[0], at, a[2] | flags, 0, 0, 0]);
            vectors.advance(usize::try_from(result).unwrap_or(0));
            result
        });
        let [_, name_bytes, _, _, _, control_bytes, flags] = *std::hint::black_box(message);
        let answers = [(1, name_bytes), (5, control_bytes), (6, flags)];
        let receives = number as i64 == libc::SYS_recvmsg && result >= 0;
        let is_told = |&(word, answer): &(usize, usize)| {
            write_words(a[1].wrapping_add(word * size_of::<usize>()), &[answer]).is_ok()
        };
        if receives && !answers.iter().all(is_told) { EFAULT } else { result }
    }

    /// Makes calls for `all` bytes, each for the bytes behind those that are done, with flags of its own.
    fn parts(
        &self,
        number: usize,
        way: Way,
        all: usize,
        call: &mut dyn FnMut(usize, usize, usize) -> isize,
    ) -> isize {
        let (part, mut done) = (self.most_bytes(), 0);
        while done < all {
            let bytes = part.min(all - done);
            // Where something was sent, that is told, and no signal comes.
            let is_silent = done > 0 && sends(number);
            let result = call(done, bytes, if is_silent { libc::MSG_NOSIGNAL as usize } else { 0 });
            if result < 0 {
                return if done == 0 { result } else { done as isize };
            }
            done += result as usize;
            if (result as usize) < bytes || way != Way::PartsThatWait {
                break;
            }
        }
        done as isize
    }

    fn without_inline(&self, number: usize, a: [usize; 6]) -> isize {
        leave();
        self.call(number, a)
    }
}

fn sends(number: usize) -> bool {
    matches!(number as i64, libc::SYS_sendto | libc::SYS_sendmsg)
}

/// How such a call is made. `has_control`: more goes along with what it transfers.
fn way(number: usize, socket: usize, flags: usize, has_control: bool) -> Way {
    let has = |flag: i32| flags & flag as usize != 0;
    let kind = option(socket, libc::SO_TYPE);
    if kind != Some(libc::SOCK_STREAM) {
        // The kernel's ciphers keep hold of where their answer is to go. A message is less than a part.
        let is_cipher = kind.is_some() && option(socket, libc::SO_DOMAIN) == Some(libc::AF_ALG);
        return if is_cipher { Way::InThreadMode } else { Way::Whole };
    }
    if sends(number) {
        let is_one = has(libc::MSG_ZEROCOPY) || has(libc::MSG_FASTOPEN) || has(libc::MSG_OOB) || has_control;
        return if is_one { Way::InThreadMode } else { Way::PartsThatWait };
    }
    match has(libc::MSG_WAITALL) {
        true if has(libc::MSG_PEEK) || has(libc::MSG_TRUNC) || has_control => Way::InThreadMode,
        true => Way::PartsThatWait,
        false => Way::Parts,
    }
}

/// What a socket says of itself; `None` where there is no such socket.
fn option(socket: usize, name: i32) -> Option<i32> {
    // Not on the stack, which may be memory that is far.
    let mut value = Box::new([0_i32, size_of::<i32>() as i32]);
    let at = value.as_mut_ptr().expose_provenance();
    let arguments = [socket, libc::SOL_SOCKET as usize, name as usize, at, at + size_of::<i32>(), 0];
    // SAFETY: the kernel fills the first number, of the length that the second has.
    let result = unsafe { raw::syscall(libc::SYS_getsockopt as usize, arguments) };
    (result == 0).then_some(std::hint::black_box(value)[0])
}
