//! Signals that ask a command to end, as something that can be waited for beside others.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A socket that has a byte for each of these signals that has come. They end nothing by themselves any more.
///
/// # Errors
/// The kernel has no descriptor left, or refuses a handler.
pub fn on(signals: &[i32]) -> io::Result<UnixStream> {
    let (stop, signalled) = UnixStream::pair()?;
    for signal in signals {
        signal_hook::low_level::pipe::register(*signal, signalled.try_clone()?)?;
    }
    Ok(stop)
}

/// Waits until then; true once a signal has come.
pub fn wait_or_stop(mut stop: &UnixStream, until: Instant) -> bool {
    let left = until.saturating_duration_since(Instant::now()).max(Duration::from_micros(1));
    // Who cannot wait for the signal waits all the same, and ends at the next one's default.
    let _ = stop.set_read_timeout(Some(left));
    stop.read(&mut [0]).is_ok()
}
