//! A batch on its way over one connection: requests go out while replies come in, so that neither side ever
//! waits for the other to read.

use std::io::IoSlice;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use spillway_core::page::{PAGE_SIZE, Page};
use spillway_nbd::transmission::{
    ChunkFlags, Command, HOLE_PAYLOAD_BYTES, OFFSET_BYTES, REQUEST_BYTES, ReplyHead, Request, RequestFlags,
    chunk, decode_data_offset, decode_error, decode_hole,
};
use spillway_nbd::{WireError, errno};

use super::connection::{Connection, Progress};
use super::progress::SocketError;
use crate::{ReadRequest, WriteRequest};

/// Received bytes that a lane holds at most.
pub const INPUT_BYTES: usize = 128 << 10;
/// Pieces given to the kernel in one call.
const MAX_SLICES: usize = 128;

/// The pages of a batch.
pub enum Pages<'a, 'b> {
    /// To be read into.
    Read(&'a mut [ReadRequest<'b>]),
    /// To be read later: requests go out, and what comes back stays where it is.
    Post(&'a [u32]),
    /// Pages that are to be written.
    Write(&'a [WriteRequest<'b>]),
    /// None: the slots are discarded.
    Discard(&'a [u32]),
}

impl Pages<'_, '_> {
    fn command(&self) -> Command {
        match self {
            Self::Read(_) | Self::Post(_) => Command::Read,
            Self::Write(_) => Command::Write,
            Self::Discard(_) => Command::Trim,
        }
    }

    /// How many slots the batch has.
    pub fn count(&self) -> usize {
        match self {
            Self::Read(batch) => batch.len(),
            Self::Write(batch) => batch.len(),
            Self::Post(slots) | Self::Discard(slots) => slots.len(),
        }
    }

    fn slot(&self, index: usize) -> u32 {
        match self {
            Self::Read(batch) => batch[index].slot,
            Self::Write(batch) => batch[index].slot,
            Self::Post(slots) | Self::Discard(slots) => slots[index],
        }
    }

    fn outgoing(&self, index: usize) -> Option<&Page> {
        match self {
            Self::Write(batch) => Some(batch[index].page),
            _ => None,
        }
    }

    fn incoming(&mut self, index: usize) -> Option<&mut Page> {
        match self {
            Self::Read(batch) => Some(batch[index].page),
            _ => None,
        }
    }
}

/// Neighbouring slots that travel in one request.
#[derive(Clone, Debug)]
pub struct Run {
    /// First index into the batch's order.
    pub first: usize,
    /// How many slots the run has.
    pub count: usize,
    slot: u32,
    /// Bytes of data received so far.
    received: usize,
    /// An error that came before the reply's end.
    error: Option<u32>,
    /// 0 or the server's error number, once answered.
    pub answer: Option<u32>,
}

impl Run {
    fn bytes(&self) -> usize {
        self.count * PAGE_SIZE
    }
}

/// Indices of the batch in the order of their slots, and the runs that they form. Slots beyond the `capacity`
/// are answered at once.
pub fn plan(pages: &Pages<'_, '_>, max_pages: usize, capacity: u32) -> (Vec<usize>, Vec<Run>) {
    let mut order: Vec<usize> = (0..pages.count()).collect();
    // Stable: a slot that is written twice in a batch is written in the order given.
    order.sort_by_key(|index| pages.slot(*index));
    let mut runs: Vec<Run> = Vec::new();
    for (first, index) in order.iter().enumerate() {
        let slot = pages.slot(*index);
        let follows = |run: &&mut Run| {
            run.answer.is_none() && run.count < max_pages && run.slot as usize + run.count == slot as usize
        };
        if slot >= capacity {
            runs.push(Run { answer: Some(errno::EINVAL), ..Run::new(first, 1, slot) });
        } else if let Some(run) = runs.last_mut().filter(follows) {
            run.count += 1;
        } else {
            runs.push(Run::new(first, 1, slot));
        }
    }
    (order, runs)
}

impl Run {
    fn new(first: usize, count: usize, slot: u32) -> Self {
        Self { first, count, slot, received: 0, error: None, answer: None }
    }

    /// The same slots, one request each.
    pub fn singly(&self) -> impl Iterator<Item = Self> {
        let (first, slot) = (self.first, self.slot);
        (0..self.count).map(move |index| Self::new(first + index, 1, slot + index as u32))
    }
}

