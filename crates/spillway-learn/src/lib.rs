//! Learning: agents that choose an action for a context by what came of earlier choices, and a search for
//! settings that are costly to try.
//!
//! - [`outcomes`]: what came of each action in each context, and how good a choice is by that
//! - [`network`]: a network of dense layers, its gradient and its optimiser
//! - [`dqn`]: INDIGO's agent, a deep Q-network that looks no step ahead
//! - [`linear`]: a linear model for each action, with bounds of confidence (LinUCB), which may be enough
//! - [`search`]: Bayesian search
//!
//! None of it knows where outcomes come from, reads a clock or starts a thread. One seed gives the same bits
//! on every machine: sums are made in a fixed order and with plain single-precision arithmetic, where a
//! library's matrix product would choose by the processor. The network is small enough for that: an update
//! takes some tens of microseconds.

pub mod dqn;
pub mod linear;
pub mod network;
pub mod outcomes;
pub mod search;
