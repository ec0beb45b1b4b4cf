//! The relay's process: a thread for each connection, and its end.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use spillway_nbd::handshake::{CLIENT_FLAGS_BYTES, encode_greeting};
use spillway_tls::KeyPrint;

use super::pump::Pump;
use super::target::{Target, Whom};
use super::upstream::Upstream;
use crate::nbd::meeting::{CONNECTED, Meeting, READY, Wish, encode_failure, hand_over};
use crate::nbd::reaching::{ConnectError, Wire};

/// Most connections at once. A run has a few for each of its processes.
const MAX_CONNECTIONS: usize = 4096;
/// Most that have not shown yet that they are of the run.
const MAX_STRANGERS: usize = 64;
/// How long a lane may take to show it.
const SHOWING: Duration = Duration::from_secs(5);
/// How long a connection to the server may take, handshake and all. A lane that is less patient hangs up.
const REACHING: Duration = Duration::from_secs(10);
/// How long the relay waits for its first connection.
const FIRST: Duration = Duration::from_secs(10);
/// How long it stays without one.
pub(super) const LINGER: Duration = Duration::from_millis(300);
const THREAD_STACK_BYTES: usize = 256 << 10;

/// What the threads share.
struct Shared {
    meeting: Meeting,
    target: Target,
    /// The key that the server must have, as the supervisor has said last.
    expected: Mutex<Option<KeyPrint>>,
    connections: AtomicUsize,
    strangers: AtomicUsize,
}

/// Counts something for as long as it lives.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    /// `None` where there are as many as there may be.
    fn below(count: &'a AtomicUsize, most: usize) -> Option<Self> {
        let counted = Self(count);
        (count.fetch_add(1, Ordering::Relaxed) < most).then_some(counted)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// Serves lanes until there has been none for a moment.
pub(super) fn serve(listener: OwnedFd, meeting: Meeting, target: Target) {
    let shared = Arc::new(Shared {
        meeting,
        target,
        expected: Mutex::new(None),
        connections: AtomicUsize::new(0),
        strangers: AtomicUsize::new(0),
    });
    let mut ends_at = Instant::now() + FIRST;
    loop {
        let pause = Timespec { tv_sec: 0, tv_nsec: LINGER.subsec_nanos().into() };
        let ready = poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&pause)).unwrap_or(0);
        if ready > 0
            && let Ok(lane) = accept_with(&listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
        {
            admit(&shared, lane);
        }
        if shared.connections.load(Ordering::Acquire) > 0 {
            ends_at = Instant::now() + LINGER;
        } else if Instant::now() >= ends_at {
            return;
        }
    }
}

fn admit(shared: &Arc<Shared>, lane: OwnedFd) {
    if shared.connections.load(Ordering::Relaxed) >= MAX_CONNECTIONS {
        return;
    }
    // Counted before the thread begins, so that the relay does not end meanwhile.
    shared.connections.fetch_add(1, Ordering::Relaxed);
    let own = Arc::clone(shared);
    let thread = std::thread::Builder::new().name("lane".into()).stack_size(THREAD_STACK_BYTES);
    let spawned = thread.spawn(move || {
        let _counted = Counted(&own.connections);
        converse(&own, lane);
    });
    if spawned.is_err() {
        // No thread, no connection; the lane sees its end.
        shared.connections.fetch_sub(1, Ordering::Release);
    }
}

/// All of one connection.
fn converse(shared: &Shared, lane: OwnedFd) {
    let mut wire = Wire::over(lane, Instant::now() + SHOWING);
    let wish = {
        let Some(_stranger) = Counted::below(&shared.strangers, MAX_STRANGERS) else { return };
        let Ok(Some(wish)) = shared.meeting.answer(&mut wire) else { return };
        wish
    };
    if wish == Wish::Stay {
        let _ = wire.send(&[READY]);
        return await_end(&wire.into_socket().into_fd());
    }
    let mut expected = shared.expected.lock().unwrap_or_else(PoisonError::into_inner);
    if let Wish::Expect(key) = wish {
        *expected = Some(key);
        drop(expected);
        let _ = wire.send(&[READY]);
        return;
    }
    let whom = Whom { host: &shared.target.host, key: *expected };
    drop(expected);
    let mut wire = Wire::over(wire.into_socket().into_fd(), Instant::now() + REACHING);
    let reached = Upstream::reach(&shared.target, &whom, Instant::now() + REACHING, || {
        // A lane that has left is noticed when it is told more.
        let _ = wire.send(&[CONNECTED]);
    });
    match reached.and_then(|upstream| begin(&mut wire, upstream)) {
        Ok(upstream) => match wish {
            Wish::PassOn => Pump::new(wire.into_socket().into_fd(), upstream).run(),
            Wish::TakeOver => leave(&wire.into_socket().into_fd(), upstream),
            Wish::Expect(_) | Wish::Stay => {}
        },
        Err(error) => {
            let _ = wire.send(&encode_failure(&error));
        }
    }
}

/// Hands the server's greeting on. The lane's flags end here: the server has had ours, which are the same.
fn begin(wire: &mut Wire, upstream: Upstream) -> Result<Upstream, ConnectError> {
    let mut bytes = vec![READY];
    bytes.extend_from_slice(&encode_greeting(upstream.greeting));
    wire.send(&bytes)?;
    wire.array::<CLIENT_FLAGS_BYTES>()?;
    Ok(upstream)
}

/// Leaves the connection to the lane, and stays until that has no connection to us any more.
fn leave(lane: &OwnedFd, Upstream { socket, session, .. }: Upstream) {
    let keys = session.into_keys().ok();
    let is_left = keys.is_some_and(|keys| hand_over(lane, &keys, &socket).is_ok());
    drop(socket);
    if is_left {
        await_end(lane);
    }
}

/// Waits until the other side hangs up.
fn await_end(lane: &OwnedFd) {
    // What is not asked for is told of all the same.
    while poll(&mut [PollFd::new(lane, PollFlags::empty())], None) == Err(Errno::INTR) {}
}