/// Why an exchange stopped before every run was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// The connection is of no more use: connect again and go on.
    Lost(String),
    /// The server has not answered for too long.
    Silent,
    /// The caller has found a better way than to wait here.
    Left,
}

/// What to do about a server that says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Go on waiting for its answer.
    Wait,
    /// Ask no more by this connection.
    Leave,
}

impl From<Errno> for Interruption {
    fn from(errno: Errno) -> Self {
        Self::from(SocketError::from(errno))
    }
}

impl From<SocketError> for Interruption {
    fn from(error: SocketError) -> Self {
        Self::Lost(format!("connection lost: {error}"))
    }
}

impl From<WireError> for Interruption {
    fn from(error: WireError) -> Self {
        Self::Lost(format!("the server broke the protocol: {error}"))
    }
}

fn broken(what: &str) -> Interruption {
    Interruption::Lost(format!("the server broke the protocol: {what}"))
}

/// One attempt at answering the runs of a batch that have no answer yet.
pub struct Exchange<'a, 'p, 'b> {
    connection: &'a mut Connection,
    pages: &'a mut Pages<'p, 'b>,
    order: &'a [usize],
    runs: &'a mut [Run],
    sent: Sent,
    unanswered: usize,
    input: &'a mut [u8],
    /// What was received and not looked at yet.
    begin: usize,
    end: usize,
    /// The data that comes next.
    data: Option<Data>,
}

/// How far an attempt has come with its requests.
pub struct Sent {
    /// Heads of the requests, by run.
    heads: Vec<[u8; REQUEST_BYTES]>,
    /// Tells the replies to this attempt from those to all others.
    pub epoch: u32,
    /// The run that is being sent, and how much of it is.
    sending: usize,
    bytes: usize,
}

/// Data of a READ that is being received.
struct Data {
    run: usize,
    /// From the run's first byte.
    at: usize,
    left: usize,
    /// Whether the reply ends with it.
    last: bool,
}

impl<'a, 'p, 'b> Exchange<'a, 'p, 'b> {
    /// Prepares to send all runs that have no answer.
    pub fn new(
        connection: &'a mut Connection,
        pages: &'a mut Pages<'p, 'b>,
        order: &'a [usize],
        runs: &'a mut [Run],
        epoch: u32,
        input: &'a mut [u8],
    ) -> Self {
        let command = pages.command();
        let mut heads = Vec::with_capacity(runs.len());
        let mut unanswered = 0;
        for (index, run) in runs.iter_mut().enumerate() {
            if run.answer.is_none() {
                (run.received, run.error) = (0, None);
                unanswered += 1;
            }
            let request = Request {
                flags: RequestFlags::empty(),
                command,
                cookie: u64::from(epoch) << 32 | index as u64,
                offset: u64::from(run.slot) * PAGE_SIZE as u64,
                length: run.bytes() as u32,
            };
            heads.push(request.encode());
        }
        let sent = Sent { heads, epoch, sending: 0, bytes: 0 };
        let mut exchange =
            Self { connection, pages, order, runs, sent, unanswered, input, begin: 0, end: 0, data: None };
        exchange.skip_answered();
        exchange
    }

    /// Goes on with an attempt that sent so much and received nothing.
    pub fn resume(self, sent: Sent) -> Self {
        Self { sent, ..self }
    }

    /// Sends what the socket takes, for [`Self::resume`] to go on with.
    pub fn post(mut self) -> Result<Sent, Interruption> {
        while self.send()? {}
        Ok(self.sent)
    }

    /// Sends and receives until every run has its answer. Gives up when nothing moves for `timeout`; each
    /// time that nothing has moved for another `look`, `on_silence` is told for how long that has been.
    pub fn finish(
        mut self,
        timeout: Duration,
        look: Duration,
        on_silence: &mut dyn FnMut(Duration) -> Silence,
    ) -> Result<(), Interruption> {
        let mut idle_since = Instant::now();
        let mut next_look = look;
        while self.unanswered > 0 {
            // Receiving waits by itself, for at most one look.
            if self.send()? | self.receive()? {
                (idle_since, next_look) = (Instant::now(), look);
                continue;
            }
            let idle = idle_since.elapsed();
            if idle >= timeout {
                return Err(Interruption::Silent);
            }
            if idle >= next_look {
                if on_silence(idle) == Silence::Leave {
                    return Err(Interruption::Left);
                }
                next_look = idle_since.elapsed() + look;
            }
            let left = timeout.min(next_look).saturating_sub(idle_since.elapsed());
            self.connection.wait(self.sent.sending < self.runs.len(), left)?;
        }
        if self.begin == self.end && self.data.is_none() {
            Ok(())
        } else {
            Err(broken("it says more than it was asked"))
        }
    }

