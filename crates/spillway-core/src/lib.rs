//! What the pager, the policies and the lab have in common: pages, the page-state machine, queues and
//! the state that the processes of one run share. No I/O, no clock, no `unsafe`.

pub mod page;
pub mod size;
