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
use spillway_core::size::Size;
use spillway_nbd::WireError;
use spillway_store::shm::doorbell::{self, COUNT_MASK, Watcher};
use spillway_store::shm::hello::{
    GOODBYE, HELLO_BYTES, Hello, Purpose, Welcome, decode_hello, encode_welcome,
};
use spillway_store::shm::ring::{ENTRIES, Operation, Ring, Status};

use crate::export::{Export, ExportError};
use crate::limits::Limits;
use crate::peer::Peer;
use crate::refusal::OpenError;
use crate::registry::{Attachment, Registry, Visitor};
use crate::stream::{Buffer, Stream, StreamError};
use crate::transmission::Activity;

/// Watches the doorbell for this long at most after the last request before sleeping.
const WATCH: Duration = Duration::from_micros(250);
/// How often a sleeping lane looks whether its client is alive, or the donor is to end.
const ALIVE_CHECK: Duration = Duration::from_millis(500);
/// The doorbell is rung after this many requests of a batch, so that the client works while more are served.
const REQUESTS_A_RING: u32 = 4;

/// A client that has just connected.
pub struct Caller<'a> {
    /// The connection that it uses.
    pub socket: &'a Arc<OwnedFd>,
    /// Who is at its other end.
    pub peer: Peer,
    /// What it does is counted here.
    pub activity: &'a Activity,
}

/// Serves a client of the ring until it leaves. `welcomed` is called once its hello was understood.
pub fn serve(
    caller: &Caller<'_>,
    registry: &Arc<Registry>,
    limits: &Limits,
    is_over: &AtomicBool,
    welcomed: impl FnOnce(),
) -> Result<(), StreamError> {
    let socket = caller.socket;
    let deadline = Some(Instant::now() + limits.handshake);
    let mut stream = Stream::new(Arc::clone(socket), limits, (HELLO_BYTES, 1), deadline)?;
    let mut hello = [0; HELLO_BYTES];
    if !stream.fill(HELLO_BYTES)? {
        return Ok(());
    }
    hello.copy_from_slice(stream.need(HELLO_BYTES)?);
    stream.consume(HELLO_BYTES);
    let Hello { purpose, size_bytes, token } =
        decode_hello(&hello).ok_or(WireError::Text { what: "a hello" })?;
    let token = token.to_owned();
    let visitor = match purpose {
        Purpose::Run => Visitor::Run { token, asked_bytes: size_bytes },
        Purpose::Lane | Purpose::Link => Visitor::Lane(token),
    };
    // The export of rings has no name: the run's token tells them apart.
    let attachment = match registry.open("", &visitor, caller.peer) {
        Ok(attachment) => attachment,
        Err(error) => return welcome(socket, refusal(&error, registry), None),
    };
    welcomed();
    let slots = (attachment.export.size_bytes() / PAGE_SIZE as u64) as u32;
    match purpose {
        Purpose::Run => {
            welcome(socket, Welcome::Slots(slots), None)?;
            hold(&mut stream.after_handshake(1, 1)?, &attachment)
        }
        Purpose::Link => match attachment.export.link() {
            Ok(link) => welcome(socket, Welcome::Slots(slots), Some(link)),
            Err(_) => welcome(socket, Welcome::Busy, None),
        },
        Purpose::Lane => {
            let Ok((file, ring)) = Ring::create() else {
                return welcome(socket, Welcome::Busy, None);
            };
            welcome(socket, Welcome::Slots(slots), Some(file))?;
            let (watcher, page) = (Watcher::new(WATCH), Buffer::new(PAGE_SIZE));
            let (export, activity) = (&*attachment.export, caller.activity);
            RingServer { ring, watcher, export, activity, page, slots, done: 0 }.run(socket, is_over)
        }
    }
}

/// How a client is told why it is not let in.
fn refusal(error: &OpenError, registry: &Registry) -> Welcome {
    let slots = |size: &Size| (size.bytes() / PAGE_SIZE as u64).min(u32::MAX.into()) as u32;
    match error {
        OpenError::Lost => Welcome::Lost,
        OpenError::NoRoom { free, .. } => {
            Welcome::NoRoom { free: slots(free), most: slots(&Size::from_bytes(registry.size_bytes())) }
        }
        OpenError::TooLarge { most, .. } => Welcome::NoRoom { free: slots(most), most: slots(most) },
        OpenError::Ending => Welcome::Ending,
        _ => Welcome::Busy,
    }
}

/// The connection that began a run only holds its export, until it says that the run has ended, or is lost.
fn hold(stream: &mut Stream, attachment: &Attachment) -> Result<(), StreamError> {
    if !stream.fill(1)? {
        return Ok(());
    }
    if stream.buffered() != [GOODBYE] {
        return Err(WireError::Length { what: "a hello" }.into());
    }
    attachment.end_run();
    Ok(())
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
    activity: &'a Activity,
    /// The page of the request under way; nothing of it is left when the lane ends.
    page: Buffer,
    slots: u32,
    /// Requests completed so far.
    done: u32,
}

impl RingServer<'_> {
    fn run(mut self, socket: &OwnedFd, is_over: &AtomicBool) -> Result<(), StreamError> {
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
                if is_over.load(Ordering::Relaxed) || (idle && has_left(socket)) {
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
    fn request(&mut self) -> Result<(), Refusal> {
        let (operation, slot) = self.ring.request(self.done);
        if slot >= self.slots {
            return Err(Refusal::Invalid);
        }
        let offset = u64::from(slot) * PAGE_SIZE as u64;
        let page = self.page.memory().ok().and_then(|page| <&mut Page>::try_from(page).ok());
        let page = page.ok_or(Refusal::Invalid)?;
        let bytes = PAGE_SIZE as u64;
        match operation.ok_or(Refusal::Invalid)? {
            Operation::Read => {
                self.export.read(offset, page)?;
                self.ring.write_page(self.done, page);
                self.activity.count(0, bytes);
            }
            Operation::Write => {
                self.ring.read_page(self.done, page);
                self.export.write(offset, page)?;
                self.activity.count(bytes, 0);
            }
            Operation::Discard => {
                self.export.discard(offset, bytes)?;
                self.activity.count(0, 0);
            }
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
fn has_left(socket: &OwnedFd) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    !matches!(poll(&mut fds, Some(&at_once)), Ok(0) | Err(Errno::INTR))
}
