//! The store of `shm:NAME`.
//!
//! [`prepare`] makes the run's private export and keeps the connection that did in [`SharedParts::fd`]: the
//! export lives for as long as anybody holds that connection, or a lane, and the donor's grace time longer;
//! [`end`] ends it at once.
//! A lane that finds its donor dead stays dead, because what the donor held died with it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
};
use rustix::process::geteuid;
use spillway_core::page::PAGE_SIZE;
use spillway_core::size::Size;
use spillway_nbd::private::derived_token;
use spillway_sys::shared_memory::SharedMemory;

use super::doorbell::{self, COUNT_MASK, Watcher};
use super::hello::{
    GOODBYE, Hello, Purpose, WELCOME_BYTES, Welcome, decode_welcome, encode_hello, socket_name,
};
use super::ring::{ENTRIES, Operation, Ring, Status};
use crate::fabric::{self, Fabric, Link};
use crate::kept::KeptConnection;
use crate::posted::{Kept, are_of};
use crate::with_descriptor;
use crate::{
    Event, Lane, LatencyClass, Listener, Patience, ReadRequest, SharedParts, Store, StoreError, StoreSpec,
    WriteRequest,
};

/// Watches the doorbell for this long at most before sleeping.
const WATCH: Duration = Duration::from_micros(60);
/// The doorbell is rung after this many requests of a batch, so that the donor works while more are written.
const REQUESTS_A_RING: usize = 4;
/// How often a sleeping lane looks whether its donor is alive.
const ALIVE_CHECK: Duration = Duration::from_millis(50);

/// How soon somebody who waits is told so, and how often.
const TELL_EVERY: Duration = Duration::from_millis(900);

/// Checks that the donor is there, as [`StoreSpec::prepare`] says.
pub fn prepare(spec: &StoreSpec, run_token: &str) -> Result<SharedParts, StoreError> {
    let store = ShmStore::new(spec, 0, run_token)?;
    let (socket, capacity_slots, _) = store.meet(Purpose::Run).map_err(|error| match error {
        StoreError::Gone { reason, .. } => spec
            .unusable(reason, format!("start one here: spillway donor --memory SIZE --shm {}", store.name)),
        other => other,
    })?;
    Ok(SharedParts { capacity_slots, fd: Some(socket), held: Vec::new(), spill: None, notice: None })
}

