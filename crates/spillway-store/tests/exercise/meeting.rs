//! What either side of the meeting between a run's lanes and its relay for TLS must stand: whatever the other
//! one says, nobody is taken for what he is not, and nobody waits for what does not come. Shared by the
//! property test (`peers.rs`) and the fuzz target (`fuzz/fuzz_targets/meeting.rs`).

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use spillway_nbd::private::relay_secrets;
use spillway_store::nbd::meeting::{Meeting, Wish, encode_failure, take_over};
use spillway_store::nbd::reaching::{Attempt, ConnectError, Wire};
use spillway_tls::KeyPrint;

const URI: &str = "nbds://a:1/?tls-certificates=/c";
/// Far longer than anything takes here: who waits so long waits for what does not come.
const PATIENCE: Duration = Duration::from_secs(60);

/// Has each side hear `data`, as it is and behind a sound beginning.
pub fn exercise(data: &[u8]) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    // An address of its own for each, whoever else tries the same in this process.
    let token = format!("{} {}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let meeting = Meeting::of(&token, URI);
    let [name, lanes, relays] = relay_secrets(&token, URI);
    heard_by_relay(&meeting, data, &lanes, &relays);
    heard_by_relay(&meeting, &[&lanes, data].concat(), &lanes, &relays);
    let digits = name.iter().take(16).map(|byte| format!("{byte:02x}")).collect::<String>();
    let address = SocketAddr::from_abstract_name(format!("spillway-tls-{digits}")).expect("a short name");
    let listener = UnixListener::bind_addr(&address).expect("a name of this process alone");
    heard_by_lane(&meeting, &listener, data, &relays);
    heard_by_lane(&meeting, &listener, &[&relays, data].concat(), &relays);
    heard_by_lane(&meeting, &listener, &[&relays[..], &[1, 3], data].concat(), &relays);
    for comes_with_socket in [false, true] {
        taken_over(data, comes_with_socket);
    }
}

/// A wire on which somebody has said this and no more.
fn wire(said: &[u8]) -> (UnixStream, Wire) {
    let (mut theirs, ours) = UnixStream::pair().expect("two sockets");
    theirs.write_all(said).expect("what a socket holds");
    theirs.shutdown(Shutdown::Write).expect("an open socket");
    ours.set_nonblocking(true).expect("a socket");
    (theirs, Wire::over(ours.into(), Instant::now() + PATIENCE))
}

fn heard_by_relay(meeting: &Meeting, said: &[u8], lanes: &[u8], relays: &[u8]) {
    let (mut lane, mut wire) = wire(said);
    let answer = meeting.answer(&mut wire);
    drop(wire);
    let mut answered = Vec::new();
    // What was said and not heard cuts the connection off.
    let _ = lane.read_to_end(&mut answered);
    let is_of_run = said.starts_with(lanes) && said.len() > lanes.len();
    assert!(answered.is_empty() || (is_of_run && answered == relays), "who is told the relay's secret");
    let wish = match said.get(lanes.len()).filter(|_| is_of_run) {
        Some(0) => Some(Wish::PassOn),
        Some(1) => Some(Wish::TakeOver),
        Some(3) => Some(Wish::Stay),
        Some(2) => said
            .get(lanes.len() + 1..)
            .and_then(<[u8]>::first_chunk)
            .map(|key| Wish::Expect(KeyPrint::from_bytes(*key))),
        _ => None,
    };
    assert_eq!(answer.ok().flatten(), wish);
}

fn heard_by_lane(meeting: &Meeting, listener: &UnixListener, said: &[u8], relays: &[u8]) {
    let knock = || {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut lane, _) = listener.accept().expect("a lane");
                let _ = lane.write_all(said);
                let _ = lane.shutdown(Shutdown::Write);
                let _ = lane.read_to_end(&mut Vec::new());
            });
            let begun = Instant::now();
            let knocked = meeting.knock(Wish::TakeOver, Attempt::of(PATIENCE)).map(drop);
            assert!(begun.elapsed() < PATIENCE / 2, "a lane waits for who has left");
            knocked
        })
    };
    let ready = [&[relays, &[2]].concat(), &[relays, &[1, 2]].concat()];
    match knock() {
        Ok(()) => assert!(ready.into_iter().any(|ready| said.starts_with(ready)), "no relay of the run's"),
        Err(error) => {
            assert!(!ready.into_iter().any(|ready| said.starts_with(ready)), "{error}");
            let told = encode_failure(&error);
            assert!(told.len() <= 4 + 1000, "{error}");
            if let ConnectError::Refused(text) | ConnectError::Unreachable(text) = &error {
                assert!(text.as_bytes().starts_with(&told[4..]));
            }
        }
    }
}

/// What comes in place of a session's keys, and of the server's connection.
fn taken_over(said: &[u8], comes_with_socket: bool) {
    let (relay, lane) = UnixStream::pair().expect("two sockets");
    lane.set_nonblocking(true).expect("a socket");
    let server = UnixStream::pair().expect("two sockets").0;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [server.as_fd()];
    if comes_with_socket {
        control.push(SendAncillaryMessage::ScmRights(&fds));
    }
    let sent = sendmsg(&relay, &[IoSlice::new(said)], &mut control, SendFlags::NOSIGNAL);
    assert_eq!(sent, Ok(said.len()));
    drop(relay);
    let wire = take_over(Wire::over(lane.into(), Instant::now() + PATIENCE));
    assert!(wire.is_err() || (comes_with_socket && said.len() >= spillway_tls::records::KEYS_BYTES));
}
