//! NBD requests and their replies.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use spillway_nbd::transmission::{
    ChunkFlags, Command, Extent, ExtentFlags, REQUEST_BYTES, ReplyHead, Request, RequestFlags, chunk,
    put_error, put_extents,
};
use spillway_nbd::{MAX_EXTENTS, MAX_REQUEST_BYTES, errno};

use crate::export::{CHUNK_BYTES, Export, ExportError, Stretch};
use crate::handshake::{BASE_ALLOCATION_ID, Session};
use crate::staged::Staged;
use crate::stream::{Stream, StreamError};

/// Room for what stands before a chunk of pages: requests one way, heads of replies the other.
const HEADS_BYTES: usize = 4096;
/// Received bytes that a connection holds at most: a chunk of pages and its request.
pub const INPUT_BYTES: usize = CHUNK_BYTES as usize + HEADS_BYTES;
/// Replies that a connection holds at most.
pub const OUTPUT_BYTES: usize = CHUNK_BYTES as usize + HEADS_BYTES;

/// Most holes and pieces of data in the answer to one READ; beyond, holes are sent as zeros.
const MAX_READ_STRETCHES: usize = 256;

/// Bytes of which one BLOCK_STATUS tells; clients ask again for the rest.
const MAX_STATUS_BYTES: u64 = 1 << 30;

/// What a connection has done; whether that changes tells whether it rests.
#[derive(Debug, Default)]
pub struct Activity {
    /// Requests that were answered so far.
    pub requests: AtomicU64,
    /// Bytes written to the export.
    pub written_bytes: AtomicU64,
    /// Bytes read from it.
    pub read_bytes: AtomicU64,
}

impl Activity {
    /// Counts a request and its data.
    pub fn count(&self, written_bytes: u64, read_bytes: u64) {
        // Only the connection's own thread writes here.
        for (count, more) in
            [(&self.requests, 1), (&self.written_bytes, written_bytes), (&self.read_bytes, read_bytes)]
        {
            if more > 0 {
                count.store(count.load(Ordering::Relaxed) + more, Ordering::Relaxed);
            }
        }
    }
}

/// Answers requests until the client leaves. Where it says so on the connection that began its run, the run
/// has ended. A process of a run may end at any moment, amid a request or before its answer: nothing has
/// failed then, and where the way between was cut, the run says so.
pub fn serve(stream: &mut Stream, session: &Session, activity: &Activity) -> Result<(), StreamError> {
    match serve_all(stream, session, activity) {
        Err(StreamError::Truncated | StreamError::Socket(Errno::CONNRESET | Errno::PIPE))
            if session.attachment.is_lane() =>
        {
            Ok(())
        }
        outcome => outcome,
    }
}

fn serve_all(stream: &mut Stream, session: &Session, activity: &Activity) -> Result<(), StreamError> {
    let connection =
        &mut Connection { stream, session, export: &session.attachment.export, scratch: Vec::new() };
    loop {
        let request = match Request::decode(connection.stream.buffered())? {
            Some(request) => request,
            None => {
                // Replies are held back while the next request is already here, so that a batch of requests
                // gets one batch of replies.
                connection.stream.flush()?;
                connection.stream.begin_message(0);
                if !connection.stream.fill(REQUEST_BYTES)? {
                    return Ok(());
                }
                continue;
            }
        };
        connection.stream.consume(REQUEST_BYTES);
        if request.command == Command::Disconnect {
            let outcome = connection.stream.flush();
            if session.attachment.begins_run() {
                session.attachment.end_run();
            }
            return outcome;
        }
        let bytes = u64::from(request.length);
        let (written_bytes, read_bytes) = match request.command {
            Command::Write => (bytes, 0),
            Command::Read => (0, bytes),
            _ => (0, 0),
        };
        connection.stream.begin_message(written_bytes + read_bytes);
        connection.answer(&request)?;
        activity.count(written_bytes, read_bytes);
    }
}

struct Connection<'a> {
    stream: &'a mut Stream,
    session: &'a Session,
    export: &'a Export,
    /// Heads of replies are put together here.
    scratch: Vec<u8>,
}

/// The error number for the client.
fn number(error: ExportError) -> u32 {
    match error {
        ExportError::Full => errno::ENOSPC,
        ExportError::Dropped => errno::ESHUTDOWN,
    }
}

