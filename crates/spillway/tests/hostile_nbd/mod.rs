//! An NBD server that misbehaves when it is told to, written from the protocol's text and sharing no code
//! with Spillway's client; a proxy that breaks connections; and a listener that says one thing only.
#![allow(dead_code, reason = "each test target uses its own part")]

pub mod proxy;
pub mod scripted;
pub mod wire;

use std::collections::HashMap;
use std::io::{Error, Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use wire::{Export, Request, handshake, kind};

const PAGE_BYTES: usize = 4096;
const POLL: Duration = Duration::from_millis(2);
/// How long after its client has hung up a late write is done: others are to have the slots by then.
const LATENESS: Duration = Duration::from_millis(700);

/// NBD's error numbers that the server sends.
pub mod errno {
    /// Input or output failed at the server.
    pub const EIO: u32 = 5;
    /// The export has no space left.
    pub const ENOSPC: u32 = 28;
}

/// How the server behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// It serves as a server should.
    Honest,
    /// One bit is wrong in every page of these reads.
    FlipsABit,
    /// One bit is always wrong in every 32nd page.
    FlipsABitOfSome,
    /// Every 32nd page and the one next door are always given in each other's place.
    SwapsSome,
    /// Of every 32nd page reads give what lay there when [`Hostile::keep_for_later`] was called.
    SomeOfAnotherRun,
    /// Reads give what the page held before it was written last.
    Outdated,
    /// Reads give the page next door.
    NextDoor,
    /// Its answers to reads are zeros.
    Zeros,
    /// Reads are answered with this error.
    RefusesReads(u32),
    /// Writes are answered with this error.
    RefusesWrites(u32),
    /// The connection is reset in the middle of the answer to a read.
    CutsAnswers,
    /// The connection is reset when half of a write is received.
    CutsWrites,
    /// Requests get no answer until the manner changes.
    Silent,
    /// Reads by connections that were there before get no answer, those by later ones do.
    SilentOnOldConnections,
    /// Answers begin with a wrong magic number.
    Babbles,
    /// Answers are for requests that nobody made.
    Confused,
    /// The first write whose bytes are all this one, and what comes behind it by its connection, is neither
    /// done nor answered until the client has hung up; it is done a while later.
    WritesLate(u8),
}

/// Newest and last but newest contents of a page.
type Versions = [Box<[u8; PAGE_BYTES]>; 2];

struct Shared {
    export: Export,
    pages: Mutex<HashMap<u64, Versions>>,
    kept: Mutex<HashMap<u64, Versions>>,
    manner: Mutex<(Manner, u64)>,
    /// How often the manner has changed.
    changes: AtomicU64,
    /// Connections that are served at a time: further ones are closed at once.
    most_connections: AtomicU64,
    connections: AtomicU64,
    peak_connections: AtomicU64,
    requests: AtomicU64,
    misdeeds: AtomicU64,
    late_writes: AtomicU64,
    is_open: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

/// The server. Ends when dropped.
pub struct Hostile {
    shared: Arc<Shared>,
    address: SocketAddr,
    acceptor: Option<JoinHandle<()>>,
}

impl Hostile {
    /// A server of an export of so many bytes, honest so far.
    pub fn start(bytes: u64) -> Self {
        Self::offering(Export { bytes, ..Export::default() })
    }

