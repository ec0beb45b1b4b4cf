//! A virtual machine: QEMU translates a Linux guest, whose memory is QEMU's anonymous memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::job::no_room;
use crate::BenchError;
use crate::rig::archive::Archive;
use crate::whole::conditions::Start;
use crate::whole::workload::{Measure, Site, Workload, cache_directory, installed};

const QEMU_REMEDY: &str = "install it: apt-get install qemu-system-x86";
const COMPILER_REMEDY: &str = "install it: apt-get install gcc libc6-dev";
const KERNEL_REMEDY: &str = "run scripts/install-bench-programs, which fetches it";
/// Where `scripts/install-bench-programs` puts Debian's kernel, under the user's cache directory.
const KERNEL: &str = "spillway/guest-kernel/vmlinuz";
const INIT: &str = include_str!("../../guest/init.c");

/// QEMU with a guest's kernel and first files.
#[derive(Default)]
pub(super) struct Guest {
    program: PathBuf,
    kernel: PathBuf,
    files: PathBuf,
    expected: String,
}

struct Size {
    memory_mib: u32,
    table_mib: u32,
    /// Changes of each page's worth of the table.
    changes: u32,
}

fn size(site: &Site<'_>) -> Size {
    site.pick(
        Size { memory_mib: 144, table_mib: 48, changes: 20 },
        Size { memory_mib: 1536, table_mib: 1280, changes: 80 },
    )
}

/// What the guest prints of its table.
fn result(console: &str) -> Option<&str> {
    console.lines().find(|line| line.starts_with("the table comes to ")).map(str::trim_end)
}

impl Guest {
    fn boot(&self, site: &Site<'_>, mut command: Command) -> Result<(f64, String), BenchError> {
        let Size { memory_mib, table_mib, changes } = size(site);
        command.args(["-accel", "tcg,tb-size=32", "-nodefaults", "-no-user-config", "-display", "none"]);
        command.args(["-no-reboot", "-serial", "stdio", "-smp", "1", "-m", &memory_mib.to_string()]);
        command.arg("-kernel").arg(&self.kernel).arg("-initrd").arg(&self.files).arg("-append");
        command.arg(format!(
            "console=ttyS0 panic=-1 quiet no_timer_check tsc=reliable nokaslr cryptomgr.notests \
             transparent_hugepage=never rootfstype=ramfs initcall_blacklist=load_system_certificate_list \
             table_mib={table_mib} changes={changes}"
        ));
        let begun = Instant::now();
        let console = site.output_of(&mut command)?;
        let seconds = begun.elapsed().as_secs_f64();
        let result = result(&console).ok_or_else(|| BenchError::Measured {
            command: self.name().to_owned(),
            reason: format!("its guest said at last: {}", console.lines().last().unwrap_or("nothing")),
        })?;
        Ok((seconds, result.to_owned()))
    }

    fn make_files(&self, site: &Site<'_>, directory: &Path) -> Result<(), BenchError> {
        let (source, init) = (directory.join("init.c"), directory.join("init"));
        fs::write(&source, INIT).map_err(no_room)?;
        let mut compile = Command::new(installed("cc", COMPILER_REMEDY)?);
        site.output_of(compile.args(["-O2", "-static", "-o"]).arg(&init).arg(&source))?;
        let mut archive = Archive::default();
        archive.add("init", &fs::read(&init).map_err(no_room)?);
        fs::write(&self.files, archive.bytes()).map_err(no_room)
    }
}

impl Workload for Guest {
    fn name(&self) -> &'static str {
        "guest"
    }

    fn about(&self, site: &Site<'_>) -> String {
        let Size { memory_mib, table_mib, changes } = size(site);
        format!(
            "QEMU translates (TCG) a guest of {memory_mib} MiB that boots Debian's kernel, fills a table of \
             {table_mib} MiB, changes {changes} words of each page's worth in a drawn order, and sums it up"
        )
    }

    fn measure(&self) -> Measure {
        Measure::Seconds
    }

    fn prepare(&mut self, site: &Site<'_>) -> Result<(), BenchError> {
        self.program = installed("qemu-system-x86_64", QEMU_REMEDY)?;
        self.kernel = cache_directory()?.join(KERNEL);
        if !self.kernel.is_file() {
            let reason = format!("{} is not there", self.kernel.display());
            return Err(BenchError::setup("find a kernel for a guest", reason, KERNEL_REMEDY));
        }
        let directory = site.scratch().join("guest");
        fs::create_dir_all(&directory).map_err(no_room)?;
        self.files = directory.join("initial-files");
        self.make_files(site, &directory)?;
        self.expected = self.boot(site, Command::new(&self.program))?.1;
        Ok(())
    }

    fn run(&self, site: &Site<'_>, start: &Start<'_>) -> Result<f64, BenchError> {
        let (seconds, result) = self.boot(site, start.command(&self.program))?;
        if result == self.expected {
            return Ok(seconds);
        }
        let reason = format!("'{result}', not '{}'", self.expected);
        Err(BenchError::Wrong { command: self.name().to_owned(), reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_is_found_among_what_the_kernel_says() {
        let console =
            "[    0.1] Linux\r\nthe table comes to 00ab after 7 changes\r\n[ 2.0] reboot: Power down\r\n";
        assert_eq!(result(console), Some("the table comes to 00ab after 7 changes"));
        assert_eq!(result("[    0.1] Linux\n"), None);
    }
}