impl Connection<'_> {
    fn answer(&mut self, request: &Request) -> Result<(), StreamError> {
        match request.command {
            Command::Read => self.read(request),
            Command::Write => self.write(request),
            _ => {
                let outcome = self.check(request).and_then(|()| self.without_data(request));
                match (request.command, outcome) {
                    (Command::BlockStatus, Ok(())) => self.block_status(request),
                    (Command::BlockStatus, Err(error)) => self.fail_structured(request, error),
                    (_, Ok(())) => self.simple(request, 0),
                    (_, Err(error)) => self.simple(request, error),
                }
            }
        }
    }

    /// Checks flags and range; the error number where they are wrong.
    fn check(&self, request: &Request) -> Result<(), u32> {
        let allowed = RequestFlags::FUA
            | match request.command {
                Command::Read => RequestFlags::DF,
                Command::WriteZeroes => RequestFlags::NO_HOLE,
                Command::BlockStatus => RequestFlags::REQ_ONE,
                _ => RequestFlags::empty(),
            };
        if !allowed.contains(request.flags) {
            return Err(errno::EINVAL);
        }
        let has_data = matches!(request.command, Command::Read | Command::Write);
        if has_data && request.length > MAX_REQUEST_BYTES {
            return Err(errno::EINVAL);
        }
        let end = request.offset.checked_add(request.length.into());
        if end.is_none_or(|end| end > self.export.size_bytes()) {
            let writes = matches!(request.command, Command::Write | Command::WriteZeroes);
            return Err(if writes { errno::ENOSPC } else { errno::EINVAL });
        }
        Ok(())
    }

    /// What needs no data in either direction.
    fn without_data(&self, request: &Request) -> Result<(), u32> {
        let (offset, bytes) = (request.offset, request.length.into());
        match request.command {
            // All that was answered lies in memory; there is nothing more lasting to flush to.
            Command::Flush | Command::Cache => Ok(()),
            Command::Trim => self.export.discard(offset, bytes).map_err(number),
            Command::WriteZeroes if request.flags.contains(RequestFlags::NO_HOLE) => {
                self.export.fill_with_zeros(offset, bytes).map_err(number)
            }
            Command::WriteZeroes => self.export.zero(offset, bytes).map_err(number),
            Command::BlockStatus if self.session.base_allocation && request.length > 0 => Ok(()),
            _ => Err(errno::EINVAL),
        }
    }

    fn simple(&mut self, request: &Request, error: u32) -> Result<(), StreamError> {
        self.head(&ReplyHead::Simple { error, cookie: request.cookie })
    }

    fn head(&mut self, head: &ReplyHead) -> Result<(), StreamError> {
        self.scratch.clear();
        head.put(&mut self.scratch);
        self.stream.put(&self.scratch)
    }

    fn chunk_head(
        &mut self,
        request: &Request,
        kind: u16,
        bytes: u32,
        done: bool,
    ) -> Result<(), StreamError> {
        let flags = if done { ChunkFlags::DONE } else { ChunkFlags::empty() };
        self.head(&ReplyHead::Chunk { flags, kind, cookie: request.cookie, payload_bytes: bytes })
    }

    fn fail_structured(&mut self, request: &Request, error: u32) -> Result<(), StreamError> {
        if !self.session.structured {
            return self.simple(request, error);
        }
        let mut payload = Vec::new();
        put_error(&mut payload, error, errno::name(error));
        self.chunk_head(request, chunk::ERROR, payload.len() as u32, true)?;
        self.stream.put(&payload)
    }

    fn write(&mut self, request: &Request) -> Result<(), StreamError> {
        let export = self.export;
        let (mut offset, mut left) = (request.offset, u64::from(request.length));
        if let Err(error) = self.check(request) {
            self.stream.skip(request.length as usize)?;
            return self.simple(request, error);
        }
        if left <= CHUNK_BYTES - offset % CHUNK_BYTES {
            // All of it is here before any memory is taken for it.
            let outcome = export.write(offset, self.stream.need(left as usize)?).map_err(number);
            self.stream.consume(left as usize);
            return self.simple(request, outcome.err().unwrap_or(0));
        }
        let mut write = Staged::begin(export, offset, left);
        while left > 0 {
            // Whole chunks, so that pages are written whole however the bytes arrive.
            let step = left.min(CHUNK_BYTES - offset % CHUNK_BYTES);
            let piece = self.stream.need(step as usize)?;
            // Once it has failed it only lets the rest of the data pass, and has given back what it had.
            if let Ok(begun) = &mut write
                && let Err(error) = begun.add(offset, piece)
            {
                write = Err(error);
            }
            self.stream.consume(step as usize);
            offset += step;
            left -= step;
        }
        let outcome = write.and_then(Staged::finish).map_err(number);
        self.simple(request, outcome.err().unwrap_or(0))
    }

    fn read(&mut self, request: &Request) -> Result<(), StreamError> {
        if let Err(error) = self.check(request) {
            return self.fail_structured(request, error);
        }
        let (offset, bytes) = (request.offset, u64::from(request.length));
        let whole = Stretch { bytes, is_data: true };
        if !self.session.structured {
            // A simple reply has no place for an error after its head.
            return match self.export.stretches(offset, bytes, 0) {
                Ok(_) => {
                    self.simple(request, 0)?;
                    self.data(offset, bytes)
                }
                Err(error) => self.simple(request, number(error)),
            };
        }
        let stretches = if request.flags.contains(RequestFlags::DF) {
            Ok(vec![whole])
        } else {
            self.export.stretches(offset, bytes, MAX_READ_STRETCHES)
        };
        let mut stretches = match stretches {
            Ok(stretches) => stretches,
            Err(error) => return self.fail_structured(request, number(error)),
        };
        let told: u64 = stretches.iter().map(|stretch| stretch.bytes).sum();
        if told < bytes {
            stretches.push(Stretch { bytes: bytes - told, is_data: true });
        }
        self.stretches(request, &stretches)
    }

    fn stretches(&mut self, request: &Request, stretches: &[Stretch]) -> Result<(), StreamError> {
        if stretches.is_empty() {
            return self.chunk_head(request, chunk::NONE, 0, true);
        }
        let mut offset = request.offset;
        for (index, stretch) in stretches.iter().enumerate() {
            let done = index + 1 == stretches.len();
            if stretch.is_data {
                self.chunk_head(request, chunk::OFFSET_DATA, 8 + stretch.bytes as u32, done)?;
                self.stream.put(&offset.to_be_bytes())?;
                self.data(offset, stretch.bytes)?;
            } else {
                self.chunk_head(request, chunk::OFFSET_HOLE, 12, done)?;
                self.stream.put(&offset.to_be_bytes())?;
                self.stream.put(&(stretch.bytes as u32).to_be_bytes())?;
            }
            offset += stretch.bytes;
        }
        Ok(())
    }

    /// Sends contents. Once a reply's head is sent, the only honest way to report an error is to hang up.
    fn data(&mut self, mut offset: u64, mut bytes: u64) -> Result<(), StreamError> {
        while bytes > 0 {
            let step = bytes.min(CHUNK_BYTES - offset % CHUNK_BYTES);
            let room = self.stream.output(step as usize)?;
            self.export.read(offset, room).map_err(|_| StreamError::Dropped)?;
            offset += step;
            bytes -= step;
        }
        Ok(())
    }

    fn block_status(&mut self, request: &Request) -> Result<(), StreamError> {
        let most = if request.flags.contains(RequestFlags::REQ_ONE) { 1 } else { MAX_EXTENTS };
        let bytes = u64::from(request.length).min(MAX_STATUS_BYTES);
        let stretches = match self.export.stretches(request.offset, bytes, most) {
            Ok(stretches) => stretches,
            Err(error) => return self.fail_structured(request, number(error)),
        };
        let hole = ExtentFlags::HOLE | ExtentFlags::ZERO;
        let extents: Vec<_> = stretches
            .iter()
            .map(|stretch| Extent {
                length: stretch.bytes as u32,
                flags: if stretch.is_data { ExtentFlags::empty() } else { hole },
            })
            .collect();
        let mut payload = Vec::new();
        put_extents(&mut payload, BASE_ALLOCATION_ID, &extents);
        self.chunk_head(request, chunk::BLOCK_STATUS, payload.len() as u32, true)?;
        self.stream.put(&payload)
    }
}
