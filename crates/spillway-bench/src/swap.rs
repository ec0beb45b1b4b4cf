//! Linux swap devices for the time of a measurement: a loop device on a file in tmpfs, zram, and the kernel's
//! nbd.

use std::cell::Cell;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::{BenchError, complain};

const REMEDY: &str = "run it as root, with util-linux installed and loop and zram in the kernel";
const NBD_REMEDY: &str = "run it as root, with nbd in the kernel (modprobe nbd) and nbd-client installed";
const NBD_CLIENT: &str = "nbd-client";
/// Devices that are looked at.
const MOST_NBD: u32 = 16;
const PAGE_CLUSTER: &str = "/proc/sys/vm/page-cluster";

/// What the swap device is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A RAM disk: a loop device on tmpfs.
    RamDisk,
    /// Compressed memory of this machine (zram), as Linux compresses it by default: LZO-RLE, where the kernel
    /// has it.
    Zram,
    /// The same with zstd, where the kernel has it: [`zram_knows`].
    ZramZstd,
}

impl Kind {
    /// The name that zram has for how it compresses.
    fn algorithm(self) -> &'static str {
        if self == Self::ZramZstd { ZSTD } else { "lzo-rle" }
    }
}

/// zstd's name in zram's lists.
pub const ZSTD: &str = "zstd";

/// A swap device in use. Everything that was set up is taken down when it is dropped.
pub struct SwapDevice {
    device: String,
    parts: Parts,
    active: bool,
}

enum Parts {
    RamDisk { directory: TempDir, mounted: bool },
    Zram { number: u32 },
    Nbd,
}

