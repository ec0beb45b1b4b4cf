//! Markers in managed processes: threads that take hot far pages out of their places and tell of the next
//! access ([`spillway_marker`]). They call the daemon; each has a connection, and each page that it is told
//! of comes back in one report.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::io::{Errno, Result};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags,
    accept_with, bind, listen, recvmsg, send,
};
use serde::{Deserialize, Serialize};
use spillway_marker::call::packet_socket;
use spillway_marker::wire::{self, Hello, Outcome, Report};
use spillway_sys::uffd::Uffd;

/// Programs whose call has not been answered yet, at most.
const MOST_WAITING: i32 = 128;
/// Packets that are read of one marker in a turn.
const MOST_PACKETS: usize = 64;

/// How marked pages come to fast memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Migration {
    /// On demand where it can be had, in batches elsewhere.
    Auto,
    /// On demand: a marked page is taken out of its place, and migrated when its next access stops at it.
    OnDemand,
    /// In batches: scans find which marked pages were accessed, and all of them move together.
    #[default]
    Batches,
}

impl std::str::FromStr for Migration {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "on-demand" => Ok(Self::OnDemand),
            "batches" => Ok(Self::Batches),
            _ => Err(format!("'{text}' is no way to migrate; take auto, on-demand or batches")),
        }
    }
}

/// What markers did, in pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MarkerCounts {
    /// Markers were told of.
    pub marked: u64,
    /// Accessed while marked: each a fault of the program's.
    pub accessed: u64,
    /// Given back without an access.
    pub returned: u64,
    /// Unmapped, moved or dropped by the program while they were marked.
    pub gone: u64,
    /// Not marked, by the marker's reason.
    pub refused: BTreeMap<Cow<'static, str>, u64>,
}

/// The way to a process's marker.
struct Link {
    socket: OwnedFd,
    /// Its userfaultfd, open for as long as the process may have memory that is held: without it the kernel
    /// gives zeros to threads that run on for a moment while the process ends.
    _uffd: Uffd,
    frames: Range<u64>,
    /// Pages that it is still to be told of.
    orders: VecDeque<u64>,
}

/// The daemon's end of all markers.
pub struct Markers {
    /// The build of which they must be.
    build: u64,
    listener: OwnedFd,
    name: String,
    poll: OwnedFd,
    /// Those that have not said hello.
    silent: Vec<(u32, OwnedFd)>,
    links: BTreeMap<u32, Link>,
    /// What they did so far.
    pub counts: MarkerCounts,
    /// Why one could not mark, if one could not.
    pub refused: Option<String>,
}

/// What a turn brought.
#[derive(Debug, Default)]
pub struct Told {
    /// Processes that have a marker now.
    pub begun: Vec<u32>,
    /// What became of pages, by process.
    pub reports: Vec<(u32, Report)>,
    /// Processes that have none any more.
    pub ended: Vec<u32>,
}

impl Markers {
    /// Listens for those of a build, by an abstract name that nobody else has.
    ///
    /// # Errors
    /// The kernel's: this process lacks a right that markers need, or the kernel what they do.
    pub fn open(build: u64) -> Result<Self> {
        Uffd::check_events()?;
        let listener = packet_socket()?;
        let mut random = [0_u8; 16];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let random: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("spillway-tier-{random}");
        bind(&listener, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        listen(&listener, MOST_WAITING)?;
        rustix::io::ioctl_fionbio(&listener, true)?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&poll, &listener, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(Self {
            build,
            listener,
            name,
            poll,
            silent: Vec::new(),
            links: BTreeMap::new(),
            counts: MarkerCounts::default(),
            refused: None,
        })
    }

    /// What a program that is to have a marker finds in [`wire::SOCKET_VARIABLE`].
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Can be read when a marker has something to say.
    #[must_use]
    pub fn ready(&self) -> BorrowedFd<'_> {
        self.poll.as_fd()
    }

    /// How many processes have one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// Whether no process has one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Addresses of a process that are its marker's.
    #[must_use]
    pub fn frames_of(&self, process: u32) -> Option<&Range<u64>> {
        self.links.get(&process).map(|link| &link.frames)
    }

    /// Tells a process's marker of a page.
    pub fn mark(&mut self, process: u32, address: u64) {
        if let Some(link) = self.links.get_mut(&process) {
            link.orders.push_back(address);
            self.counts.marked += 1;
        }
    }

    /// Reads what there is, and sends what is to be sent. Nothing here waits.
    pub fn turn(&mut self) -> Told {
        let mut told = Told::default();
        self.accept();
        for (process, socket) in std::mem::take(&mut self.silent) {
            self.greet(process, socket, &mut told);
        }
        for (&process, link) in &mut self.links {
            let alive = link.read(&mut |report| told.reports.push((process, report))) && link.send();
            if !alive {
                told.ended.push(process);
            }
        }
        told.ended.iter().for_each(|process| drop(self.links.remove(process)));
        told.reports.iter().for_each(|(_, report)| self.counts.count(report.outcome));
        told
    }

