//! What is alive on this machine, and how it is asked: one form of report, one way to a socket.
//!
//! - [`snapshot`]: what a run or a daemon says of itself, as versioned JSON (docs/reference/snapshot.md);
//! - [`histogram`]: latencies as a snapshot has them;
//! - [`heat`]: where a process's memory is and how much it is used;
//! - [`history`]: many looks in a file;
//! - [`past`]: what a run had counted before;
//! - [`request`]: what is asked on a socket, and what comes back;
//! - [`directory`]: where the sockets of runs and donors lie, whose they are, and what is left of dead ones;
//! - [`server`]: answers readers, however slow, many or hostile, in bounded room and time;
//! - [`sites`]: where a run's programs waited for pages;
//! - [`state_socket`]: a run's or a donor's socket;
//! - [`reader`]: finds what is alive, and asks it.
//!
//! Invariant: who is asked waits for nobody, and who asks waits for a bounded time.

pub mod directory;
pub mod heat;
pub mod histogram;
pub mod history;
pub mod past;
pub mod reader;
pub mod request;
pub mod server;
pub mod sites;
pub mod snapshot;
pub mod state_socket;
