//! A hub and spaces around it, each a network namespace, with links that can be made bad.
//!
//! The namespaces have no names: they live as long as a descriptor, a thread or a process of theirs. So
//! nothing is left of them, or of what was made in them, however the test ends.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::panic::resume_unwind;
use std::process::{Command, Stdio};

use rustix::process::geteuid;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::support::child::{PATIENCE, until};
use crate::support::tools::tool;

/// Where everybody finds the hub.
pub const HUB: &str = "10.77.0.1";

/// The address of a space.
pub fn host(number: usize) -> String {
    format!("10.77.0.{}", 10 + number)
}

/// What passes a link. Classic BPF, which says a packet's fate: 2 to drop it, -1 to let it pass. Many kernels
/// have it (`cls_bpf`) that have no module for bad networks (`sch_netem`).
const NOTHING_PASSES: &str = "1,6 0 0 2";

/// A random number is loaded (the word at 0xfffff038); above the limit a packet passes.
fn all_but(percent: u32) -> String {
    let limit = u32::MAX / 100 * percent;
    format!("4,32 0 0 4294963256,37 1 0 {limit},6 0 0 2,6 0 0 4294967295")
}

/// What goes from a space, or comes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What it is sent.
    In,
    /// What it sends to others.
    Out,
}

impl Direction {
    fn hook(self) -> &'static str {
        match self {
            Self::In => "ingress",
            Self::Out => "egress",
        }
    }
}

/// A network namespace of its own.
pub struct Space(File);

impl Space {
    fn new() -> Self {
        assert!(geteuid().is_root(), "only root makes network namespaces: run this test as root");
        let mut command = Command::new(tool("unshare", "util-linux"));
        command.args(["--net", "sleep", "60"]).stdin(Stdio::null());
        let mut holder = command.spawn().unwrap();
        let path = format!("/proc/{}/ns/net", holder.id());
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let space = until(PATIENCE, "a network namespace", || {
            let ended = holder.try_wait().unwrap();
            assert!(ended.is_none(), "this kernel, or this container, makes no network namespace: {ended:?}");
            std::fs::read_link(&path).ok().filter(|name| *name != own)?;
            File::open(&path).ok()
        });
        let _ = holder.kill();
        let _ = holder.wait();
        Self(space)
    }

    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Does something in the namespace. Processes and threads that it starts are there too.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let entered = || {
            move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        };
        std::thread::scope(|scope| scope.spawn(entered).join().unwrap_or_else(|panic| resume_unwind(panic)))
    }

    /// Has `ip` or `tc` follow these lines there.
    fn set_up(&self, program: &str, lines: &[String]) {
        let program = tool(program, "iproute2");
        let output = self.within(|| {
            let mut command = Command::new(&program);
            command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            child.stdin.take().unwrap().write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
            child.wait_with_output().unwrap()
        });
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {lines:?}: {complaint}", program.display());
    }
}

/// A hub, and spaces that reach it and each other by it.
pub struct Network {
    hub: Space,
    spaces: Vec<Space>,
}

impl Network {
    /// With so many spaces.
    pub fn new(count: usize) -> Self {
        let hub = Space::new();
        let lines = [
            "link set lo up".to_owned(),
            "link add hub type bridge".to_owned(),
            format!("address add {HUB}/24 dev hub"),
            "link set hub up".to_owned(),
        ];
        hub.set_up("ip", &lines);
        let mut network = Self { hub, spaces: Vec::new() };
        (0..count).for_each(|number| network.add(number));
        network
    }

    fn add(&mut self, number: usize) {
        let space = Space::new();
        let link = format!("space{number}");
        let lines = [
            format!("link add {link} type veth peer name way netns {}", space.path()),
            format!("link set {link} master hub up"),
        ];
        self.hub.set_up("ip", &lines);
        let lines = [
            "link set lo up".to_owned(),
            format!("address add {}/24 dev way", host(number)),
            "link set way up".to_owned(),
        ];
        space.set_up("ip", &lines);
        space.set_up("tc", &["qdisc add dev way clsact".to_owned()]);
        self.spaces.push(space);
    }

    /// Does something in the hub.
    pub fn within<T: Send>(&self, work: impl FnOnce(&Self) -> T + Send) -> T {
        self.hub.within(|| work(self))
    }

    pub fn space(&self, number: usize) -> &Space {
        &self.spaces[number]
    }

    fn filter(&self, number: usize, direction: Direction, program: &str) {
        let hook = direction.hook();
        let line = format!("filter add dev way {hook} prio 1 bpf direct-action bytecode '{program}'");
        self.spaces[number].set_up("tc", &[line]);
    }

    /// Nothing goes this way any more.
    pub fn cut(&self, number: usize, direction: Direction) {
        self.filter(number, direction, NOTHING_PASSES);
    }

    /// So many of a hundred packets are lost, either way.
    pub fn lose(&self, number: usize, percent: u32) {
        for direction in [Direction::In, Direction::Out] {
            self.filter(number, direction, &all_but(percent));
        }
    }

    /// The link is a good one again.
    pub fn heal(&self, number: usize) {
        let lines = [Direction::In, Direction::Out]
            .map(|direction| format!("filter del dev way {}", direction.hook()));
        self.spaces[number].set_up("tc", &lines);
    }
}
