//! TLS for a run's lanes. A lane lives inside the program: it may not allocate as a handshake does, and
//! neither the client's key nor its certificate has any business there. So a process beside the supervisor,
//! the *relay*, begins TLS for it: lanes connect to it by an abstract Unix socket ([`super::meeting`]), it
//! connects to the server, and leaves the connection to the lane, with the keys of this one session
//! ([`super::tls_socket`]). A page then travels as without TLS, past no third process.
//!
//! For whoever only holds a connection or asks a question, it copies bytes instead.
//!
//! | file | holds |
//! |---|---|
//! | `target` | where it connects to, what it shows there, and what it is to be shown |
//! | `serve` | the process: its connections, a thread each, and its end |
//! | `upstream` | connecting to the server: TCP, STARTTLS, certificates |
//! | `pump` | copying between a lane and the server, until one of them leaves |
//!
//! The relay is a process, and not threads of the supervisor, because the supervisor may go on as a copy of
//! itself, which has no threads; because what a server says in a handshake is then taken apart where there is
//! no page of the run; and because it outlives the supervisor for as long as a process of the run needs it.
//! It ends when it has had no connection for a moment: the supervisor keeps one to it for as long as the run
//! lasts, whether the server is there or not, and so does each connection that was handed over.

mod pump;
mod serve;
mod target;
#[cfg(test)]
mod tests;
mod upstream;

pub(super) use target::Target;

use std::os::fd::OwnedFd;

use super::meeting::Meeting;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// Starts a relay, unless the run has one there already; whether it did.
pub(super) fn start(meeting: &Meeting, target: Target) -> Result<bool, std::io::Error> {
    let Some(listener) = listen_at(meeting)? else { return Ok(false) };
    let meeting = meeting.clone();
    spillway_sys::process::run_apart(c"spillway-tls", listener, move |listener| {
        serve::serve(listener, meeting, target);
    })?;
    Ok(true)
}

/// `None` where somebody listens there: the run's relay, for nobody else knows the name before it does.
fn listen_at(meeting: &Meeting) -> Result<Option<OwnedFd>, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match bind(&listener, &meeting.address()?) {
        Ok(()) => {}
        Err(Errno::ADDRINUSE) => return Ok(None),
        Err(errno) => return Err(errno),
    }
    listen(&listener, BACKLOG)?;
    Ok(Some(listener))
}
