//! How the memory of others is kept safe on this machine: that it is there, that it is not swapped, and that
//! the kernel does not end the donor for it.

use std::fs;

use rustix::io::Errno;
use spillway_core::size::Size;
use spillway_sys::machine::group_room;

use crate::error::DonorError;
use crate::frames::FramePool;
use crate::status::Pressure;

/// What the kernel is asked to think of this process when it looks for one to end: far less likely than
/// others of its size, and still before none at all.
const OOM_SCORE_ADJ: i32 = -500;
const OOM_FILE: &str = "/proc/self/oom_score_adj";
/// Of all memory one part in so many is kept free where nobody says how much.
const KEPT_FREE_ONE_IN: u64 = 32;
const PRESSURE_FILE: &str = "/proc/pressure/memory";

/// Checks that this machine, and the control group of this process, have so much memory.
pub fn check_available(memory: Size) -> Result<(), DonorError> {
    if let Some(available) = available_memory().filter(|available| *available < memory) {
        return Err(DonorError::Unavailable { memory, available });
    }
    let needed_bytes = memory.bytes().saturating_add(overhead_bytes(memory));
    match group_room().filter(|group| group.room_bytes < needed_bytes) {
        Some(group) => Err(DonorError::Group {
            memory,
            room: Size::from_bytes(group.room_bytes.saturating_sub(overhead_bytes(memory))),
            limit: Size::from_bytes(group.limit_bytes),
            file: group.limit_file,
        }),
        None => Ok(()),
    }
}

/// What a donor takes beside the pages that it lends: which frame holds which page, and its own code and
/// threads. Not the buffers of connections that are at work.
fn overhead_bytes(memory: Size) -> u64 {
    memory.bytes() / 128 + (4 << 20)
}

/// How the machine is off for memory now.
#[must_use]
pub fn pressure() -> Pressure {
    let text = fs::read_to_string(PRESSURE_FILE).ok();
    let of_group = group_room().map(|group| group.room_bytes);
    Pressure {
        available_bytes: available_memory().map(Size::bytes).into_iter().chain(of_group).min(),
        stalled_share: text.as_deref().and_then(stalled_share),
        ..Pressure::default()
    }
}

/// What is kept free where nobody says how much: a share of all that the machine, or the control group, has.
#[must_use]
pub fn usual_keep_free() -> Size {
    let limit_bytes = group_room().map_or(u64::MAX, |group| group.limit_bytes);
    Size::from_bytes(memory_of("MemTotal:").map_or(0, Size::bytes).min(limit_bytes) / KEPT_FREE_ONE_IN)
}

/// Checks that something is left to lend beside what is to be kept free.
pub fn check_keep_free(keep_free: Size) -> Result<(), DonorError> {
    let limit_bytes = group_room().map_or(u64::MAX, |group| group.limit_bytes);
    let Some(total) = memory_of("MemTotal:") else { return Ok(()) };
    let total = Size::from_bytes(total.bytes().min(limit_bytes));
    if keep_free < total { Ok(()) } else { Err(DonorError::KeepFree { keep_free, total }) }
}

/// The share that the first line of proc_pressure(5) tells of the last ten seconds, 0 to 1.
fn stalled_share(text: &str) -> Option<f64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let percent: f64 = some.split(' ').find_map(|word| word.strip_prefix("avg10="))?.parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

/// Memory that the machine can spare now; `None` where the kernel does not say.
fn available_memory() -> Option<Size> {
    memory_of("MemAvailable:")
}

/// What a line of proc_meminfo(5) says.
fn memory_of(name: &str) -> Option<Size> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(Size::from_bytes(kib.saturating_mul(1024)))
}

/// Keeps pages from being swapped, where this process may; whether it did, and a sentence that says so.
pub fn lock_memory(pool: &FramePool) -> (bool, String) {
    match pool.lock_memory() {
        Ok(()) => (true, "its memory is locked: pages that it holds are never swapped".to_owned()),
        Err(errno) => {
            let remedy = match errno {
                Errno::PERM | Errno::NOMEM | Errno::AGAIN => "raise 'ulimit -l', or give it CAP_IPC_LOCK",
                _ => "use Linux 5.18 or later",
            };
            let text = format!(
                "its memory is not locked ({errno}): where this machine swaps, pages that it holds may be \
                 swapped too, and come back slowly; {remedy}"
            );
            (false, text)
        }
    }
}

/// Asks the kernel to end others first when memory runs out; a sentence that says what came of it.
pub fn ask_to_be_spared() -> String {
    let now = fs::read_to_string(OOM_FILE).ok().and_then(|text| text.trim().parse::<i32>().ok());
    if now.is_some_and(|now| now <= OOM_SCORE_ADJ) {
        return "when memory runs out, the kernel ends other processes first".to_owned();
    }
    match fs::write(OOM_FILE, OOM_SCORE_ADJ.to_string()) {
        Ok(()) => format!(
            "when memory runs out, the kernel ends other processes first (oom_score_adj {OOM_SCORE_ADJ})"
        ),
        Err(error) => format!(
            "when memory runs out, the kernel may end this donor, and what it holds is lost \
             (oom_score_adj: {error}); give it CAP_SYS_RESOURCE, or OOMScoreAdjust= in its unit"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells_of_pressure_is_a_share() {
        let text = "some avg10=12.50 avg60=1.00 avg300=0.10 total=5\nfull avg10=50.00 avg60=0.00 total=1\n";
        assert_eq!(stalled_share(text), Some(0.125));
        for nonsense in ["", "some", "some avg10=x", "some avg10=101", "full avg10=1.00"] {
            assert_eq!(stalled_share(nonsense), None, "{nonsense}");
        }
    }
}