/// Runs a command and returns what it printed. It is in a process group of its own: Ctrl-C on the terminal,
/// and a second one while everything is taken down, is for us alone.
fn command(program: &str, arguments: &[&str]) -> Result<String, BenchError> {
    let what = format!("run '{program} {}'", arguments.join(" "));
    let output = Command::new(program)
        .args(arguments)
        .process_group(0)
        .output()
        .map_err(|error| BenchError::setup(what.clone(), error, REMEDY))?;
    if !output.status.success() {
        return Err(BenchError::setup(what, String::from_utf8_lossy(&output.stderr).trim(), REMEDY));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn write(path: impl AsRef<Path>, text: &str) -> Result<(), BenchError> {
    let path = path.as_ref();
    fs::write(path, text)
        .map_err(|error| BenchError::setup(format!("write '{text}' to {}", path.display()), error, REMEDY))
}

impl SwapDevice {
    /// Makes a device of `bytes` and swaps to it before any other.
    pub fn new(kind: Kind, bytes: u64) -> Result<Self, BenchError> {
        let device = match kind {
            Kind::RamDisk => Self::ram_disk(bytes)?,
            Kind::Zram | Kind::ZramZstd => Self::zram(kind, bytes)?,
        };
        device.swap_on()
    }

    /// Makes a device of a server's export, by the kernel's nbd, and swaps to it before any other. The server
    /// is at `HOST:PORT`. Where it is on this machine, its memory is not to be short.
    ///
    /// # Errors
    /// There is no nbd here ([`nbd_lacks`]), or no such server.
    pub fn over_nbd(server: &str, export: &str) -> Result<Self, BenchError> {
        let lacks = |reason| BenchError::setup("make an nbd device", reason, NBD_REMEDY);
        let node = free_nbd().ok_or_else(|| lacks("none is free"))?;
        let (host, port) = server.rsplit_once(':').ok_or_else(|| lacks("the server has no port"))?;
        command(NBD_CLIENT, &["-swap", "-block-size", "4096", "-name", export, host, port, &node])?;
        Self { device: node, parts: Parts::Nbd, active: false }.swap_on()
    }

    fn swap_on(mut self) -> Result<Self, BenchError> {
        command("mkswap", &[&self.device])?;
        command("swapon", &["--priority", "32767", &self.device])?;
        self.active = true;
        Ok(self)
    }

    /// Memory that a zram device takes for what it holds; 0 of a RAM disk, which takes all of its own.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        let Parts::Zram { number } = self.parts else { return 0 };
        let stat = fs::read_to_string(format!("/sys/block/zram{number}/mm_stat")).unwrap_or_default();
        stat.split_whitespace().nth(2).and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
    }

    fn ram_disk(bytes: u64) -> Result<Self, BenchError> {
        let directory =
            TempDir::new().map_err(|error| BenchError::setup("make a directory", error, REMEDY))?;
        let mut parts = Parts::RamDisk { directory, mounted: false };
        let Parts::RamDisk { directory, mounted } = &mut parts else { unreachable!("just made") };
        let place = directory.path().display().to_string();
        mount_unswappable(&place, bytes + (16 << 20))?;
        *mounted = true;
        let file = directory.path().join("swap");
        let mut device = Self { device: String::new(), parts, active: false };
        // Written, so that swapping does not pay for the RAM disk's own first touch.
        write_zeros(&file, bytes)?;
        let file = file.display().to_string();
        // Without the page cache of the loop device where the kernel can: the faster way.
        device.device = command("losetup", &["--direct-io=on", "--find", "--show", &file])
            .or_else(|_| command("losetup", &["--find", "--show", &file]))?;
        Ok(device)
    }

    fn zram(kind: Kind, bytes: u64) -> Result<Self, BenchError> {
        let device = Self::new_zram()?;
        let Parts::Zram { number } = device.parts else { return Ok(device) };
        let known = format!("/sys/block/zram{number}/comp_algorithm");
        let has = is_listed(&fs::read_to_string(&known).unwrap_or_default(), kind.algorithm());
        if has || kind == Kind::ZramZstd {
            write(known, kind.algorithm())?;
        } else {
            complain("this kernel's zram knows no lzo-rle: it compresses as that kernel does by default");
        }
        write(format!("/sys/block/zram{number}/disksize"), &bytes.to_string())?;
        make_node(number)?;
        Ok(device)
    }

    /// A zram device with nothing set.
    fn new_zram() -> Result<Self, BenchError> {
        let number = fs::read_to_string("/sys/class/zram-control/hot_add")
            .map_err(|error| BenchError::setup("make a zram device", error, REMEDY))?;
        let number = number
            .trim()
            .parse()
            .map_err(|error| BenchError::setup("read the number of the zram device", error, REMEDY))?;
        Ok(Self { device: format!("/dev/zram{number}"), parts: Parts::Zram { number }, active: false })
    }
}

/// What this machine lacks to swap over nbd, if anything.
#[must_use]
pub fn nbd_lacks() -> Option<&'static str> {
    if !Path::new("/sys/block/nbd0").exists() {
        return Some("the kernel's module nbd ('modprobe nbd', where the kernel has it)");
    }
    command(NBD_CLIENT, &["-V"]).is_err().then_some("nbd-client")
}

/// The node of an nbd device that has no server.
fn free_nbd() -> Option<String> {
    let is_free = |number: &u32| {
        let device = PathBuf::from(format!("/sys/block/nbd{number}"));
        device.exists() && !device.join("pid").exists()
    };
    (0..MOST_NBD).find(is_free).map(|number| format!("/dev/nbd{number}"))
}

/// Whether this kernel's zram can compress so.
///
/// # Errors
/// There is no zram for us.
pub fn zram_knows(algorithm: &str) -> Result<bool, BenchError> {
    let device = SwapDevice::new_zram()?;
    let Parts::Zram { number } = device.parts else { return Ok(false) };
    let names = fs::read_to_string(format!("/sys/block/zram{number}/comp_algorithm")).unwrap_or_default();
    Ok(is_listed(&names, algorithm))
}

/// The kernel's list has the one that is set in brackets.
fn is_listed(names: &str, algorithm: &str) -> bool {
    names.split_whitespace().any(|name| name.trim_matches(['[', ']']) == algorithm)
}

