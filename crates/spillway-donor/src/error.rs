//! Why a donor cannot start, or go on.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use rustix::io::Errno;
use spillway_core::size::Size;
use spillway_tls::TlsError;
use thiserror::Error;

use crate::place::Place;

/// Why a donor cannot start, or go on.
#[derive(Debug, Error)]
pub enum DonorError {
    /// Too little to hold a page, or more than exports can number.
    #[error("--memory {memory} is not between 4 KiB and 16 TiB: give another size")]
    Memory {
        /// What was asked for.
        memory: Size,
    },
    /// More than the machine has free.
    #[error(
        "--memory {memory} is more than the {available} that this machine has available: lend less, or add \
             --force if that memory will be free in time"
    )]
    Unavailable {
        /// What was asked for.
        memory: Size,
        /// How much the machine has available.
        available: Size,
    },
    /// Nothing would be left to lend.
    #[error("--keep-free {keep_free} of the {total} that there is leaves nothing to lend: keep less free")]
    KeepFree {
        /// What is to be kept free.
        keep_free: Size,
        /// All that the machine, or the control group, has.
        total: Size,
    },
    /// More than its control group may have.
    #[error(
        "--memory {memory} is more than the {room} that the control group of this process has left of its \
         {limit} ({}): lend less, raise that limit, or add --force if it will be raised in time",
        file.display()
    )]
    Group {
        /// What was asked for.
        memory: Size,
        /// How much the group may still take.
        room: Size,
        /// The limit of the group.
        limit: Size,
        /// The file that holds the limit.
        file: PathBuf,
    },
    /// More connections than a process may have open files.
    #[error(
        "--max-connections {connections} needs more open files than the limit of {limit}: raise 'ulimit -n'"
    )]
    Files {
        /// What was asked for.
        connections: usize,
        /// The hard limit of open files.
        limit: u64,
    },
    /// The address space has no room.
    #[error("--memory {memory} cannot be reserved: {reason}; lend less, or raise 'ulimit -v'")]
    Reserve {
        /// What was asked for.
        memory: Size,
        /// What the kernel says.
        reason: Errno,
    },
    /// Others than this machine could come in, and nobody has said how.
    #[error(
        "--listen {0} can be reached from other machines: add --tls-certificates DIR ('spillway donor \
         certificates DIR --host NAME' makes them), or --plain where everybody in that network may use, read \
         and drop what lies here"
    )]
    Bare(SocketAddr),
    /// The certificates cannot be used.
    #[error("--tls-certificates: {0}")]
    Certificates(TlsError),
    /// An address is taken, or not ours.
    #[error("cannot listen on {place}: {reason}; {remedy}")]
    Listen {
        /// Which place cannot be listened at.
        place: Place,
        /// What the kernel says.
        reason: io::Error,
        /// What the user can do.
        remedy: &'static str,
    },
    /// Waiting for connections failed.
    #[error("cannot wait for connections: {0}; free memory or file descriptors, and start the donor again")]
    Wait(Errno),
}
