//! A machine that has little memory, as a donor on it sees it.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::child::{PATIENCE, Running};
use crate::support::tools::c_program;

/// A control group with a limit on its memory: a small machine, as a donor sees it.
pub struct SmallMachine(PathBuf);

impl SmallMachine {
    /// One of this name, with so much memory.
    pub fn new(name: &str, mib: u64) -> Self {
        assert!(rustix::process::getuid().is_root(), "only root can make a cgroup: run the tests as root");
        let roots = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        let found = roots.into_iter().find_map(|(root, limit)| {
            let path = Path::new(root).join(format!("spillway-test-{name}-{}", std::process::id()));
            fs::create_dir(&path).ok()?;
            let machine = Self(path);
            fs::write(machine.0.join(limit), (mib << 20).to_string()).is_ok().then_some(machine)
        });
        found.expect("no control groups with limits on memory")
    }

    /// A process is on it from now on.
    pub fn take(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// A process that takes so much of its memory, until it is dropped.
    pub fn hog(&self, mib: u64) -> Running {
        let mut running = self.start_hog(mib);
        running.expect("holds");
        running
    }

    /// The same with more than it has: the kernel ends it.
    pub fn run_out(&self, mib: u64) {
        let finished = self.start_hog(mib).finish(PATIENCE);
        assert_eq!(finished.status.signal(), Some(9), "{finished:?}");
    }

    fn start_hog(&self, mib: u64) -> Running {
        let enter = "echo $$ > \"$1\" && exec \"$0\" \"$2\"";
        let mut command = Command::new("sh");
        command.args(["-c", enter]).arg(c_program("hog"));
        Running::start(command.arg(self.0.join("cgroup.procs")).arg(mib.to_string()))
    }
}

impl Drop for SmallMachine {
    fn drop(&mut self) {
        // Who is alive goes on outside; others may still be on their way out.
        let outside = self.0.with_file_name("cgroup.procs");
        let _ = (0..100).find(|_| {
            let inside = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
            inside.lines().for_each(|pid| drop(fs::write(&outside, pid)));
            std::thread::sleep(std::time::Duration::from_millis(20));
            fs::remove_dir(&self.0).is_ok()
        });
    }
}
