//! `file:` on a file system that runs out of space. Mounts a small tmpfs, so it needs root.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use spillway_store::StoreError;
use spillway_store::testing::{expect_pages, fill, open_store, pages, write};

/// A tmpfs of 1 MiB, unmounted when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Self {
        let place = tempfile::tempdir().unwrap();
        mount("spillway-test", place.path(), "tmpfs", MountFlags::empty(), c"size=1m,mode=700")
            .expect("a tmpfs, which takes root to mount");
        Self(place)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        unmount(self.0.path(), UnmountFlags::DETACH).unwrap();
    }
}

#[test]
fn a_full_disk_is_a_full_store_that_keeps_what_it_has() {
    let disk = SmallDisk::mount();
    let uri = format!("file:{}/far?size=8M", disk.path().display());
    let (_parts, store) = open_store(&uri);
    let mut lane = store.open_lane().unwrap();
    let slots: Vec<u32> = (0..2048).collect();
    let data = pages(2048, 1);

    let taken = fill(&mut *lane, &slots, &data);
    assert!((200..=256).contains(&taken), "{taken} pages on 1 MiB");
    expect_pages(&mut *lane, &slots[..taken], &data);

    // Of a run of neighbours, those with room already are written, and the others tell.
    let around = &slots[taken - 4..taken + 4];
    let newer = pages(8, 2);
    let outcomes = write(&mut *lane, around, &newer);
    assert!(outcomes[..4].iter().all(Result::is_ok), "{outcomes:?}");
    let full = Err(StoreError::Full { store: uri });
    assert!(outcomes[4..].iter().all(|outcome| *outcome == full), "{outcomes:?}");
    expect_pages(&mut *lane, &around[..4], &newer);
    expect_pages(&mut *lane, &slots[..taken - 4], &data);

    // Discarding makes room.
    lane.discard(&slots[..100]);
    assert_eq!(fill(&mut *lane, &slots[1000..1100], &data[1000..1100]), 100);
    expect_pages(&mut *lane, &slots[1000..1100], &data[1000..1100]);
    expect_pages(&mut *lane, &slots[100..taken - 4], &data[100..]);
}

#[test]
fn a_disk_without_any_room_is_refused() {
    let disk = SmallDisk::mount();
    let filler = std::fs::File::create(disk.path().join("filler")).unwrap();
    rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), 0, 1 << 20).unwrap();
    let spec: spillway_store::StoreSpec = format!("file:{}?size=8M", disk.path().display()).parse().unwrap();
    let error = spec.prepare("test").unwrap_err().to_string();
    assert!(error.contains("make room there"), "{error}");
}
