//! The donor's end of a shared-memory ring.
//!
//! The client may write anything into the ring at any time. Each request's fields are loaded once and
//! checked, its page is copied once into memory of our own before anything is done with it, and a count that
//! cannot be ends the lane.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use spillway_core::page::{PAGE_SIZE, Page};
use spillway_nbd::WireError;
use spillway_store::shm::doorbell::{self, COUNT_MASK, Watcher};
use spillway_store::shm::hello::{HELLO_BYTES, Purpose, Welcome, decode_hello, encode_welcome};
use spillway_store::shm::ring::{ENTRIES, Operation, Ring, Status};

use crate::export::{Export, ExportError};
use crate::registry::{OpenError, Registry, Visitor};
use crate::stream::{Stream, StreamError};

/// Watches the doorbell for this long at most after the last request before sleeping.
const WATCH: Duration = Duration::from_micros(250);
/// How often a sleeping lane looks whether its client is alive, or the donor is to end.
const ALIVE_CHECK: Duration = Duration::from_millis(500);
/// The doorbell is rung after this many requests of a batch, so that the client works while more are served.
const REQUESTS_A_RING: u32 = 4;

/// Serves a client of the ring until it leaves. `welcomed` is called once its hello was understood.
pub fn serve(
    socket: &Arc<OwnedFd>,
    registry: &Arc<Registry>,
    deadline: Instant,
    stopping: &AtomicBool,
    welcomed: impl FnOnce(),
) -> Result<(), StreamError> {
    let mut stream = Stream::new(Arc::clone(socket), HELLO_BYTES, 1);
    stream.set_deadline(Some(deadline))?;
    let mut hello = [0; HELLO_BYTES];
    if !stream.fill(HELLO_BYTES)? {
        return Ok(());
    }
    hello.copy_from_slice(stream.need(HELLO_BYTES)?);
    stream.consume(HELLO_BYTES);
    let (purpose, token) = decode_hello(&hello).ok_or(WireError::Text { what: "a hello" })?;
    let visitor = match purpose {
        Purpose::Run => Visitor::Run(token.to_owned()),
        Purpose::Lane | Purpose::Link => Visitor::Lane(token.to_owned()),
    };
    // The export of rings has no name: the run's token tells them apart.
    let attachment = match registry.open("", &visitor) {
        Ok(attachment) => attachment,
        Err(OpenError::Lost) => return welcome(socket, Welcome::Lost, None),
        Err(OpenError::TooMany) => return welcome(socket, Welcome::Busy, None),
    };
    welcomed();
    let slots = (registry.size_bytes() / PAGE_SIZE as u64) as u32;
    if purpose == Purpose::Run {
        welcome(socket, Welcome::Slots(slots), None)?;
        stream.set_deadline(None)?;
        // Nothing more is said on this connection: it only holds the export.
        return match stream.fill(1)? {
            false => Ok(()),
            true => Err(WireError::Length { what: "a hello" }.into()),
        };
    }
    if purpose == Purpose::Link {
        return match attachment.export.link() {
            Ok(link) => welcome(socket, Welcome::Slots(slots), Some(link)),
            Err(_) => welcome(socket, Welcome::Busy, None),
        };
    }
    let Ok((file, ring)) = Ring::create() else {
        return welcome(socket, Welcome::Busy, None);
    };
    welcome(socket, Welcome::Slots(slots), Some(file))?;
    let watcher = Watcher::new(WATCH);
    RingServer { ring, watcher, export: &attachment.export, slots, done: 0 }.run(socket, stopping)
}

/// Answers a hello, with the memory file that was asked for.
fn welcome(socket: &OwnedFd, welcome: Welcome, file: Option<OwnedFd>) -> Result<(), StreamError> {
    let bytes = encode_welcome(welcome);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = file.as_ref().map(|file| [file.as_fd()]);
    if let Some(files) = &files {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    // Fits into the socket's buffer at once.
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)
        .map_err(StreamError::Socket)?;
    Ok(())
}

struct RingServer<'a> {
    ring: Ring,
    watcher: Watcher,
    export: &'a Export,
    slots: u32,
    /// Requests completed so far.
    done: u32,
}

impl RingServer<'_> {
    fn run(mut self, socket: &OwnedFd, stopping: &AtomicBool) -> Result<(), StreamError> {
        loop {
            let submitted = doorbell::count(self.ring.submitted());
            let fresh = submitted.wrapping_sub(self.done) & COUNT_MASK;
            if fresh > ENTRIES {
                let (found, limit) = (fresh.into(), ENTRIES.into());
                return Err(WireError::Limit { what: "number of requests in the ring", found, limit }.into());
            }
            if fresh > 0 {
                self.serve(fresh)?;
            } else if !self.watcher.watch(self.ring.submitted(), self.done) {
                doorbell::wait(self.ring.submitted(), self.done, ALIVE_CHECK);
                let idle = doorbell::count(self.ring.submitted()) == self.done;
                if stopping.load(Ordering::Relaxed) || (idle && is_over(socket)) {
                    return Ok(());
                }
            }
        }
    }

    fn serve(&mut self, fresh: u32) -> Result<(), StreamError> {
        for index in 1..=fresh {
            let status = match self.request() {
                Ok(()) => Status::Ok,
                Err(Refusal::Full) => Status::Full,
                Err(Refusal::Invalid) => Status::Invalid,
                Err(Refusal::Dropped) => return Err(StreamError::Dropped),
            };
            self.ring.put_status(self.done, status);
            self.done = self.done.wrapping_add(1) & COUNT_MASK;
            if index == fresh || index.is_multiple_of(REQUESTS_A_RING) {
                doorbell::ring(self.ring.completed(), self.done);
            }
        }
        Ok(())
    }

    /// Does the next request.
    fn request(&self) -> Result<(), Refusal> {
        let (operation, slot) = self.ring.request(self.done);
        if slot >= self.slots {
            return Err(Refusal::Invalid);
        }
        let offset = u64::from(slot) * PAGE_SIZE as u64;
        let mut page: Page = [0; PAGE_SIZE];
        match operation.ok_or(Refusal::Invalid)? {
            Operation::Read => {
                self.export.read(offset, &mut page)?;
                self.ring.write_page(self.done, &page);
            }
            Operation::Write => {
                self.ring.read_page(self.done, &mut page);
                let mut reservation = self.export.reserve(offset, PAGE_SIZE as u64)?;
                self.export.write(&mut reservation, offset, &page)?;
            }
            Operation::Discard => self.export.discard(offset, PAGE_SIZE as u64)?,
        }
        Ok(())
    }
}

/// Why a request was not done.
enum Refusal {
    Full,
    Invalid,
    Dropped,
}

impl From<ExportError> for Refusal {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Full => Self::Full,
            ExportError::Dropped => Self::Dropped,
        }
    }
}

/// Whether the client has left. It never sends anything after its hello.
fn is_over(socket: &OwnedFd) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    !matches!(poll(&mut fds, Some(&at_once)), Ok(0) | Err(Errno::INTR))
}