    /// Sends what is to be sent. One that is gone is told of at the next turn.
    pub fn send(&mut self) {
        for link in self.links.values_mut() {
            link.send();
        }
    }

    fn accept(&mut self) {
        while let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            let Ok(peer) = socket_peercred(&socket) else { continue };
            if self.silent.len() >= MOST_WAITING as usize {
                continue;
            }
            let _ = epoll::add(&self.poll, &socket, epoll::EventData::new_u64(1), epoll::EventFlags::IN);
            self.silent.push((peer.pid.as_raw_nonzero().get() as u32, socket));
        }
    }

    fn greet(&mut self, process: u32, socket: OwnedFd, told: &mut Told) {
        match hello(&socket) {
            Err(Errno::AGAIN) => self.silent.push((process, socket)),
            Ok((hello, _)) if hello.build != self.build => {
                self.refused = Some(format!("process {process}: it has the library of another build"));
            }
            Ok((Hello { frames, refused: None, .. }, Some(uffd))) => {
                // What executes another program comes anew: its memory is another.
                if self.links.remove(&process).is_some() {
                    told.ended.push(process);
                }
                let link = Link { socket, _uffd: uffd, frames, orders: VecDeque::new() };
                self.links.insert(process, link);
                told.begun.push(process);
            }
            Ok((Hello { refused: Some(reason), .. }, _)) => {
                self.refused = Some(format!("process {process}: {}", why(reason)));
            }
            Ok(_) | Err(_) => {}
        }
    }
}

/// Why there are no markers, in words.
#[must_use]
pub fn why(reason: Errno) -> String {
    match reason {
        Errno::PERM | Errno::ACCESS => "it has no CAP_SYS_PTRACE".to_owned(),
        Errno::INVAL | Errno::NOSYS => "the kernel has no UFFDIO_MOVE (Linux 6.8)".to_owned(),
        other => format!("userfaultfd: {other}"),
    }
}

/// What a marker's refusal is called in reports.
fn refusal(reason: Errno) -> Cow<'static, str> {
    Cow::Borrowed(match reason {
        Errno::PERM => "kernel_writes_there",
        Errno::INVAL => "not_private_and_anonymous",
        Errno::NODATA => "mapping_mostly_untouched",
        Errno::CANCELED => "first_touches_too_many",
        Errno::NOSPC => "as_many_as_can_be_are_marked",
        Errno::ALREADY => "marked_already",
        Errno::BUSY => "pinned_or_shared_since_a_fork",
        Errno::NOENT => "not_there",
        Errno::AGAIN => "address_space_changes",
        other => return Cow::Owned(format!("errno_{}", other.raw_os_error())),
    })
}

fn hello(socket: &OwnedFd) -> Result<(Hello, Option<Uffd>)> {
    let mut packet = [0; wire::MOST_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut packet)], &mut control, flags)?;
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let uffd = fds.flatten().last().map(Uffd::from);
    Ok((Hello::decode(&packet[..received.bytes]).ok_or(Errno::PROTO)?, uffd))
}

impl Link {
    /// Whether it goes on.
    fn read(&self, each: &mut dyn FnMut(Report)) -> bool {
        let mut packet = [0; wire::MOST_BYTES];
        for _ in 0..MOST_PACKETS {
            match rustix::net::recv(&self.socket, &mut packet[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return false,
                Ok((read, _)) => match wire::decode_reports(&packet[..read]) {
                    Some(reports) => reports.into_iter().for_each(&mut *each),
                    None => return false,
                },
                Err(Errno::AGAIN | Errno::INTR) => return true,
                Err(_) => return false,
            }
        }
        true
    }

    /// Whether it goes on. What does not fit waits for the next turn.
    fn send(&mut self) -> bool {
        while !self.orders.is_empty() {
            let count = self.orders.len().min(wire::MOST_ORDERS);
            let packet = wire::encode_orders(&self.orders.make_contiguous()[..count]);
            match send(&self.socket, &packet, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(_) => drop(self.orders.drain(..count)),
                Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => return true,
                Err(_) => return false,
            }
        }
        true
    }
}

impl MarkerCounts {
    fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Accessed => self.accessed += 1,
            Outcome::Returned => self.returned += 1,
            Outcome::Gone => self.gone += 1,
            Outcome::Refused(reason) => *self.refused.entry(refusal(reason)).or_default() += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::connect;

    use super::*;

    #[test]
    fn a_marker_of_another_build_is_not_taken_and_status_says_so() {
        let mut markers = Markers::open(1).expect("as root, on Linux 6.8 or later");
        let program = packet_socket().unwrap();
        connect(&program, &SocketAddrUnix::new_abstract_name(markers.name().as_bytes()).unwrap()).unwrap();
        let hello = Hello { build: 2, frames: 0..0, refused: None };
        send(&program, &hello.encode(), SendFlags::empty()).unwrap();
        assert!(markers.turn().begun.is_empty());
        let refused = markers.refused.unwrap();
        assert!(refused.contains("another build"), "{refused}");
    }
}