/// Ends the run, as [`StoreSpec::end`] says.
pub fn end(socket: &OwnedFd) {
    // Who does not listen any more holds nothing any more, or notices that the connection is gone.
    let _ = send(socket, &[GOODBYE], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    crate::ending::await_end(socket);
}

/// Opens the way to the donor in one process, as [`StoreSpec::open`] says.
pub fn open(spec: &StoreSpec, parts: SharedParts, run_token: &str) -> Result<Arc<dyn Store>, StoreError> {
    Ok(Arc::new(ShmStore::new(spec, parts.capacity_slots, run_token)?))
}

/// A same-host donor as one process sees it.
struct ShmStore {
    uri: String,
    name: String,
    capacity_slots: u32,
    token: String,
    /// How much the run may need; `None` where it takes what there is.
    size: Option<Size>,
    patience: Patience,
    fabric: Option<Fabric>,
    listener: OnceLock<Listener>,
}

impl ShmStore {
    fn new(spec: &StoreSpec, capacity_slots: u32, run_token: &str) -> Result<Self, StoreError> {
        let StoreSpec::Shm { name, size, patience, fabric } = spec else {
            return Err(spec.unusable("it is no shm: store", "name it as shm:NAME"));
        };
        let uri = spec.to_string();
        Ok(Self {
            token: derived_token(run_token, &uri),
            uri,
            name: name.clone(),
            capacity_slots,
            size: *size,
            patience: *patience,
            fabric: *fabric,
            listener: OnceLock::new(),
        })
    }

    fn gone(&self, reason: impl Into<String>) -> StoreError {
        StoreError::Gone { store: self.uri.clone(), reason: reason.into() }
    }

    /// Connects and says hello: socket, number of slots, and the memory file of a lane's ring or of the link.
    fn meet(&self, purpose: Purpose) -> Result<(OwnedFd, u32, Option<OwnedFd>), StoreError> {
        let failed = |what: &str, errno: Errno| self.gone(format!("{what}: {errno}"));
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|errno| failed("cannot make a socket", errno))?;
        let address = SocketAddrUnix::new_abstract_name(&socket_name(&self.name))
            .map_err(|errno| failed("bad name", errno))?;
        for way in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, way, Some(self.patience.timeout))
                .map_err(|errno| failed("cannot set a timeout", errno))?;
        }
        connect(&socket, &address).map_err(|errno| match errno {
            Errno::CONNREFUSED => self.gone(format!("no donor called '{}' runs on this machine", self.name)),
            other => failed("cannot connect", other),
        })?;
        self.check_owner(&socket)?;
        // Fits into the socket's buffer at once.
        let hello = Hello { purpose, size_bytes: self.size.map_or(0, Size::bytes), token: &self.token };
        send(&socket, &encode_hello(&hello), SendFlags::NOSIGNAL)
            .map_err(|errno| failed("cannot send", errno))?;
        let (welcome, ring) = receive_welcome(&socket).map_err(|errno| failed("no answer", errno))?;
        match welcome {
            Some(Welcome::Slots(slots)) => Ok((socket, slots, ring)),
            Some(Welcome::Lost) => Err(self.gone(
                "the donor holds no memory of this run: it was restarted, or the run was away for too long",
            )),
            Some(Welcome::Busy) => Err(self.gone("the donor has no room for another lane or export")),
            Some(Welcome::NoRoom { free, most }) => Err(self.no_room(free, most)),
            Some(Welcome::Ending) => Err(self.gone("the donor is ending")),
            None => Err(self.gone("the other side is no Spillway donor, or closed the connection")),
        }
    }

    fn no_room(&self, free: u32, most: u32) -> StoreError {
        let size = |slots: u32| Size::from_bytes(u64::from(slots) * PAGE_SIZE as u64);
        let asked = self.size.map_or(String::new(), |asked| format!(", and {asked} were asked for"));
        StoreError::Unusable {
            store: self.uri.clone(),
            reason: format!("{} of the {} that it gives are left to promise{asked}", size(free), size(most)),
            remedy: "ask for no more with ?size=SIZE, or wait until another run ends".to_owned(),
        }
    }

    /// The link of a modelled network, which the donor keeps for the run.
    fn link(&self, fabric: Fabric) -> Result<Link, StoreError> {
        let (_, _, file) = self.meet(Purpose::Link)?;
        let file = file.ok_or_else(|| self.gone("the donor sent no link for the modelled network"))?;
        let memory = SharedMemory::map(&file).map_err(|errno| self.gone(format!("the link: {errno}")))?;
        if memory.bytes() < Link::BYTES {
            return Err(self.gone("the donor sent a link that is too small"));
        }
        Ok(Link::at(fabric, Arc::new(memory), 0))
    }

    /// Anybody can take an abstract socket's name: the program's memory goes only to its own user, or root.
    fn check_owner(&self, socket: &OwnedFd) -> Result<(), StoreError> {
        let peer =
            socket_peercred(socket).map_err(|errno| self.gone(format!("whose donor is it: {errno}")))?;
        if peer.uid.is_root() || peer.uid == geteuid() {
            return Ok(());
        }
        Err(StoreError::Unusable {
            store: self.uri.clone(),
            reason: format!("the donor belongs to user {}", peer.uid.as_raw()),
            remedy: "use a donor that you or root started".to_owned(),
        })
    }
}

/// The donor's answer and the file that came with it.
fn receive_welcome(socket: &OwnedFd) -> Result<(Option<Welcome>, Option<OwnedFd>), Errno> {
    let mut bytes = [0; WELCOME_BYTES];
    let (filled, ring) = with_descriptor::receive(socket, &mut bytes).map_err(|errno| match errno {
        Errno::AGAIN => Errno::TIMEDOUT,
        other => other,
    })?;
    if filled < WELCOME_BYTES {
        return Ok((None, None));
    }
    Ok((decode_welcome(&bytes), ring))
}

impl Store for ShmStore {
    fn latency_class(&self) -> LatencyClass {
        if self.fabric.is_some() { LatencyClass::Remote } else { LatencyClass::Neighbour }
    }

    fn uri(&self) -> &str {
        &self.uri
    }

    fn capacity_slots(&self) -> u32 {
        self.capacity_slots
    }

    fn listen(&self, listener: Listener) {
        let _ = self.listener.set(listener);
    }

