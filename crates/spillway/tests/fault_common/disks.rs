//! Disks that are too small, or fail. They take root.

use std::path::Path;
use std::process::Command;

use tempfile::{NamedTempFile, TempDir};

fn must(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}, which takes root: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A mounted file system of a few MiB, unmounted when dropped.
pub struct SmallDisk {
    place: TempDir,
    _image: Option<NamedTempFile>,
}

impl SmallDisk {
    /// In memory.
    pub fn tmpfs(mib: u64) -> Self {
        let place = tempfile::tempdir().unwrap();
        let options = format!("size={mib}m,mode=755");
        must(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "small"]).arg(place.path()));
        Self { place, _image: None }
    }

    /// On a disk, with ext4, which has O_DIRECT.
    pub fn ext4(mib: u64) -> Self {
        let (place, image) = (tempfile::tempdir().unwrap(), NamedTempFile::new().unwrap());
        image.as_file().set_len(mib << 20).unwrap();
        must(Command::new("mkfs.ext4").args(["-q", "-m", "0", "-O", "^has_journal"]).arg(image.path()));
        must(Command::new("mount").args(["-o", "loop"]).args([image.path(), place.path()]));
        Self { place, _image: Some(image) }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.place.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.place.path()).status();
    }
}

/// A block device that can be made to fail: a loop device whose file can be cut off. Detached when dropped.
pub struct FailingDevice {
    path: String,
    image: NamedTempFile,
}

impl FailingDevice {
    /// One of so many MiB.
    pub fn attach(mib: u64) -> Self {
        let image = NamedTempFile::new().unwrap();
        image.as_file().set_len(mib << 20).unwrap();
        let path = must(Command::new("losetup").args(["--find", "--show"]).arg(image.path()));
        Self { path, image }
    }

    /// Its path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// From now on everything beyond the first 4 KiB gives EIO: there is no such place any more. It takes two
    /// steps, between which the loop driver reads zeros there.
    pub fn fail(&self) {
        self.image.as_file().set_len(4096).unwrap();
        must(Command::new("losetup").args(["--set-capacity", &self.path]));
    }
}

impl Drop for FailingDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}
