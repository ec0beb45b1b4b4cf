//! What every telemetry source tells, and what it is asked.

use std::ops::Range;
use std::time::Duration;

use rustix::io::Errno;
use serde::Serialize;
use spillway_sys::access_events::Access;
use spillway_sys::mark_events::Marked;
use thiserror::Error;

use crate::settings::{KernelSettings, SettingsError};

/// A page as a scan found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The first address of the page.
    pub address: u64,
    /// First frame, in pages of 4 KiB.
    pub frame: u64,
    /// Pages of 4 KiB that are mapped as one.
    pub pages: u32,
    /// Whether it was accessed since the scan before.
    pub accessed: bool,
}

/// What a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// The name of the source.
    pub name: &'static str,
    /// To what its knowledge is exact.
    pub precision: &'static str,
    /// What a scan costs.
    pub cost: &'static str,
}

/// Why a source cannot be scanned.
#[derive(Debug, Error)]
pub enum SourceError {
    /// The process is gone.
    #[error("process {0}: gone")]
    Gone(u32),
    /// The kernel has not got it, or does not let us.
    #[error("telemetry source {name}: {reason}; 'spillway doctor' lists those that work here")]
    Unavailable {
        /// The name of the source.
        name: &'static str,
        /// Why it is not to be had.
        reason: String,
    },
    /// None of the sources works here.
    #[error("telemetry: no source works here: {0}; run as root, or on a kernel with BTF and BPF")]
    None(String),
    /// It worked before, and does no longer.
    #[error("telemetry source {name}: {error}; it worked before, so the machine has changed")]
    Lost {
        /// The name of the source.
        name: &'static str,
        /// What the kernel said.
        error: Errno,
    },
    /// A setting that it needs is no longer what it was set to.
    #[error(
        "telemetry source {name}: {setting} is '{value}' now, set by another; \
         leave it while this runs, or take another source"
    )]
    Changed {
        /// The name of the source.
        name: &'static str,
        /// The path of the setting.
        setting: String,
        /// What it is set to now.
        value: String,
    },
}

/// What a source was told, since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SourceCounts {
    /// Accesses that it was told of by themselves: faults or samples.
    pub accesses: u64,
    /// The same, lost because there was no room for them.
    pub lost: u64,
    /// Of the accesses, those that far memory served, where that is told.
    pub far_accesses: u64,
    /// Times that the kernel was seen to mark a range of memory.
    pub marks: u64,
}

/// Tells which pages are used.
pub trait Source: Send {
    /// Its name, its precision and its cost.
    fn facts(&self) -> Facts;

    /// To what its knowledge is exact, with what is known only here and now.
    fn precision(&self) -> String {
        self.facts().precision.to_owned()
    }

    /// Changes what settings of the kernel it needs changed.
    ///
    /// # Errors
    /// One cannot be.
    fn begin(&mut self, _settings: &mut KernelSettings) -> Result<(), SettingsError> {
        Ok(())
    }

    /// Tells `visit` of every page with a frame in these ranges of a process's addresses, in order of address
    /// within a range, and begins anew.
    ///
    /// # Errors
    /// The process is gone, or the source is.
    fn scan(
        &mut self,
        process: u32,
        ranges: &[Range<u64>],
        visit: &mut dyn FnMut(Seen),
    ) -> Result<(), SourceError>;

    /// Accesses that it was told of by themselves since this was last asked, in the order of time. The next
    /// scan counts them too.
    fn take_accesses(&mut self) -> Vec<Access> {
        Vec::new()
    }

    /// When the kernel marked memory, since this was last asked. Asked after [`Self::take_accesses`], it
    /// knows of every mark that led to one of those.
    fn take_marks(&mut self) -> Vec<Marked> {
        Vec::new()
    }

    /// Whether the kernel marks far pages, and this tells when, and of the faults.
    fn tells_marks(&self) -> bool {
        false
    }

    /// How long accesses may wait to be taken; none where there are none.
    fn longest_wait(&self) -> Option<Duration> {
        None
    }

    /// How long it knows nothing new after a scan.
    fn least_interval(&self) -> Duration {
        Duration::ZERO
    }

    /// One access in `period` that misses the caches is wanted as a sample from now on, among
    /// [`Self::take_accesses`]: what the source makes of that, one in so many; 0 where it takes no samples.
    fn sample_every(&mut self, _period: u32) -> u32 {
        0
    }

    /// What taking samples has cost the programs so far, in nanoseconds; 0 where nobody knows.
    fn sampling_ns(&self) -> u64 {
        0
    }

    /// A process is scanned no longer.
    fn forget(&mut self, _process: u32) {}

    /// What it was told.
    fn counts(&self) -> SourceCounts {
        SourceCounts::default()
    }
}