    fn open_lane(&self) -> Result<Box<dyn Lane>, StoreError> {
        let (socket, _, ring) = self.meet(Purpose::Lane)?;
        let ring = ring.ok_or_else(|| self.gone("the donor sent no ring"))?;
        let ring = Ring::map(&ring).map_err(|errno| self.gone(format!("the donor's ring: {errno}")))?;
        let link = self.fabric.map(|fabric| self.link(fabric)).transpose()?;
        let not_kept = |()| self.gone("the run's supervisor does not take the connection over");
        let kept = self.listener.get().map(|listener| KeptConnection::new(listener, socket.as_fd()));
        let kept = kept.transpose().map_err(not_kept)?;
        let lane = ShmLane {
            uri: self.uri.clone(),
            timeout: self.patience.timeout,
            listener: self.listener.get().cloned(),
            socket,
            ring,
            watcher: Watcher::new(WATCH),
            number: 0,
            failed: None,
            posted: None,
            has_answered: true,
            kept,
        };
        Ok(fabric::over(link, Box::new(lane)))
    }
}

/// The ring of one thread to the donor.
struct ShmLane {
    uri: String,
    timeout: Duration,
    listener: Option<Listener>,
    socket: OwnedFd,
    ring: Ring,
    watcher: Watcher,
    /// Requests submitted so far; all of them completed between batches.
    number: u32,
    /// Why the lane is dead.
    failed: Option<StoreError>,
    posted: Option<Posted>,
    /// Each request of the last call has its answer.
    has_answered: bool,
    kept: Option<KeptConnection>,
}

/// Reads that were posted.
enum Posted {
    /// The first `submitted` of them are in the ring.
    UnderWay { slots: Vec<u32>, submitted: usize },
    /// All of them are fetched.
    Kept(Kept),
}

/// The number of the `index`-th request after `first`.
fn numbered(first: u32, index: usize) -> u32 {
    first.wrapping_add(index as u32) & COUNT_MASK
}

impl ShmLane {
    /// Submits `count` requests and awaits them. `put` writes the `index`-th into the ring, `take` gets it
    /// back. On an error, `take` was not called for the rest.
    fn transact(
        &mut self,
        count: usize,
        put: impl FnMut(&Ring, u32, usize),
        take: impl FnMut(&Ring, u32, usize),
    ) -> Result<(), StoreError> {
        self.settle_posted();
        self.transact_from(0, count, put, take)
    }

    /// The same where the first `submitted` requests are submitted already.
    fn transact_from(
        &mut self,
        mut submitted: usize,
        count: usize,
        mut put: impl FnMut(&Ring, u32, usize),
        mut take: impl FnMut(&Ring, u32, usize),
    ) -> Result<(), StoreError> {
        // Where nothing is sent, nothing is owed.
        self.has_answered = true;
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.has_answered = false;
        let first = self.number;
        let mut completed = 0;
        while completed < count {
            while submitted < count && submitted - completed < ENTRIES as usize {
                put(&self.ring, numbered(first, submitted), submitted);
                submitted += 1;
                if submitted.is_multiple_of(REQUESTS_A_RING) {
                    doorbell::ring(self.ring.submitted(), numbered(first, submitted));
                }
            }
            doorbell::ring(self.ring.submitted(), numbered(first, submitted));
            let now = self.await_completion(numbered(first, completed), submitted - completed)?;
            for _ in 0..now {
                take(&self.ring, numbered(first, completed), completed);
                completed += 1;
            }
        }
        self.number = numbered(first, count);
        self.has_answered = true;
        Ok(())
    }