    fn skip_answered(&mut self) {
        while self.runs.get(self.sent.sending).is_some_and(|run| run.answer.is_some()) {
            self.sent.sending += 1;
        }
    }

    /// Sends what the socket takes; whether that was anything.
    fn send(&mut self) -> Result<bool, Interruption> {
        if self.sent.sending == self.runs.len() {
            return Ok(false);
        }
        let mut slices = Vec::with_capacity(MAX_SLICES);
        let mut skip = self.sent.bytes;
        'runs: for (run, head) in self.runs.iter().zip(&self.sent.heads).skip(self.sent.sending) {
            if run.answer.is_some() {
                continue;
            }
            let indices = &self.order[run.first..run.first + run.count];
            let pages = indices.iter().filter_map(|index| self.pages.outgoing(*index));
            for piece in std::iter::once(&head[..]).chain(pages.map(|page| &page[..])) {
                let skipped = skip.min(piece.len());
                skip -= skipped;
                if slices.len() == MAX_SLICES {
                    break 'runs;
                }
                if skipped < piece.len() {
                    slices.push(IoSlice::new(&piece[skipped..]));
                }
            }
        }
        match self.connection.send(&slices)? {
            Progress::None => Ok(false),
            Progress::Bytes(bytes) => {
                self.note_sent(bytes);
                Ok(true)
            }
        }
    }

    fn note_sent(&mut self, bytes: usize) {
        let has_data = self.pages.command() == Command::Write;
        self.sent.bytes += bytes;
        while let Some(run) = self.runs.get(self.sent.sending) {
            let whole = REQUEST_BYTES + if has_data { run.bytes() } else { 0 };
            if self.sent.bytes < whole {
                return;
            }
            self.sent.bytes -= whole;
            self.sent.sending += 1;
            self.skip_answered();
        }
    }

    /// Receives what is there, and waits for it once everything is sent; whether that was anything.
    fn receive(&mut self) -> Result<bool, Interruption> {
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
        } else if self.end == self.input.len() {
            self.input.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        let all_sent = self.sent.sending == self.runs.len();
        match self.connection.receive(&mut self.input[self.end..], all_sent)? {
            Progress::None => Ok(false),
            Progress::Bytes(0) => Err(Interruption::Lost("the server closed the connection".to_owned())),
            Progress::Bytes(bytes) => {
                self.end += bytes;
                while self.step()? {}
                Ok(true)
            }
        }
    }

    /// Deals with the next thing that was received; `false` while it is not all there.
    fn step(&mut self) -> Result<bool, Interruption> {
        if self.begin == self.end {
            return Ok(false);
        }
        if let Some(data) = self.data.take() {
            return self.take_data(data);
        }
        let buffered = &self.input[self.begin..self.end];
        let Some(head) = ReplyHead::decode(buffered)? else { return Ok(false) };
        let rest = &buffered[head.encoded_bytes()..];
        let is_read = self.pages.command() == Command::Read;
        let taken = match head {
            ReplyHead::Simple { error, cookie } => {
                let index = self.run_of(cookie)?;
                if is_read && error == 0 {
                    let left = self.runs[index].bytes();
                    self.data = Some(Data { run: index, at: 0, left, last: true });
                } else {
                    self.answer(index, error);
                }
                0
            }
            ReplyHead::Chunk { flags, kind, cookie, payload_bytes } => {
                let index = self.run_of(cookie)?;
                let payload_bytes = payload_bytes as usize;
                let last = flags.contains(ChunkFlags::DONE);
                if kind == chunk::OFFSET_DATA {
                    let Some(offset) = rest.get(..OFFSET_BYTES) else { return Ok(false) };
                    let left =
                        payload_bytes.checked_sub(OFFSET_BYTES).ok_or_else(|| broken("a chunk too short"))?;
                    let at = self.place(index, decode_data_offset(offset)?, left, is_read)?;
                    self.data = Some(Data { run: index, at, left, last });
                    OFFSET_BYTES
                } else {
                    let Some(payload) = rest.get(..payload_bytes) else { return Ok(false) };
                    match kind {
                        chunk::NONE => {}
                        chunk::OFFSET_HOLE if payload.len() == HOLE_PAYLOAD_BYTES => {
                            let (offset, length) = decode_hole(payload)?;
                            let at = self.place(index, offset, length as usize, is_read)?;
                            self.fill_hole(index, at, length as usize);
                        }
                        kind if kind & chunk::ERROR_BIT != 0 => {
                            let (error, _) = decode_error(payload)?;
                            self.runs[index].error = Some(if error == 0 { errno::EIO } else { error });
                        }
                        _ => return Err(broken("a chunk that was not asked for")),
                    }
                    if last {
                        self.end_reply(index)?;
                    }
                    payload_bytes
                }
            }
        };
        self.begin += head.encoded_bytes() + taken;
        if matches!(self.data, Some(Data { left: 0, .. })) {
            let data = self.data.take();
            return data.map_or(Ok(true), |data| self.take_data(data));
        }
        Ok(true)
    }

    /// The run that a reply is for: one that was sent and has no answer.
    fn run_of(&self, cookie: u64) -> Result<usize, Interruption> {
        let index = (cookie & u64::from(u32::MAX)) as usize;
        let open = self.runs.get(index).is_some_and(|run| run.answer.is_none());
        let Sent { sending, bytes, .. } = self.sent;
        let begun = index < sending || (index == sending && bytes >= REQUEST_BYTES);
        if cookie >> 32 == u64::from(self.sent.epoch) && open && begun {
            Ok(index)
        } else {
            Err(broken("a reply to a request that was never made"))
        }
    }

    /// Where in its run a chunk of data lies.
    fn place(&self, index: usize, offset: u64, bytes: usize, is_read: bool) -> Result<usize, Interruption> {
        let run = &self.runs[index];
        let at = offset.checked_sub(u64::from(run.slot) * PAGE_SIZE as u64);
        match at.and_then(|at| usize::try_from(at).ok()) {
            Some(at) if is_read && at <= run.bytes() && bytes <= run.bytes() - at => Ok(at),
            _ => Err(broken("data that was not asked for")),
        }
    }

    /// Moves what was received of the data into its pages.
    fn take_data(&mut self, mut data: Data) -> Result<bool, Interruption> {
        while data.left > 0 && self.begin < self.end {
            let in_page = data.at % PAGE_SIZE;
            let step = (PAGE_SIZE - in_page).min(data.left).min(self.end - self.begin);
            let first = self.runs[data.run].first;
            if let Some(page) = self.pages.incoming(self.order[first + data.at / PAGE_SIZE]) {
                page[in_page..in_page + step].copy_from_slice(&self.input[self.begin..self.begin + step]);
            }
            self.begin += step;
            data.at += step;
            data.left -= step;
            self.runs[data.run].received += step;
        }
        if data.left > 0 {
            self.data = Some(data);
            return Ok(false);
        }
        if data.last {
            self.end_reply(data.run)?;
        }
        Ok(true)
    }

    fn fill_hole(&mut self, index: usize, mut at: usize, bytes: usize) {
        let end = at + bytes;
        while at < end {
            let in_page = at % PAGE_SIZE;
            let step = (PAGE_SIZE - in_page).min(end - at);
            let first = self.runs[index].first;
            if let Some(page) = self.pages.incoming(self.order[first + at / PAGE_SIZE]) {
                page[in_page..in_page + step].fill(0);
            }
            at += step;
        }
        self.runs[index].received += bytes;
    }

    /// The last chunk of a reply is here.
    fn end_reply(&mut self, index: usize) -> Result<(), Interruption> {
        let run = &self.runs[index];
        let error = run.error.unwrap_or(0);
        if error == 0 && self.pages.command() == Command::Read && run.received != run.bytes() {
            return Err(broken("a read with less, or more, data than was asked for"));
        }
        self.answer(index, error);
        Ok(())
    }

    fn answer(&mut self, index: usize, error: u32) {
        self.runs[index].answer = Some(error);
        self.unanswered -= 1;
    }
}
