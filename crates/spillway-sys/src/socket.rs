//! Options of sockets that no library has yet.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rustix::io::{Errno, Result};

/// `TCP_RTO_MAX_MS` of `linux/tcp.h`, since Linux 6.15.
const TCP_RTO_MAX_MS: usize = 44;

/// Has TCP send what got no acknowledgement again at least this often: the pause otherwise doubles each time,
/// up to two minutes, and goes on when the way is open again.
///
/// # Errors
/// ENOPROTOOPT before Linux 6.15; EINVAL for less than a second or more than two minutes.
pub fn limit_retransmission_pause(socket: impl AsFd, pause: Duration) -> Result<()> {
    let pause_ms = i32::try_from(pause.as_millis()).map_err(|_| Errno::INVAL)?;
    let arguments = [
        socket.as_fd().as_raw_fd() as usize,
        libc::IPPROTO_TCP as usize,
        TCP_RTO_MAX_MS,
        (&raw const pause_ms) as usize,
        size_of::<i32>(),
        0,
    ];
    // SAFETY: the value is read during the call, and is as long as is said.
    let result = unsafe { crate::raw::syscall(libc::SYS_setsockopt as usize, arguments) };
    if result < 0 { Err(Errno::from_raw_os_error(-result as i32)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_pause_is_limited_where_the_kernel_can() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let outcome = limit_retransmission_pause(&stream, Duration::from_secs(1));
        assert!(matches!(outcome, Ok(()) | Err(Errno::NOPROTOOPT)), "{outcome:?}");
        assert!(limit_retransmission_pause(&stream, Duration::from_millis(1)).is_err());
    }
}
