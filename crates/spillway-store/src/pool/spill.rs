//! A pool's last resort: the file or block device of this machine that takes what donors have no room for.
//! When that is, is the business of [`spillway_pool::spill`]; here it is made and opened. Pages come sealed
//! or not, as they go to donors.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FileType, Mode, OFlags, SeekFrom, fstat, fstatvfs, open, seek, stat};
use spillway_core::page::PAGE_SIZE;
use spillway_core::size::Size;
use spillway_pool::EXTENT_BYTES;
use spillway_pool::EXTENT_SLOTS;
use spillway_pool::new_donor::{NewDonor, SPILL_DOMAIN};

use crate::spec::Spill;
use crate::{SharedParts, Store, StoreError, StoreSpec};

/// Beyond the last extent there is one page more, which the supervisor writes to see whether it can.
const PROBE_BYTES: u64 = PAGE_SIZE as u64;

/// The last resort as one process has it open.
pub(super) struct LastResort {
    /// Its number among the donors.
    pub(super) donor: usize,
    /// Its path, for messages.
    pub(super) path: String,
    pub(super) store: Arc<dyn Store>,
    /// Why a page could not be read last.
    unread: Mutex<String>,
}

/// Makes the file. `usual_extents`: what it is to hold where the user does not say. With fewer than
/// `least_extents` it is of no use.
pub(super) fn prepare(
    spec: &StoreSpec,
    wish: &Spill,
    (usual_extents, least_extents): (u32, u32),
) -> Result<(NewDonor, OwnedFd), StoreError> {
    let path = wish.path.as_path();
    let unusable = |reason: String, remedy: String| {
        spec.unusable(format!("its last resort, file:{}: {reason}", path.display()), remedy)
    };
    let wanted_bytes = match wish.size {
        Some(size) => size.bytes(),
        None => device_bytes(path).unwrap_or(u64::from(usual_extents) * EXTENT_BYTES + PROBE_BYTES),
    };
    // Of a device named without a size the page for probes is a part.
    let spare_bytes = if wish.size.is_some() { 0 } else { PROBE_BYTES };
    let extents = wanted_bytes.saturating_sub(spare_bytes) / EXTENT_BYTES;
    let capacity = u32::try_from(extents).unwrap_or(u32::MAX).min((u32::MAX - 1) / EXTENT_SLOTS);
    if capacity < least_extents {
        let least = (u64::from(least_extents) * EXTENT_BYTES) >> 20;
        let remedy = format!("give it more: spill-size=SIZE, {least}M or more, or a larger device");
        let reason = match capacity {
            0 => "it holds no extent of 2M".to_owned(),
            some => format!("it holds {some} extents of 2M, and what is coded needs {least_extents}"),
        };
        return Err(unusable(reason, remedy));
    }
    let bytes = u64::from(capacity) * EXTENT_BYTES + PROBE_BYTES;
    let file = StoreSpec::File { path: wish.path.clone(), size: Size::from_bytes(bytes) };
    let made = crate::file::prepare(&file, path, Size::from_bytes(bytes));
    let fd = match made {
        Ok(SharedParts { fd: Some(fd), .. }) => fd,
        Ok(_) => return Err(unusable("it could not be opened".to_owned(), "try again".to_owned())),
        Err(StoreError::Unusable { reason, remedy, .. }) => return Err(unusable(reason, remedy)),
        Err(other) => return Err(other),
    };
    if let Some(free_bytes) = free_bytes(&fd).filter(|free_bytes| *free_bytes < bytes) {
        let sizes = [free_bytes, bytes].map(|bytes| bytes >> 20);
        return Err(unusable(
            format!("its file system has {} MiB free, and it may need {} MiB", sizes[0], sizes[1]),
            format!("make room there, or let it hold less: spill-size={}M", (sizes[0] / 2).max(2)),
        ));
    }
    Ok((NewDonor { capacity, domain: SPILL_DOMAIN, text: "the last resort".to_owned() }, fd))
}

/// Bytes of a block device; `None` where there is none that can be looked at.
fn device_bytes(path: &Path) -> Option<u64> {
    let kind = stat(path).map(|status| FileType::from_raw_mode(status.st_mode)).ok()?;
    if kind != FileType::BlockDevice {
        return None;
    }
    let device = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    seek(&device, SeekFrom::End(0)).ok()
}

/// Bytes that are free for a file; `None` where it is none but a device.
fn free_bytes(fd: impl AsFd) -> Option<u64> {
    let status = fstat(&fd).ok()?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return None;
    }
    let system = fstatvfs(&fd).ok()?;
    Some(system.f_bavail * system.f_frsize)
}

impl LastResort {
    /// Opens it in one process. `extents` as it was prepared with.
    pub(super) fn open(
        spec: &StoreSpec,
        wish: &Spill,
        (donor, extents): (usize, u32),
        fd: Option<OwnedFd>,
    ) -> Result<Self, StoreError> {
        let capacity_slots = extents * EXTENT_SLOTS + 1;
        let size = Size::from_bytes(u64::from(capacity_slots) * PAGE_SIZE as u64);
        let file = StoreSpec::File { path: wish.path.clone(), size };
        if fd.is_none() {
            return Err(spec.unusable("its last resort did not arrive", "start the run anew"));
        }
        let parts = SharedParts { capacity_slots, fd, held: Vec::new(), spill: None, notice: None };
        let store = crate::file::open(&file, parts)?;
        Ok(Self { donor, path: wish.path.display().to_string(), store, unread: Mutex::default() })
    }

    /// The slot that nobody keeps a page in.
    pub(super) fn probe_slot(&self) -> u32 {
        self.store.capacity_slots() - 1
    }

    /// Notes why pages could not be read there, if some could not.
    pub(super) fn note_read<'a>(&self, outcomes: impl Iterator<Item = &'a Result<(), StoreError>>) {
        let Some(error) = outcomes.filter_map(|outcome| outcome.as_ref().err()).next() else { return };
        let reason = match error {
            StoreError::Io { reason, .. } => reason.clone(),
            other => other.to_string(),
        };
        *self.unread.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// That it did not give a page, and why, for a message.
    pub(super) fn refused(&self) -> String {
        let unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let reason = if unread.is_empty() { "it is not what was written".to_owned() } else { unread };
        format!("its last resort, file:{}, does not give it ({reason}): check that disk", self.path)
    }

    /// What a failed write there is to who wrote to the pool.
    pub(super) fn failure(&self, pool: &str, error: StoreError) -> StoreError {
        match error {
            StoreError::Full { .. } => StoreError::Full { store: pool.to_owned() },
            StoreError::Io { reason, .. } => StoreError::Io {
                store: pool.to_owned(),
                reason: format!("its last resort, file:{}: {reason}", self.path),
            },
            other => other,
        }
    }
}
