//! What a userfaultfd tells beside faults: its *non-cooperative* events, by which a reader knows of all that
//! a program does to its address space, whoever makes the system call. Source: Linux `fs/userfaultfd.c`
//! (6.18), `Documentation/admin-guide/mm/userfaultfd.rst`.
//!
//! While an event waits to be read, the kernel answers every request on the descriptor that would put pages
//! somewhere with EAGAIN (`mmap_changing`). So a reader that has read all there is knows the address space
//! as it is, or gets EAGAIN.

use std::os::fd::{FromRawFd, OwnedFd};

use rustix::io::{Errno, Result};
use rustix::mm::UserfaultfdFlags;

use super::{EVENT_PAGEFAULT, Fault, Features, MODE_DONT_WAKE, RawMessage, Uffd, handshake, open_with};
use crate::memory::{self, PageMap};
use crate::page::PAGE_SIZE;
use crate::ranges::{FrameRange, TargetRange};

const EVENT_FORK: u8 = 0x13;
const EVENT_REMAP: u8 = 0x14;
const EVENT_REMOVE: u8 = 0x15;
const EVENT_UNMAP: u8 = 0x16;

/// What happened in the process.
#[derive(Debug)]
pub enum Event {
    /// An access waits for a page.
    Fault(Fault),
    /// The process forked: the descriptor is for the child's memory, in which is missing what was missing in
    /// the parent's.
    Forked(Uffd),
    /// mremap(2) moved memory, with what is missing in it.
    Moved {
        /// The first address where it was.
        from: usize,
        /// The first address where it is.
        to: usize,
        /// Its length.
        bytes: usize,
    },
    /// madvise(2) drops what the addresses hold, as soon as this is read.
    Dropped {
        /// The first address.
        start: usize,
        /// The first behind it.
        end: usize,
    },
    /// The addresses were unmapped.
    Unmapped {
        /// The first address.
        start: usize,
        /// The first behind it.
        end: usize,
    },
}

impl Uffd {
    /// A descriptor that can be polled: [`Self::read_event`] does not wait.
    ///
    /// # Errors EPERM without CAP_SYS_PTRACE where [`Features::EVENT_FORK`] is among them; EINVAL for a
    /// feature that the kernel has not got.
    pub fn open_to_poll(features: Features) -> Result<Self> {
        let fd = open_with(None, UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK)?;
        handshake(&fd, features.bits())?;
        Ok(Self { fd })
    }

    /// The next thing that it tells; faults come before what changes the address space. None if there is
    /// nothing.
    ///
    /// # Errors
    /// Of a fork, that there is no room for the child's descriptor: it is told again.
    pub fn read_event(&self) -> Result<Option<Event>> {
        let mut message = [RawMessage::default()];
        let Some(message) = self.read(&mut message)?.first().copied() else { return Ok(None) };
        let (first, second) = (message.flags as usize, message.address as usize);
        let third = u64::from(message.thread_id) | u64::from(message.padding) << 32;
        Ok(match message.event {
            EVENT_PAGEFAULT => message.fault().map(Event::Fault),
            // SAFETY: the kernel has just made this descriptor for who reads the message.
            EVENT_FORK => Some(Event::Forked(unsafe { OwnedFd::from_raw_fd(first as i32) }.into())),
            EVENT_REMAP => Some(Event::Moved { from: first, to: second, bytes: third as usize }),
            EVENT_REMOVE => Some(Event::Dropped { start: first, end: second }),
            EVENT_UNMAP => Some(Event::Unmapped { start: first, end: second }),
            _ => None,
        })
    }

    /// Moves a page of the program's into an empty frame. `map` is asked what became of it where the kernel
    /// reports an error, as that may be wrong (`move_counted`).
    ///
    /// # Errors
    /// As [`Self::move_to_frames`], and EAGAIN while an event waits to be read: the page is where it was.
    pub fn take_page(&self, frame: FrameRange<'_>, page: TargetRange, map: &PageMap) -> Result<()> {
        let moved = self.move_counted(frame.start(), page.start(), PAGE_SIZE, MODE_DONT_WAKE).1;
        match moved {
            // The frame alone may have been filled by who locks all memory.
            Err(_)
                if map.entry(frame.start())?.is_populated() && !map.entry(page.start())?.is_populated() =>
            {
                Ok(())
            }
            other => other,
        }
    }

    /// Moves the page in a frame to where it belongs, and wakes who waits for it.
    ///
    /// # Errors
    /// As [`Self::take_page`], and EEXIST where a page is there: the frame is full.
    pub fn put_page_back(&self, page: TargetRange, frame: FrameRange<'_>, map: &PageMap) -> Result<()> {
        match self.move_counted(page.start(), frame.start(), PAGE_SIZE, 0).1 {
            Err(_) if !map.entry(frame.start())?.is_populated() => self.wake(page),
            other => other,
        }
    }

    /// Empties a registered frame. Dropping it as it is would be an event, for which the dropping thread
    /// waits until it has read it.
    ///
    /// # Errors
    /// The kernel's: the frame may be full.
    pub fn empty_frame(&self, frame: FrameRange<'_>) -> Result<()> {
        // SAFETY: a frame of the caller's own, into which no reference points.
        let range = unsafe { TargetRange::new(frame.start(), frame.bytes()) };
        self.unregister(range)?;
        memory::discard_own(frame)?;
        self.register_own(frame)
    }

    /// Whether this kernel has all that a reader of events needs, and this process the right to it.
    ///
    /// # Errors
    /// EPERM: no CAP_SYS_PTRACE. EINVAL, ENOSYS: the kernel is older than Linux 6.8, or has no userfaultfd.
    pub fn check_events() -> Result<()> {
        let found = super::supported_features(None)?;
        if !found.contains(EVENTS | Features::MOVE) {
            return Err(Errno::INVAL);
        }
        Self::open_to_poll(EVENTS).map(|_| ())
    }
}

/// All that tells of changes of the address space.
pub const EVENTS: Features = Features::EVENT_FORK
    .union(Features::EVENT_REMAP)
    .union(Features::EVENT_REMOVE)
    .union(Features::EVENT_UNMAP);
