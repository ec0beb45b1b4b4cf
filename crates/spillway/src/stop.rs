//! Signals that ask a command to end, as something that can be waited for beside others.

use std::io;
use std::os::unix::net::UnixStream;

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
