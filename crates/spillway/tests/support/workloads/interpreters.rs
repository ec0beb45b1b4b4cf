//! Programs with heaps and collectors of their own.

use super::{Scale, Workload};
use crate::support::launch::Launch;
use crate::support::tools::{java_class, python, source, tool};

/// Large arrays of numbers in Python.
pub const NUMPY: Workload = Workload { name: "numpy", run: numpy };
/// Processes that are forked and share what was there.
pub const MULTIPROCESSING: Workload = Workload { name: "multiprocessing", run: multiprocessing };
/// A heap that moves.
pub const JVM: Workload = Workload { name: "java", run: jvm };
/// A heap that moves, and buffers outside it.
pub const NODE: Workload = Workload { name: "node", run: node };
/// A collector that stops threads by a signal and looks at where the signal found them.
pub const SBCL: Workload = Workload { name: "sbcl", run: sbcl };
/// One that looks from where the signal's handler runs (Boehm's).
pub const GUILE: Workload = Workload { name: "guile", run: guile };

fn numpy(launch: &Launch, scale: Scale) -> String {
    let has_numpy = std::process::Command::new(python()).args(["-c", "import numpy"]).output().unwrap();
    assert!(has_numpy.status.success(), "numpy is missing; install it: apt-get install python3-numpy");
    let mut command = launch.command(python());
    command.env("OPENBLAS_NUM_THREADS", "2");
    launch.run(command.arg(source("arrays.py")).arg(scale.pick("2000000", "8000000"))).success()
}

fn multiprocessing(launch: &Launch, scale: Scale) -> String {
    let mut command = launch.command(python());
    launch.run(command.arg(source("pool.py")).arg(scale.pick("30000", "200000"))).success()
}

fn jvm(launch: &Launch, scale: Scale) -> String {
    let java = java_class("Heap", launch.work());
    let mut command = launch.command(java);
    command.args([scale.pick("-Xmx128m", "-Xmx384m"), "-XX:-UsePerfData", "-cp"]).arg(launch.work());
    launch.run(command.args(["Heap", scale.pick("60", "200")])).success()
}

fn node(launch: &Launch, scale: Scale) -> String {
    let mut command = launch.command(tool("node", "nodejs"));
    command.arg("--max-old-space-size=2048").arg(source("heap.js"));
    launch.run(command.arg(scale.pick("60", "200"))).success()
}

fn sbcl(launch: &Launch, scale: Scale) -> String {
    let mut command = launch.command(tool("sbcl", "sbcl"));
    command.arg("--script").arg(source("heap.lisp"));
    launch.run(command.arg(scale.pick("40", "200"))).success()
}

fn guile(launch: &Launch, scale: Scale) -> String {
    let mut command = launch.command(tool("guile", "guile-3.0"));
    command.arg("--no-auto-compile").arg(source("heap.scm"));
    launch.run(command.arg(scale.pick("40", "200"))).success()
}