    /// Reads a batch, of which the first `submitted` requests are in the ring already.
    fn read_from(&mut self, submitted: usize, batch: &mut [ReadRequest<'_>]) {
        let uri = self.uri.clone();
        let slots: Vec<u32> = batch.iter().map(|request| request.slot).collect();
        let mut done = 0;
        let ended = self.transact_from(
            submitted,
            slots.len(),
            |ring, number, index| ring.put_request(number, Operation::Read, slots[index]),
            |ring, number, index| {
                let request = &mut batch[index];
                ring.read_page(number, request.page);
                request.outcome = outcome(&uri, ring.status(number));
                done = index + 1;
            },
        );
        for request in &mut batch[done..] {
            request.outcome = ended.clone();
        }
    }

    /// Empties the ring: what was posted is fetched, and kept until somebody asks for it.
    fn settle_posted(&mut self) {
        self.posted = match self.posted.take() {
            Some(Posted::UnderWay { slots, submitted }) => {
                Some(Posted::Kept(Kept::fetch(slots, |batch| self.read_from(submitted, batch))))
            }
            other => other,
        };
    }

    /// Waits until more than `seen` requests are completed; how many more, of the `under_way` ones.
    fn await_completion(&mut self, seen: u32, under_way: usize) -> Result<usize, StoreError> {
        let mut begin = None;
        let mut next_tell = TELL_EVERY;
        self.watcher.watch(self.ring.completed(), seen);
        loop {
            let fresh = doorbell::count(self.ring.completed()).wrapping_sub(seen) & COUNT_MASK;
            match fresh as usize {
                0 => {}
                fresh if fresh <= under_way => {
                    if next_tell > TELL_EVERY {
                        self.hear(Event::Answering);
                    }
                    return Ok(fresh);
                }
                _ => return Err(self.fail("the donor completed requests that were never submitted")),
            }
            let begin = *begin.get_or_insert_with(Instant::now);
            doorbell::wait(self.ring.completed(), seen, ALIVE_CHECK);
            if doorbell::count(self.ring.completed()) != seen {
                continue;
            }
            if self.donor_is_gone() {
                return Err(self.fail("the donor ended"));
            }
            let waited = begin.elapsed();
            if waited >= next_tell {
                next_tell = waited + TELL_EVERY;
                let reason = format!("the donor has not answered for {:.1} s", waited.as_secs_f64());
                self.hear(Event::Waiting { reason: &reason, left: self.timeout.saturating_sub(waited) });
            }
            if waited >= self.timeout {
                return Err(
                    self.fail(format!("the donor has not answered for {} s", self.timeout.as_secs_f64()))
                );
            }
        }
    }

    fn hear(&self, event: Event<'_>) {
        if let Some(listener) = &self.listener {
            listener.hear(&self.uri, event);
        }
    }

    /// The donor never sends anything on the socket, so that it becomes readable only by the donor's end.
    fn donor_is_gone(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        !matches!(poll(&mut fds, Some(&at_once)), Ok(0) | Err(Errno::INTR))
    }

    fn fail(&mut self, reason: impl Into<String>) -> StoreError {
        let error = StoreError::Gone { store: self.uri.clone(), reason: reason.into() };
        self.failed = Some(error.clone());
        // The donor may do later what it was asked.
        if let Some(kept) = self.kept.take() {
            kept.leave();
        }
        error
    }
}

/// The outcome of a completed request.
fn outcome(uri: &str, status: Status) -> Result<(), StoreError> {
    match status {
        Status::Ok => Ok(()),
        Status::Full => Err(StoreError::Full { store: uri.to_owned() }),
        Status::Invalid => {
            Err(StoreError::Io { store: uri.to_owned(), reason: "the donor refused the request".to_owned() })
        }
    }
}

impl Lane for ShmLane {
    fn write(&mut self, batch: &mut [WriteRequest<'_>]) {
        let uri = self.uri.clone();
        let mut outcomes = Vec::with_capacity(batch.len());
        let ended = self.transact(
            batch.len(),
            |ring, number, index| {
                ring.put_request(number, Operation::Write, batch[index].slot);
                ring.write_page(number, batch[index].page);
            },
            |ring, number, _| outcomes.push(outcome(&uri, ring.status(number))),
        );
        let rest = std::iter::repeat(ended);
        for (request, outcome) in batch.iter_mut().zip(outcomes.into_iter().chain(rest)) {
            request.outcome = outcome;
        }
    }

    fn read(&mut self, batch: &mut [ReadRequest<'_>]) {
        self.settle_posted();
        self.read_from(0, batch);
    }

    fn can_post(&self) -> bool {
        true
    }

    fn post_reads(&mut self, slots: &[u32]) {
        self.settle_posted();
        self.posted = None;
        if self.failed.is_some() {
            return;
        }
        let submitted = slots.len().min(ENTRIES as usize);
        for (index, &slot) in slots[..submitted].iter().enumerate() {
            self.ring.put_request(numbered(self.number, index), Operation::Read, slot);
        }
        doorbell::ring(self.ring.submitted(), numbered(self.number, submitted));
        self.posted = Some(Posted::UnderWay { slots: slots.to_vec(), submitted });
    }

    fn complete_reads(&mut self, batch: &mut [ReadRequest<'_>]) {
        match self.posted.take() {
            Some(Posted::UnderWay { slots, submitted }) if are_of(&slots, batch) => {
                return self.read_from(submitted, batch);
            }
            Some(Posted::Kept(kept)) if kept.hand_over(batch) => return,
            other => self.posted = other,
        }
        self.read(batch);
        self.posted = None;
    }

    fn discard(&mut self, slots: &[u32]) {
        // Failure is not an error: the slots can be reused.
        let _ = self.transact(
            slots.len(),
            |ring, number, index| ring.put_request(number, Operation::Discard, slots[index]),
            |_, _, _| {},
        );
    }

    fn has_answered(&self) -> bool {
        self.has_answered
    }
}