/// Mounts a tmpfs that is never swapped out: the kernel would wait for ever for a swap device whose own pages
/// it has swapped out to it.
fn mount_unswappable(place: &str, bytes: u64) -> Result<(), BenchError> {
    let mount = |options: &str| command("mount", &["-t", "tmpfs", "-o", options, "spillway-bench", place]);
    let size = format!("size={bytes}");
    if mount(&format!("{size},noswap")).is_ok() {
        return Ok(());
    }
    mount(&size)?;
    complain(
        "this kernel's tmpfs knows no 'noswap' (Linux 6.4): the RAM disk may itself be swapped out when all \
         memory is short; keep memory free meanwhile",
    );
    Ok(())
}

/// The kernel's devtmpfs makes the node; where it is not mounted, mknod does.
fn make_node(number: u32) -> Result<(), BenchError> {
    let node = PathBuf::from(format!("/dev/zram{number}"));
    if node.exists() {
        return Ok(());
    }
    let numbers = fs::read_to_string(format!("/sys/block/zram{number}/dev"))
        .map_err(|error| BenchError::setup("read the zram device's numbers", error, REMEDY))?;
    let (major, minor) = numbers.trim().split_once(':').unwrap_or(("", ""));
    command("mknod", &[&node.display().to_string(), "b", major, minor]).map(|_| ())
}

fn write_zeros(path: &Path, bytes: u64) -> Result<(), BenchError> {
    use std::io::Write;
    let failed = |error| BenchError::setup(format!("write {}", path.display()), error, REMEDY);
    let mut file = fs::File::create(path).map_err(failed)?;
    let zeros = vec![0_u8; 1 << 20];
    for _ in 0..bytes.div_ceil(zeros.len() as u64) {
        file.write_all(&zeros).map_err(failed)?;
    }
    Ok(())
}

impl Drop for SwapDevice {
    fn drop(&mut self) {
        let mut left = Vec::new();
        let mut take_down = |program: &str, arguments: &[&str]| {
            left.extend(command(program, arguments).err());
        };
        if self.active {
            take_down("swapoff", &[&self.device]);
        }
        match &mut self.parts {
            Parts::RamDisk { directory, mounted } => {
                if !self.device.is_empty() {
                    take_down("losetup", &["--detach", &self.device]);
                }
                if *mounted {
                    take_down("umount", &[&directory.path().display().to_string()]);
                }
            }
            Parts::Nbd => take_down(NBD_CLIENT, &["-d", &self.device]),
            Parts::Zram { number } => {
                left.extend(write(format!("/sys/block/zram{number}/reset"), "1").err());
                left.extend(write("/sys/class/zram-control/hot_remove", &number.to_string()).err());
            }
        }
        left.iter().for_each(|error| complain(format_args!("left behind: {error}")));
    }
}

/// Sets how many pages (a power of two) the kernel swaps in at once, and sets back what was there when
/// dropped.
pub struct PageCluster {
    before: String,
    is_set: Cell<bool>,
}

impl PageCluster {
    /// Notes the setting of the machine.
    pub fn new() -> Result<Self, BenchError> {
        let before = fs::read_to_string(PAGE_CLUSTER)
            .map_err(|error| BenchError::setup(format!("read {PAGE_CLUSTER}"), error, REMEDY))?;
        Ok(Self { before, is_set: Cell::new(false) })
    }

    /// Swap in `2^cluster` pages at once.
    pub fn set(&self, cluster: u32) -> Result<(), BenchError> {
        write(PAGE_CLUSTER, &cluster.to_string())?;
        self.is_set.set(true);
        Ok(())
    }
}

impl Drop for PageCluster {
    fn drop(&mut self) {
        if self.is_set.get()
            && let Err(error) = write(PAGE_CLUSTER, self.before.trim())
        {
            complain(format_args!("left behind: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_algorithm_is_found_among_the_kernels_set_or_not() {
        let names = "lzo [lzo-rle] lz4 zstd\n";
        assert!(is_listed(names, "lzo-rle") && is_listed(names, ZSTD) && is_listed(names, "lzo"));
        assert!(!is_listed(names, "lz") && !is_listed("", ZSTD));
    }
}