    /// A server of this export.
    pub fn offering(export: Export) -> Self {
        let shared = Arc::new(Shared {
            export,
            pages: Mutex::default(),
            kept: Mutex::default(),
            manner: Mutex::new((Manner::Honest, 1)),
            changes: AtomicU64::new(0),
            most_connections: AtomicU64::new(u64::MAX),
            connections: AtomicU64::new(0),
            peak_connections: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            misdeeds: AtomicU64::new(0),
            late_writes: AtomicU64::new(0),
            is_open: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut hostile = Self { shared, address, acceptor: None };
        hostile.accept_from(listener);
        hostile
    }

    /// Its URI as a store, with parameters such as `?timeout=1`.
    pub fn uri(&self, parameters: &str) -> String {
        format!("nbd://{}/hostile{parameters}", self.address)
    }

    /// Changes its manner towards all requests.
    pub fn behave(&self, manner: Manner) {
        self.behave_every(1, manner);
    }

    /// Changes its manner towards every `nth` request that it concerns.
    pub fn behave_every(&self, nth: u64, manner: Manner) {
        *self.shared.manner.lock().unwrap() = (manner, nth);
        self.shared.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Serves at most so many connections at a time from now on.
    pub fn limit_connections(&self, most: u64) {
        self.shared.most_connections.store(most, Ordering::SeqCst);
    }

    /// The most connections that there were at a time.
    pub fn peak_connections(&self) -> u64 {
        self.shared.peak_connections.load(Ordering::SeqCst)
    }

    /// How often it has misbehaved.
    pub fn misdeeds(&self) -> u64 {
        self.shared.misdeeds.load(Ordering::SeqCst)
    }

    /// Writes that it has done after their client had hung up.
    pub fn late_writes(&self) -> u64 {
        self.shared.late_writes.load(Ordering::SeqCst)
    }

    /// Requests that it has received.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// Forgets all that it was given, as a server without a disk does when it restarts.
    pub fn forget(&self) {
        self.shared.pages.lock().unwrap().clear();
    }

    /// Puts all that it was given aside, for [`Manner::SomeOfAnotherRun`].
    pub fn keep_for_later(&self) {
        *self.shared.kept.lock().unwrap() = std::mem::take(&mut *self.shared.pages.lock().unwrap());
    }

    /// How many of the pages that it was given are such.
    pub fn count_pages(&self, is_such: impl Fn(&[u8; PAGE_BYTES]) -> bool) -> usize {
        let pages = self.shared.pages.lock().unwrap();
        pages.values().flatten().filter(|page| is_such(page)).count()
    }

    /// Hangs up and listens no more.
    pub fn close(&mut self) {
        self.shared.is_open.store(false, Ordering::SeqCst);
        let _ = self.acceptor.take().map(JoinHandle::join);
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Listens again, where it did before.
    pub fn reopen(&mut self) {
        self.accept_from(TcpListener::bind(self.address).unwrap());
    }

    fn accept_from(&mut self, listener: TcpListener) {
        listener.set_nonblocking(true).unwrap();
        self.shared.is_open.store(true, Ordering::SeqCst);
        let shared = Arc::clone(&self.shared);
        self.acceptor = Some(spawn(move || {
            while shared.is_open() {
                match listener.accept() {
                    Ok((stream, _)) => shared.welcome(stream),
                    Err(_) => sleep(POLL),
                }
            }
        }));
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn is_open(&self) -> bool {
        self.is_open.load(Ordering::SeqCst)
    }

    fn welcome(self: &Arc<Self>, stream: TcpStream) {
        stream.set_nonblocking(false).unwrap();
        stream.set_nodelay(true).unwrap();
        self.streams.lock().unwrap().push(stream.try_clone().unwrap());
        let shared = Arc::clone(self);
        spawn(move || {
            let mut stream = stream;
            let connections = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
            if connections <= shared.most_connections.load(Ordering::SeqCst) {
                shared.peak_connections.fetch_max(connections, Ordering::SeqCst);
                let _ = shared.serve(&mut stream);
            }
            shared.connections.fetch_sub(1, Ordering::SeqCst);
            let _ = stream.shutdown(Shutdown::Both);
        });
    }

    /// Serves a connection to its end.
    fn serve(&self, stream: &mut TcpStream) -> Result<()> {
        let changes = self.changes.load(Ordering::SeqCst);
        handshake(stream, &self.export)?;
        loop {
            let request = Request::receive(stream)?;
            self.requests.fetch_add(1, Ordering::SeqCst);
            match request.kind {
                kind::READ if self.is_deaf_to(changes) => {
                    self.misdeeds.fetch_add(1, Ordering::SeqCst);
                    while self.is_deaf_to(changes) {
                        sleep(POLL);
                    }
                    return Err(Error::other("too late"));
                }
                kind::READ => self.read(stream, &request)?,
                kind::WRITE => self.write(stream, &request)?,
                kind::DISCONNECT => return Ok(()),
                // TRIM and FLUSH.
                _ => request.answer(stream, 0, &[])?,
            }
        }
    }

    /// Whether reads get no answer by a connection that began after so many changes.
    fn is_deaf_to(&self, changes: u64) -> bool {
        let (manner, _) = *self.manner.lock().unwrap();
        let is_old = changes < self.changes.load(Ordering::SeqCst);
        self.is_open() && manner == Manner::SilentOnOldConnections && is_old
    }

    /// Whether the server now behaves in a manner that `concerns` the request, and this one is to suffer it.
    fn misbehaves(&self, concerns: impl Fn(Manner) -> bool) -> Option<Manner> {
        let (manner, nth) = *self.manner.lock().unwrap();
        if !concerns(manner) || !self.requests.load(Ordering::SeqCst).is_multiple_of(nth) {
            return None;
        }
        self.misdeeds.fetch_add(1, Ordering::SeqCst);
        Some(manner)
    }

    fn read(&self, stream: &mut TcpStream, request: &Request) -> Result<()> {
        let of_reads = |manner| {
            !matches!(
                manner,
                Manner::Honest
                    | Manner::RefusesWrites(_)
                    | Manner::CutsWrites
                    | Manner::SilentOnOldConnections
                    | Manner::WritesLate(_)
            )
        };
        let manner = self.misbehaves(of_reads).unwrap_or(Manner::Honest);
        let data = self.contents(request, manner);
        match manner {
            Manner::RefusesReads(error) => request.answer(stream, error, &[]),
            Manner::CutsAnswers => {
                request.answer(stream, 0, &data[..data.len() / 2])?;
                Err(Error::other("cut"))
            }
            _ => self.answer_in(manner, stream, request, &data),
        }
    }

    fn write(&self, stream: &mut TcpStream, request: &Request) -> Result<()> {
        let of_writes = |manner| {
            matches!(
                manner,
                Manner::RefusesWrites(_)
                    | Manner::CutsWrites
                    | Manner::Silent
                    | Manner::Babbles
                    | Manner::Confused
            )
        };
        let manner = self.misbehaves(of_writes).unwrap_or(Manner::Honest);
        let mut data = vec![0; request.bytes];
        if manner == Manner::CutsWrites {
            stream.read_exact(&mut data[..request.bytes / 2])?;
            return Err(Error::other("cut"));
        }
        stream.read_exact(&mut data)?;
        if self.is_to_be_late(&data) {
            return self.write_late(stream, request, &data);
        }
        if let Manner::RefusesWrites(error) = manner {
            return request.answer(stream, error, &[]);
        }
        self.keep(request, &data);
        self.answer_in(manner, stream, request, &[])
    }

    /// Whether this write is the one that is to be late. There is only one.
    fn is_to_be_late(&self, data: &[u8]) -> bool {
        let mut manner = self.manner.lock().unwrap();
        let Manner::WritesLate(byte) = manner.0 else { return false };
        let is_such = data.iter().all(|&one| one == byte);
        if is_such {
            manner.0 = Manner::Honest;
        }
        is_such
    }

    fn write_late(&self, stream: &mut TcpStream, request: &Request, data: &[u8]) -> Result<()> {
        self.misdeeds.fetch_add(1, Ordering::SeqCst);
        let mut rest = [0; 1 << 16];
        while !matches!(stream.read(&mut rest), Ok(0) | Err(_)) {}
        sleep(LATENESS);
        self.keep(request, data);
        self.late_writes.fetch_add(1, Ordering::SeqCst);
        Err(Error::other("the client has hung up"))
    }

    /// Answers, or does what the manner wants in place of an answer.
    fn answer_in(
        &self,
        manner: Manner,
        stream: &mut TcpStream,
        request: &Request,
        data: &[u8],
    ) -> Result<()> {
        match manner {
            Manner::Silent => {
                while self.is_open() && self.manner.lock().unwrap().0 == Manner::Silent {
                    sleep(POLL);
                }
                request.answer(stream, 0, data)
            }
            Manner::Babbles => {
                stream.write_all(b"what do you want from me? ")?;
                request.answer(stream, 0, data)
            }
            Manner::Confused => Request { cookie: !request.cookie, ..*request }.answer(stream, 0, data),
            _ => request.answer(stream, 0, data),
        }
    }

    fn keep(&self, request: &Request, data: &[u8]) {
        let mut pages = self.pages.lock().unwrap();
        for (index, chunk) in data.chunks_exact(PAGE_BYTES).enumerate() {
            let versions = pages
                .entry(request.page() + index as u64)
                .or_insert_with(|| [(); 2].map(|()| Box::new([0; _])));
            versions.swap(0, 1);
            versions[0].copy_from_slice(chunk);
        }
    }

    fn contents(&self, request: &Request, manner: Manner) -> Vec<u8> {
        let (pages, kept) = (self.pages.lock().unwrap(), self.kept.lock().unwrap());
        let mut data = vec![0; request.bytes];
        for (index, chunk) in data.chunks_exact_mut(PAGE_BYTES).enumerate() {
            let page = request.page() + index as u64;
            let page = match manner {
                Manner::NextDoor => page + 1,
                Manner::SwapsSome if page % 32 == 7 => page + 1,
                Manner::SwapsSome if page % 32 == 8 => page - 1,
                _ => page,
            };
            let is_kept = manner == Manner::SomeOfAnotherRun && page % 32 == 7;
            let pages = if is_kept { &kept } else { &pages };
            if let Some([newest, before]) = pages.get(&page).filter(|_| manner != Manner::Zeros) {
                chunk.copy_from_slice(&if manner == Manner::Outdated { before } else { newest }[..]);
            }
            if manner == Manner::FlipsABit || manner == Manner::FlipsABitOfSome && page % 32 == 7 {
                chunk[page as usize % PAGE_BYTES] ^= 1 << (page % 8);
            }
        }
        data
    }
}
